"""Checks whether the files of an export are as they were written. Imports no TensorFlow.

``export.json`` records the size and SHA-256 of every other file. Exports without this file, or from versions that did
not record this, cannot be checked: damage is found only if a reader stumbles on it.
"""

import os
import pathlib
from collections.abc import Collection
from typing import Any, NotRequired, TypedDict

from t2t_ext.errors import UserError
from t2t_ext.io import files, stored

DESCRIPTION_NAME = "export.json"
ADVICE = "Copy it again from where it is whole, or export it again (t2t_ext-exporter --overwrite)."


class _Description(TypedDict):
    """The part of ``export.json`` that is read."""

    files: NotRequired[dict[str, stored.FileEntry]]


def record(directory: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Returns the entries of ``export.json`` for the files of an export: relative path -> size and SHA-256."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {
        path.relative_to(directory).as_posix(): {"bytes": path.stat().st_size, "sha256": files.sha256_of_file(path)}
        for path in found
        if path.name != DESCRIPTION_NAME
    }


def check(directory: str | os.PathLike, names: Collection[str] | None = None) -> None:
    """Compares the files of an export such as ``EXPORT/500`` with the sizes and SHA-256 recorded in ``export.json``.

    ``names`` restricts the check to some files; None: all.

    Raises:
      UserError: A file is missing, truncated or changed, or ``export.json`` is damaged; the message names the file.
    """
    directory = pathlib.Path(directory)
    path = directory / DESCRIPTION_NAME
    try:
        noted = stored.read(path, _Description).get("files", {})
    except FileNotFoundError:
        return
    except (OSError, stored.Damaged) as error:
        raise UserError(f"{path} is damaged ({error}). {ADVICE}") from error
    for name, entry in noted.items():
        if (names is None or name in names) and (fault := _fault(directory / name, entry)):
            raise UserError(f"The exported model {directory} is damaged: {name} {fault}. {ADVICE}")


def _fault(path: pathlib.Path, entry: dict[str, Any]) -> str:
    try:
        if not path.is_file():
            return "is missing"
        if (size := path.stat().st_size) != entry["bytes"]:
            return f"has {size:,} bytes, {entry['bytes']:,} were written"
        return "" if files.sha256_of_file(path) == entry["sha256"] else "is not as it was written (its SHA-256 differs)"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
