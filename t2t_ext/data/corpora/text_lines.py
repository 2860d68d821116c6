"""Reads and writes the lines of a command's input and output: one output line per input line, whatever its bytes."""

import codecs
import contextlib
import dataclasses
import io
import itertools
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from t2t_ext.data.corpora import compression, readers
from t2t_ext.errors import UserError
from t2t_ext.io import files, inputs, log, outputs

STANDARD = outputs.STANDARD
MOST_LINES = 100_000_000
WINDOW_LINES = 10_000
# Limits windows of long lines: the data computed for a window, mainly token ids, take tens of bytes per character.
WINDOW_CHARACTERS = 1 << 22
_SHOWN_NUMBERS = 10
_KEPT_NUMBERS = 1000
_LINES_AT_ONCE = 1000
Add = Callable[[Iterable[str]], None]


@dataclasses.dataclass(frozen=True)
class TextLines:
    """The lines of a file or of standard input.

    Attributes:
      name: The name of the file, or ``standard input``.
      lines: A list of the lines, without LF or CR LF, or of sources of feature vectors; or ``StoredLines``.
    """

    name: str
    lines: Any


class StoredLines:
    """The lines of a file or of standard input, which are read again for each iteration instead of kept in memory.

    Warnings about changed lines appear only once. Standard input is saved to a private file until the command ends.
    """

    def __init__(self, path: str) -> None:
        """Counts the lines.

        Raises:
          UserError: As in ``read``.
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
    """Counts the lines that a message is about and keeps their first thousand numbers, so that memory is bounded.

    Attributes:
      count: The number of lines.
      first: The first line numbers, at most 1,000.
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        """Counts the given line numbers."""
        self.count = 0
        self.first: list[int] = []
        self.add(numbers)

    def add(self, numbers: Iterable[int]) -> None:
        """Counts further line numbers."""
        for number in numbers:
            self.count += 1
            if self.count <= _KEPT_NUMBERS:
                self.first.append(number)

    def __str__(self) -> str:
        """Returns the count and the first line numbers for a message, such as ``2 lines (3, 17)``."""
        shown = ", ".join(map(str, self.first[:_SHOWN_NUMBERS])) + (", ..." if self.count > _SHOWN_NUMBERS else "")
        return f"{self.count} line{'s' if self.count > 1 else ''} ({shown})"


def check_as_many(first: Any, second: Any, advice: str) -> None:
    """Raises a UserError unless two texts, which have a ``name`` and ``lines``, have the same number of lines."""
    if len(second.lines) != len(first.lines):
        raise UserError(
            f"Unequal numbers of lines: {len(first.lines)} in {first.name}, {len(second.lines)} in {second.name}. "
            f"{advice}"
        )


def read(path: str) -> TextLines:
    """Returns all lines of a file, plain or compressed, or of standard input (``-``); warns about changed lines.

    Raises:
      UserError: The file cannot be read, or has more than ``MOST_LINES`` lines.
    """
    lines = list(itertools.islice(stream(path), MOST_LINES + 1))
    _check_most(_named(path), len(lines))
    return TextLines(_named(path), lines)


def stored(path: str) -> TextLines:
    """Returns the same lines as ``read``, but reads them when they are needed instead of keeping them in memory.

    Raises:
      UserError: As in ``read``. Iterating over the lines also raises it if the file has changed since.
    """
    return TextLines(_named(path), StoredLines(path))


def count(path: str) -> int | None:
    """Reads a whole file to return the number of lines that ``stream`` yields; returns None for standard input.

    Raises:
      UserError: As in ``read``.
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
    """Yields lists of at most ``WINDOW_LINES`` lines, fewer if the lines are long; reads each list only when needed."""
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
    """Yields the lines of a file as in ``read``, using constant memory; warns at the end unless ``quiet``."""
    name, report, invalid = _named(path), readers.ReadReport(), LineNumbers()
    with contextlib.ExitStack() as stack:
        if path == STANDARD:
            file = stack.enter_context(inputs.standard_input())
            if hasattr(file, "peek"):  # not what a program has put in the place of standard input
                file = stack.enter_context(compression.decompressed(file, name))
            raw = readers.lines_of(file, name, report)
            raw = readers.refuse_returns_only(raw, name)
        else:
            raw = readers.read_lines(path, report)
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
    """Writes lines atomically to a file, or as they come to standard output (``-``).

    A file whose name ends with ``.gz``, ``.bz2``, ``.xz`` or ``.zst`` is compressed. On a terminal,
    control characters are made visible instead of being executed.
    """
    with writer(path) as add:
        add(lines)


@contextlib.contextmanager
def writers(*paths: str) -> Iterator[list[Add | None]]:
    """Yields the function of ``writer`` for each path, None for an empty path.

    First removes files that killed processes left. The files get their final names together at the end of the block.
    """
    for path in set(paths) - {"", STANDARD}:
        files.remove_leftovers(outputs.Destination.of(path).path.parent)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(writer(path)) if path else None for path in paths]


@contextlib.contextmanager
def writer(path: str) -> Iterator[Add]:
    """Yields a function that writes lines as ``write`` does, call by call; a file is complete when the block ends."""

    def print_lines(lines: Iterable[str]) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(_blocks(map(outputs.visible, lines) if sys.stdout.isatty() else lines))
        sys.stdout.buffer.flush()

    if path == STANDARD:
        yield print_lines
        return
    destination = outputs.Destination.of(path)
    with contextlib.ExitStack() as stack:
        if destination.through:  # the reader of the pipe gets the lines as they come
            written = destination.path
            stack.enter_context(files.explained(written, written))
            file = stack.enter_context(destination.opened_through())
        else:
            written = stack.enter_context(files.atomic_file(path))
            file = stack.enter_context(open(written, "wb"))
        file = stack.enter_context(compression.compressed(file, path))

        def add(lines: Iterable[str]) -> None:
            # Makes the message name this file if several are open.
            with files.explained(pathlib.Path(path), written):
                for block in _blocks(lines):
                    file.write(block)
                if destination.through:
                    file.flush()

        yield add


def _blocks(lines: Iterable[str]) -> Iterator[bytes]:
    lines = iter(lines)
    while block := list(itertools.islice(lines, _LINES_AT_ONCE)):
        yield "".join(f"{line}\n" for line in block).encode("utf-8", errors="replace")


def one_line(text: str, *, tabs: bool = True) -> str:
    """Replaces line feeds, which a model can generate by byte fallback, with spaces; without ``tabs``, tabs as well."""
    text = text.replace("\n", " ")
    return text if tabs else text.replace("\t", " ")


def typed_lines() -> Iterator[str]:
    """Yields lines as they arrive from a terminal (after a prompt) or from a pipe, until ``q`` or the end of input."""
    if sys.stdin.isatty():
        import readline  # noqa: F401 - gives input() a history and editing

        print("Text to translate; q or Ctrl-D leaves.", file=sys.stderr)
        # Undecodable bytes are passed through and replaced below, because they must not end the session.
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
