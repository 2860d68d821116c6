"""Lines of text that a command reads and writes: as many out as in, whatever bytes they hold."""

import codecs
import contextlib
import dataclasses
import io
import itertools
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from t2t_ext.data.corpora import readers
from t2t_ext.errors import UserError
from t2t_ext.io import files, inputs, log, outputs

STANDARD = outputs.STANDARD
MOST_LINES = 100_000_000
WINDOW_LINES = 10_000
# Lines can be long: what is made of a window, token ids above all, takes some tens of bytes a character.
WINDOW_CHARACTERS = 1 << 22
_SHOWN_NUMBERS = 10
_KEPT_NUMBERS = 1000
_LINES_AT_ONCE = 1000
Add = Callable[[Iterable[str]], None]


@dataclasses.dataclass(frozen=True)
class TextLines:
    """The lines of a file.

    Attributes:
      name: The file, or ``standard input``.
      lines: A list of its lines, without LF or CR LF, or of its sources of feature vectors; or ``StoredLines``.
    """

    name: str
    lines: Any


class StoredLines:
    """The lines of a file or of standard input as ``read`` reads them, anew whenever they are asked for.

    What was changed is warned of once. Standard input is kept in a private file until the command ends.
    """

    def __init__(self, path: str) -> None:
        """Counts them.

        Raises:
          UserError: As ``read``.
        """
        self._path, self._told = path, False
        if path == STANDARD:
            inputs.keep_standard_input()
            self._count = sum(1 for _ in stream(path, quiet=True))
        else:
            self._count = readers.count_lines(path)
        _check_most(_named(path), self._count)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        lines = 0
        for line in stream(self._path, quiet=True) if self._told else stream(self._path):
            yield line
            lines += 1
        self._told = True
        if lines != self._count:
            raise UserError(f"{_named(self._path)} had {self._count} lines, then {lines}: it changed meanwhile.")


class LineNumbers:
    """How many lines there is something to say about, and the first thousand of their numbers; memory stays bounded.

    Attributes:
      count: How many lines.
      first: The first numbers.
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        """Counts the numbers."""
        self.count = 0
        self.first: list[int] = []
        self.add(numbers)

    def add(self, numbers: Iterable[int]) -> None:
        """Counts further numbers."""
        for number in numbers:
            self.count += 1
            if self.count <= _KEPT_NUMBERS:
                self.first.append(number)

    def __str__(self) -> str:
        """Returns how many lines and the first of their numbers for a message: ``2 lines (3, 17)``."""
        shown = ", ".join(map(str, self.first[:_SHOWN_NUMBERS])) + (", ..." if self.count > _SHOWN_NUMBERS else "")
        return f"{self.count} line{'s' if self.count > 1 else ''} ({shown})"


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
      UserError: The file cannot be read, or has more than ``MOST_LINES`` lines.
    """
    lines = list(itertools.islice(stream(path), MOST_LINES + 1))
    _check_most(_named(path), len(lines))
    return TextLines(_named(path), lines)


def stored(path: str) -> TextLines:
    """Returns the lines that ``read`` returns, which are read when they are needed, and kept nowhere.

    Raises:
      UserError: As ``read``; the lines themselves, where the file changes meanwhile.
    """
    return TextLines(_named(path), StoredLines(path))


def count(path: str) -> int | None:
    """Returns how many lines ``stream`` yields of a file, all of which it reads; None of standard input.

    Raises:
      UserError: As ``read``.
    """
    if path == STANDARD:
        return None
    lines = readers.count_lines(path)
    _check_most(path, lines)
    return lines


def _named(path: str) -> str:
    return "standard input" if path == STANDARD else path


def _check_most(name: str, lines: int) -> None:
    if lines > MOST_LINES:
        raise UserError(f"{name} has more than {MOST_LINES:,} lines. Split it: split -l {MOST_LINES} ...")


def windows(lines: Iterable[Any]) -> Iterator[list[Any]]:
    """Yields lines in lists of ``WINDOW_LINES``, or fewer where they are long; each is read when it is asked for."""
    window: list[Any] = []
    characters = 0
    for line in lines:
        window.append(line)
        characters += len(line) if isinstance(line, str) else 0
        if len(window) >= WINDOW_LINES or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def stream(path: str, *, quiet: bool = False) -> Iterator[str]:
    """Yields the lines of a file as ``read`` reads them, in memory that does not grow; warns at the end."""
    name, report, invalid = _named(path), readers.ReadReport(), LineNumbers()
    with inputs.standard_input() if path == STANDARD else contextlib.nullcontext() as file:
        raw = readers.read_lines(path, report) if file is None else readers.lines_of(file, name, report)
        for number, line in enumerate(raw, start=1):
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError:
                invalid.add([number])
                yield line.decode("utf-8", errors="replace")
    if quiet:
        return
    if invalid.count:
        log.warning(f"{name}: not UTF-8: {invalid}; U+FFFD stands for what cannot be decoded")
    if carriage_returns := report.notes[readers.CARRIAGE_RETURNS]:
        log.warning(f"{name}: the CR of CR LF was dropped at the end of {carriage_returns} line(s)")


def write(path: str, lines: Iterable[str]) -> None:
    """Writes lines to a file, which then is complete or not there, or to standard output (``-``), as they come.

    On a terminal control characters are shown, not carried out.
    """
    with writer(path) as add:
        add(lines)


@contextlib.contextmanager
def writers(*paths: str) -> Iterator[list[Add | None]]:
    """Gives what ``writer`` does for each path, None for an empty one, after what killed processes left is removed.

    The files get their names together, at the end of the block.
    """
    for path in set(paths) - {"", STANDARD}:
        files.remove_leftovers(outputs.Destination.of(path).path.parent)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(writer(path)) if path else None for path in paths]


@contextlib.contextmanager
def writer(path: str) -> Iterator[Add]:
    """Gives a function that adds lines as ``write`` does, call by call; a file is there at the end of the block."""

    def print_lines(lines: Iterable[str]) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(_blocks(map(outputs.visible, lines) if sys.stdout.isatty() else lines))
        sys.stdout.buffer.flush()

    if path == STANDARD:
        yield print_lines
        return
    destination = outputs.Destination.of(path)
    with contextlib.ExitStack() as stack:
        if destination.through:  # whoever reads the pipe gets the lines as they come
            written = destination.path
            stack.enter_context(files.explained(written, written))
            file = stack.enter_context(destination.opened_through())
        else:
            written = stack.enter_context(files.atomic_file(path))
            file = stack.enter_context(open(written, "wb"))

        def add(lines: Iterable[str]) -> None:
            # Among several files that are open, the message names this one.
            with files.explained(pathlib.Path(path), written):
                file.writelines(_blocks(lines))
                if destination.through:
                    file.flush()

        yield add


def _blocks(lines: Iterable[str]) -> Iterator[bytes]:
    lines = iter(lines)
    while block := list(itertools.islice(lines, _LINES_AT_ONCE)):
        yield "".join(f"{line}\n" for line in block).encode("utf-8", errors="replace")


def one_line(text: str, *, tabs: bool = True) -> str:
    """Returns a text (byte fallback lets a model write LF) as one line of a file; without ``tabs``, as one column."""
    text = text.replace("\n", " ")
    return text if tabs else text.replace("\t", " ")


def typed_lines() -> Iterator[str]:
    """Yields lines as they come from a terminal, after a prompt, or from a pipe, up to ``q`` or the end."""
    if sys.stdin.isatty():
        import readline  # noqa: F401 - gives input() a history and editing

        print("Text to translate; q or Ctrl-D leaves.", file=sys.stderr)
        # As bytes of any locale come back: what is not UTF-8 must not end the session.
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")
        typed: Iterator[str] = iter(lambda: input("> "), None)
        lines = (line.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for line in typed)
    else:
        raw = (line.removeprefix(b"" if number else codecs.BOM_UTF8) for number, line in enumerate(sys.stdin.buffer))
        lines = (line.decode("utf-8", errors="replace").rstrip("\n").removesuffix("\r") for line in raw)
    with contextlib.suppress(EOFError):
        for line in lines:
            if line == "q":
                return
            yield line
