"""Downloads raw files: checked, resumable, and never half there under their names."""

import http.client
import os
import pathlib
import time
import urllib.error
import urllib.request

from t2t_ext.errors import UserError
from t2t_ext.io import files
from t2t_ext.io.progress import progress

ATTEMPTS = 3
SECONDS_BEFORE_RETRY = 2.0
TIMEOUT_SECONDS = 30.0
_BLOCK_BYTES = 1 << 16
_RANGE_NOT_SATISFIABLE = 416


def fetch(url: str, path: str | os.PathLike, sha256: str | None = None, *, show_progress: bool = True) -> pathlib.Path:
    """Returns a file that has the given checksum, downloading it where it is not there yet.

    A download that was interrupted is resumed. Where no checksum is known in advance, that of the first
    download is written beside the file (``FILE.sha256``), and the file must have it from then on; a file that the user
    put there without one is taken as it is.

    Args:
      url: Where it is.
      path: Where it goes; its directory is created.
      sha256: What its content must have, hexadecimal; None where it is not published.
      show_progress: Whether to show a progress bar or lines.

    Raises:
      UserError: The file there, or what came, has another checksum; or the download failed. The message
        names file and URL and says how to put the file there by hand.
    """
    path = pathlib.Path(path)
    if path.is_file():
        _check(path, url, sha256)
        return path
    part = path.with_name(path.name + ".part")
    by_hand = f"Get {url} in another way and put it there as {path}, then run the same command again."
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _download(url, part, show_progress)
        found = files.sha256_of_file(part)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"{path.name} could not be downloaded from {url} ({reason}). {by_hand}") from error
    if sha256 is None:
        files.write_text_atomically(record_of(path), f"{found}  {path.name}\n")
    elif found != sha256:
        part.unlink()
        raise UserError(
            f"What {url} gave for {path.name} is not the file that is expected: its SHA-256 is {found}, not {sha256}. "
            f"{by_hand}"
        )
    os.replace(part, path)
    return path


def record_of(path: str | os.PathLike) -> pathlib.Path:
    """Returns the file that the checksum of a first download is written to, in the format of ``sha256sum``."""
    return pathlib.Path(f"{os.fspath(path)}.sha256")


def _check(path: pathlib.Path, url: str, sha256: str | None) -> None:
    """Checks that a file has the checksum that is known, or that its first download had."""
    record = record_of(path)
    known = sha256
    if known is None and record.is_file():
        known = record.read_text(encoding="utf-8", errors="replace").partition(" ")[0].strip()
    if known is None or (found := files.sha256_of_file(path)) == known:
        return
    advice = f"Remove it to have it downloaded from {url}."
    if sha256 is None:
        advice += f" If the new content is meant, remove {record}, which holds the checksum of the first download."
    raise UserError(f"{path} is not the file that is expected: its SHA-256 is {found}, not {known}. {advice}")


def _download(url: str, part: pathlib.Path, show_progress: bool) -> None:
    """Downloads to a file; resumes an earlier attempt, and tries again what may succeed then."""
    for attempt in range(1, ATTEMPTS + 1):
        done = part.stat().st_size if part.exists() else 0
        request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                _receive(response, part, show_progress)
            return
        except urllib.error.HTTPError as error:
            if error.code == _RANGE_NOT_SATISFIABLE:  # there is no more than what is there
                return
            if error.code < 500 or attempt == ATTEMPTS:
                raise
        except (OSError, http.client.HTTPException):
            if attempt == ATTEMPTS:
                raise
        time.sleep(SECONDS_BEFORE_RETRY * attempt)


def _receive(response: http.client.HTTPResponse, part: pathlib.Path, show_progress: bool) -> None:
    resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
    length = int(response.headers.get("Content-Length") or 0)
    received = 0
    with (
        progress(f"Downloading {part.stem}", length or None, "bytes", enabled=show_progress) as advance,
        open(part, "ab" if resumed else "wb") as file,
    ):
        while block := response.read(_BLOCK_BYTES):
            file.write(block)
            received += len(block)
            advance(len(block))
    if received < length:
        raise http.client.IncompleteRead(b"", length - received)
