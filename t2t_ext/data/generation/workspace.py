"""The directory in which a set of data files is made before all get their final names together.

Everything is written into a hidden directory inside the data directory. When it is complete,
the files are renamed into the data directory, the manifest last, so that a reader who finds a
manifest finds the whole set. A killed process leaves the hidden directory and perhaps files
without a manifest; the next one removes both. A lock lets one process at a time work on a problem's data.
"""

import contextlib
import fcntl
import itertools
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator

from t2t_ext.data.datasets.manifest import is_data_file, manifest_path
from t2t_ext.errors import UserError
from t2t_ext.io import files


@contextlib.contextmanager
def locked_workspace(data_dir: pathlib.Path, base_name: str, say: Callable[[str], None]) -> Iterator[pathlib.Path]:
    """Gives an empty directory to work in, alone; removes it at the end, and folders made for it that stay empty.

    Args:
      data_dir: Where the files will go; created where it is missing.
      base_name: The problem's name.
      say: Tells the user that another process is waited for, or what was cleaned up.

    Yields:
      The directory, on the same file system as ``data_dir``.

    Raises:
      UserError: The data directory cannot be written to.
    """
    path = _workspace_path(data_dir, base_name)
    made = list(itertools.takewhile(lambda folder: not folder.exists(), (data_dir, *data_dir.parents)))
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(path, say)
    except OSError as error:
        raise UserError(f"--data_dir={data_dir} cannot be written to: {error.strerror or error}.") from error
    try:
        if any(path.iterdir()):
            for entry in path.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            say(f"Removed what an interrupted generation left in {path}.")
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)
        with contextlib.suppress(OSError):  # there are data in it
            for folder in made:
                folder.rmdir()


def remove_abandoned(data_dir: pathlib.Path, base_name: str) -> None:
    """Removes what a killed process left, unless a process is at work there now."""
    path = _workspace_path(data_dir, base_name)
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    os.close(descriptor)


def publish(workspace: pathlib.Path, data_dir: pathlib.Path, base_name: str) -> None:
    """Moves finished files to their final names; the manifest goes first when it is replaced and comes last.

    Data files of this problem that are there already are removed.
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


def _lock(path: pathlib.Path, say: Callable[[str], None]) -> int:
    """Creates and locks a directory, waiting for the process that holds it; returns the locked descriptor."""
    told = False
    while True:
        path.mkdir(parents=True, exist_ok=True)  # the one who was waited for may have removed an empty data_dir
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                say(f"Another process is generating these data (it holds {path}); waiting until it is done.")
                told = True
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # The process that held it may have removed it: then the lock is on a directory without a name.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)
