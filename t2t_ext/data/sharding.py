"""Turns chunks of samples into arrays, and chunks of arrays into shuffled shards.

In two passes, so that any corpus can be shuffled in bounded memory: every chunk is encoded
and laid down with its rows already in random order; then each shard takes an equal part of
every chunk and shuffles once more. Both passes run on many processes, and what they write
depends on the seed alone.

A feature ``f`` is two arrays: ``f``, the items of all samples one after the other, and
``f_lengths`` int32 [samples], how many items each sample has.
"""

import collections
import dataclasses
import functools
import hashlib
import io
import itertools
import os
import pathlib
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_ext.data.features import TARGET, Feature, Floats, Ids, Text
from t2t_ext.data.text_encoder import SubwordEncoder

EMPTY = "empty"
TOO_LONG = "too_long"
LENGTH_RATIO = "length_ratio"
Arrays = dict[str, np.ndarray]

_LENGTHS = "_lengths"
# Ids hardly compress further at higher levels, which cost several times as much.
_COMPRESSION_LEVEL = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoding:
    """How samples become arrays, the same for every chunk of a split.

    Attributes:
      features: The declared features.
      source_model: The subword model of the source side: path of the file and SHA-256 of its content.
      target_model: The subword model of the target side, likewise.
      training: Whether unfit samples are dropped and rows shuffled; dev and test sets are kept as they are.
      max_tokens: Longer texts are dropped, in subwords without EOS; 0 for no limit.
      max_length_ratio: Samples whose longest text has more than this many times the subwords of the shortest are
        dropped; 0 for no limit.
      seed: Of the shuffling.
    """

    features: dict[str, Feature]
    source_model: tuple[str, str]
    target_model: tuple[str, str]
    training: bool
    max_tokens: int = 0
    max_length_ratio: float = 0.0
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Consecutive samples of a split, to be encoded.

    Attributes:
      index: Its number, from 0.
      columns: The values of every feature.
      directory: Where its arrays are put, one file each.
      encoding: How.
    """

    index: int
    columns: dict[str, list]
    directory: pathlib.Path
    encoding: Encoding


@dataclasses.dataclass(frozen=True)
class EncodedChunk:
    """What became of a chunk: ``rows`` samples lie in ``directory``, the others were dropped as counted."""

    directory: pathlib.Path
    rows: int
    drops: collections.Counter
    tokens: dict[str, int]
    longest: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Shard:
    """A shard to be written: part ``index`` of ``count`` equal parts of every chunk."""

    index: int
    count: int
    chunks: Sequence[EncodedChunk]
    features: tuple[str, ...]
    path: pathlib.Path
    seed: int | None


def encode_chunk(chunk: Chunk) -> EncodedChunk:
    """Encodes, filters and shuffles the samples of a chunk and writes their arrays to its directory."""
    encoding = chunk.encoding
    arrays: Arrays = {}
    for name, values in chunk.columns.items():
        arrays[name], arrays[name + _LENGTHS] = _flatten(encoding, encoding.features[name], values)
    drops: collections.Counter = collections.Counter()
    if encoding.training:
        kept, drops = _kept_rows(encoding, chunk.columns, arrays)
        order = np.random.default_rng([encoding.seed, 1, chunk.index]).permutation(kept)
        arrays = take_rows(arrays, order)
    chunk.directory.mkdir()
    for name, array in arrays.items():
        # Not np.save: on a full disk it raises an OSError that does not say why.
        (chunk.directory / f"{name}.npy").write_bytes(_npy_bytes(array))
    lengths = {name: arrays[name + _LENGTHS] for name in chunk.columns}
    return EncodedChunk(
        directory=chunk.directory,
        rows=len(next(iter(lengths.values()))),
        drops=drops,
        tokens={name: int(array.sum()) for name, array in lengths.items()},
        longest={name: int(array.max(initial=0)) for name, array in lengths.items()},
    )


def write_shard(shard: Shard) -> dict[str, Any]:
    """Gathers a shard's part of every chunk, shuffles it (where there is a seed) and writes it.

    Returns:
      Size in bytes and SHA-256 of the file, as a manifest lists them.
    """
    parts = [_part_of_chunk(shard, number, chunk) for number, chunk in enumerate(shard.chunks)]
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    del parts
    if shard.seed is not None:
        rows = len(arrays[shard.features[0] + _LENGTHS])
        order = np.random.default_rng([shard.seed, 2, shard.count, shard.index]).permutation(rows)
        arrays = take_rows(arrays, order)
    content = npz_bytes(arrays)
    with open(shard.path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def take_rows(arrays: Mapping[str, np.ndarray], order: np.ndarray) -> Arrays:
    """Returns chosen samples in a chosen order.

    Args:
      arrays: Features as described above.
      order: int64 [rows], the samples wanted.
    """
    taken: Arrays = {}
    for name in arrays:
        if name.endswith(_LENGTHS):
            continue
        lengths = arrays[name + _LENGTHS]
        new_lengths = lengths[order]
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        new_starts = np.cumsum(new_lengths, dtype=np.int64) - new_lengths
        index = np.repeat(starts[order] - new_starts, new_lengths) + np.arange(new_lengths.sum(dtype=np.int64))
        taken[name], taken[name + _LENGTHS] = arrays[name][index], new_lengths
    return taken


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Returns a compressed ``.npz`` archive that is a function of the arrays alone (numpy's own holds the time)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry._compresslevel = _COMPRESSION_LEVEL
            archive.writestr(entry, _npy_bytes(array))
    return buffer.getvalue()


def _npy_bytes(array: np.ndarray) -> memoryview:
    content = io.BytesIO()
    np.lib.format.write_array(content, np.ascontiguousarray(array), allow_pickle=False)
    return content.getbuffer()


def _flatten(encoding: Encoding, feature: Feature, values: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the items of all values one after the other, and int32 [samples] how many each has."""
    match feature:
        case Text():
            encoder = _encoder(*(encoding.target_model if feature.side == TARGET else encoding.source_model))
            texts = [value[0] for value in values] if feature.multiple else values
            return _flat_ids(encoder.encode_batch(texts, add_eos=True), encoder.vocab_size)
        case Ids():
            return _flat_ids(values, feature.size)
        case Floats():
            lengths = np.fromiter(map(len, values), np.int32, len(values))
            empty = np.zeros([0, feature.depth], np.float32)
            return np.concatenate([empty, *values], dtype=np.float32, casting="same_kind"), lengths
    raise TypeError(f"{type(feature).__name__} is not one of the feature types Text, Ids and Floats")


def _flat_ids(lists: Sequence[Sequence[int]], size: int) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.fromiter(map(len, lists), np.int32, len(lists))
    dtype = np.uint16 if size <= 1 << 16 else np.int32
    return np.fromiter(itertools.chain.from_iterable(lists), dtype, int(lengths.sum(dtype=np.int64))), lengths


def _kept_rows(
    encoding: Encoding, columns: Mapping[str, list], arrays: Arrays
) -> tuple[np.ndarray, collections.Counter]:
    """Returns the samples that are fit for training, and why the others are not."""
    texts = [name for name, feature in encoding.features.items() if isinstance(feature, Text)]
    rows = len(next(iter(columns.values())))
    kept = np.ones(rows, bool)
    drops: collections.Counter = collections.Counter()

    def drop(reason: str, unfit: np.ndarray) -> None:
        count = int((kept & unfit).sum())
        if count:
            drops[reason] += count
        np.logical_and(kept, ~unfit, out=kept)

    for name in texts:
        values = [value[0] for value in columns[name]] if encoding.features[name].multiple else columns[name]
        drop(EMPTY, np.fromiter((not text or text.isspace() for text in values), bool, rows))
    if texts:
        lengths = np.stack([arrays[name + _LENGTHS] for name in texts]) - 1  # [texts, rows], without EOS
        if encoding.max_tokens:
            drop(TOO_LONG, lengths.max(0) > encoding.max_tokens)
        if encoding.max_length_ratio:
            drop(LENGTH_RATIO, lengths.max(0) > encoding.max_length_ratio * lengths.min(0))
    return np.flatnonzero(kept), drops


@functools.lru_cache(maxsize=2)
def _encoder(path: str, sha256: str) -> SubwordEncoder:
    """Loads a subword model once in every process; another model under the same path is another one."""
    del sha256
    return SubwordEncoder.from_file(path)


def _part_of_chunk(shard: Shard, number: int, chunk: EncodedChunk) -> Arrays:
    """Returns a shard's rows of a chunk; the remainders of the divisions go to every shard in turn."""
    turn = number % shard.count
    first, last = ((chunk.rows * (shard.index + i) + turn) // shard.count for i in range(2))
    part: Arrays = {}
    for name in shard.features:
        lengths = np.load(chunk.directory / f"{name}{_LENGTHS}.npy")
        start = int(lengths[:first].sum(dtype=np.int64))
        stop = start + int(lengths[first:last].sum(dtype=np.int64))
        items = np.load(chunk.directory / f"{name}.npy", mmap_mode="r" if stop > start else None)
        part[name], part[name + _LENGTHS] = np.array(items[start:stop]), lengths[first:last]
    return part
