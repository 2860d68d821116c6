"""Finds repeated pairs in a corpus of any size, on disk, and stores the keys of the evaluation sets.

Every chunk writes a 128-bit key for each of its pairs that no filter dropped. The keys of several chunks at a time are
sorted into one file. Then the key space is divided into partitions: each partition takes its piece of every file and
finds the keys that occur again. The first occurrence in corpus order is kept. All steps run in many processes, and the
result depends neither on the number of processes nor on the sizes of files and partitions.

In a thousand million pairs, two different texts have the same 128 bits of BLAKE2b with a probability below 10^-20.
"""

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from t2t_ext.data.generation import cleaning as filters
from t2t_ext.data.generation.cleaning import KEY_BYTES, Cleaning, Column
from t2t_ext.data.generation.shards import open_arrays, write_arrays
from t2t_ext.data.generation.workers import Workers
from t2t_ext.io.progress import Advance

CHUNKS_PER_FILE = 128
ROWS_PER_PARTITION = 500_000
_ALL_KEYS = 1 << 64
_EVALUATION_FILE = "evaluation.keys"


@dataclasses.dataclass(frozen=True)
class Found:
    """The repetitions in a corpus.

    Attributes:
      pairs: Number of pairs that are repetitions; each counts once, however often it occurs.
      first: The numbers, from 0, of the first repetition and of the pair that it repeats; None if there is none.
      files: One file per ``CHUNKS_PER_FILE`` chunks, with the positions of the pairs that are repetitions.
      samples: int64 [chunks], the occurrences of these pairs in every chunk.
    """

    pairs: int
    first: tuple[int, int] | None
    files: Sequence[pathlib.Path]
    samples: np.ndarray

    def files_of(self, first_chunk: int, last_chunk: int) -> tuple[pathlib.Path, ...]:
        """Returns the files for the chunks from ``first_chunk`` up to, but not including, ``last_chunk``."""
        return tuple(self.files[first_chunk // CHUNKS_PER_FILE : (last_chunk - 1) // CHUNKS_PER_FILE + 1])


@dataclasses.dataclass(frozen=True)
class _Sorting:
    chunks: tuple[pathlib.Path, ...]
    path: pathlib.Path


@dataclasses.dataclass(frozen=True)
class _Partition:
    index: int
    count: int
    directory: pathlib.Path
    files: int
    path: pathlib.Path


@dataclasses.dataclass(frozen=True)
class _Collecting:
    repeated: tuple[pathlib.Path, ...]
    first: int
    chunk_size: int
    chunks: int
    path: pathlib.Path


def write_keys(
    directory: pathlib.Path,
    chunk: int,
    kind: str,
    columns: Sequence[Column],
    positions: np.ndarray,
    times: np.ndarray | None = None,
) -> None:
    """Writes the keys of the pairs of a chunk, which is given by its number.

    ``positions`` int64 [pairs] are the numbers of the pairs in the corpus. ``times`` int32 [pairs] says how often each
    occurs (None: once).
    """
    times = np.ones(len(positions), np.int32) if times is None else times
    for name, keys in filters.duplicate_keys(kind, columns).items():
        numbers = np.frombuffer(b"".join(keys), np.uint64).reshape(-1, 2)
        arrays = {"high": numbers[:, 0], "low": numbers[:, 1], "positions": positions, "times": times}
        write_arrays(directory / "keys" / name / f"{chunk:06d}", arrays)


def prepare_directory(directory: pathlib.Path, duplicates: str) -> None:
    """Makes the folders that ``write_keys`` and ``find`` write to, for a value of ``Cleaning.duplicates``."""
    for kind in filters.kinds_of_keys(duplicates):
        for folder in ("keys", "sorted", "repeated"):
            (directory / folder / kind).mkdir(parents=True)
    (directory / "removed").mkdir(parents=True, exist_ok=True)


def find(
    directory: pathlib.Path,
    duplicates: str,
    *,
    chunks: int,
    chunk_size: int,
    rows: int,
    workers: Workers,
    advance: Advance = lambda amount: None,
) -> Found:
    """Finds the repetitions among the keys that ``write_keys`` wrote for ``duplicates``, a value of ``Cleaning``.

    Files of several bytes per pair are written beside the keys. Every chunk but the last has ``chunk_size`` samples;
    ``rows`` pairs have keys. ``advance`` receives the number of keys that have been compared.
    """
    kinds = filters.kinds_of_keys(duplicates)
    firsts: list[tuple[int, int]] = []
    for kind in kinds:
        keys = [directory / "keys" / kind / f"{number:06d}" for number in range(chunks)]
        sortings = [
            _Sorting(tuple(keys[first : first + CHUNKS_PER_FILE]), directory / "sorted" / kind / f"{number:06d}")
            for number, first in enumerate(range(0, chunks, CHUNKS_PER_FILE))
        ]
        for task, _ in zip(sortings, workers.map(_sort_keys, sortings), strict=True):
            for path in task.chunks:
                path.unlink()
        partitions = _partitions(directory, kind, chunks, rows)
        for first in workers.map(_judge, partitions):
            advance(rows // len(partitions) // len(kinds))
            firsts += [first] if first else []
        for task in sortings:
            task.path.unlink()
    return dataclasses.replace(
        collect(directory, kinds, chunks=chunks, chunk_size=chunk_size, rows=rows, workers=workers),
        first=min(firsts, default=None),
    )


def collect(
    directory: pathlib.Path, kinds: Sequence[str], *, chunks: int, chunk_size: int, rows: int, workers: Workers
) -> Found:
    """Returns the pairs that repeat an earlier one by any of ``kinds`` of keys, which ``find`` has compared."""
    removed = [directory / "removed" / f"{number:06d}" for number in range(-(-chunks // CHUNKS_PER_FILE))]
    repeated = tuple(part.path for kind in kinds for part in _partitions(directory, kind, chunks, rows))
    tasks = (
        _Collecting(
            repeated,
            number * CHUNKS_PER_FILE * chunk_size,
            chunk_size,
            min(CHUNKS_PER_FILE, chunks - number * CHUNKS_PER_FILE),
            path,
        )
        for number, path in enumerate(removed)
    )
    counts = list(workers.map(_collect, tasks))
    samples = np.concatenate([np.zeros(0, np.int64), *(each for _, each in counts)])
    return Found(sum(pairs for pairs, _ in counts), None, removed, samples)


def _partitions(directory: pathlib.Path, kind: str, chunks: int, rows: int) -> list[_Partition]:
    count = max(1, -(-rows // ROWS_PER_PARTITION))
    return [
        _Partition(
            index,
            count,
            directory / "sorted" / kind,
            -(-chunks // CHUNKS_PER_FILE),
            directory / "repeated" / kind / f"{index:06d}",
        )
        for index in range(count)
    ]


def _sort_keys(task: _Sorting) -> None:
    """Joins the keys of several chunks in one file, sorted by the first half of the key."""
    chunks = [open_arrays(path) for path in task.chunks]
    arrays = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    order = np.argsort(arrays["high"], kind="stable")
    write_arrays(task.path, {name: array[order] for name, array in arrays.items()})


def _judge(task: _Partition) -> tuple[int, int] | None:
    """Writes the positions of all repetitions in a partition; returns the first (or None) and the pair it repeats."""
    lowest, highest = (np.uint64(min(_ALL_KEYS * i // task.count, _ALL_KEYS - 1)) for i in (task.index, task.index + 1))
    parts = []
    for number in range(task.files):
        arrays = open_arrays(task.directory / f"{number:06d}")
        first = np.searchsorted(arrays["high"], lowest)
        # The last partition includes the highest key; all others end before the next one's lowest key.
        last = np.searchsorted(arrays["high"], highest, side="right" if task.index == task.count - 1 else "left")
        parts.append({name: np.array(array[first:last]) for name, array in arrays.items()})
    keys = {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}
    order = np.lexsort((keys["positions"], keys["low"], keys["high"]))
    keys = {name: array[order] for name, array in keys.items()}
    again = np.zeros(len(order), bool)
    again[1:] = (keys["high"][1:] == keys["high"][:-1]) & (keys["low"][1:] == keys["low"][:-1])
    runs = np.maximum.accumulate(np.where(again, 0, np.arange(len(order))))  # where the run of equal keys begins
    positions, firsts = keys["positions"][again], keys["positions"][runs[again]]
    sorting = np.argsort(positions)
    write_arrays(task.path, {"positions": positions[sorting], "times": keys["times"][again][sorting]})
    return (int(positions[sorting[0]]), int(firsts[sorting[0]])) if len(sorting) else None


def _collect(task: _Collecting) -> tuple[int, np.ndarray]:
    """Writes the positions of all repetitions in some chunks; returns their number and occurrences by chunk."""
    ends = np.array([task.first, task.first + task.chunks * task.chunk_size])
    positions, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
    for path in task.repeated:
        arrays = open_arrays(path)
        first, last = np.searchsorted(arrays["positions"], ends)
        positions.append(np.array(arrays["positions"][first:last]))
        times.append(np.array(arrays["times"][first:last]))
    found, where = np.unique(np.concatenate(positions), return_index=True)
    write_arrays(task.path, {"positions": found})
    chunk = (found - task.first) // task.chunk_size
    samples = np.bincount(chunk, np.concatenate(times)[where], minlength=task.chunks)
    return len(found), samples.astype(np.int64)


def write_evaluation_keys(
    directory: pathlib.Path, cleaning: Cleaning, pairs: Iterable[tuple[str, Sequence[str]]]
) -> tuple[str, str]:
    """Writes the keys of dev and test pairs (source, translations) that ``test_overlap`` needs.

    Returns:
      The path of the file and its SHA-256.
    """
    found: dict[str, set[bytes]] = {kind: set() for kind in filters.kinds_of_keys(cleaning.test_overlap)}
    for source, targets in pairs:
        columns = [Column([source] * len(targets), ()), Column(targets, ())]
        for kind, keys in filters.overlap_keys(cleaning.test_overlap, columns).items():
            found[kind].update(keys)
    return write_key_sets(directory, found)


def write_key_sets(directory: pathlib.Path, keys: Mapping[str, Iterable[bytes]]) -> tuple[str, str]:
    """Writes sets of keys by name; returns the path of the file and its SHA-256."""
    arrays = {name: np.frombuffer(b"".join(sorted(found)), np.uint8) for name, found in keys.items()}
    path = directory / _EVALUATION_FILE
    write_arrays(path, arrays)
    return str(path), hashlib.sha256(path.read_bytes()).hexdigest()


@functools.lru_cache(maxsize=1)
def read_evaluation_keys(path: str, sha256: str) -> dict[str, frozenset[bytes]]:
    """Returns the keys that ``write_key_sets`` wrote, by name; every process reads them once."""
    del sha256  # only part of the cache key: the contents of a path may change
    arrays = open_arrays(pathlib.Path(path))
    return {kind: frozenset(key.tobytes() for key in array.reshape(-1, KEY_BYTES)) for kind, array in arrays.items()}
