"""Where output goes: a file, what a link points to, or a device or pipe that is written through; never over an input.

What a path names decides how it is written. A regular file, or a name that is free, is replaced by a complete file at
the end. A symbolic link stays, and what it points to is replaced. A device, a named pipe and ``/dev/fd/N`` (what a
shell's ``>(...)`` is) stay what they are and get the bytes. This module imports no TensorFlow.
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
from typing import BinaryIO

from t2t_ext.errors import UserError
from t2t_ext.io import log

PathLike = str | os.PathLike
STANDARD = "-"  # stands for standard input or output
_MOST_LINKS = 40
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


@dataclasses.dataclass(frozen=True)
class Destination:
    """What a path names.

    Attributes:
      path: The file to write, links followed.
      through: Whether it is a device or a pipe, which is written through.
      descriptor: The number of this process's own open file where the path is one (``/dev/stdout``, ``/dev/fd/63``).
    """

    path: pathlib.Path
    through: bool = False
    descriptor: int | None = None

    @classmethod
    def of(cls, path: PathLike) -> "Destination":
        """Finds out what a path names.

        Raises:
          UserError: A directory, a socket or a file that is open for reading, which cannot be written, or links that
            point to each other.
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
            mode = stat.S_IFREG  # it is not there; why nothing can be made there is said by whoever tries
        if stat.S_ISDIR(mode):
            raise UserError(f"Cannot write {path}: it is a directory. Give the name of a file.")
        if stat.S_ISSOCK(mode):
            raise UserError(f"Cannot write {path}: it is a socket. Give the name of a file or of a pipe.")
        if not stat.S_ISREG(mode):
            return cls(given, through=True)
        return cls(pathlib.Path(os.path.realpath(given)) if given.is_symlink() else given)

    @contextlib.contextmanager
    def opened_through(self) -> Iterator[BinaryIO]:
        """Opens the device or pipe for writing; of a named pipe that nobody reads, says that it waits for a reader.

        Raises:
          UserError: Whoever read the pipe has gone; of standard output it is a ``BrokenPipeError``.
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


def check(path: str) -> None:
    """Checks that a file can be written, before hours of work go into what it would hold.

    Raises:
      UserError: It is a directory, or its directory is missing or not writable.
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
    """Checks that every output can be written, none of them twice, and none over a file that is read.

    Args:
      outputs: Paths; ``-`` is standard output; empty ones are left out.
      inputs: Paths of what the command reads; ``-`` is standard input; empty ones are left out.

    Raises:
      UserError: One of them cannot be; the message names it.
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
    r"""Returns text whose control characters, which could command a terminal, are written as ``\x1b``; tabs stay."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _identity(path: str, standard: int) -> object:
    """Returns what tells one file from another: of a regular file, device and inode, or its real name to be.

    None for pipes and devices: the same terminal may well be read and written.
    """
    try:
        found = os.fstat(standard) if path == STANDARD else os.stat(os.path.expanduser(path))
    except OSError:
        return None if path == STANDARD else os.path.realpath(path)
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _own_descriptor(path: pathlib.Path) -> int | None:
    """Returns N where a path is, or links to, this process's ``/proc/self/fd/N``; else None."""
    own = f"/proc/{os.getpid()}/fd"
    place = str(path)
    for _ in range(_MOST_LINKS):
        folder, name = os.path.realpath(os.path.dirname(place) or "."), os.path.basename(place)
        if folder == own and name.isdigit():
            return int(name)
        try:
            place = os.path.join(folder, os.readlink(place))
        except OSError:  # no link, or not there
            return None
    return None
