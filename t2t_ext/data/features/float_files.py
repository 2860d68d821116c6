"""Stores sequences of float vectors in separate files, and reads them through memory mapping.

Image features do not fit in memory: COCO's 123,287 images with 36 regions of 2,048 numbers take 36 GB as float32. The
shards therefore contain only the *number* of each sample's sequence. The sequences themselves are concatenated in
memory-mapped ``.npy`` files. A batch reads only the sequences that it needs, and all captions of an image share one
sequence.

    NAME-SPLIT.FEATURE-00000.npy, -00001.npy, ...    vectors [vectors, depth]; no sequence is split between files
    NAME-SPLIT.FEATURE-lengths.npy                   int32 [sequences], the number of vectors of each sequence

Legend: M number of sequences, F depth.
"""

import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any, BinaryIO, Self, overload

import numpy as np
import numpy.typing

from t2t_ext.data.features.types import Floats, Lazy, UnusableValue
from t2t_ext.errors import UserError

MOST_BYTES_PER_FILE = 1 << 30
DAMAGED = "damaged_features"


class FloatWriter:
    """Writes the sequences of one feature of a split, in the order in which they are added.

    Attributes:
      names: The name of each sequence: the key of a lazy value, otherwise the number of the sequence.
    """

    def __init__(
        self, directory: pathlib.Path, base_name: str, split: str, feature: str, kind: Floats, *, share: bool
    ) -> None:
        """Prepares for writing; ``kind`` declares the feature, ``share`` says whether equal values are stored once."""
        self._directory, self._kind, self._share = directory, kind, share
        self._prefix = f"{base_name}-{split}.{feature}"
        self._dtype = np.dtype(kind.storage).newbyteorder("<")
        self._known: dict[str | bytes, int] = {}
        self._lengths: list[int] = []
        self._files: list[str] = []
        self._file: BinaryIO | None = None
        self._vectors = 0
        self.names: list[str] = []

    def add(self, value: np.ndarray | Lazy) -> int:
        """Stores a value and returns the number of its sequence.

        Raises:
          UnusableValue: The value cannot be read or stored.
        """
        if isinstance(value, Lazy):
            key: str | bytes = value.key
            if self._share and key in self._known:
                return self._known[key]
            array = self._checked(value.read())
        else:
            array = self._checked(np.asarray(value))
            key = hashlib.blake2b(array.tobytes(), digest_size=16).digest() if self._share else b""
            if key in self._known:
                return self._known[key]
        number = len(self._lengths)
        self._write(array)
        self.names.append(key if isinstance(key, str) else str(number))
        if self._share:
            self._known[key] = number
        return number

    def close(self) -> dict[str, Any]:
        """Completes the files and returns their description for the manifest."""
        self._end_file()
        lengths = np.array(self._lengths, np.int32)
        name = f"{self._prefix}-lengths.npy"
        np.save(self._directory / name, lengths, allow_pickle=False)
        return {
            "depth": self._kind.depth,
            "storage": self._kind.storage,
            "sequences": len(lengths),
            "vectors": int(lengths.sum(dtype=np.int64)),
            "longest": int(lengths.max(initial=0)),
            "files": self._files,
            "lengths": name,
        }

    def _checked(self, array: np.ndarray) -> np.ndarray:
        """Returns the array in the storage dtype; raises ``UnusableValue`` if the shape or a number is unsuitable."""
        error = self._kind.complaint(array)
        if error:
            raise UnusableValue(DAMAGED, error)
        if not np.isfinite(array).all():
            raise UnusableValue(DAMAGED, "a number is not finite")
        with np.errstate(over="ignore"):
            kept = np.ascontiguousarray(array, self._dtype)
        if not np.isfinite(kept).all():
            largest = float(np.abs(array).max())
            raise UnusableValue(DAMAGED, f"{largest:g} is too large for {self._kind.storage}: keep it as float32")
        return kept

    def _write(self, array: np.ndarray) -> None:
        size = self._kind.depth * self._dtype.itemsize
        if self._file is not None and (self._vectors + len(array)) * size > MOST_BYTES_PER_FILE:
            self._end_file()
        if self._file is None:
            name = f"{self._prefix}-{len(self._files):05d}.npy"
            self._files.append(name)
            self._file = open(self._directory / name, "wb")  # noqa: SIM115 - closed by _end_file
            self._vectors = 0
            self._write_header(self._file)
        self._file.write(array.tobytes())
        self._vectors += len(array)
        self._lengths.append(len(array))

    def _write_header(self, file: BinaryIO) -> None:
        # NumPy pads the header so that the first axis can grow; the header can therefore be overwritten in place.
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._vectors, self._kind.depth)}
        np.lib.format.write_array_header_1_0(file, header)

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.seek(0)
            self._write_header(self._file)
            self._file.close()
            self._file = None


class FloatSequences(Sequence[np.ndarray]):
    """The sequences of one feature of a split, which are read directly from their files.

    Attributes:
      lengths: int32 [M], the number of vectors of each sequence.
      depth: F, the length of each vector.
      dtype: The dtype of the vectors.
    """

    def __init__(self, files: Sequence[np.ndarray], lengths: np.ndarray, depth: int) -> None:
        """Takes arrays [vectors, F] of concatenated sequences, and the lengths of the sequences.

        Raises:
          ValueError: The arrays and lengths do not fit together.
        """
        self.lengths = np.asarray(lengths, np.int32)
        self.depth = depth
        self.dtype = files[0].dtype if len(files) else np.dtype(np.float32)
        self._files = list(files)
        self._first = np.cumsum([0, *(len(file) for file in files)])
        self._starts = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        if any(file.ndim != 2 or file.shape[1] != depth or file.dtype != self.dtype for file in files):
            raise ValueError(f"shapes {[file.shape for file in files]} where [vectors, {depth}] is wanted")
        if self._first[-1] != self._starts[-1]:
            raise ValueError(f"{self._first[-1]} vectors, their lengths add up to {self._starts[-1]}")

    @classmethod
    def open(cls, directory: pathlib.Path, described: dict[str, Any], repair: str) -> Self:
        """Opens the files that ``FloatWriter.close`` described, reading only the lengths.

        Args:
          directory: The directory of the files.
          described: The description that ``FloatWriter.close`` returned.
          repair: The command that creates the files again, for messages.

        Raises:
          UserError: A file is missing or damaged.
        """
        path, files = directory, []
        try:
            for name in described["files"]:
                path = directory / name
                files.append(np.load(path, mmap_mode="r", allow_pickle=False))
            path = directory / described["lengths"]
            return cls(files, np.load(path, allow_pickle=False), described["depth"])
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"The feature file {path} is damaged: {error}. Make it again: {repair}") from error

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> list[np.ndarray]: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | list[np.ndarray]:
        """Returns the vectors [length, F] of a sequence in the storage dtype; they are read from disk when used."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        start = int(self._starts[index % len(self)])
        length = int(self.lengths[index])
        if not length:
            return np.zeros([0, self.depth], self.dtype)
        file = int(np.searchsorted(self._first, start, side="right")) - 1
        first = start - int(self._first[file])
        return self._files[file][first : first + length]

    def padded(self, numbers: np.ndarray, width: int) -> np.ndarray:
        """Returns the sequences with the given numbers, padded with zeros.

        Args:
          numbers: int32 [R], numbers of sequences; -1 gives only zeros.
          width: S, at least the length of the longest of these sequences.

        Returns:
          Array [R, S, F] in the storage dtype.
        """
        arrays = [None if number < 0 else self[int(number)] for number in numbers]
        return padded(arrays, int(width), self.depth, self.dtype)


def padded(arrays: Sequence[np.ndarray | None], width: int, depth: int, dtype: np.typing.DTypeLike) -> np.ndarray:
    """Returns arrays [S_i, F] as one array [number of arrays, width, F], padded with zeros; None gives only zeros."""
    together = np.zeros([len(arrays), width, depth], dtype)
    for row, array in enumerate(arrays):
        if array is not None:
            together[row, : len(array)] = array
    return together
