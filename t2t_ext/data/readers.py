"""Reads lines and pairs of lines from plain, gzipped and tab-separated files, byte-exact.

A line ends at LF and nowhere else: U+2028, U+0085 and a CR inside a line are text. One CR
right before the LF is dropped and counted. What had to be dropped or was changed is counted
in a ``ReadReport``, together with the place where it happened first.
"""

import collections
import contextlib
import dataclasses
import gzip
import itertools
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Protocol

from t2t_ext.errors import UserError

PathLike = str | os.PathLike
INVALID_UTF8 = "invalid_utf8"
WRONG_COLUMNS = "wrong_columns"
CARRIAGE_RETURNS = "carriage_returns"

_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK_BYTES = 1 << 20


@dataclasses.dataclass
class ReadReport:
    """What reading dropped or changed.

    Attributes:
      strict: Whether a line that cannot be used is an error (dev, test) rather than dropped (train).
      drops: Number of dropped samples by reason.
      notes: Number of changed lines by what was done to them; nothing was lost.
      first: Where each reason occurred first, ``file:line``.
      explanations: What was wrong there, for reasons of drops.
    """

    strict: bool = False
    drops: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    notes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    first: dict[str, str] = dataclasses.field(default_factory=dict)
    explanations: dict[str, str] = dataclasses.field(default_factory=dict)

    def drop(self, reason: str, path: PathLike, line: int, explanation: str) -> None:
        """Counts a dropped sample.

        Args:
          reason: A short key such as ``"invalid_utf8"``.
          path: The file it stands in.
          line: Its line, from 1.
          explanation: What is wrong with it, for the error of a strict report.

        Raises:
          UserError: The report is strict.
        """
        if self.strict:
            raise UserError(
                f"{path}, line {line}: {explanation}. Lines of dev and test sets are never dropped; mend it."
            )
        self.drops[reason] += 1
        self.first.setdefault(reason, f"{path}:{line}")
        self.explanations.setdefault(reason, explanation)

    def note(self, what: str, path: PathLike, line: int) -> None:
        """Counts a line that was changed without loss."""
        self.notes[what] += 1
        self.first.setdefault(what, f"{path}:{line}")


class PairSource(Protocol):
    """Files that hold sentences and their translations, in whatever format."""

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """All the files."""

    def count(self) -> int:
        """Returns the number of pairs, usable or not.

        Raises:
          UserError: A file cannot be read, or the sides do not belong together.
        """

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields (source, target, further references...) of every pair; see ``read_pairs``."""


@dataclasses.dataclass(frozen=True)
class PairFiles:
    """Two line-aligned files, or one tab-separated file.

    Attributes:
      source: Source sentences, one a line; or ``source TAB target`` lines where there is no ``target``.
      target: Target sentences, one a line, or None.
      references: Further reference translations, one file each (dev and test sets).
      advice: What else the user may have meant where a line has not two columns, for messages.
    """

    source: pathlib.Path
    target: pathlib.Path | None = None
    references: tuple[pathlib.Path, ...] = ()
    advice: str = ""

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """All the files, the source first."""
        return (self.source, *([self.target] if self.target else []), *self.references)

    def count(self) -> int:
        """Returns how many lines the files have; see ``count_pairs``."""
        return count_pairs(self)

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields the columns of every line; see ``read_pairs``."""
        return read_pairs(self, report, wanted)


def read_lines(path: PathLike, report: ReadReport | None = None) -> Iterator[bytes]:
    """Yields the lines of a plain or gzipped file without their LF (or CR LF).

    Args:
      path: The file; gzip is recognised by its first bytes, whatever the name.
      report: Where dropped carriage returns are counted.

    Raises:
      UserError: The file cannot be read, or its gzip data are damaged.
    """
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\r\n"):
                if report:
                    report.note(CARRIAGE_RETURNS, path, number)
                yield line[:-2]
            elif line.endswith(b"\n"):
                yield line[:-1]
            else:
                yield line


def count_lines(path: PathLike) -> int:
    """Returns how many lines ``read_lines`` yields, several times faster."""
    lines, last = 0, b"\n"
    with _opened(path) as file:
        while block := file.read(_BLOCK_BYTES):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")


def count_pairs(files: PairFiles) -> int:
    """Returns how many lines the files have, which must be the same number.

    Raises:
      UserError: The files have different numbers of lines; the message names files and numbers.
    """
    counts = {path: count_lines(path) for path in files.paths}
    if len(set(counts.values())) > 1:
        raise UserError(
            "These files should be translations line by line, but have different numbers of lines: "
            + ", ".join(f"{path}: {count}" for path, count in counts.items())
            + ". Find where they part; a line ends at LF only."
        )
    return counts[files.source]


def read_pairs(
    files: PairFiles, report: ReadReport, wanted: Callable[[int], bool] | None = None
) -> Iterator[tuple[str, ...]]:
    """Yields (source, target, further references...) of every line.

    Args:
      files: Aligned files, or one of tab-separated columns.
      report: Where lines with invalid UTF-8 or a wrong number of columns are counted.
      wanted: Says of a line number, from 1, whether the line is read; all are by default.

    Raises:
      UserError: A file cannot be read, the numbers of lines differ, or a line of a strict report is unusable.
    """
    columns = [read_lines(path, report) for path in files.paths]
    rows: Iterator[Sequence[bytes]] = zip(*columns, strict=True)
    if files.target is None:
        rows = (line.split(b"\t") for (line,) in rows)
    width = 2 + len(files.references)
    for number in itertools.count(1):
        try:
            row = next(rows, None)
        except ValueError as error:  # zip: one of the files has more lines
            count_pairs(files)
            raise UserError(f"{files.source} or {files.target} changed while it was read.") from error
        if row is None:
            return
        if wanted and not wanted(number):
            continue
        if len(row) != width:
            explanation = f"{len(row)} tab-separated columns where source TAB target are 2{files.advice}"
            report.drop(WRONG_COLUMNS, files.source, number, explanation)
            continue
        try:
            yield tuple(map(_DECODE, row))
        except UnicodeDecodeError:
            path = _undecodable(row, files)
            report.drop(INVALID_UTF8, path, number, "invalid UTF-8")


def require_files(paths: Sequence[PathLike], advice: str) -> None:
    """Checks that all files are there.

    Args:
      paths: The files looked for.
      advice: What the user can do, a sentence.

    Raises:
      UserError: Lists exactly which are missing.
    """
    missing = [str(path) for path in paths if not os.path.isfile(path)]
    if missing:
        raise UserError(f"No such file: {', '.join(missing)}. {advice}")


_DECODE = bytes.decode  # UTF-8, strict


def _undecodable(row: Sequence[bytes], files: PairFiles) -> pathlib.Path:
    """Returns the file that the first column with invalid UTF-8 stands in."""
    for column, path in zip(row, files.paths if files.target else itertools.repeat(files.source), strict=False):
        try:
            column.decode()
        except UnicodeDecodeError:
            return path
    raise AssertionError("every column is valid UTF-8")


@contextlib.contextmanager
def _opened(path: PathLike) -> Iterator[BinaryIO]:
    """Opens a plain or gzipped file for reading bytes, with errors for the user."""
    try:
        with open(path, "rb") as raw:
            # Peeked at, not read and rewound: a pipe (`<(zcat file)`) cannot be rewound.
            if raw.peek(2)[:2] != _GZIP_MAGIC:
                yield raw
                return
            with gzip.open(raw, "rb") as file:
                yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is a damaged or incomplete gzip file ({error}); get it again.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
