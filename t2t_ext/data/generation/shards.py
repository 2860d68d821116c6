"""Turns chunks of arrays into shuffled shards, in bounded memory, in many processes.

Every chunk of consecutive samples is a scratch file of arrays, with the rows in random order (``encoding``). A shard
takes an equal part of every chunk. A thousand million pairs give 120,000 chunks and 5,000 shards: 600 million parts of
two rows. So groups of chunks are sorted by shard first (``regroup``), which leaves some ten million contiguous parts.
Then each shard takes its part of every group and shuffles once more (``write_shard``). The order of the samples in the
shards depends only on the seed.

A feature ``f`` is stored as two arrays: ``f``, the items of all samples one after the other, and ``f_lengths`` int32
[samples], the number of items of each sample. For float vectors, a sample has one item: the number of its sequence in
``t2t_ext.data.features.float_files``.
"""

import collections
import dataclasses
import hashlib
import io
import json
import mmap
import os
import pathlib
import secrets
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_ext.data.text.special_ids import UNK_ID

Arrays = dict[str, np.ndarray]
LENGTHS = "_lengths"
TIMES = "times of rows"
POSITIONS = "positions of rows"
IDENTICAL = "rows of one text"  # bool: both sides are the same text; absent if there is no such row
STARTS = "starts of shards"
# Higher levels hardly compress ids any further and cost several times as much.
_COMPRESSION_LEVEL = 3
_ITEMS_AT_ONCE = 1 << 22

# Size of the chunk files of a group; regrouping needs a few times as much memory.
BYTES_PER_GROUP = 32 << 20
_ALIGNMENT = 16
_LENGTH_BYTES = 8


@dataclasses.dataclass(frozen=True)
class Group:
    """Consecutive chunks to be regrouped.

    Attributes:
      path: The file to write.
      chunks: The files of the chunks.
      first_chunk: The number of the first chunk.
      removed: Files with the positions of rows to leave out.
      shards: Number of shards.
      features: Names of the features.
    """

    path: pathlib.Path
    chunks: tuple[pathlib.Path, ...]
    first_chunk: int
    removed: tuple[pathlib.Path, ...]
    shards: int
    features: tuple[str, ...]


class Regrouped(NamedTuple):
    """The contents of a group: samples; and by feature the items, the most items of one sample, and unknown items.

    ``identical`` is the number of different samples that have the same text on both sides.
    """

    samples: int
    identical: int
    tokens: dict[str, int]
    longest: dict[str, int]
    unknown: dict[str, int]


def regroup(group: Group) -> Regrouped:
    """Writes the file of a group, with rows sorted by shard, and returns its contents."""
    removed = [open_arrays(path)["positions"] for path in group.removed]
    chunks, destinations, identical = [], [], 0
    for number, path in enumerate(group.chunks, group.first_chunk):
        arrays = open_arrays(path)
        rows = _rows_left(arrays, removed, len(arrays[group.features[0] + LENGTHS]))
        identical += int(arrays[IDENTICAL][rows].sum()) if IDENTICAL in arrays else 0
        rows = np.repeat(rows, arrays[TIMES][rows]) if TIMES in arrays else rows
        chunks.append(take_rows(arrays, rows))
        # The remainders of the divisions go to the shards in turn.
        ends = (len(rows) * np.arange(group.shards + 1) + number % group.shards) // group.shards
        destinations.append(np.repeat(np.arange(group.shards, dtype=np.int32), np.diff(ends)))
    joined = {name: np.concatenate([chunk.pop(name) for chunk in chunks]) for name in list(chunks[0])}
    shard_of_row = np.concatenate(destinations)
    del chunks, destinations
    order = np.argsort(shard_of_row, kind="stable")
    arrays = take_rows(joined, order)
    del joined
    starts = np.searchsorted(shard_of_row[order], np.arange(group.shards + 1)).astype(np.int64)
    index: Arrays = {STARTS: starts}
    for name in group.features:
        ends = np.concatenate([[0], np.cumsum(arrays[name + LENGTHS], dtype=np.int64)])
        index[f"{name} {STARTS}"] = ends[starts]
    write_arrays(group.path, {**index, **arrays})
    lengths = {name: arrays[name + LENGTHS] for name in group.features}
    return Regrouped(
        samples=len(order),
        identical=identical,
        tokens={name: int(array.sum(dtype=np.int64)) for name, array in lengths.items()},
        longest={name: int(array.max(initial=0)) for name, array in lengths.items()},
        unknown={name: int(np.count_nonzero(arrays[name] == UNK_ID)) for name in group.features},
    )


def _rows_left(arrays: Arrays, removed: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Returns the rows of a chunk that are not duplicates: int64 [rows left]."""
    rows = np.arange(count)
    if removed and count:
        own = arrays[POSITIONS]
        unfit = np.zeros(count, bool)
        for positions in removed:
            first, last = np.searchsorted(positions, [own.min(), own.max() + 1])
            unfit |= np.isin(own, positions[first:last], kind="sort")
        rows = rows[~unfit]
    return rows


@dataclasses.dataclass(frozen=True)
class Shard:
    """A shard to be written: part ``index`` of ``count`` of every group.

    Attributes:
      index: The number of the shard, from 0.
      count: Number of shards.
      groups: The directory of the group files, ``groups / f"{number:06d}"``.
      number_of_groups: Number of groups.
      features: Names of the features.
      path: The file to write.
      seed: Seed of the shuffling, or None for no shuffling.
    """

    index: int
    count: int
    groups: pathlib.Path
    number_of_groups: int
    features: tuple[str, ...]
    path: pathlib.Path
    seed: int | None


def write_shard(shard: Shard) -> dict[str, Any]:
    """Gathers a shard's part of every group, shuffles it (if there is a seed) and writes it.

    Returns:
      Size in bytes and SHA-256 of the file, as a manifest lists them.
    """
    parts = collections.defaultdict(list)
    for number in range(shard.number_of_groups):
        group = open_arrays(shard.groups / f"{number:06d}")
        for name in shard.features:
            for part, starts in ((name, f"{name} {STARTS}"), (name + LENGTHS, STARTS)):
                first, last = group[starts][shard.index : shard.index + 2]
                parts[part].append(np.array(group[part][first:last]))
    arrays = {name: np.concatenate(parts.pop(name)) for name in list(parts)}
    if shard.seed is not None:
        rows = len(arrays[shard.features[0] + LENGTHS])
        order = np.random.default_rng([shard.seed, 2, shard.count, shard.index]).permutation(rows)
        arrays = take_rows(arrays, order)
    content = npz_bytes(arrays)
    # Written elsewhere first, because every file in the directory of the shards is published.
    temporary = shard.groups / f".{shard.path.name}.tmp-{secrets.token_hex(8)}"
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, shard.path)
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def take_rows(arrays: Mapping[str, np.ndarray], order: np.ndarray) -> Arrays:
    """Returns the feature arrays (items and lengths) of the samples ``order``, int64 [rows], in this order."""
    taken: Arrays = {}
    for name in arrays:
        if name + LENGTHS not in arrays:
            continue
        lengths = arrays[name + LENGTHS]
        new_lengths = lengths[order]
        starts = (np.cumsum(lengths, dtype=np.int64) - lengths)[order]
        ends = np.cumsum(new_lengths, dtype=np.int64)
        items = np.empty([int(ends[-1]) if len(ends) else 0, *arrays[name].shape[1:]], arrays[name].dtype)
        # Block by block, because the index is four times as large as the items.
        first = 0
        while first < len(order):
            done = int(ends[first] - new_lengths[first])
            last = max(first + 1, int(np.searchsorted(ends, done + _ITEMS_AT_ONCE, side="right")))
            sizes = new_lengths[first:last]
            shifts = starts[first:last] - (ends[first:last] - sizes)
            index = np.repeat(shifts, sizes) + np.arange(done, int(ends[last - 1]))
            items[done : done + len(index)] = arrays[name][index]
            first = last
        taken[name], taken[name + LENGTHS] = items, new_lengths
    return taken


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Returns a compressed ``.npz`` archive that depends only on the arrays (NumPy's own contains the time)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            content = io.BytesIO()
            np.lib.format.write_array(content, np.ascontiguousarray(array), allow_pickle=False)
            archive.writestr(entry, content.getbuffer(), compresslevel=_COMPRESSION_LEVEL)
    return buffer.getvalue()


def write_arrays(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> int:
    """Writes arrays of numbers to a file, which appears whole or not at all; nothing is flushed to the disk.

    A header (its length, then JSON) says where each array is in the file. Two processes may write the same file.

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
    """Returns the arrays of a file, read-only; arrays that are not used are not read."""
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # several times as fast as numpy's memmap
    first = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    arrays = {}
    for name, (dtype, shape, offset) in json.loads(content[_LENGTH_BYTES:first]).items():
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(content, dtype, count, first + offset if count else 0).reshape(shape)
    return arrays
