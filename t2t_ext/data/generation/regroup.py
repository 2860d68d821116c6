"""Between chunks and shards: groups of chunks, without duplicates, sorted by the shard that each row goes to.

A shard takes an equal part of every chunk. Of a thousand million pairs there are 120,000 chunks and 5,000 shards: 600
million parts of two rows. Groups of chunks make some ten million parts of them, each in one piece.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from t2t_ext.data.generation import row_files
from t2t_ext.data.generation.sharding import LENGTHS, POSITIONS, STARTS, TIMES, Arrays, take_rows

# Of the files of a group's chunks; some times as much is needed in memory.
BYTES_PER_GROUP = 32 << 20


@dataclasses.dataclass(frozen=True)
class Group:
    """Consecutive chunks to be regrouped.

    Attributes:
      path: The file to write.
      chunks: The files of the chunks.
      first_chunk: The number of the first chunk.
      removed: Files with the positions of rows that are left out.
      shards: Number of shards.
      features: Names of the features.
    """

    path: pathlib.Path
    chunks: tuple[pathlib.Path, ...]
    first_chunk: int
    removed: tuple[pathlib.Path, ...]
    shards: int
    features: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Regrouped:
    """What a group holds: samples, and items and the most items of one sample by feature."""

    samples: int
    tokens: dict[str, int]
    longest: dict[str, int]


def regroup(group: Group) -> Regrouped:
    """Writes the file of a group."""
    removed = [row_files.open_arrays(path)["positions"] for path in group.removed]
    chunks, destinations = [], []
    for number, path in enumerate(group.chunks, group.first_chunk):
        arrays = row_files.open_arrays(path)
        rows = _rows_left(arrays, removed, len(arrays[group.features[0] + LENGTHS]))
        chunks.append(take_rows(arrays, rows))
        # The remainders of the divisions go to every shard in turn.
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
    row_files.write_arrays(group.path, {**index, **arrays})
    lengths = {name: arrays[name + LENGTHS] for name in group.features}
    return Regrouped(
        samples=len(order),
        tokens={name: int(array.sum(dtype=np.int64)) for name, array in lengths.items()},
        longest={name: int(array.max(initial=0)) for name, array in lengths.items()},
    )


def _rows_left(arrays: Arrays, removed: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Returns the rows of a chunk that are no duplicates, as often as they occur: int64 [samples]."""
    rows = np.arange(count)
    if removed and count:
        own = arrays[POSITIONS]
        unfit = np.zeros(count, bool)
        for positions in removed:
            first, last = np.searchsorted(positions, [own.min(), own.max() + 1])
            unfit |= np.isin(own, positions[first:last], kind="sort")
        rows = rows[~unfit]
    return np.repeat(rows, arrays[TIMES][rows]) if TIMES in arrays else rows
