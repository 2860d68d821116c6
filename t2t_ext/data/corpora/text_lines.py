"""Lines of text that a command reads and writes: as many out as in, whatever bytes they hold."""

import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from t2t_ext.data.corpora import readers
from t2t_ext.errors import UserError
from t2t_ext.io import files, log, outputs

STANDARD = outputs.STANDARD
MOST_LINES = 100_000_000  # they are held in memory
_SHOWN_NUMBERS = 10
_LINES_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True)
class TextLines:
    """The lines of a file.

    Attributes:
      name: The file, or ``standard input``.
      lines: Its lines, without LF or CR LF; or its sources of feature vectors.
    """

    name: str
    lines: list[Any]


def check_as_many(first: Any, second: Any, advice: str) -> None:
    """Raises a UserError unless two texts, which have a ``name`` and ``lines``, have as many lines."""
    if len(second.lines) != len(first.lines):
        raise UserError(
            f"Unequal numbers of lines: {len(first.lines)} in {first.name}, {len(second.lines)} in {second.name}. "
            f"{advice}"
        )


def read(path: str) -> TextLines:
    """Reads all lines of a file, plain or gzipped, or of standard input (``-``); warns of what was changed.

    Raises:
      UserError: The file cannot be read, or has more lines than are held in memory.
    """
    name = "standard input" if path == STANDARD else path
    lines = list(itertools.islice(stream(path), MOST_LINES + 1))
    if len(lines) > MOST_LINES:
        raise UserError(f"{name} has more than {MOST_LINES:,} lines. Split it: split -l {MOST_LINES} ...")
    return TextLines(name, lines)


def stream(path: str) -> Iterator[str]:
    """Yields the lines of a file as ``read`` reads them, in memory that does not grow; warns at the end."""
    report = readers.ReadReport()
    if path == STANDARD:
        name = "standard input"
        raw = readers.without_ends(sys.stdin.buffer, name, report)
    else:
        name, raw = path, readers.read_lines(path, report)
    invalid: list[int] = []
    for number, line in enumerate(raw, start=1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError:
            invalid.append(number)
            yield line.decode("utf-8", errors="replace")
    if invalid:
        log.warning(f"{name}: not UTF-8: {count_lines(invalid)}; U+FFFD stands for what cannot be decoded")
    if carriage_returns := report.notes[readers.CARRIAGE_RETURNS]:
        log.warning(f"{name}: the CR of CR LF was dropped at the end of {carriage_returns} line(s)")


def write(path: str, lines: Iterable[str]) -> None:
    """Writes lines to a file, which then is complete or not there, or to standard output (``-``), as they come.

    On a terminal control characters are shown, not carried out.
    """
    if path != STANDARD:
        with files.atomic_file(path) as temporary, open(temporary, "wb") as file:
            file.writelines(_blocks(lines))
        return
    if sys.stdout.isatty():
        lines = map(outputs.visible, lines)
    sys.stdout.flush()
    sys.stdout.buffer.writelines(_blocks(lines))
    sys.stdout.buffer.flush()


def _blocks(lines: Iterable[str]) -> Iterator[bytes]:
    lines = iter(lines)
    while block := list(itertools.islice(lines, _LINES_AT_ONCE)):
        yield "".join(f"{line}\n" for line in block).encode("utf-8", errors="replace")


def one_line(text: str, *, tabs: bool = True) -> str:
    """Returns a text (byte fallback lets a model write LF) as one line of a file; without ``tabs``, as one column."""
    text = text.replace("\n", " ")
    return text if tabs else text.replace("\t", " ")


def count_lines(numbers: Sequence[int]) -> str:
    """Returns how many lines and the first of their numbers for a message: ``2 lines (3, 17)``."""
    shown = ", ".join(map(str, numbers[:_SHOWN_NUMBERS])) + (", ..." if len(numbers) > _SHOWN_NUMBERS else "")
    return f"{len(numbers)} line{'s' if len(numbers) > 1 else ''} ({shown})"


def typed_lines() -> Iterator[str]:
    """Yields lines as they come from a terminal, after a prompt, or from a pipe, up to ``q`` or the end."""
    if sys.stdin.isatty():
        import readline  # noqa: F401 - gives input() a history and editing

        print("Text to translate; q or Ctrl-D leaves.", file=sys.stderr)
        lines: Iterator[str] = iter(lambda: input("> "), None)
    else:
        lines = (line.decode("utf-8", errors="replace").rstrip("\n").removesuffix("\r") for line in sys.stdin.buffer)
    with contextlib.suppress(EOFError):
        for line in lines:
            if line == "q":
                return
            yield line
