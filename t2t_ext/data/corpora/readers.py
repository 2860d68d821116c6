"""Reads lines and pairs of lines from plain, compressed and tab-separated files, byte-exact.

A line ends only at LF: U+2028, U+0085 and a CR inside a line are text. One CR directly before
the LF and a byte order mark at the beginning are removed and counted. A ``ReadReport`` counts
everything that was dropped or changed, and records where each kind occurred first.
"""

import codecs
import collections
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, Self

from t2t_ext.data.corpora import archives, raw_files
from t2t_ext.data.corpora.charsets import encoding_of_lines, not_in
from t2t_ext.data.corpora.places import Place, Places
from t2t_ext.errors import UserError
from t2t_ext.io import inputs

PathLike = str | os.PathLike
INVALID_UTF8 = "invalid_utf8"
WRONG_COLUMNS = "wrong_columns"
CARRIAGE_RETURNS = "carriage_returns"
BYTE_ORDER_MARK = "byte_order_mark"
LINE_FEEDS = "line_feeds"

_BLOCK_BYTES = 1 << 20
_HEAD_BYTES = 1 << 12
# In UTF-16 text with Latin letters, more than one byte in four is NUL, always the same byte of each character.
_UTF16_NULS = 4
_UTF16_BYTES = 16  # shorter files are not tested
_MOST_RETURNS = 4  # CRs allowed in a file of one line


@dataclasses.dataclass
class ReadReport:
    """Counts what was dropped or changed while a split was read.

    Attributes:
      strict: Whether an unusable line is an error (dev, test) instead of being dropped (train).
      drops: The number of dropped samples by reason.
      notes: The number of lines changed without loss, by kind of change.
      first: The place where each reason or change occurred first, as ``file:line``.
      explanations: The error at this first place, for reasons of drops.
      corpora: Weight, tag, pairs and occurrences by corpus name; see ``t2t_ext.data.corpora.weighting``.
      at: The file and line of the pair that a ``PairSource`` is yielding, if known.
      places: The places of the samples; see ``add_sample``.
      held_out: Whether lines were held out for another split.
    """

    strict: bool = False
    drops: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    notes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    first: dict[str, str] = dataclasses.field(default_factory=dict)
    explanations: dict[str, str] = dataclasses.field(default_factory=dict)
    corpora: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    at: Place | None = None
    places: Places = dataclasses.field(default_factory=Places)
    held_out: bool = False

    def add_sample(self) -> None:
        """Records that the pair that was read last becomes the next sample."""
        self.places.add(self.at)
        self.at = None

    def name_of(self, position: int) -> str:
        """Returns a name of a sample, numbered from 0: its file and line if known, otherwise ``pair 5`` or similar."""
        place = self.places.of(position)
        if place:
            return place
        some = self.held_out or self.drops or any(corpus["weight"] != 1 for corpus in self.corpora.values())
        return f"pair {position + 1:,}{' of those that remain' if some else ''}"

    def repetition(self, positions: tuple[int, int] | None) -> str:
        """Returns a text such as ``X repeats Y`` for the numbers of two samples; empty for None."""
        return " repeats ".join(map(self.name_of, positions)) if positions else ""

    def drop(self, reason: str, path: PathLike, line: int, explanation: str) -> None:
        """Counts an unusable line; raises a UserError if the report is strict. See ``drop_item``."""
        if self.strict:
            raise UserError(
                f"{path}, line {line}: {explanation}. Lines of dev and test sets are never dropped; correct it."
            )
        self.drop_item(reason, f"{path}:{line}", explanation)

    def drop_item(self, reason: str, item: str, explanation: str) -> None:
        """Counts a dropped sample.

        Args:
          reason: A short key such as ``"missing_features"``.
          item: The name or place of the sample.
          explanation: What is wrong with the sample; part of the error of a strict report.

        Raises:
          UserError: The report is strict.
        """
        if self.strict:
            raise UserError(f"{item}: {explanation}. Samples of dev and test sets are never dropped; correct it.")
        self.drops[reason] += 1
        self.first.setdefault(reason, item)
        self.explanations.setdefault(reason, explanation)

    def note(self, what: str, path: PathLike, line: int) -> None:
        """Counts a line that was changed without loss."""
        self.notes[what] += 1
        self.first.setdefault(what, f"{path}:{line}")


class PairSource(Protocol):
    """Files with sentences and their translations, in any format."""

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """All files that are read."""

    def count(self) -> int:
        """Returns the number of pairs, usable or not.

        Raises:
          UserError: A file cannot be read, or the two sides do not fit together.
        """

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields (source, target, further references...) for each usable pair.

        Args:
          report: The report that counts unusable pairs.
          wanted: Returns whether to read the pair with this number, from 1; by default, all pairs are read.

        Raises:
          UserError: A file cannot be read, or a line is unusable and the report is strict.
        """


@dataclasses.dataclass(frozen=True)
class PairFiles:
    """Two line-aligned files, or one tab-separated file.

    Attributes:
      source: Source sentences, one per line; without ``target``, lines of the form ``source TAB target``.
      target: Target sentences, one per line, or None.
      references: Further reference translations, one file each (development and test sets).
      advice: What else the user may have meant if the columns of a line are wrong, for messages.
      columns: For a tab-separated file, the numbers of the columns with source and target (and references), from 1. If
        empty, the file must have exactly two columns.
      encodings: The encodings that the files may have besides UTF-8; see ``charsets.encoding_of_lines``.
    """

    source: pathlib.Path
    target: pathlib.Path | None = None
    references: tuple[pathlib.Path, ...] = ()
    advice: str = ""
    columns: tuple[int, ...] = ()
    encodings: tuple[str, ...] = ()

    @classmethod
    def aligned(cls, sides: Iterable[pathlib.Path]) -> Self:
        """Returns a source of line-aligned files, given in the order source, target, further references."""
        source, target, *references = sides
        return cls(source, target, tuple(references))

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """All files on disk, the source first; for a member of an archive, the archive."""
        return tuple(dict.fromkeys(map(raw_files.on_disk, self.sides)))

    @property
    def sides(self) -> tuple[pathlib.Path, ...]:
        """The file of each side, which may be a member of an archive (``ARCHIVE:MEMBER``)."""
        return (self.source, *([self.target] if self.target else []), *self.references)

    def count(self) -> int:
        """Returns the number of lines, which must be the same in all files.

        Raises:
          UserError: The files have different numbers of lines; the message names the files and the numbers.
        """
        counts = {path: count_lines(path) for path in self.sides}
        if len(set(counts.values())) > 1:
            raise UserError(
                "These files should be translations line by line, but have different numbers of lines: "
                + ", ".join(f"{path}: {count}" for path, count in counts.items())
                + ". Find where they part; a line ends at LF only."
            )
        return counts[self.source]

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields (source, target, further references...) for each usable line; see ``PairSource.read``.

        Lines that cannot be decoded or that have a wrong number of columns are unusable.
        """
        columns = [read_lines(path, report, wanted) for path in self.sides]
        rows: Iterator[Sequence[bytes]] = zip(*columns, strict=True)
        encodings = [encoding_of_lines(path, self.encodings) if self.encodings else "utf-8" for path in self.sides]
        paths: Sequence[pathlib.Path] = self.sides
        if self.target is None:
            rows = (line.split(b"\t") for (line,) in rows)
            encodings, paths = encodings * (len(self.columns) or 2), [self.source] * (len(self.columns) or 2)
        for number in itertools.count(1):
            try:
                row = next(rows, None)
            except ValueError as error:  # zip: one of the files has more lines
                self.count()
                raise UserError(f"{self.source} or {self.target} changed while it was read.") from error
            if row is None:
                return
            if wanted and not wanted(number):
                continue
            if self.target is None:
                chosen = self._chosen_columns(row)
                if not chosen:
                    columns_wanted = f"columns {', '.join(map(str, self.columns))} are wanted"
                    expected = columns_wanted if self.columns else "source TAB target are 2"
                    explanation = f"{len(row)} tab-separated columns where {expected}{self.advice}"
                    report.drop(WRONG_COLUMNS, self.source, number, explanation)
                    continue
                row = chosen
            texts: list[str] = []
            for path, encoding, column in zip(paths, encodings, row, strict=True):
                try:
                    texts.append(column.decode(encoding))
                except UnicodeDecodeError:
                    report.drop(INVALID_UTF8, path, number, not_in(encoding))
                    break
            else:
                report.at = (self.source, number)
                yield tuple(texts)

    def _chosen_columns(self, row: Sequence[bytes]) -> Sequence[bytes]:
        """Returns the wanted columns of a tab-separated line; empty if the number of columns is wrong."""
        if not self.columns:
            return row if len(row) == 2 else ()
        return [row[column - 1] for column in self.columns] if len(row) >= max(self.columns) else ()


@dataclasses.dataclass(frozen=True)
class ChangedPairs:
    """A ``PairSource`` that changes each pair while it is read; subclasses define the change.

    Attributes:
      files: The source of the unchanged pairs.
    """

    files: PairSource

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """All files that are read."""
        return self.files.paths

    def count(self) -> int:
        """Returns the number of pairs."""
        return self.files.count()

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields the changed pairs."""
        return map(self.change, self.files.read(report, wanted))

    def change(self, pair: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the changed pair."""
        raise NotImplementedError


def read_lines(
    path: PathLike, report: ReadReport | None = None, counted: Callable[[int], bool] | None = None
) -> Iterator[bytes]:
    """Yields the lines of a plain or compressed file without their LF (or CR LF).

    Args:
      path: The file; its compression is recognized by its first bytes, not by its name.
      report: The report that counts removed carriage returns and byte order marks.
      counted: Returns whether to count these on the line with this number, from 1, so that a line of one split is not
        counted in another split too. By default, all lines count.

    Raises:
      UserError: The file cannot be read, is an archive (name the file in it, ``ARCHIVE:FILE``) or UTF-16 (with or
        without a byte order mark), or has damaged compressed data.
    """
    archives.require_member(path)
    with raw_files.opened(path) as file:
        yield from lines_of(file, path, report, counted)


def lines_of(
    file: Iterable[bytes],
    path: PathLike,
    report: ReadReport | None = None,
    counted: Callable[[int], bool] | None = None,
) -> Iterator[bytes]:
    """Yields the lines of an open file like ``read_lines``, but without decompression; messages name it ``path``."""
    peek = getattr(file, "peek", None)
    head = peek(_HEAD_BYTES) if peek else b""
    lines = iter(file)
    first = next(lines, b"")
    _refuse_utf16(path, head or first)
    if report and first.startswith(codecs.BOM_UTF8) and (counted is None or counted(1)):
        report.note(BYTE_ORDER_MARK, path, 1)
    beginning = [first.removeprefix(codecs.BOM_UTF8)] if first else []
    for number, line in enumerate(itertools.chain(beginning, lines), 1):
        if line.endswith(b"\r\n") and report and (counted is None or counted(number)):
            report.note(CARRIAGE_RETURNS, path, number)
        yield line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line


def count_lines(path: PathLike) -> int:
    """Returns the number of lines that ``read_lines`` would yield, but several times faster.

    Raises:
      UserError: As in ``read_lines``, or the lines end with CR only, as in some old text files.
    """
    archives.require_member(path)
    lines, returns, last = 0, 0, b"\n"
    with raw_files.opened(path) as file:
        _refuse_utf16(path, file.peek(_HEAD_BYTES))  # type: ignore[attr-defined]
        while block := file.read(_BLOCK_BYTES):
            returns += block.count(b"\r") if not lines else 0
            lines += block.count(b"\n")
            last = block[-1:]
    lines += last != b"\n"
    _refuse_returns_only(path, lines, returns)
    return lines


def refuse_returns_only(lines: Iterable[bytes], path: PathLike) -> Iterator[bytes]:
    """Yields lines of bytes; raises a UserError at the end if they are one whose parts end with CR only."""
    number, returns = 0, 0
    for number, line in enumerate(lines, 1):
        returns += line.count(b"\r") if number == 1 else 0
        yield line
    _refuse_returns_only(path, number, returns)


def _refuse_returns_only(path: PathLike, lines: int, returns: int) -> None:
    if lines == 1 and returns > _MOST_RETURNS:
        raise UserError(
            f"{path} is one line with {returns:,} carriage returns, but lines end at line feeds (LF). Convert it: "
            r"tr '\r' '\n' < FILE > NEW."
        )


def _refuse_utf16(path: PathLike, head: bytes) -> None:
    # A line feed has two bytes in UTF-16, so lines would be split inside characters.
    head = head[:_HEAD_BYTES]
    encoding = "UTF-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else ""
    even, odd = head[::2].count(0), head[1::2].count(0)
    if not encoding and len(head) >= _UTF16_BYTES and _UTF16_NULS * (even + odd) > len(head):
        # Without a byte order mark, such text is valid UTF-8 with many NULs.
        encoding = "UTF-16LE" if odd > 4 * even else "UTF-16BE" if even > 4 * odd else ""
    if encoding:
        raise UserError(f"{path} is UTF-16; lines are read as UTF-8. Convert it: iconv -f {encoding} -t UTF-8.")


def require_files(paths: Sequence[PathLike], advice: str) -> None:
    """Raises a UserError that lists the missing files; ``advice`` is a sentence that says what the user can do."""
    missing = [str(path) for path in paths if not inputs.is_file(path)]
    folders = [path for path in missing if os.path.isdir(path)]
    if folders and folders == missing:
        said = "are folders; name files" if len(folders) > 1 else "is a folder; name a file"
        raise UserError(f"{', '.join(folders)} {said}. {advice}")
    if missing:
        raise UserError(f"No such file: {', '.join(missing)}. {advice}")


def require_unpacked_files(paths: Sequence[PathLike], advice: str) -> None:
    """Raises a UserError as ``require_files`` does, and for archives, from which no file can be taken here."""
    for path in paths:
        archive, _ = archives.split_address(path)
        if archives.is_archive(archive) and inputs.is_file(archive):
            raise UserError(f"{archive} is an archive: unpack it, and name the file with the text. {advice}")
    require_files(paths, advice)
