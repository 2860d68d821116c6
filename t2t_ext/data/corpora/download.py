"""Downloads raw files: verifies checksums, resumes downloads, and never gives an incomplete file its final name."""

import http.client
import os
import pathlib
import stat
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, BinaryIO

from t2t_ext.errors import UserError
from t2t_ext.io import files, locks, log
from t2t_ext.io.progress import progress

ATTEMPTS = 3
SECONDS_BEFORE_RETRY = 2.0
TIMEOUT_SECONDS = 30.0
MOST_BYTES = 64 << 30  # per file; the largest corpus that t2t_ext downloads has 3 GB
_BLOCK_BYTES = 1 << 16
_MOST_BYTES_OF_VERSION = 1000
_RANGE_NOT_SATISFIABLE = 416


def fetch(url: str, path: str | os.PathLike, sha256: str | None = None, *, show_progress: bool = True) -> pathlib.Path:
    """Downloads a file if it does not exist yet, checks its checksum, and returns its path.

    An interrupted download is resumed if the file on the server is still the same. If several processes want the same
    file, one of them downloads it and the others wait. If no checksum is published, the checksum of the first download
    is saved next to the file (``FILE.sha256``) with a warning, and the file must match it from then on. A file that the
    user placed there without a checksum is accepted as it is.

    Args:
      url: The URL of the file.
      path: The path of the downloaded file; its directory is created.
      sha256: The hexadecimal checksum that the file must have; None if none is published.
      show_progress: Whether to show a progress bar or progress lines.

    Returns:
      The path of the file.

    Raises:
      UserError: The existing or downloaded file has another checksum; or the download failed, is larger than any
        corpus, or was redirected from https to http. The message names the file and the URL, and says what to do.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        lock = path.with_name(f".{path.name}.lock")
        with locks.held(lock, f"downloads {path}", wait=log.info, make_directory=True):
            if not path.is_file():  # another process may have downloaded it while this one waited
                _fetch_new(url, path, sha256, show_progress)
                return path
    _check(path, url, sha256)
    return path


def _fetch_new(url: str, path: pathlib.Path, sha256: str | None, show_progress: bool) -> None:
    """Downloads a file that does not exist yet; see ``fetch``."""
    part = path.with_name(path.name + ".part")
    by_hand = f"Get {url} in another way and put it there as {path}, then run the same command again."
    try:
        _download(url, part, show_progress)
        found = files.sha256_of_file(part)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"{path.name} could not be downloaded from {url} ({reason}). {by_hand}") from error
    known = sha256 or _recorded(path)
    if known is None:
        files.write_text_atomically(record_of(path), f"{found}  {path.name}\n")
        log.warning(
            f"{path.name} came from {url}, of which no SHA-256 is published. What came has {found}, which is kept in "
            f"{record_of(path)}; compare it with that of others."
        )
    elif found != known:
        _discard(part)
        raise UserError(
            f"What {url} gave for {path.name} is not the file that is expected: its SHA-256 is {found}, not {known}. "
            f"{_if_meant(path, sha256)}{by_hand}"
        )
    os.replace(part, path)
    _version_of(part).unlink(missing_ok=True)


def private_folder() -> str:
    """Returns the default directory for raw files: the user's own, in the system's directory for temporary files.

    The directory is created if it is missing.

    Raises:
      UserError: The directory cannot be created, belongs to another user, or other users may write to it.
    """
    earlier = os.path.join(tempfile.gettempdir(), "t2t_datagen")  # of tensor2tensor and earlier versions
    if _is_own(earlier):
        return earlier
    path = f"{earlier}-{os.getuid()}"
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path} cannot be made: {error.strerror}. Give another folder: --tmp_dir=DIR.") from error
    if not _is_own(path):
        raise UserError(f"{path} is not yours alone: others can put files there. Give another folder: --tmp_dir=DIR.")
    return path


def _is_own(path: str) -> bool:
    """Returns whether a path is a directory that only this user can write to."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def record_of(path: str | os.PathLike) -> pathlib.Path:
    """Returns the path of the file with the checksum of the first download, in the format of ``sha256sum``."""
    return pathlib.Path(f"{os.fspath(path)}.sha256")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from https to a less secure protocol."""

    def redirect_request(self, request: Any, *arguments: Any) -> Any:
        url = arguments[-1]
        schemes = [urllib.parse.urlsplit(each).scheme.lower() for each in (request.full_url, url)]
        if schemes[1] != "https" and schemes != ["http", "http"]:
            raise UserError(
                f"{request.full_url} leads to {url}: what comes from there may be anybody's. It is not downloaded; see "
                "whether the file has moved, and put it there by hand."
            )
        return super().redirect_request(request, *arguments)


def _opened_part(part: pathlib.Path, *, resumed: bool) -> BinaryIO:
    """Opens the unfinished file for appending, empty unless ``resumed``; refuses links and special files."""
    advice = "Remove it, or give another --tmp_dir."
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise UserError(f"{part} cannot be written: {error.strerror or error}. {advice}") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise UserError(f"{part} is no file of its own. {advice}")
    if not resumed:
        os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "ab")


def _check(path: pathlib.Path, url: str, sha256: str | None) -> None:
    """Checks that a file has its published checksum, or the checksum of its first download."""
    known = sha256 or _recorded(path)
    if known is None or (found := files.sha256_of_file(path)) == known:
        return
    raise UserError(
        f"{path} is not the file that is expected: its SHA-256 is {found}, not {known}. {_if_meant(path, sha256)}"
        f"Remove it to have it downloaded from {url}."
    )


def _recorded(path: pathlib.Path) -> str | None:
    """Returns the checksum of the first download of a file; None if none was recorded."""
    record = record_of(path)
    if not record.is_file():
        return None
    return record.read_text(encoding="utf-8", errors="replace").partition(" ")[0].strip()


def _if_meant(path: pathlib.Path, sha256: str | None) -> str:
    """Returns advice for the case that a file is meant to differ from its first download."""
    if sha256 is not None:
        return ""
    return f"If the new content is meant, remove {record_of(path)}, which holds the checksum of the first download. "


def _version_of(part: pathlib.Path) -> pathlib.Path:
    """Returns the path of the file that records the version of an unfinished file, as the server stated it."""
    return part.with_name(part.name + ".version")


def _discard(part: pathlib.Path) -> None:
    """Removes an unfinished file and its version record."""
    part.unlink(missing_ok=True)
    _version_of(part).unlink(missing_ok=True)


def _version_there(part: pathlib.Path) -> str:
    """Returns the recorded version of an unfinished file; empty if it is not known."""
    try:
        version = _version_of(part).read_bytes()[:_MOST_BYTES_OF_VERSION].decode("latin-1").strip()
    except OSError:
        return ""
    return version if version.isascii() and version.isprintable() else ""


def _version_given(headers: Any) -> str:
    """Returns the version of a file as stated by the server: its ETag, otherwise its modification time, otherwise "".

    A weak ETag (``W/...``) is ignored, because different bytes can share it.
    """
    tag = (headers.get("ETag") or "").strip()
    return tag if tag and not tag.startswith("W/") else (headers.get("Last-Modified") or "").strip()


def _download(url: str, part: pathlib.Path, show_progress: bool) -> None:
    """Downloads to a file, resuming an earlier attempt, and retries after errors that may be temporary."""
    for attempt in range(1, ATTEMPTS + 1):
        done, version = part.stat().st_size if part.exists() else 0, _version_there(part)
        headers = {"Range": f"bytes={done}-"} if done else {}
        if done and version:  # if the version has changed, the server sends the whole file
            headers["If-Range"] = version
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT_SECONDS) as response:
                _receive(response, part, show_progress)
            return
        except urllib.error.HTTPError as error:
            if error.code == _RANGE_NOT_SATISFIABLE:  # the server has no bytes beyond those already received
                whole = (error.headers.get("Content-Range") or "").rpartition("/")[2]
                if whole.isdecimal() and int(whole) != done:  # the bytes already received are of another file
                    _discard(part)
                    _download(url, part, show_progress)
                return
            if error.code < 500 or attempt == ATTEMPTS:
                raise
        except (OSError, http.client.HTTPException):
            if attempt == ATTEMPTS:
                raise
        time.sleep(SECONDS_BEFORE_RETRY * attempt)


def _receive(response: http.client.HTTPResponse, part: pathlib.Path, show_progress: bool) -> None:
    resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
    version, begun = _version_given(response.headers), _version_there(part)
    if resumed and version and begun and version != begun:  # the server does not support If-Range
        _discard(part)
        raise http.client.HTTPException("the file there changed after the download began")
    stated = response.headers.get("Content-Length") or ""
    length, received = int(stated) if stated.isdecimal() else 0, 0
    with (
        progress(f"Downloading {part.stem}", length or None, "bytes", enabled=show_progress) as advance,
        _opened_part(part, resumed=resumed) as file,
    ):
        if not resumed:  # the file is empty now; a stale version record could later join parts of two versions
            _version_of(part).unlink(missing_ok=True)
        if not resumed and version:
            files.write_text_atomically(_version_of(part), f"{version}\n")
        most = MOST_BYTES - file.tell()
        while received <= most and length <= most and (block := response.read(_BLOCK_BYTES)):
            file.write(block)
            received += len(block)
            advance(len(block))
        if max(received, length) > most:
            raise UserError(
                f"{response.url} gives more than {files.format_bytes(MOST_BYTES)} for {part.stem}, which is no corpus. "
                f"Remove {part} and see what is there."
            )
    if received < length:
        raise http.client.IncompleteRead(b"", length - received)
