"""Scratch files of several arrays each, written whole, read in parts without reading the rest."""

import json
import mmap
import os
import pathlib
import secrets
from collections.abc import Mapping

import numpy as np

_ALIGNMENT = 16
_LENGTH_BYTES = 8


def write_arrays(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> int:
    """Writes arrays to a file, which appears whole or not at all; nothing is flushed to the disk.

    A header (its length, then JSON) says where every array lies. Two processes may write the same file.

    Args:
      path: The file; its directory must exist.
      arrays: Arrays of numbers by name.

    Returns:
      The size of the file in bytes.
    """
    described, offset = {}, 0
    for name, array in arrays.items():
        described[name] = (array.dtype.str, array.shape, offset)
        offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    header = json.dumps(described).encode()
    header += b" " * (-(len(header) + _LENGTH_BYTES) % _ALIGNMENT)
    temporary = path.with_name(f".{path.name}.tmp-{secrets.token_hex(8)}")
    with open(temporary, "wb") as file:
        file.write(len(header).to_bytes(_LENGTH_BYTES, "little") + header)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
            file.write(b"\0" * (-array.nbytes % _ALIGNMENT))
        size = file.tell()
    os.replace(temporary, path)
    return size


def open_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a file, read-only; what is not looked at is not read."""
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # several times as fast as numpy's memmap
    first = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    arrays = {}
    for name, (dtype, shape, offset) in json.loads(content[_LENGTH_BYTES:first]).items():
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(content, dtype, count, first + offset if count else 0).reshape(shape)
    return arrays
