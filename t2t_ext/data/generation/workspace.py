"""Provides the directory in which data files are made before all of them get their final names together.

Everything is written into a hidden directory inside the data directory. When the set is complete,
its files are moved into the data directory, the manifest last, so that a reader who finds a
manifest finds the whole set. A killed process leaves the hidden directory and perhaps files
without a manifest; the next process removes both. A lock lets only one process at a time work on
a problem's data.
"""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator

from t2t_ext.data.datasets.manifest import is_data_file, manifest_path
from t2t_ext.errors import UserError
from t2t_ext.io import files, locks


@contextlib.contextmanager
def locked_workspace(data_dir: pathlib.Path, base_name: str, say: Callable[[str], None]) -> Iterator[pathlib.Path]:
    """Locks a problem's data and yields an empty working directory, which is removed at the end.

    Folders that were created for it are removed, too, if they stay empty.

    Args:
      data_dir: The final directory of the files; created if it is missing.
      base_name: The problem's name.
      say: Tells the user that this process waits for another one, or what was cleaned up.

    Yields:
      The directory, on the same file system as ``data_dir``.

    Raises:
      UserError: The data directory cannot be written to.
    """
    path = _workspace_path(data_dir, base_name)
    with _locked(data_dir, base_name, say):
        if path.is_dir() and any(path.iterdir()):
            say(f"Removed what an interrupted generation left in {path}.")
        shutil.rmtree(path, ignore_errors=True)
        try:
            path.mkdir()
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def remove_abandoned(data_dir: pathlib.Path, base_name: str) -> None:
    """Removes what a killed process left, unless another process is working there now."""
    path = _workspace_path(data_dir, base_name)
    if path.exists() or _lock_path(data_dir, base_name).exists():
        with contextlib.suppress(UserError), _locked(data_dir, base_name):
            shutil.rmtree(path, ignore_errors=True)


def publish(workspace: pathlib.Path, data_dir: pathlib.Path, base_name: str) -> None:
    """Moves finished files to their final names; an old manifest is removed first, the new one is moved last.

    Existing data files of this problem are removed.
    """
    manifest = manifest_path(data_dir, base_name)
    replaced = [path for path in data_dir.iterdir() if is_data_file(path.name, base_name)]
    if manifest.exists():
        manifest.unlink()
        files.fsync_directory(data_dir)
    for path in replaced:
        path.unlink()
    for path in sorted(workspace.iterdir()):
        if path.is_file() and path.name != manifest.name:
            os.replace(path, data_dir / path.name)
    files.fsync_directory(data_dir)
    os.replace(workspace / manifest.name, manifest)
    files.fsync_directory(data_dir)


def _workspace_path(data_dir: pathlib.Path, base_name: str) -> pathlib.Path:
    return data_dir / f".{base_name}.generating"


def _lock_path(data_dir: pathlib.Path, base_name: str) -> pathlib.Path:
    return data_dir / f".{base_name}.lock"


def _locked(
    data_dir: pathlib.Path, base_name: str, wait: Callable[[str], None] | None = None
) -> contextlib.AbstractContextManager[None]:
    what = f"is generating the data of {base_name} in {data_dir}"
    return locks.held(_lock_path(data_dir, base_name), what, wait=wait, make_directory=True)
