"""Writes files and directories atomically: they exist completely or not at all.

Everything is written under a temporary name in the same directory, flushed to
the disk and then renamed. A killed process, a full disk or a power failure
therefore never leaves a half-written file under the final name. A killed process
may leave temporary files behind, which ``remove_leftovers`` removes. Links are
followed; devices and pipes are written to directly (see ``outputs``).

Errors such as a full disk or a missing permission become a ``UserError`` that
names the path, the space needed and the space left. This module does not import
TensorFlow.
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
_active: set[str] = set()  # temporary names that this process is writing to now


def write_bytes_atomically(path: PathLike, data: bytes) -> None:
    """Writes bytes to a file atomically; if this fails, an existing file stays unchanged.

    The parent directory must exist. If the path is a device or a pipe, the bytes are written to it directly.

    Raises:
      UserError: The disk is full, or the path cannot be written to. No partial file is left behind.
    """
    destination = Destination.of(path)
    if destination.through:
        with explained(destination.path, destination.path, len(data)), destination.opened_through() as file:
            file.write(data)
        return
    with atomic_file(path, needed_bytes=len(data)) as temporary:
        temporary.write_bytes(data)


def write_text_atomically(path: PathLike, text: str) -> None:
    """Writes text as UTF-8, like ``write_bytes_atomically``; line ends stay as they are in ``text``."""
    write_bytes_atomically(path, text.encode("utf-8"))


def append_line(path: PathLike, line: str) -> None:
    """Appends a line of UTF-8 text to a file, which is created if it is missing, and flushes it to the disk.

    Raises:
      UserError: The disk is full, or the path cannot be written to. The file keeps the lines that it had.
    """
    path, data = pathlib.Path(path), (line + "\n").encode("utf-8")
    with explained(path, path, len(data)), open(path, "ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            written = file.write(data)
            if written != len(data):  # happens if the disk has room for only a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise


@contextlib.contextmanager
def atomic_file(path: PathLike, needed_bytes: int | None = None) -> Iterator[pathlib.Path]:
    """Provides a temporary path for one file, and renames the file to ``path`` if the block succeeds.

    Args:
      path: The final name. At the end, an existing file is replaced; if the path is a link, the file that it points to
        is replaced. If the path is a device or a pipe, the contents are written to it at the end.
      needed_bytes: The size of the contents in bytes, if known; used only in the message about a full disk.

    Yields:
      The temporary path, which does not exist yet: the block must create the file. It is in the same directory as the
      final file; for a device or a pipe, it is in a temporary directory.

    Raises:
      UserError: The disk is full, or the path cannot be written to. The temporary file is removed.
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
    """Provides a temporary directory to fill, and renames it to ``path`` if the block succeeds.

    All files in it are flushed to the disk before it is renamed. An existing directory of that name is
    replaced: it is first moved aside, because a rename cannot overwrite a directory that is not empty,
    and deleted afterwards. If the path is a link, the link stays and the directory behind it is replaced.

    Args:
      path: The final name. Its parent is created if it is missing.
      needed_bytes: The size of the contents in bytes, if known. If the disk has less space, the block is not entered.

    Yields:
      The temporary directory, which exists, is empty, and has the same parent as the final directory.

    Raises:
      UserError: The disk is full, the path cannot be written to, or it exists but is not a directory. The temporary
        directory is removed.
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
    """Provides a path to a directory that is safe for those TensorFlow readers that treat paths as glob patterns.

    To these readers, ``[a]`` and a backslash are parts of a pattern, which the directory itself does not match.

    Yields:
      The directory; if its path contains such characters, a link to it elsewhere, which is removed after the block.
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
    """Raises a UserError if the disk of ``path`` (which need not exist) has less than ``needed_bytes`` free."""
    free = _free_bytes(pathlib.Path(path))
    if free is not None and free < needed_bytes:
        raise UserError(_full_disk_message(pathlib.Path(path), needed_bytes, 0, free))


def sha256_of_file(path: PathLike) -> str:
    """Returns the SHA-256 of a file's contents as 64 hexadecimal digits, using constant memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_leftovers(directory: PathLike, *, sole_writer: bool = False) -> list[str]:
    """Removes the temporary files and directories that killed processes left in a directory.

    Args:
      directory: The directory to search, without its subdirectories. It may be missing.
      sole_writer: Whether no other process can be writing here now, as in a run directory. If so, leftovers from other
        machines are removed as well. Otherwise only leftovers of dead processes on this machine are removed. Process
        numbers from before a restart or from another container mean nothing here; such leftovers go after a day.

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
    """Deletes a directory, renaming it first so that no process sees a partly deleted one under its name.

    If the path is a link to a directory, only the link is deleted.
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
    """Returns whether a file or directory name is a temporary name of this module."""
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
    """Flushes a directory, so that new names in it survive a power failure (if the file system supports this)."""
    try:
        _fsync(directory)
    except OSError as error:  # some network file systems do not support it
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise


def _with_name(path: PathLike) -> pathlib.Path:
    """Returns the absolute path of a directory, which ends with a name even for ``.`` and ``..``."""
    path = pathlib.Path(path).absolute()
    return path.resolve() if path.name == ".." else path


def _temporary_beside(final: pathlib.Path) -> pathlib.Path:
    shortened = os.fsencode(final.name)[:120].decode(errors="ignore")  # keeps the whole name below 255 bytes
    name = f".{shortened}{_TEMPORARY_MARK}{_host()}_{os.getpid()}_{_process_table()}{secrets.token_hex(4)}"
    _active.add(name)
    return final.with_name(name)


def _host() -> str:
    return socket.gethostname().replace("/", "_")[:40] or "localhost"


@functools.cache
def _process_table() -> str:
    """Returns 8 hexadecimal digits that identify the table of process numbers.

    Two containers with the same host name have different process tables, and so does a machine after a restart.
    """
    try:
        known = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text("ascii") + os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        known = str(uuid.getnode())
    return hashlib.sha256(known.encode()).hexdigest()[:8]


def _is_leftover(path: pathlib.Path) -> bool:
    """Returns whether the writer of a temporary file is dead, or unknown and inactive for a day."""
    written, _, table = path.name.rpartition(_TEMPORARY_MARK)[2].rpartition("_")
    host, _, pid = written.rpartition("_")  # a host name may contain "_", too
    if host != _host() or not pid.isdigit():
        return False
    try:
        if table[:8] != _process_table():
            return path.lstat().st_mtime < time.time() - _DAY_SECONDS
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:  # the process is alive and belongs to another user, or the file is gone
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
    """Deletes a directory with a temporary name; ``remove_leftovers`` finds what cannot be deleted now."""
    for _ in range(2):  # a full or remote disk may refuse once
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
    """Turns operating system errors that the user can correct into a ``UserError`` that names ``final``."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            message = _full_disk_message(final, needed_bytes, _size_of(temporary), _free_bytes(final))
            raise UserError(message) from error
        # A directory of a special file system such as /proc exists but accepts no new names (ENOENT).
        refused = error.errno == errno.ENOENT and error.filename == str(temporary) and final.parent.is_dir()
        # The error concerns the file being written, not a file that the caller reads at the same time.
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
