"""Reads sources that are feature vectors instead of text, such as the regions of images.

Three kinds of files are supported:

* ``.npy``: one source [regions, F], or many sources [sources, regions, F], in which trailing rows of zeros are padding.
* ``.npz``: one source in an array ``feat``, or one source in each array, with the name of the array. A directory of
  files ``NAME.npz`` or ``NAME.npy`` with one source each works in the same way.
* ``.tsv``: a table with the six columns image_id, image_w, image_h, num_boxes, boxes and features. The last two are
  float32 in base64, as https://github.com/peteanderson80/bottom-up-attention publishes them. It may be compressed.

``read_sources`` reads a whole file. ``FeatureIndex`` records where each of many sources is stored, so that a single
source can be read without the others: the lines of a table are located once and then read with a seek.
"""

import base64
import binascii
import dataclasses
import functools
import os
import pathlib
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

import numpy as np

from t2t_ext.data.corpora import raw_files
from t2t_ext.data.features.float_files import DAMAGED
from t2t_ext.data.features.types import UnusableValue
from t2t_ext.errors import UserError
from t2t_ext.io import inputs
from t2t_ext.pages import page

SUFFIXES = (".npy", ".npz", ".tsv")
FILES_OF_FEATURES = (".npz", ".npy")  # in a directory
COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
OWN_FILE, IN_ARCHIVE = -1, -2
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tgz", ".tar")
_SINGLE = "feat"
_TABLE = re.compile(r"\.tsv(\.\d+)?(\.(gz|bz2|xz|zst))?$")
_BAD = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile)


@dataclasses.dataclass(frozen=True)
class FeatureSource:
    """One source of feature vectors.

    Attributes:
      name: The name of the source, such as the number of an image.
      rows: float [regions, F], the feature vectors.
    """

    name: str
    rows: np.ndarray

    def __str__(self) -> str:
        return self.name


def read_sources(path: str | os.PathLike, size: int = 0) -> list[FeatureSource]:
    """Returns all sources in a file or a directory, as float32.

    Args:
      path: The file or directory to read.
      size: F, the required length of each vector; 0 accepts the length of the first vector.

    Raises:
      UserError: The path is missing or of an unsupported kind, or a source in it is unusable; the message names it.
    """
    path = pathlib.Path(path)
    found = []
    for name, rows in _arrays(path):
        size = size or (rows.shape[1] if rows.ndim == 2 else 0)
        if rows.ndim != 2 or rows.shape[1] != size or not np.issubdtype(rows.dtype, np.floating):
            raise UserError(
                f"{path}: {name} is {rows.dtype} of shape {list(rows.shape)}, but float [regions, "
                f"{size or 'F'}] is wanted. Give features of the kind that the model was trained on."
            )
        if not np.isfinite(rows).all():
            raise UserError(f"{path}: {name} has numbers that are not finite. Make its features again.")
        found.append(FeatureSource(name, np.asarray(rows, np.float32)))
    if not found:
        raise UserError(f"{path} holds no source: no array of features.")
    return found


def _arrays(path: pathlib.Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the name and the array of each source in a file or a directory."""
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.suffix in FILES_OF_FEATURES)
        if not files:
            raise UserError(f"{path} is a folder without .npz or .npy files. Give one that has a file for each source.")
        yield from ((each.stem, read_single(each)) for each in files)
    elif not inputs.is_file(path):
        raise UserError(f"No such file: {path}. Give a file of features ({', '.join(SUFFIXES)}) or a folder of them.")
    elif is_table(path) or (inputs.is_pipe(path) and not inputs.on_disk(path).suffix):
        with raw_files.opened(path) as file:
            for number, line in enumerate(file, 1):
                try:
                    row = parse_row(line)
                except UnusableValue as error:
                    message = f"{path}, line {number}: {error.explanation}. Correct it or leave it out."
                    raise UserError(message) from error
                yield row
    elif (path := inputs.on_disk(path)).suffix in SUFFIXES:
        names = [""] if path.suffix == ".npy" else names_in(path)
        for name in names:
            rows = read_single(path, name)
            if rows.ndim == 3 and len(names) == 1:  # one source per entry of the first axis, named by its number
                for number, each in enumerate(rows, 1):
                    real = np.flatnonzero(np.any(each != 0, axis=1))
                    yield str(number), each[: int(real[-1]) + 1 if len(real) else 0]
            else:
                yield path.stem if names in ([""], [_SINGLE]) else name, rows
    else:
        raise UserError(
            f"{path} is no file of features: the run reads feature vectors, not lines of text. Give "
            f"{', '.join(SUFFIXES)} or a folder of .npz files; for what is in them see {page('captioning')}."
        )


def is_table(path: pathlib.Path) -> bool:
    """Returns whether a file name is that of a feature table: ``.tsv`` or a part ``.tsv.0``, compressed or not."""
    return _TABLE.search(path.name) is not None


def names_in(path: pathlib.Path) -> list[str]:
    """Returns the names of the arrays in an ``.npz`` file.

    Raises:
      UserError: The file cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as loaded:
            return list(loaded.files)
    except _BAD as error:
        raise UserError(f"{path} cannot be read as NumPy's .npz: {error}.") from error


def read_single(path: pathlib.Path, name: str = "") -> np.ndarray:
    """Returns one array of an ``.npy`` or ``.npz`` file: the one with this name, otherwise ``feat`` or the only array.

    Raises:
      UserError: The file cannot be read, or it has several arrays and none is named ``feat``.
    """
    try:
        if name:
            status = os.stat(path)
            return _opened_archive(path, status.st_size, status.st_mtime_ns)[name]
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            chosen = _SINGLE if _SINGLE in loaded.files else loaded.files[0]
            if len(loaded.files) > 1 and chosen != _SINGLE:
                raise UserError(f"{path} holds {', '.join(loaded.files)}: call the features {_SINGLE}.")
            return loaded[chosen]
    except (*_BAD, IndexError) as error:
        raise UserError(f"{path} cannot be read as NumPy's {path.suffix}: {error}.") from error


@functools.lru_cache(maxsize=8)
def _opened_archive(path: pathlib.Path, size: int, modified_ns: int) -> Mapping[str, np.ndarray]:
    """Returns an ``.npz`` file that stays open: with many arrays, opening it for each would take hours."""
    del size, modified_ns  # only parts of the cache key: the file may change
    return np.load(path, allow_pickle=False)


def parse_row(line: bytes) -> tuple[str, np.ndarray]:
    """Returns the name and the features, float32 [regions, F], in a row of a table.

    Raises:
      UnusableValue: The row does not have six columns, or a column has invalid content.
    """
    columns = line.rstrip(b"\r\n").split(b"\t")
    if len(columns) != len(COLUMNS):
        raise UnusableValue(DAMAGED, f"{len(columns)} tab-separated columns where {', '.join(COLUMNS)} are wanted")
    name, boxes, features = columns[0].decode("utf-8", errors="replace").strip(), columns[3], columns[5]
    try:
        regions = int(boxes)
        numbers = np.frombuffer(base64.b64decode(features, validate=True), "<f4")
        if regions < 1 or not numbers.size or numbers.size % regions:
            raise ValueError(f"{numbers.size} numbers for {regions} regions")
        return name, numbers.reshape(regions, -1)
    except (ValueError, binascii.Error) as error:
        raise UnusableValue(DAMAGED, f"the features of {name} are damaged ({error})") from error


@dataclasses.dataclass(frozen=True)
class FeatureIndex:
    """An index of the places where the features of sources are stored.

    Attributes:
      places: For the name of each source, its file and the byte offset of its line in a table; for other files,
        ``OWN_FILE`` or ``IN_ARCHIVE`` instead of an offset.
      repeated: The number of sources found again under the same name; the first one is used.
    """

    places: dict[str, tuple[pathlib.Path, int]]
    repeated: int = 0

    @classmethod
    def of(cls, paths: Sequence[str | os.PathLike]) -> Self:
        """Returns the index of the sources in directories and files.

        Args:
          paths: Directories of ``.npz`` and ``.npy`` files, ``.npz`` files, and ``.tsv`` tables.

        Raises:
          UserError: A path is none of these, is missing or compressed, or contains no source.
        """
        places: dict[str, tuple[pathlib.Path, int]] = {}
        repeated = 0
        for path in map(pathlib.Path, paths):
            before = len(places) + repeated
            for name, place in _places(path):
                repeated += name in places
                places.setdefault(name, place)
            if len(places) + repeated == before:
                raise UserError(f"{path} holds no features: neither .npz or .npy files nor lines of a table.")
        return cls(places, repeated)

    def reader(self, name: str) -> Callable[[], np.ndarray]:
        """Returns a function that reads the features [regions, F] of a source in the index.

        The function raises ``UnusableValue`` if the features are damaged.
        """
        path, start = self.places[name]
        if start >= 0:
            return functools.partial(_read_line, path, start, name)
        return functools.partial(_read_file, path, name if start == IN_ARCHIVE else "")


def _read_file(path: pathlib.Path, name: str) -> np.ndarray:
    try:
        return _with_vectors(read_single(path, name), f"{path} {name}".rstrip())
    except UserError as error:
        raise UnusableValue(DAMAGED, str(error).rstrip(".")) from error


def _read_line(path: pathlib.Path, start: int, name: str) -> np.ndarray:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            found, rows = parse_row(file.readline())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    if found != name:
        raise UserError(f"{path} has changed while it was read. Start again.")
    return _with_vectors(rows, f"{path}, byte {start:,}")


def _with_vectors(rows: np.ndarray, where: str) -> np.ndarray:
    if rows.ndim == 2 and not np.any(rows):
        raise UnusableValue(DAMAGED, f"{where}: no region, or nothing but zeros")
    return rows


def _places(path: pathlib.Path) -> Iterator[tuple[str, tuple[pathlib.Path, int]]]:
    """Yields the name and the place, as in ``FeatureIndex.places``, of each source in a directory or a file."""
    if path.is_dir():
        for name in sorted(entry.name for entry in os.scandir(path) if entry.name.endswith(FILES_OF_FEATURES)):
            yield name[: -len(".npz")], (path / name, OWN_FILE)
        return
    if not inputs.is_file(path):
        raise UserError(f"No such file or folder: {path}. Give a folder of .npz files, or a table of features (.tsv).")
    is_pipe, path = inputs.is_pipe(path), inputs.on_disk(path)
    if path.suffix in _COMPRESSED:
        raise UserError(f"{path} is compressed, but single lines of it must be found quickly: unpack it first.")
    if path.suffix == ".npz":
        yield from ((name, (path, IN_ARCHIVE)) for name in names_in(path))
        return
    if not is_table(path) and not is_pipe:
        raise UserError(f"{path} is neither a folder of .npz files, nor .npz, nor a table of features (.tsv).")
    start = 0
    with open(path, "rb") as file:
        for line in file:
            if line.strip():
                yield line.split(b"\t", 1)[0].decode("utf-8", errors="replace").strip(), (path, start)
            start += len(line)
