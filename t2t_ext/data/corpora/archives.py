"""Reads and unpacks .tar archives (compressed or not) and .zip archives from untrusted sources.

Nothing is written outside the target directory. Links, devices and archives with more members or more bytes
than any corpus has are refused. The target directory appears under its name only when it is complete.
"""

import contextlib
import dataclasses
import functools
import io
import json
import lzma
import os
import pathlib
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, BinaryIO

from t2t_ext.data.corpora import compression
from t2t_ext.errors import UserError, suggest
from t2t_ext.io import files, stored

PathLike = str | os.PathLike
ENDINGS = (".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")
MOST_MEMBERS = 200_000
MOST_BYTES = 1 << 38
UNPACKED = ".unpacked"
_RECORD = ".unpacked_from.json"
_BLOCK_BYTES = 1 << 20
_TAR_MAGIC = slice(257, 262)  # where a tar archive says "ustar"
_MOST_SHOWN = 8
_ENDING = "|".join(map(re.escape, sorted(ENDINGS, key=len, reverse=True)))
_ADDRESS = re.compile(rf"(.+?(?:{_ENDING})):(.+)", re.S | re.I)


@dataclasses.dataclass(frozen=True)
class _Member:
    """An entry of an archive: its name in the archive, its unpacked size in bytes, and a function that opens it."""

    name: str
    size: int
    is_directory: bool
    open: Callable[[], IO[bytes] | None]

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        file = self.open()
        if file is None:
            raise tarfile.TarError(f"{self.name} has no content")
        with file:
            yield file


def split_address(path: PathLike) -> tuple[str, str]:
    """Splits ``ARCHIVE:MEMBER`` into both parts; the member is "" if the path exists or has another form."""
    text = os.fspath(path)
    match = _ADDRESS.fullmatch(text)
    if match and not os.path.exists(text):
        return match[1], match[2]
    return text, ""


def is_archive(path: PathLike) -> bool:
    """Returns whether the name of a file is that of a supported archive."""
    return os.fspath(path).lower().endswith(ENDINGS)


def require_member(path: PathLike) -> None:
    """Checks that a path does not name an archive without saying which file in it is meant.

    Raises:
      UserError: It does, or the archive is damaged.
    """
    archive, member = split_address(path)
    if is_archive(archive) and not member:
        names = member_names(archive)
        raise UserError(
            f"{path} is an archive; say which file in it is meant: {path}:{names[0] if names else 'FILE'}. It holds "
            f"{', '.join(names[:10])}{' and more' if len(names) > 10 else ''}."
        )


def member_names(path: PathLike) -> list[str]:
    """Returns the names of the files in an archive, in the order of the archive.

    Raises:
      UserError: The archive is damaged or has an entry that is refused.
    """
    with _members(path) as members:
        return [member.name for member in members if not member.is_directory]


@contextlib.contextmanager
def opened_member(path: PathLike, name: str) -> Iterator[BinaryIO]:
    """Opens a file in an archive for reading its bytes, which may themselves be compressed.

    Raises:
      UserError: The archive has no such file (the message suggests similar names), or the archive is damaged.
    """
    seen = []
    with _members(path) as members:
        for member in members:
            if not member.is_directory and member.name == name:
                with member.opened() as file:
                    # The objects of both libraries support readinto(), which the type IO[bytes] does not promise.
                    yield io.BufferedReader(file, _BLOCK_BYTES)  # type: ignore[type-var]
                return
            seen.append(member.name)
    shown = ", ".join(seen[:_MOST_SHOWN]) or "nothing"
    shown += f" and {len(seen) - _MOST_SHOWN:,} more" if len(seen) > _MOST_SHOWN else ""
    raise UserError(f"{path} holds no file {name!r}.{suggest(name, seen)} It holds: {shown}.")


def unpacked(path: PathLike, directory: PathLike, wanted: Callable[[str], bool] = lambda name: True) -> pathlib.Path:
    """Unpacks an archive unless it has already been unpacked and has not changed since.

    Args:
      path: The archive.
      directory: The target directory. It appears, or is replaced, when all files are complete. Each selection of files
        needs its own directory: an existing directory is assumed to have the same selection.
      wanted: Returns whether to unpack a file, given its name in the archive.

    Returns:
      The directory.

    Raises:
      UserError: The archive is damaged or has an entry that is refused, or the disk is full. Nothing is left behind.
    """
    directory = pathlib.Path(directory)
    try:
        status = os.stat(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
    record = {"name": os.path.basename(path), "bytes": status.st_size, "modified_ns": status.st_mtime_ns}
    with contextlib.suppress(OSError, ValueError):
        if stored.read(directory / _RECORD) == record:
            return directory
    files.remove_leftovers(directory.parent)
    with files.atomic_directory(directory) as temporary:
        with _members(path) as members:
            for member in members:
                if not member.is_directory and wanted(member.name):
                    _write(member, temporary / member.name, path)
        (temporary / _RECORD).write_text(json.dumps(record), encoding="utf-8")
    return directory


def unpacked_beside(
    path: PathLike, wanted: Callable[[str], bool] = lambda name: True, choice: str = ""
) -> pathlib.Path:
    """Unpacks an archive next to itself, into ``ARCHIVE.unpacked`` or ``ARCHIVE.CHOICE.unpacked``; see ``unpacked``.

    ``choice`` names the selection of files; each selection has its own directory.
    """
    return unpacked(path, f"{os.fspath(path)}{f'.{choice}' if choice else ''}{UNPACKED}", wanted)


def _write(member: _Member, target: pathlib.Path, archive: PathLike) -> None:
    if target.exists():
        raise _refusal(archive, member.name, "it is there twice")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise _refusal(archive, member.name, "a file of the archive has the name of its directory") from None
    left = member.size
    with member.opened() as source, open(target, "xb") as file:
        while block := source.read(_BLOCK_BYTES):
            left -= len(block)
            if left < 0:
                raise _refusal(archive, member.name, "it is longer than the archive says")
            file.write(block)
    if left:
        raise _refusal(archive, member.name, "it is shorter than the archive says")


@contextlib.contextmanager
def _members(path: PathLike) -> Iterator[Iterator[_Member]]:
    """Yields an iterator of the checked entries of an archive; a file can be opened only until the next entry."""
    try:
        with contextlib.ExitStack() as stack:
            if _is_zip(path):
                entries = _zip_entries(stack.enter_context(zipfile.ZipFile(path)), path)
            else:
                try:
                    raw = stack.enter_context(open(path, "rb"))
                except OSError as error:
                    raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
                plain = stack.enter_context(compression.decompressed(raw, path))
                entries = _tar_entries(stack.enter_context(tarfile.open(fileobj=plain, mode="r|")), path)
            yield _checked(entries, path)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
        raise UserError(f"{path} is a damaged, incomplete or unknown archive ({error}); get it again.") from error


def _is_zip(path: PathLike) -> bool:
    """Returns whether a file is a zip archive, and not an uncompressed tar archive that ends with one."""
    if not zipfile.is_zipfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(_TAR_MAGIC.stop)[_TAR_MAGIC] != b"ustar"


def _tar_entries(archive: tarfile.TarFile, path: PathLike) -> Iterator[_Member]:
    for entry in archive:
        if not (entry.isreg() or entry.isdir()) or entry.issparse():
            kind = "a link" if entry.issym() or entry.islnk() else "neither a plain file nor a directory"
            raise _refusal(path, entry.name, f"it is {kind}")
        yield _Member(entry.name, entry.size, entry.isdir(), functools.partial(archive.extractfile, entry))


def _zip_entries(archive: zipfile.ZipFile, path: PathLike) -> Iterator[_Member]:
    for entry in archive.infolist():
        mode = entry.external_attr >> 16
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _refusal(path, entry.filename, "it is a link, or neither a file nor a directory")
        if entry.flag_bits & 1:
            raise _refusal(path, entry.filename, "it is encrypted; unpack the archive yourself")
        expansion = entry.file_size / max(1, entry.compress_size)
        if entry.file_size > compression.MOST_UNCHECKED_BYTES and expansion > compression.MOST_EXPANSION:
            raise _refusal(path, entry.filename, f"it expands to {expansion:,.0f} times its size, as no text does")
        yield _Member(entry.filename, entry.file_size, entry.is_dir(), functools.partial(archive.open, entry))


def _checked(entries: Iterator[_Member], path: PathLike) -> Iterator[_Member]:
    """Yields the entries, with names without ``./``; refuses unsafe paths, and too many members or bytes in total."""
    total = 0
    for number, entry in enumerate(entries, 1):
        name = entry.name
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
        if name.startswith(("/", "\\")) or ".." in parts or re.match(r"[A-Za-z]:", name) or "\0" in name:
            raise _refusal(path, name, "its path leads out of the directory that it is unpacked to")
        total += entry.size
        if number > MOST_MEMBERS or total > MOST_BYTES:
            members, size = (
                f"has more than {MOST_MEMBERS:,} members",
                f"holds more than {files.format_bytes(MOST_BYTES)}",
            )
            too_much = members if number > MOST_MEMBERS else size
            raise UserError(f"{path} {too_much}; unpack it yourself, if it is to be trusted.")
        yield dataclasses.replace(entry, name="/".join(parts) or ".")


def _refusal(archive: PathLike, name: str, reason: str) -> UserError:
    return UserError(f"{archive}: the member {name!r} is refused: {reason}. Nothing was unpacked.")
