"""Downloads raw files: checked, resumable, and never half there under their names."""

import http.client
import os
import pathlib
import time
import urllib.error
import urllib.request
from typing import BinaryIO

from t2t_ext.data.progress import Advance, progress
from t2t_ext.errors import UserError
from t2t_ext.persistence import files

ATTEMPTS = 3
SECONDS_BEFORE_RETRY = 2.0
TIMEOUT_SECONDS = 30.0
_BLOCK_BYTES = 1 << 16
_RANGE_NOT_SATISFIABLE = 416


def fetch(url: str, path: str | os.PathLike, sha256: str, *, show_progress: bool = True) -> pathlib.Path:
    """Returns a file that has the given checksum, downloading it where it is not there yet.

    A download that was interrupted goes on where it stopped.

    Args:
      url: Where it is.
      path: Where it goes; its directory is created.
      sha256: What its content must have, hexadecimal.
      show_progress: Whether to show a progress bar or lines.

    Raises:
      UserError: The file there, or what came, has another checksum; or the download failed. The message
        names file and URL and says how to put the file there by hand.
    """
    path = pathlib.Path(path)
    if path.is_file():
        found = files.sha256_of_file(path)
        if found != sha256:
            raise UserError(
                f"{path} is not the file that is expected: its SHA-256 is {found}, not {sha256}. "
                f"Remove it to have it downloaded from {url}."
            )
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
    if found != sha256:
        part.unlink()
        raise UserError(
            f"What {url} gave for {path.name} is not the file that is expected: its SHA-256 is {found}, not {sha256}. "
            f"{by_hand}"
        )
    os.replace(part, path)
    return path


def _download(url: str, part: pathlib.Path, show_progress: bool) -> None:
    """Downloads to a file, going on where an earlier attempt stopped.

    Raises:
      OSError: It failed at every attempt, or for a reason that will not go away.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _download_once(url, part, show_progress)
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


def _download_once(url: str, part: pathlib.Path, show_progress: bool) -> None:
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        length = response.headers.get("Content-Length")
        with (
            progress(
                f"Downloading {part.stem}", int(length) if length else None, "bytes", enabled=show_progress
            ) as bar,
            open(part, "ab" if resumed else "wb") as file,
        ):
            received = _copy(response, file, bar)
    if length and received < int(length):
        raise http.client.IncompleteRead(b"", int(length) - received)


def _copy(response: http.client.HTTPResponse, file: BinaryIO, advance: Advance) -> int:
    received = 0
    while block := response.read(_BLOCK_BYTES):
        file.write(block)
        received += len(block)
        advance(len(block))
    return received
