"""Stores the scores of a run's checkpoints as JSON lines, a table, a picture and curves for TensorBoard.

    FOLDER/scores.jsonl          one record per checkpoint, added once it is scored; source of the table and the curves
    FOLDER/scores.tsv            the same as a table
    FOLDER/scores.png            the same as curves
    FOLDER/model.ckpt-00000500.txt   the translations; .prepared.txt and .directions.txt if they add information

This module imports no TensorFlow.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from t2t_ext.errors import UserError, first_line
from t2t_ext.io import files, stored
from t2t_ext.io.stored import Count
from t2t_ext.reporting import figures
from t2t_ext.reporting.table import Table, columns

RECORDS_NAME, TABLE_NAME, PICTURE_NAME = "scores.jsonl", "scores.tsv", "scores.png"
PREPARED, DIRECTIONS = ".prepared.txt", ".directions.txt"  # suffixes of the files beside the .txt file


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreRecord:
    """The scores of a checkpoint.

    Attributes:
      step: The checkpoint's step.
      checkpoint: Its name.
      weights: Digest of the weights used for translation.
      search: Digest of the source text and the search settings.
      scoring: Digest of the references and the protocol.
      translations: Name of the translations' file in the folder.
      lines: Number of translated lines.
      seconds: Duration of the translation.
      scores: Name of each score -> its value.
      signatures: Name of each score -> its signature, which makes it comparable.
      confidence: Name of each score -> half the width of its 95 % confidence interval, if one was requested.
      directions: For a model that generates in two directions, the share of each: see ``t2t_ext.search.directions``.
      run: Path of the run; empty in records of earlier versions.
    """

    step: Count
    checkpoint: str
    weights: str
    search: str
    scoring: str
    translations: str
    lines: Count
    seconds: float
    scores: Mapping[str, float]
    signatures: Mapping[str, str]
    confidence: Mapping[str, float] = dataclasses.field(default_factory=dict)
    directions: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    run: str = ""


def goodness(record: ScoreRecord) -> float:
    """Returns the first score, or minus it if it is TER, the only score that is better when lower."""
    name, value = next(iter(record.scores.items()))
    return -value if name.rpartition(".")[2].startswith("TER") else value


class ScoreTable:
    """The records of a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Opens a folder, or creates it; a half-written last line is dropped.

        Raises:
          UserError: The folder cannot be made, or a record is damaged.
        """
        self.folder = folder
        self.reopen()

    def reopen(self) -> None:
        """Reads the folder again, since another process may have added records.

        Raises:
          UserError: The folder cannot be made, or a record is damaged.
        """
        folder = self.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"Cannot make the folder {folder}: {error.strerror}. Choose another one.") from error
        files.remove_leftovers(folder)
        self._path = folder / RECORDS_NAME
        self._by_step: dict[int, ScoreRecord] = {}
        content = self._path.read_bytes() if self._path.exists() else b""
        lines = content.splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                record = ScoreRecord(**stored.parse(line, ScoreRecord))
                if not record.scores:
                    raise ValueError("scores is empty")
            except ValueError as error:
                if number == len(lines) and not content.endswith(b"\n"):
                    self._write()
                    break
                raise UserError(
                    f"{self._path}, line {number} is damaged ({error}). Remove the line: its checkpoint is then scored "
                    "again, if it is still there."
                ) from error
            self._by_step[record.step] = record
        if content and not content.endswith(b"\n"):
            self._write()  # completes the last line, since records will be appended

    @property
    def records(self) -> list[ScoreRecord]:
        """The records, sorted by step."""
        return [self._by_step[step] for step in sorted(self._by_step)]

    def get(self, step: int) -> ScoreRecord | None:
        """Returns the record of a step, or None."""
        return self._by_step.get(step)

    def add(self, record: ScoreRecord) -> None:
        """Saves a record, replacing an older one with the same step; it is on disk when the call returns."""
        replaces = record.step in self._by_step
        self._by_step[record.step] = record
        if replaces:
            self._write()
        else:
            files.append_line(self._path, json.dumps(dataclasses.asdict(record), ensure_ascii=False))

    def drop(self, steps: Iterable[int]) -> None:
        """Removes the records of some steps and their translations."""
        names = [self._by_step.pop(step).translations for step in steps]
        self._write()  # first: a record without its translations would be damaged, if this is interrupted
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
            self.remove_companions(name)

    def remove_companions(self, translations: str) -> None:
        """Removes the files that accompany a translations file: prepared text and directions."""
        for ending in (PREPARED, DIRECTIONS):
            (self.folder / translations).with_suffix(ending).unlink(missing_ok=True)

    def move_aside(self) -> pathlib.Path:
        """Renames the folder and starts with an empty one; returns the renamed folder's path."""
        names = (f"{self.folder.name}.old{number or ''}" for number in itertools.chain([0], itertools.count(2)))
        new = next(path for path in map(self.folder.with_name, names) if not path.exists())
        self.folder.rename(new)
        self.reopen()
        return new

    def best(self) -> ScoreRecord | None:
        """Returns the record with the best first score, the earliest one if several are equal; None without records."""
        return max(self.records, key=goodness, default=None)

    def write_table(self) -> pathlib.Path:
        """Writes ``scores.tsv``; returns its path."""
        names = score_names(self.records)
        rows = [
            [r.step, *(f"{r.scores[n]:.2f}" if n in r.scores else None for n in names), r.lines, f"{r.seconds:.1f}",
             r.translations]
            for r in self.records
        ]  # fmt: skip
        path = self.folder / TABLE_NAME
        table = Table(columns("step", *names, "lines", "seconds", "translations"), rows)
        files.write_text_atomically(path, table.tsv())
        return path

    def write_picture(self, title: str) -> None:
        """Draws ``scores.png``, a plot of scores over steps."""
        names = score_names(self.records)
        with figures.new_figure(7, 4.5) as figure:
            axes = figure.subplots()
            for place, name in enumerate(names):
                points = [(r.step, r.scores[name]) for r in self.records if name in r.scores]
                line = {"color": figures.color(place), "marker": figures.marker(place), "markersize": 4}
                axes.plot(*zip(*points, strict=True), **line)
            axes.set(xlabel="step", ylabel="score")
            axes.set_title(title, fontsize=9)
            figures.plain(axes)
            figures.legend(figure, names, lines=True)
            files.write_bytes_atomically(self.folder / PICTURE_NAME, figures.saved(figure, "png"))

    def _write(self) -> None:
        lines = (json.dumps(dataclasses.asdict(record), ensure_ascii=False) + "\n" for record in self.records)
        files.write_text_atomically(self._path, "".join(lines))


@contextlib.contextmanager
def curves(directory: pathlib.Path, records: Iterable[ScoreRecord]) -> Iterator[Callable[[ScoreRecord], None]]:
    """Rewrites the TensorBoard curves in their own directory, so that they contain exactly the records.

    Yields:
      A function that adds the points of a record; it raises a UserError if they cannot be written.

    Raises:
      UserError: The directory cannot be made or written to.
    """
    import tensorflow as tf

    def unwritable(error: Exception, advice: str) -> UserError:
        return UserError(f"Cannot write the curves for TensorBoard in {directory}: {first_line(error)}. {advice}")

    try:
        for path in sorted(directory.glob("events.out.tfevents.*")):
            path.unlink(missing_ok=True)
        writer = tf.summary.create_file_writer(str(directory))
    except (OSError, tf.errors.OpError) as error:
        raise unwritable(
            error, "They are written into the run: make room there, or make its folder writable."
        ) from error

    def add(record: ScoreRecord) -> None:
        try:
            with writer.as_default(record.step):
                for name, value in record.scores.items():
                    tf.summary.scalar(name, value)
            writer.flush()
        except tf.errors.OpError as error:
            advice = "Make room, then run the same command again: what is scored stays scored."
            raise unwritable(error, advice) from error

    try:
        for record in records:
            add(record)
        yield add
    finally:
        writer.close()


def score_names(records: Iterable[ScoreRecord]) -> list[str]:
    """Returns the names of all scores in the order in which they first appear."""
    return list(dict.fromkeys(name for record in records for name in record.scores))


def digest(content: Any) -> str:
    """Returns the first 16 hexadecimal digits of a JSON value's SHA-256."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
