"""Provides locks, so that only one process at a time works on a run, a data set or an export.

A lock is a file that its owner keeps locked (``flock``) until the owner ends in any way. The file names the owner's
host and process number. On some file systems, locks are visible on one machine only, or not supported at all.
An owner on another machine cannot be seen there. Each owner therefore touches its file every few seconds, and a process
that finds a file naming another machine watches it for a while before it takes over the lock. This module does not
import TensorFlow.
"""

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import itertools
import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from t2t_ext.errors import UserError
from t2t_ext.io import log

BEAT_SECONDS = 5.0
WATCH_SECONDS = 20.0  # an owner on another machine that does not touch its file for so long counts as dead
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)  # of file systems without locks
_NAME = ".lock"
_RETRY_SECONDS = 0.3  # a process that only asks for the owner also holds the lock for a moment
_ADVICE = "Wait until it is done, or choose another directory."


@dataclasses.dataclass(frozen=True)
class Owner:
    """The process that holds a lock.

    Attributes:
      host: The name of its machine.
      pid: Its process number on that machine.
      since: The time at which it took the lock, in ISO 8601, UTC.
    """

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        where = "on this machine" if self.host == socket.gethostname() else f"on the machine {self.host}"
        return f"process {self.pid} {where}, since {self.since}"


def in_directory(
    directory: str | os.PathLike, what: str, advice: str = _ADVICE
) -> contextlib.AbstractContextManager[None]:
    """Keeps other processes from doing ``what`` (such as ``trains``) in a directory, which is created if missing.

    A directory that was created for the lock and stays empty is removed at the end.

    Raises:
      UserError: Another process holds the lock (the message names it), or the directory cannot be made or written to.
    """
    return held(pathlib.Path(directory, _NAME), f"{what} {directory}", advice=advice, make_directory=True)


@contextlib.contextmanager
def held(
    path: str | os.PathLike,
    what: str,
    *,
    shared: bool = False,
    wait: Callable[[str], None] | None = None,
    advice: str = _ADVICE,
    make_directory: bool = False,
) -> Iterator[None]:
    """Holds a lock inside the block.

    Args:
      path: The lock file. An exclusive owner removes it at the end.
      what: What the owner does, for messages: ``Another process {what}``.
      shared: Whether other processes may share the lock. The file does not name such owners.
      wait: If given, the lock is waited for, and this function receives a message that names the current owner. By
        default, a lock that is taken is an error.
      advice: What the user can do if another process holds the lock.
      make_directory: Whether to create the directory of the file, and to remove it at the end if it is empty.

    Raises:
      UserError: Another process holds the lock, or the lock file cannot be written.
    """
    path = pathlib.Path(path)
    made: list[pathlib.Path] = []
    try:
        if make_directory:
            made = list(itertools.takewhile(lambda each: not each.exists(), path.parents))
            path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _taken(path, what, shared, wait, advice)
    except OSError as error:
        raise UserError(
            f"{path.parent} cannot be written to: {error.strerror or error}. Choose another one."
        ) from error
    done = threading.Event()
    beat = threading.Thread(target=_beat, args=(descriptor, done), name="t2t_ext-lock", daemon=True)
    if not shared:
        beat.start()
    try:
        yield
    finally:
        done.set()
        if not shared:
            beat.join()  # once the file is closed, its descriptor number may refer to another file
            for _ in range(2):  # a full or remote disk may refuse once
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                    break
        os.close(descriptor)
        with contextlib.suppress(OSError):  # the directory is not empty
            for folder in made:
                folder.rmdir()


def owner_of(path: str | os.PathLike) -> Owner | None:
    """Returns the owner of a lock, given by its file or its directory; None if nobody holds it."""
    path = pathlib.Path(path)
    path = path / _NAME if path.is_dir() else path
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        return _blocking_owner(path, descriptor, fcntl.LOCK_EX) if _is_named(path, descriptor) else None
    finally:
        os.close(descriptor)


def owner_in(directory: str | os.PathLike) -> Owner | None:
    """Returns the owner of any lock in a directory; None if all of them are free."""
    return next(filter(None, map(owner_of, sorted(pathlib.Path(directory).glob(".*lock")))), None)


def _taken(path: pathlib.Path, what: str, shared: bool, wait: Callable[[str], None] | None, advice: str) -> int:
    """Takes a lock and returns its file descriptor."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    told, until = False, time.monotonic() + _RETRY_SECONDS
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            owner = _blocking_owner(path, descriptor, kind)
            if owner is None and _is_named(path, descriptor):
                if not shared:
                    _write_owner(descriptor)
                return os.dup(descriptor)
        finally:
            os.close(descriptor)
        if owner is None:  # the process that held the lock removed the file
            continue
        name = f"Another process {what}{f' ({owner})' if owner.pid else ''}"
        if time.monotonic() > until and wait is None:
            raise UserError(f"{name}. {advice}")
        if time.monotonic() > until and wait and not told:
            wait(f"{name}; waiting until it is done.")
            told = True
        time.sleep(_RETRY_SECONDS / 3)


def _blocking_owner(path: pathlib.Path, descriptor: int, kind: int) -> Owner | None:
    """Tries to lock an open file; returns the owner that prevents it, with the process number 0 if it is unknown."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        sees_all = True
    except BlockingIOError:
        return _read_owner(descriptor) or Owner("", 0, "")
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        sees_all = False
    before = _read_owner(descriptor)
    if before is None or (before.host == socket.gethostname() and (sees_all or not _is_alive(before.pid))):
        return None  # the file was left by a process that was killed
    log.info(f"{path}: looking for {WATCH_SECONDS:g} s whether its owner is alive ({before})")
    touched, until = os.fstat(descriptor).st_mtime_ns, time.monotonic() + WATCH_SECONDS
    while time.monotonic() < until:
        time.sleep(BEAT_SECONDS / 10)
        with contextlib.suppress(OSError):
            if os.stat(path).st_mtime_ns != touched:
                return _read_owner(descriptor) or before
    return None


def _beat(descriptor: int, done: threading.Event) -> None:
    while not done.wait(BEAT_SECONDS):
        with contextlib.suppress(OSError):
            os.utime(descriptor)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except PermissionError:  # another user's process
        pass
    return pid > 0


def _is_named(path: pathlib.Path, descriptor: int) -> bool:
    """Returns whether an open file still has its name; a file that its owner has removed is no longer a lock."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _write_owner(descriptor: int) -> None:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    text = json.dumps(dataclasses.asdict(Owner(socket.gethostname(), os.getpid(), now)))
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


def _read_owner(descriptor: int) -> Owner | None:
    try:
        content = json.loads(os.pread(descriptor, 4096, 0))
        return Owner(str(content["host"])[:100], int(content["pid"]), str(content["since"])[:40])
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return None
