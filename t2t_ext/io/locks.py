"""Locks: one process at a time works on a run, on data, on an export; a lock ends with its owner, however that ends.

A lock is a file that is locked (``flock``) as long as its owner lives, and names the owner's host and process number.
Where a file system keeps locks on one machine only, or knows none, the lock of an owner on another machine cannot be
seen. So an owner touches its file every few seconds, and a process that finds a file naming another machine watches it
for a while before it takes the lock over. This module imports no TensorFlow.
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
WATCH_SECONDS = 20.0  # without a beat, an owner on another machine counts as dead
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)  # of file systems that know none
_NAME = ".lock"
_RETRY_SECONDS = 0.3  # whoever only asks for the owner holds the lock for a moment
_ADVICE = "Wait until it is done, or choose another directory."


@dataclasses.dataclass(frozen=True)
class Owner:
    """The process that holds a lock.

    Attributes:
      host: Its machine's name.
      pid: Its number there.
      since: When it took the lock, ISO 8601, UTC.
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
    """Keeps other processes from doing ``what`` (such as ``trains``) in a directory, which is made where it is missing.

    A directory that was made for it and stays empty is removed at the end.

    Raises:
      UserError: Another process is at it, which is named; or the directory cannot be made or written to.
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
      path: The file of the lock. An exclusive owner removes it at the end.
      what: What its owner does, for messages: ``Another process {what}``.
      shared: Whether others may share it. Such an owner is not named.
      wait: Told whom it waits for, where it should wait; by default a lock that is taken is an error.
      advice: What the user can do about an owner that is at work.
      make_directory: Whether to make its directory, and to remove it at the end where nothing else is in it.

    Raises:
      UserError: Another process holds it; or it cannot be written.
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
            beat.join()  # the number of its file may be another's once it is closed
            for _ in range(2):  # a full or a distant disk may refuse once
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                    break
        os.close(descriptor)
        with contextlib.suppress(OSError):  # there is something in it
            for folder in made:
                folder.rmdir()


def owner_of(path: str | os.PathLike) -> Owner | None:
    """Returns who holds the lock of this file, or that lies in this directory; None where nobody does."""
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
    """Returns the owner of any lock that lies in a directory; None where all of them are free."""
    return next(filter(None, map(owner_of, sorted(pathlib.Path(directory).glob(".*lock")))), None)


def _taken(path: pathlib.Path, what: str, shared: bool, wait: Callable[[str], None] | None, advice: str) -> int:
    """Returns the descriptor of a lock that is taken now."""
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
        if owner is None:  # it was removed by the process that held it
            continue
        name = f"Another process {what}{f' ({owner})' if owner.pid else ''}"
        if time.monotonic() > until and wait is None:
            raise UserError(f"{name}. {advice}")
        if time.monotonic() > until and wait and not told:
            wait(f"{name}; waiting until it is done.")
            told = True
        time.sleep(_RETRY_SECONDS / 3)


def _blocking_owner(path: pathlib.Path, descriptor: int, kind: int) -> Owner | None:
    """Tries to lock an open file; returns who is in the way, without a number where that is not known."""
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
        return None  # what it says is of a process that was killed
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
    except PermissionError:  # another user's
        pass
    return pid > 0


def _is_named(path: pathlib.Path, descriptor: int) -> bool:
    """Says whether an open file has its name still: one that its owner has removed locks nothing."""
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
