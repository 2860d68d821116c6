"""Files that are there completely or not at all.

Everything is written under a temporary name in the same directory, flushed to
the disk and then renamed, so that neither a killed process nor a full disk nor
a power failure leaves a half-written file under the final name. What a killed
process leaves behind are temporary names, which ``remove_leftovers`` finds. Links are
followed, and devices and pipes written through (``outputs``).

A full disk, a missing permission and the like become a ``UserError`` that names
the path, what was needed and what is left. This module imports no TensorFlow.
"""

import contextlib
import errno
import functools
import hashlib
import os
import pathlib
import secrets
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator

from t2t_ext.errors import UserError
from t2t_ext.io.outputs import Destination

PathLike = str | os.PathLike

_TEMPORARY_MARK = ".tmp-"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
_DAY_SECONDS = 86400
_active: set[str] = set()  # temporary names that this process is writing at the moment


def write_bytes_atomically(path: PathLike, data: bytes) -> None:
    """Writes a file that is complete under its name or not there (an older one stays as it was).

    The directory of the path must exist. A device or a pipe gets the bytes and stays what it is.

    Raises:
      UserError: The disk is full, or the place cannot be written to. Nothing is left behind.
    """
    destination = Destination.of(path)
    if destination.through:
        with explained(destination.path, destination.path, len(data)), destination.opened_through() as file:
            file.write(data)
        return
    with atomic_file(path, needed_bytes=len(data)) as temporary:
        temporary.write_bytes(data)


def write_text_atomically(path: PathLike, text: str) -> None:
    """Writes UTF-8 text, lines ending as they do in ``text``, as ``write_bytes_atomically`` does."""
    write_bytes_atomically(path, text.encode("utf-8"))


def append_line(path: PathLike, line: str) -> None:
    """Adds a line of UTF-8 text to a file, which is made where it is missing; it is on the disk at the return.

    Raises:
      UserError: The disk is full, or the place cannot be written to. The file has the lines that it had.
    """
    path, data = pathlib.Path(path), (line + "\n").encode("utf-8")
    with explained(path, path, len(data)), open(path, "ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            written = file.write(data)
            if written != len(data):  # what happens where only a part finds room
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise


@contextlib.contextmanager
def atomic_file(path: PathLike, needed_bytes: int | None = None) -> Iterator[pathlib.Path]:
    """Gives a temporary path to write one file to; renames it to ``path`` if the block succeeds.

    Args:
      path: The final name; a file that has it is replaced at the end, of a link the file that it points to. To a device
        or a pipe the contents are written at the end.
      needed_bytes: Size of the contents in bytes if it is known; only for the message about a full disk.

    Yields:
      The temporary path, in the same directory as the file. It does not exist yet; the block must create the file.

    Raises:
      UserError: The disk is full, or the place cannot be written to. The temporary file is removed.
    """
    destination = Destination.of(path)
    final = destination.path
    if destination.through:
        with tempfile.TemporaryDirectory(prefix="t2t_ext-") as folder, explained(final, final, needed_bytes):
            temporary = pathlib.Path(folder, "output")
            yield temporary
            with open(temporary, "rb") as contents, destination.opened_through() as file:
                shutil.copyfileobj(contents, file)
        return
    temporary = _temporary_beside(final)
    try:
        with explained(final, temporary, needed_bytes):
            yield temporary
            _fsync(temporary)
            os.replace(temporary, final)
            fsync_directory(final.parent)
    finally:
        _active.discard(temporary.name)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_directory(path: PathLike, needed_bytes: int | None = None) -> Iterator[pathlib.Path]:
    """Gives a temporary directory to fill; renames it to ``path`` if the block succeeds.

    All files in it are flushed to the disk before it gets its name. A directory that has the name
    already is replaced: it is moved aside first, since a directory that is not empty cannot be
    renamed over, and deleted afterwards. A link to a directory stays, and the directory is replaced.

    Args:
      path: The final name. Its parent is created where it is missing.
      needed_bytes: Size of the contents in bytes if it is known. Where the disk has less, the block is not entered.

    Yields:
      The temporary directory, which exists, is empty, and lies beside the final one.

    Raises:
      UserError: The disk is full, the place cannot be written to, or something that is no directory is there. The
        temporary directory is removed.
    """
    final = _with_name(path)
    final = pathlib.Path(os.path.realpath(final)) if final.is_symlink() else final
    if final.exists() and not final.is_dir():
        raise UserError(f"Cannot write the directory {path}: something else has that name. Choose another one.")
    temporary = _temporary_beside(final)
    try:
        with explained(final, temporary, needed_bytes):
            final.parent.mkdir(parents=True, exist_ok=True)
            if needed_bytes is not None:
                require_space(final, needed_bytes)
            temporary.mkdir()
            yield temporary
            for folder, _, names in os.walk(temporary):
                for name in names:
                    _fsync(pathlib.Path(folder, name))
                fsync_directory(folder)
            _rename_directory(temporary, final)
            fsync_directory(final.parent)
    finally:
        _active.discard(temporary.name)
        _remove_tree(temporary)


@contextlib.contextmanager
def without_pattern(directory: PathLike) -> Iterator[pathlib.Path]:
    """Gives a path of a directory that TensorFlow can read from: some of its readers take a path for a pattern.

    To them ``[a]`` and a backslash are part of a pattern, and the directory itself does not match it.

    Yields:
      The directory, or where its path has such characters a link to it elsewhere, which is gone after the block.
    """
    path = pathlib.Path(directory)
    if not set("[\\") & set(str(path)):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="t2t_ext-") as folder:
        link = pathlib.Path(folder, "directory")
        link.symlink_to(path.absolute())
        yield link


def require_space(path: PathLike, needed_bytes: int) -> None:
    """Raises a UserError if the disk of ``path`` (which need not exist) has less than ``needed_bytes`` left."""
    free = _free_bytes(pathlib.Path(path))
    if free is not None and free < needed_bytes:
        raise UserError(_full_disk_message(pathlib.Path(path), needed_bytes, 0, free))


def sha256_of_file(path: PathLike) -> str:
    """Returns the SHA-256 of a file's contents as 64 hexadecimal digits; memory does not grow with the file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_leftovers(directory: PathLike, *, sole_writer: bool = False) -> list[str]:
    """Removes the temporary files and directories that killed processes left in a directory.

    Args:
      directory: Where to look (not below it). It may be missing.
      sole_writer: No other process can be writing here now, as in a run directory; then what processes on
        other machines left is removed as well. Otherwise only what dead processes of this machine left. What has its
        name but another start or another container (whose process numbers say nothing here) goes after a day.

    Returns:
      The names that were removed, sorted.
    """
    directory = pathlib.Path(directory)
    removed = []
    for entry in sorted(directory.iterdir()) if directory.is_dir() else []:
        if not is_temporary_name(entry.name) or entry.name in _active or not (sole_writer or _is_leftover(entry)):
            continue
        if entry.is_dir() and not entry.is_symlink():
            _remove_tree(entry)
        else:
            with contextlib.suppress(OSError):
                entry.unlink()
        removed.append(entry.name)
    return removed


def remove_directory(path: PathLike) -> None:
    """Deletes a directory; it is renamed first, so that no process ever sees half of it under its name.

    Of a link to a directory only the link is deleted.
    """
    path = _with_name(path)
    if path.is_symlink():
        path.unlink()
        return
    aside = _temporary_beside(path)
    try:
        os.rename(path, aside)
        _remove_tree(aside)
    finally:
        _active.discard(aside.name)


def is_temporary_name(name: str) -> bool:
    """Says whether a file or directory name is one of this module's temporary names."""
    return name.startswith(".") and _TEMPORARY_MARK in name


def format_bytes(count: int) -> str:
    """Formats a number of bytes for people: ``512 bytes``, ``12.3 MB``."""
    if count < 1000:
        return f"{count} bytes"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def fsync_directory(directory: PathLike) -> None:
    """Makes names created or renamed in a directory survive a power failure, on file systems that can."""
    try:
        _fsync(directory)
    except OSError as error:  # some network file systems do not know it
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise


def _with_name(path: PathLike) -> pathlib.Path:
    """Returns the absolute path of a directory, which has a name also where ``.`` or ``..`` was given."""
    path = pathlib.Path(path).absolute()
    return path.resolve() if path.name == ".." else path


def _temporary_beside(final: pathlib.Path) -> pathlib.Path:
    shortened = os.fsencode(final.name)[:120].decode(errors="ignore")  # of at most 255 bytes, with what follows
    name = f".{shortened}{_TEMPORARY_MARK}{_host()}_{os.getpid()}_{_process_table()}{secrets.token_hex(4)}"
    _active.add(name)
    return final.with_name(name)


def _host() -> str:
    return socket.gethostname().replace("/", "_")[:40] or "localhost"


@functools.cache
def _process_table() -> str:
    """Returns 8 hexadecimal digits that differ where process numbers mean other processes.

    Two containers of one host name have numbers of their own each, and so has a machine after its next start.
    """
    try:
        known = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text("ascii") + os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        known = str(uuid.getnode())
    return hashlib.sha256(known.encode()).hexdigest()[:8]


def _is_leftover(path: pathlib.Path) -> bool:
    """Says whether the writer of a temporary file is gone, or of unknown life and silent for a day."""
    written, _, table = path.name.rpartition(_TEMPORARY_MARK)[2].rpartition("_")
    host, _, pid = written.rpartition("_")  # a host name may have "_", too
    if host != _host() or not pid.isdigit():
        return False
    try:
        if table[:8] != _process_table():
            return path.lstat().st_mtime < time.time() - _DAY_SECONDS
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is alive, and another user's; or the file has gone
        return False
    return int(pid) == os.getpid()


def _rename_directory(temporary: pathlib.Path, final: pathlib.Path) -> None:
    if not final.exists():
        os.rename(temporary, final)
        return
    aside = _temporary_beside(final)
    try:
        os.rename(final, aside)
        os.rename(temporary, final)
        _remove_tree(aside)
    finally:
        _active.discard(aside.name)


def _remove_tree(directory: pathlib.Path) -> None:
    """Deletes a directory with a temporary name, or leaves what cannot be deleted to ``remove_leftovers``."""
    for _ in range(2):  # a full or a distant disk may refuse once
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return


def _fsync(path: PathLike) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(final: pathlib.Path, temporary: pathlib.Path, needed_bytes: int | None = None) -> Iterator[None]:
    """Turns errors of the operating system that the user can correct into a ``UserError`` that names ``final``."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            message = _full_disk_message(final, needed_bytes, _size_of(temporary), _free_bytes(final))
            raise UserError(message) from error
        # A directory of a special file system, such as /proc, is there and yet takes no new names: ENOENT.
        refused = error.errno == errno.ENOENT and error.filename == str(temporary) and final.parent.is_dir()
        # About what is being written, not about a file that the caller reads meanwhile.
        written = error.filename is None or os.path.dirname(temporary) in os.path.dirname(str(error.filename))
        if refused or (error.errno in _NOT_ALLOWED and written):
            raise UserError(
                f"Cannot write {final}: {error.strerror}. Choose a directory that you may write to."
            ) from error
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and not final.parent.is_dir():
            raise UserError(f"Cannot write {final}: {final.parent} is not a directory. Create it first.") from error
        if error.errno == errno.ENAMETOOLONG:
            raise UserError(f"Cannot write {final}: the name is too long. Choose a shorter one.") from error
        raise


def _full_disk_message(path: pathlib.Path, needed: int | None, written: int, free: int | None) -> str:
    need = f"{format_bytes(written)} could be written, more is needed"
    if needed is not None:
        need = f"{format_bytes(needed)} are needed"
    left = "no more can be written there (a full disk, a quota or a size limit)"
    if free is not None and needed is not None and free < needed:
        left = f"{format_bytes(free)} are left on the disk"
    return (
        f"Cannot write {path}: {need}, {left}. Nothing half-written was kept; "
        "make room or choose another directory, then run the same command again."
    )


def _free_bytes(path: pathlib.Path) -> int | None:
    for folder in (path, *path.absolute().parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(folder).free
    return None


def _size_of(path: pathlib.Path) -> int:
    with contextlib.suppress(OSError):
        if path.is_dir():
            return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
        return path.stat().st_size
    return 0
