"""Translates and scores every checkpoint of a run as it appears (T2T's t2t-translate-all and t2t-bleu in one).

The model is built once; the weights of each checkpoint are loaded into it in turn. Scores are kept: a sweep that is
stopped and started again continues with the missing checkpoints.
"""

import contextlib
import dataclasses
import hashlib
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_ext.config.decode import NOT_IN_THE_RESULT, DecodeHParams
from t2t_ext.config.training import TrainingSettings
from t2t_ext.data.corpora import text_lines
from t2t_ext.data.features.sources import FeatureSource
from t2t_ext.errors import UserError
from t2t_ext.evaluation.score_table import DIRECTIONS, PREPARED, ScoreRecord, ScoreTable, curves, digest
from t2t_ext.evaluation.scorer import Scorer, Translation
from t2t_ext.io import files, inputs, locks, stored
from t2t_ext.io.progress import Progress
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory
from t2t_ext.search.directions import direction_shares, shown_shares
from t2t_ext.training.records import parse, stopped_improving
from t2t_ext.translation.hypothesis import EMPTY_TRANSLATION, NO_TRANSLATION, Hypothesis

if TYPE_CHECKING:
    from t2t_ext.translation.translator import Translator

FOLDERS = ("checkpoints", "averaged", "best")
TRANSLATIONS_FOLDER = "translations"

_SECONDS_BETWEEN_LOOKS = 5.0
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """The text and the checkpoints of a sweep.

    Attributes:
      name: Name of the text, such as ``dev``; part of the name of the translations' folder.
      sources: The lines to translate, or sources of feature vectors.
      scorer: Scores the translations; it holds the references.
      decode_hparams: Settings of the search.
      checkpoints: Folder of the run whose checkpoints are used: ``checkpoints``, ``averaged`` or ``best``.
      wait_minutes: How long to wait for the next checkpoint of a run that is not over; 0: not at all.
      min_steps: Checkpoints with fewer steps are skipped.
      every_steps: Use only checkpoints whose step is a multiple of this, and the last one of a finished run; 0: all.
      parent: Parent of the translations' folder; None: ``RUN/translations``.
      last_only: Use only the newest existing checkpoint.
    """

    name: str
    sources: Sequence[str] | Sequence[FeatureSource]
    scorer: Scorer
    decode_hparams: DecodeHParams
    checkpoints: str = "checkpoints"
    wait_minutes: float = 0.0
    min_steps: int = 0
    every_steps: int = 0
    parent: pathlib.Path | None = None
    last_only: bool = False


class Sweep:
    """Translates and scores the checkpoints of a run.

    Attributes:
      table: The scores, stored in ``table.folder``.
      board_dir: Folder of the curves for TensorBoard.
      deleted: Steps of checkpoints that were deleted before they could be read.
      damaged: Steps of checkpoints that could not be read.
    """

    def __init__(self, run: RunDirectory, config: SweepConfig, say: Say = print) -> None:
        """Prepares a sweep; nothing is translated yet, and TensorFlow is not imported.

        Raises:
          UserError: There is nothing to translate, the folder cannot be made, its records are damaged, or another
            process is using it.
        """
        if not config.sources:
            raise UserError(f"{config.name} has no lines: there is nothing to translate.")
        self._run, self._config, self._say = run, config, say
        folder = folder_name(config.name, config.checkpoints, config.decode_hparams)
        self._folder = (config.parent or run.path / TRANSLATIONS_FOLDER) / folder
        with self._locked():
            self.table = ScoreTable(self._folder)
        self.board_dir = run.path / "tensorboard" / TRANSLATIONS_FOLDER / _board_name(folder, config.parent)
        self.deleted: list[int] = []
        self.damaged: list[int] = []
        self._translator: Translator | None = None
        self._said_waiting = False
        self._search = digest([*_searched(config.decode_hparams), list(map(_digestible, config.sources))])
        self._scoring = digest(config.scorer.settings())

    def run(self, progress: Progress | None = None) -> ScoreTable:
        """Translates and scores until all checkpoints are done and there is no further one to wait for.

        Raises:
          UserError: The run has no checkpoint, there are no references, the weights do not fit, memory or the disk is
            full, or another process is using the same folder.
        """
        with self._locked():
            self.table.reopen()
            return self._run_alone(progress)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        """Locks the folder against other processes; the lock is beside the folder, which may be renamed."""
        return locks.held(
            self._folder.with_name(f".{self._folder.name}.lock"),
            f"translates into {self._folder}",
            advice="Wait until it is done, or give this one a --translations_dir of its own.",
            make_directory=True,
        )

    def _run_alone(self, progress: Progress | None) -> ScoreTable:
        self._check_run()
        other = [record.step for record in self.table.records if record.search != self._search]
        if other:
            shown = ("steps " if len(other) > 1 else "step ") + ", ".join(map(str, other[:5]))
            kept = self.table.move_aside()
            self._say(
                f"{self.table.folder}: {shown}{', ...' * (len(other) > 5)} {'were' if len(other) > 1 else 'was'} "
                f"translated from another text or with another shortlist; the folder as it was is {kept.name} now"
            )
        self._score_anew()
        self._check_there_is_something()
        waited_since = time.monotonic()
        with curves(self.board_dir, self.table.records) as add_points:
            while True:
                is_over = not self._may_wait()  # checked first: a run writes its last checkpoint before it ends
                path = self._next()
                if path is None and (is_over or not self._wait(waited_since)):
                    break
                if path is not None:
                    record = self._translate(path, progress)
                    if record is not None:
                        add_points(record)
                    waited_since = time.monotonic()
        return self.table

    def _check_run(self) -> None:
        """Refuses a ``--translations_dir`` folder with translations of another run that still exists."""
        if self._config.parent is None:
            return
        here = str(self._run.path.resolve())
        others = {record.run for record in self.table.records} - {"", here}
        there = next((other for other in sorted(others) if pathlib.Path(other).is_dir()), "")
        if there:
            raise UserError(
                f"{self.table.folder} has the translations of the run {there}, not of {here}: give each run a "
                "--translations_dir of its own."
            )

    def _check_there_is_something(self) -> None:
        config = self._config
        if not self.table.records and not self._candidates() and not self._may_wait():
            wanted = "latest" if config.checkpoints == "checkpoints" else config.checkpoints
            checkpoints.resolve_checkpoint(self._run.path, wanted)
            raise UserError(
                f"No checkpoint in {self._run.path / config.checkpoints} has the steps that are asked for "
                f"(--min_steps={config.min_steps}, --every_steps={config.every_steps})."
            )

    def _score_anew(self) -> None:
        """Rescores kept translations if the references or the protocol have changed; this needs no checkpoint."""
        for record in self.table.records:
            path = self.table.folder / record.translations
            if record.scoring == self._scoring:
                continue
            texts = _read_lines(path)
            prepared = _read_lines(_prepared_path(path)) or texts
            if not len(texts) == len(prepared) == len(self._config.sources):
                there = record.step in map(_step, self._candidates())
                what = "is translated again" if there else "is forgotten, as its checkpoint is not there any more"
                self._say(f"{path} is missing or damaged: step {record.step} {what}")
                self.table.drop([record.step])
                continue
            rescored = self._scored(record, texts, prepared)
            self.table.add(rescored)
            self._say(f"step {record.step}: the translations are scored again: {self._shown(rescored)}")
        if self.table.records:
            self._write_table()

    def _candidates(self) -> list[pathlib.Path]:
        """Returns the existing checkpoints that the settings select, oldest first."""
        config = self._config
        found = checkpoints.list_checkpoints(self._run.path / config.checkpoints)
        if config.last_only:
            return [path for path in found[-1:] if _step(path) >= config.min_steps]
        last = found[-1:] if training_is_over(self._run.path) else []
        return [
            path
            for path in found
            if (step := _step(path)) >= config.min_steps
            and (not config.every_steps or step % config.every_steps == 0 or path in last)
        ]

    def _next(self) -> pathlib.Path | None:
        """Returns the oldest checkpoint that is still to be translated; None if there is none."""
        for path in self._candidates():
            step = _step(path)
            if step in self.damaged:
                continue
            record = self.table.get(step)
            if record is None:
                return path
            try:
                weights = _weights_digest(path)
            except UserError:
                continue  # its scores exist, so a missing or damaged checkpoint does not matter
            if record.weights != weights:
                self._say(f"step {step} has other weights than when it was translated; it is translated again")
                return path
        return None

    def _translate(self, path: pathlib.Path, progress: Progress | None) -> ScoreRecord | None:
        """Translates with a checkpoint and scores; returns None if the checkpoint is deleted or damaged."""
        step = _step(path)
        try:
            weights = _weights_digest(path)
            translator = self._load(path)
        except UserError as error:
            self._pass_over(path, error)
            return None
        started = time.monotonic()
        total = len(self._config.sources)
        with progress(path.name, total, "lines") if progress else contextlib.nullcontext() as update:
            found = translator.translate(self._config.sources, update)
        seconds = time.monotonic() - started
        best = [each[0] for each in found]
        name = f"{path.name}.txt"
        texts, prepared = self._write_translations(name, best, two_sided=translator.two_sided)
        record = ScoreRecord(
            step=step,
            checkpoint=path.name,
            weights=weights,
            search=self._search,
            scoring="",
            translations=name,
            lines=total,
            seconds=round(seconds, 3),
            run=str(self._run.path.resolve()),
            scores={},
            signatures={},
            directions=direction_shares(best) if translator.two_sided else {},
        )
        record = self._scored(record, texts, prepared)
        self.table.add(record)
        self._write_table()
        self._say(f"step {step}: {self._shown(record)} ({total:,} lines in {seconds:.1f} s)")
        self._warn_of_lines(step, translator)
        if record.directions:
            self._say(shown_shares(record.directions))
        return record

    def _pass_over(self, path: pathlib.Path, error: UserError) -> None:
        """Notes and says that a checkpoint is deleted or damaged; raises any other error about it."""
        if not path.is_dir():
            self.deleted.append(_step(path))
            self._say(
                f"{path.name} was deleted by the trainer before it was read; passed over (the trainer's "
                "--keep_checkpoint_max keeps more of them)"
            )
        elif isinstance(error, checkpoints.DamagedCheckpointError):
            self.damaged.append(_step(path))
            self._say(f"warning: {error.what} Passed over.")
        else:
            raise error

    def _write_translations(
        self, name: str, best: Sequence[Hypothesis], *, two_sided: bool
    ) -> tuple[list[str], list[str]]:
        """Writes translations, before the last text steps as well if they differ, and the directions that won.

        Returns:
          The lines of the texts, and those before the last text steps.
        """
        path = self.table.folder / name
        texts = [text_lines.one_line(each.text) for each in best]
        prepared = [text_lines.one_line(each.prepared) for each in best]
        _write_lines(path, texts)
        self.table.remove_companions(name)  # from an earlier translation
        if prepared != texts:
            _write_lines(_prepared_path(path), prepared)
        if two_sided:
            _write_lines(path.with_suffix(DIRECTIONS), [each.direction if each.length else "" for each in best])
        return texts, prepared

    def _warn_of_lines(self, step: int, translator: "Translator") -> None:
        """Says which lines were truncated, and which have no translation or an empty one."""
        for numbers, what in (
            (translator.truncated_line_numbers, f"truncated to {translator.describe_limits()}"),
            (translator.untranslated_line_numbers, NO_TRANSLATION),
            (translator.empty_line_numbers, EMPTY_TRANSLATION),
        ):
            if numbers:
                self._say(f"warning: step {step}: {what}: {text_lines.LineNumbers(numbers)}")

    def _load(self, path: pathlib.Path) -> "Translator":
        """Returns the translator with a checkpoint's weights; the first call builds it."""
        from t2t_ext.models.seq2seq import Seq2Seq
        from t2t_ext.translation.translator import Translator

        if self._translator is None:
            self._translator = Translator.load(self._run.path, path, self._config.decode_hparams)
        else:
            model = self._translator.model
            assert isinstance(model, Seq2Seq)  # a single run, not an ensemble
            model.assign(checkpoints.load_arrays(path, checkpoints.read_info(path).users_group), origin=path)
        return self._translator

    def _scored(self, record: ScoreRecord, texts: Sequence[str], prepared: Sequence[str]) -> ScoreRecord:
        found = self._config.scorer.scores(list(map(Translation, texts, prepared)))
        for doubt in self._config.scorer.doubts:
            self._say(f"warning: step {record.step}: {doubt}")
        return dataclasses.replace(
            record,
            scoring=self._scoring,
            scores={each.name: round(each.value, 4) for each in found},
            signatures={each.name: each.signature for each in found},
            confidence={each.name: round(each.confidence, 4) for each in found if each.confidence is not None},
        )

    def _shown(self, record: ScoreRecord) -> str:
        best = self.table.best()
        shown = ", ".join(
            f"{name} {value:.2f}" + (f" +-{record.confidence[name]:.2f}" if name in record.confidence else "")
            for name, value in record.scores.items()
        )
        is_best = best is not None and len(self.table.records) > 1 and best.step == record.step
        return shown + (", the best so far" if is_best else "")

    def _write_table(self) -> None:
        self.table.write_table()
        self.table.write_picture(f"{self._run.path.resolve().name}: {self._config.name}, {self._config.checkpoints}")

    def _may_wait(self) -> bool:
        waits = self._config.wait_minutes > 0 and not self._config.last_only
        return waits and not training_is_over(self._run.path)

    def _wait(self, since: float) -> bool:
        """Waits briefly for the next checkpoint; returns False once the waiting time is used up."""
        minutes, waited = self._config.wait_minutes, time.monotonic() - since
        if waited >= 60 * minutes:
            self._say(f"no new checkpoint in {minutes:g} minutes (--wait_minutes); the run is not over")
            return False
        if not self._said_waiting:
            self._said_waiting = True
            self._say(f"waiting for further checkpoints, for each up to {minutes:g} minutes")
        time.sleep(min(_SECONDS_BETWEEN_LOOKS, max(0.0, 60 * minutes - waited)))
        return True


def training_is_over(run_path: pathlib.Path) -> bool:
    """Returns whether a run has made all its steps or was stopped early, so that no checkpoint will follow."""
    run = RunDirectory.open(run_path)  # read anew each time: a resumed run may be given more steps
    known = {name: value for name, value in run.config.training.items() if name in TrainingSettings.names()}
    settings = TrainingSettings(**known)
    found = checkpoints.list_checkpoints(run_path)
    if found and _step(found[-1]) >= settings.train_steps:
        return True
    evaluations = []
    for line in _read_lines(run.metrics_path):
        with contextlib.suppress(stored.Damaged):  # a line that is being written
            record = parse(line)
            evaluations += [record] if record["kind"] == "eval" else []
    return stopped_improving(evaluations, settings) is not None


def folder_name(text: str, folder: str, hparams: DecodeHParams) -> str:
    """Returns the name of the translations' folder: text, checkpoints and search settings, similar to T2T's file names.

    ``folder``, the checkpoints' folder, is one of ``FOLDERS``. Search settings other than beam size and alpha appear as
    a digest if they are not the defaults.
    """
    name = "" if folder == "checkpoints" else f"{folder}."
    short = f"{hparams.alpha:g}"
    name += f"{text}.beam{hparams.beam_size}.alpha{short if float(short) == hparams.alpha else hparams.alpha}"
    usual = _search_settings(DecodeHParams(beam_size=hparams.beam_size, alpha=hparams.alpha))
    settings = _search_settings(hparams)
    return name if settings == usual else f"{name}.{digest(settings)[:6]}"


def _board_name(folder: str, parent: pathlib.Path | None) -> str:
    """Returns the name of a sweep's folder of curves; each parent folder of translations has its own."""
    return folder if parent is None else f"{folder}.{digest(str(parent.resolve()))[:6]}"


def _search_settings(hparams: DecodeHParams) -> dict[str, Any]:
    # Digests of these settings are part of folder names, so the class keeps the name that it had in the first folders.
    settings = {**hparams.to_dict(), "class": "t2t_ext.hyperparameters:DecodeHParams"}
    return {name: value for name, value in settings.items() if name not in NOT_IN_THE_RESULT}


def _searched(hparams: DecodeHParams) -> list[Any]:
    """Returns the search settings that affect translations, and the digest of the shortlist file if there is one."""
    settings = _search_settings(hparams)
    if not hparams.shortlist or not (path := inputs.on_disk(pathlib.Path(hparams.shortlist).expanduser())).is_file():
        return [settings]
    return [settings, files.sha256_of_file(path)]


def _digestible(source: str | FeatureSource) -> str | list[Any]:
    """Returns what represents a source in a digest: the line itself, or name, shape and SHA-256 of feature vectors."""
    if isinstance(source, str):
        return source
    rows = np.ascontiguousarray(source.rows)
    return [source.name, list(rows.shape), hashlib.sha256(rows.tobytes()).hexdigest()]


def _weights_digest(path: pathlib.Path) -> str:
    """Returns a digest of the weights of a checkpoint that are used for translation."""
    info = checkpoints.read_info(path)
    prefix = f"{info.users_group}."
    return digest({name: entry["sha256"] for name, entry in info.files.items() if name.startswith(prefix)})


def _step(path: pathlib.Path) -> int:
    """Returns the step of a checkpoint that ``list_checkpoints`` has found."""
    step = checkpoints.checkpoint_step(path)
    assert step is not None
    return step


def _prepared_path(path: pathlib.Path) -> pathlib.Path:
    return path.with_suffix(PREPARED)


def _write_lines(path: pathlib.Path, lines: Sequence[str]) -> None:
    files.write_bytes_atomically(path, "".join(f"{line}\n" for line in lines).encode("utf-8", errors="replace"))


def _read_lines(path: pathlib.Path) -> list[str]:
    """Returns the lines of a file, which end at LF only; an empty list if the file cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", errors="replace").split("\n")[:-1]
    except OSError:
        return []
