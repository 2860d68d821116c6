"""Opens input files; pipes (``<(zcat file)`` and named pipes) can be read as often as ordinary files.

A pipe delivers its content only once, so the content is kept in a private directory until the command ends (or, if the
command is killed, until the next one keeps something). This module does not import TensorFlow.
"""

import atexit
import contextlib
import fcntl
import os
import pathlib
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from t2t_ext.errors import UserError, suggest
from t2t_ext.io import files, log

PathLike = str | os.PathLike
_WAIT_SECONDS = 1.0
_PREFIX = "t2t_ext-kept-input-"  # of no folder that a user may have made, such as t2t_ext-0.1.0
_NEW_SECONDS = 60.0
_MAGIC = {b"PK\x03\x04": ".npz", b"\x93NUMPY": ".npy"}  # formats otherwise recognized by file name suffix
_STANDARD = (-1, -1)
_kept: dict[tuple[int, int], pathlib.Path] = {}
_folders: list[tuple[str, int]] = []  # each with a descriptor that holds its lock


def is_file(path: PathLike) -> bool:
    """Returns whether a path exists and is a file, a pipe or a device."""
    return os.path.exists(path) and not os.path.isdir(path)


def suggest_path(path: PathLike, is_wanted: Callable[[pathlib.Path], object]) -> str:
    """Returns a sentence that suggests names close to the missing part of a path.

    Args:
      path: The path; its first part that does not exist may be misspelled.
      is_wanted: Returns whether an existing path in the same directory as that part may be suggested.

    Returns:
      ``" Did you mean 'a'?"`` with a leading space, or an empty string if no name is close.
    """
    missing = pathlib.Path(os.path.abspath(path))
    while not missing.parent.exists():
        missing = missing.parent
    names = []
    with contextlib.suppress(OSError):  # a directory that may not be read, or a file
        names = [entry.name for entry in missing.parent.iterdir()]
    return suggest(missing.name, [name for name in names if is_wanted(missing.parent / name)])


def is_pipe(path: PathLike) -> bool:
    """Returns whether a path is a pipe."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


def on_disk(path: PathLike) -> pathlib.Path:
    """Returns a seekable path: the given path, or for a pipe, a file that holds the pipe's content.

    The first call for a pipe waits for its writer, logs a message if this takes long, and reads everything.

    Raises:
      UserError: The pipe cannot be read, or the disk is full.
    """
    path = pathlib.Path(path)
    if not is_pipe(path):
        return path
    found = os.stat(path)
    key = found.st_dev, found.st_ino
    if key not in _kept:
        folder = _private_folder()
        message = f"waiting for a process that writes to the pipe {path} ..."
        waiting = threading.Timer(_WAIT_SECONDS, log.info, [message])
        waiting.daemon = True
        waiting.start()
        try:
            with open(path, "rb") as pipe, files.atomic_file(folder / "pipe") as temporary:
                waiting.cancel()
                with open(temporary, "wb") as file:
                    shutil.copyfileobj(pipe, file)
        except OSError as error:
            raise UserError(f"The pipe {path} cannot be read: {error.strerror or error}.") from error
        finally:
            waiting.cancel()
        with open(folder / "pipe", "rb") as file:
            head = file.read(max(map(len, _MAGIC)))
        ending = next((ending for magic, ending in _MAGIC.items() if head.startswith(magic)), "")
        _kept[key] = (folder / "pipe").rename(folder / f"pipe{ending}")
    return _kept[key]


def keep_standard_input() -> pathlib.Path:
    """Saves all of standard input to a file and returns its path; ``standard_input`` then reads from this file."""
    if _STANDARD not in _kept:
        path = _private_folder() / "standard_input"
        with files.atomic_file(path) as temporary, open(temporary, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        _kept[_STANDARD] = path
    return _kept[_STANDARD]


@contextlib.contextmanager
def standard_input() -> Iterator[BinaryIO]:
    """Opens standard input; if it has been saved to a file, reading starts from its beginning."""
    if _STANDARD in _kept:
        with open(_kept[_STANDARD], "rb") as file:
            yield file
    else:
        yield sys.stdin.buffer


def _private_folder() -> pathlib.Path:
    if not _folders:
        _remove_abandoned()
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        descriptor = os.open(folder, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _folders.append((folder, descriptor))
    return pathlib.Path(tempfile.mkdtemp(dir=_folders[0][0]))


def _remove_abandoned() -> None:
    """Removes what killed commands have kept: folders whose lock no process holds any more."""
    for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's folder, or one that is in use
            found = folder.stat()
            if time.time() - found.st_mtime < _NEW_SECONDS or stat.S_IMODE(found.st_mode) != stat.S_IRWXU:
                continue  # its process may be about to lock it, or it was not made by mkdtemp
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)


@atexit.register
def forget_pipes() -> None:
    """Removes the saved contents of pipes and standard input, so that a later command reads them anew."""
    _kept.clear()
    while _folders:
        folder, descriptor = _folders.pop()
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)
