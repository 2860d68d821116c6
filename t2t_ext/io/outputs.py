"""Determines how outputs are written, and checks that no output overwrites an input.

The kind of path decides. A regular file, or a path that does not exist, is replaced by a complete file at the end. A
symbolic link stays, and the file that it points to is replaced. A device, a named pipe or ``/dev/fd/N`` (which a
shell's ``>(...)`` stands for) is written to directly. This module does not import TensorFlow.
"""

import contextlib
import dataclasses
import errno
import fcntl
import os
import pathlib
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO, TextIO

from t2t_ext.errors import UserError
from t2t_ext.io import log

PathLike = str | os.PathLike
STANDARD = "-"  # stands for standard input or output
_MOST_LINKS = 40
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


@dataclasses.dataclass(frozen=True)
class Destination:
    """The file, device or pipe that an output path names.

    Attributes:
      path: The path to write to, with links resolved.
      through: Whether the path is a device or a pipe, which is written to directly.
      descriptor: The descriptor if the path is an open file of this process (``/dev/stdout``, ``/dev/fd/63``).
    """

    path: pathlib.Path
    through: bool = False
    descriptor: int | None = None

    @classmethod
    def of(cls, path: PathLike) -> "Destination":
        """Returns the destination that a path names.

        Raises:
          UserError: The path cannot be written, because it is a directory, a socket, a descriptor that is closed or
            open for reading only, or a link in a cycle of links.
        """
        given = pathlib.Path(path)
        number = _own_descriptor(given)
        if number is not None:
            try:
                is_read = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            except OSError:
                raise UserError(f"Cannot write {path}: no such file is open. Give another name.") from None
            if is_read:
                raise UserError(f"Cannot write {path}: it is open for reading only. Give another name.")
            return cls(given, through=True, descriptor=number)
        try:
            mode = os.stat(given).st_mode
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UserError(f"Cannot write {path}: its links point to each other. Give another name.") from None
            mode = stat.S_IFREG  # it does not exist; opening it later reports why it cannot be created
        if stat.S_ISDIR(mode):
            raise UserError(f"Cannot write {path}: it is a directory. Give the name of a file.")
        if stat.S_ISSOCK(mode):
            raise UserError(f"Cannot write {path}: it is a socket. Give the name of a file or of a pipe.")
        if not stat.S_ISREG(mode):
            return cls(given, through=True)
        return cls(pathlib.Path(os.path.realpath(given)) if given.is_symlink() else given)

    @contextlib.contextmanager
    def opened_through(self) -> Iterator[BinaryIO]:
        """Opens the device or pipe for writing; logs a message if a named pipe has no reader yet, and waits for one.

        Raises:
          UserError: The process that read the pipe has ended.
          BrokenPipeError: The same for standard output.
        """
        if self.descriptor is not None:
            if self.descriptor == 1 and sys.stdout:
                sys.stdout.flush()
            opened = os.dup(self.descriptor)
        else:
            try:
                opened = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
                os.set_blocking(opened, True)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                log.info(f"waiting for a process that reads the pipe {self.path} ...")
                opened = os.open(self.path, os.O_WRONLY)
        try:
            with open(opened, "wb") as file:
                yield file
        except BrokenPipeError as error:
            if self.descriptor == 1:
                raise
            raise UserError(f"Cannot write all to {self.path}: the process that read the pipe has ended.") from error


def is_standard(path: str) -> bool:
    """Returns whether an output path is standard output: ``-``, or a name of it such as ``/dev/stdout``."""
    return path == STANDARD or (path != "" and Destination.of(path).descriptor == 1)


def check(path: str) -> None:
    """Checks that a file can be written, before hours are spent on computing its content.

    Raises:
      UserError: The path is a directory, is not writable, or its directory is missing or not writable.
    """
    if path == STANDARD:
        return
    destination = Destination.of(path)
    if destination.through:
        if destination.descriptor is None and not os.access(path, os.W_OK):
            raise UserError(f"Cannot write {path}: it may not be written to. Choose another file.")
        return
    parent = destination.path.parent
    if not parent.is_dir():
        raise UserError(f"Cannot write {path}: there is no directory {parent}. Create it first.")
    if not os.access(parent, os.W_OK):
        raise UserError(f"Cannot write {path}: {parent} may not be written to. Choose another directory.")


def check_all(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Checks that all outputs can be written, differ from each other, and do not overwrite an input.

    Args:
      outputs: The paths that the command writes; ``-`` is standard output; empty ones are ignored.
      inputs: The paths that the command reads; ``-`` is standard input; empty ones are ignored.

    Raises:
      UserError: An output fails one of these checks; the message names it.
    """
    taken: dict[object, str] = {}
    read = {key: path for path in inputs if path and (key := _identity(path, standard=0)) is not None}
    for path in filter(None, outputs):
        check(path)
        key = _identity(path, standard=1)
        if key in read:
            same = "" if read[key] == path else f" (it is {read[key]})"
            raise UserError(
                f"{path} is read and would be written over{same}. Give another name for the output; rename it later if "
                "it is to take the place of the input."
            )
        if path in taken.values() or (key is not None and key in taken):
            raise UserError(f"{path} is given for two outputs: give each of them a file of its own.")
        taken[key if key is not None else path] = path


def visible(text: str) -> str:
    r"""Returns text with control characters, which a terminal would execute, written as ``\x1b``; tabs stay."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def show(text: str, stream: TextIO | None = None) -> None:
    """Prints text at once to standard output or another stream; on a terminal, control characters are made visible."""
    stream = sys.stdout if stream is None else stream
    lines = text.split("\n")
    print("\n".join(map(visible, lines) if stream.isatty() else lines), file=stream, flush=True)


def _identity(path: str, standard: int) -> object:
    """Returns the identity of a regular file: its device and inode, or its real path if it does not exist yet.

    Returns None for pipes and devices, because the same terminal may be both read and written.
    """
    try:
        found = os.fstat(standard) if path == STANDARD else os.stat(os.path.expanduser(path))
    except OSError:
        return None if path == STANDARD else os.path.realpath(path)
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _own_descriptor(path: pathlib.Path) -> int | None:
    """Returns N if a path is, or links to, this process's ``/proc/self/fd/N``; otherwise None."""
    own = f"/proc/{os.getpid()}/fd"
    place = str(path)
    for _ in range(_MOST_LINKS):
        folder, name = os.path.realpath(os.path.dirname(place) or "."), os.path.basename(place)
        if folder == own and name.isdigit():
            return int(name)
        try:
            place = os.path.join(folder, os.readlink(place))
        except OSError:  # not a link, or missing
            return None
    return None
