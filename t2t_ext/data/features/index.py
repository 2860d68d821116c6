"""Where the features of each of many sources lie, so that one can be read without the others.

Folders of ``NAME.npz`` or ``NAME.npy`` files, ``.npz`` files with an array under every name, and tables (``.tsv``)
whose lines are found once and then gone to; see ``t2t_ext.data.features.sources`` for what is in them.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import numpy as np

from t2t_ext.data.features import sources as feature_sources
from t2t_ext.data.features.float_files import DAMAGED
from t2t_ext.data.features.types import UnusableValue
from t2t_ext.errors import UserError

OWN_FILE, IN_ARCHIVE = -1, -2
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tgz", ".tar")


@dataclasses.dataclass(frozen=True)
class FeatureIndex:
    """The places of features.

    Attributes:
      places: Name of a source -> its file and, in a table, where its line begins; else one of the two below.
      repeated: Lines of tables whose source is there already; the first counts.
    """

    places: dict[str, tuple[pathlib.Path, int]]
    repeated: int = 0

    @classmethod
    def of(cls, paths: Sequence[str | os.PathLike]) -> Self:
        """Looks for the sources in folders and tables.

        Args:
          paths: Folders of ``.npz`` and ``.npy`` files, ``.npz`` files, and ``.tsv`` tables.

        Raises:
          UserError: A path is neither, is missing or compressed, or holds no source.
        """
        places: dict[str, tuple[pathlib.Path, int]] = {}
        repeated = 0
        for path in map(pathlib.Path, paths):
            before = len(places) + repeated
            found = _of_folder(path) if path.is_dir() else _of_file(path)
            for name, place in found:
                repeated += name in places
                places.setdefault(name, place)
            if len(places) + repeated == before:
                raise UserError(f"{path} holds no features: neither .npz or .npy files nor lines of a table.")
        return cls(places, repeated)

    def reader(self, name: str) -> Callable[[], np.ndarray]:
        """Returns what reads the features [regions, F] of a source that is there.

        The result raises ``UnusableValue`` where they cannot be read.
        """
        path, start = self.places[name]
        return _LineReader(path, start, name) if start >= 0 else _FileReader(path, name if start == IN_ARCHIVE else "")


@dataclasses.dataclass(frozen=True)
class _FileReader:
    path: pathlib.Path
    name: str = ""

    def __call__(self) -> np.ndarray:
        try:
            return _with_vectors(feature_sources.read_single(self.path, self.name), f"{self.path} {self.name}".rstrip())
        except UserError as error:
            raise UnusableValue(DAMAGED, str(error).rstrip(".")) from error


@dataclasses.dataclass(frozen=True)
class _LineReader:
    path: pathlib.Path
    start: int
    name: str

    def __call__(self) -> np.ndarray:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.start)
                found, rows = feature_sources.parse_row(file.readline())
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror}.") from error
        if found != self.name:
            raise UserError(f"{self.path} has changed while it was read. Start again.")
        return _with_vectors(rows, f"{self.path}, byte {self.start:,}")


def _with_vectors(rows: np.ndarray, where: str) -> np.ndarray:
    if rows.ndim == 2 and not np.any(rows):
        raise UnusableValue(DAMAGED, f"{where}: no region, or nothing but zeros")
    return rows


def _of_folder(path: pathlib.Path) -> Iterable[tuple[str, tuple[pathlib.Path, int]]]:
    names = sorted(entry.name for entry in os.scandir(path) if entry.name.endswith((".npz", ".npy")))
    return ((name[: -len(".npz")], (path / name, OWN_FILE)) for name in names)


def _of_file(path: pathlib.Path) -> Iterable[tuple[str, tuple[pathlib.Path, int]]]:
    if not path.is_file():
        raise UserError(f"No such file or folder: {path}. Give a folder of .npz files, or a table of features (.tsv).")
    if path.suffix in _COMPRESSED:
        raise UserError(f"{path} is compressed, but single lines of it must be found quickly: unpack it first.")
    if path.suffix == ".npz":
        return ((name, (path, IN_ARCHIVE)) for name in feature_sources.names_in(path))
    if not feature_sources.is_table(path):
        raise UserError(f"{path} is neither a folder of .npz files, nor .npz, nor a table of features (.tsv).")
    return _lines_of(path)


def _lines_of(path: pathlib.Path) -> Iterable[tuple[str, tuple[pathlib.Path, int]]]:
    start = 0
    with open(path, "rb") as file:
        for line in file:
            if line.strip():
                yield line.split(b"\t", 1)[0].decode("utf-8", errors="replace").strip(), (path, start)
            start += len(line)
