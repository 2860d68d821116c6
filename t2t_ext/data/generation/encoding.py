"""Turns chunks of samples into arrays: cleans, prepares and encodes the texts, and shuffles the rows.

This runs in many processes, but the result depends only on the samples and the settings, such as the seed. ``shards``
describes the arrays and how they are used.
"""

import collections
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_ext.data.features.types import TARGET, Feature, Floats, Ids, Text, text_features
from t2t_ext.data.generation import cleaning as filters
from t2t_ext.data.generation import duplicates
from t2t_ext.data.generation.cleaning import LENGTH_RATIO, TOO_LONG, Cleaning, Column
from t2t_ext.data.generation.raw_samples import load_prepared, load_samples
from t2t_ext.data.generation.shards import IDENTICAL, LENGTHS, POSITIONS, TIMES, Arrays, take_rows, write_arrays
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.problem import Sample


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoding:
    """How samples become arrays, the same for every chunk of a split.

    Attributes:
      features: The declared features.
      source_model: The subword model of the source side: path of the file and SHA-256 of its content.
      target_model: The same for the target side.
      training: Whether unfit samples are dropped and rows shuffled; dev and test sets are kept as they are.
      cleaning: The filters that decide which samples are unfit.
      languages: Tags of source and target, or empty.
      tags: Words that may precede a source and are not part of its text.
      evaluation_keys: The file with the keys of the dev and test sets and its SHA-256; empty if there is none.
      max_tokens: Samples with a longer text, in subwords without EOS, are dropped; 0 for no limit.
      max_length_ratio: Samples whose longest text has more than this many times the subwords of the shortest are
        dropped; 0 for no limit.
      seed: Seed of the shuffling and of the segmentations.
      bpe_dropout: Probability that a merge is left out in training texts; 0 for the usual segmentation.
      segmentations: With ``bpe_dropout``, the number of segmentations that are written for every training sample.
    """

    features: dict[str, Feature]
    source_model: tuple[str, str]
    target_model: tuple[str, str]
    training: bool
    cleaning: Cleaning = dataclasses.field(default_factory=Cleaning)
    languages: tuple[str, str] = ("", "")
    tags: tuple[str, ...] = ()
    evaluation_keys: tuple[str, str] = ("", "")
    max_tokens: int = 0
    max_length_ratio: float = 0.0
    seed: int = 0
    bpe_dropout: float = 0.0
    segmentations: int = 1


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Consecutive samples of a split, to be encoded.

    Attributes:
      index: The number of the chunk, from 0.
      first: The number of its first sample, from 0.
      samples: The samples, or the file in which ``raw_samples`` keeps them; a sample with an attribute ``times`` occurs
        that often.
      directory: The directory for its arrays, in ``rows``, and the keys for finding duplicates, in ``keys/KIND``.
      encoding: How to encode it.
    """

    index: int
    first: int
    samples: list[Sample] | pathlib.Path
    directory: pathlib.Path
    encoding: Encoding


@dataclasses.dataclass(frozen=True)
class EncodedChunk:
    """The result of encoding a chunk.

    Attributes:
      read: Number of samples before any were dropped.
      rows: Number of different samples that are left, however many segmentations each has.
      samples: Number of their occurrences.
      drops: Number of dropped samples by reason.
      examples: The first sample dropped for each reason: its number, from 0, and a text for people.
      size: Size of its arrays in bytes.
    """

    read: int
    rows: int
    samples: int
    drops: collections.Counter
    examples: dict[str, tuple[int, str]]
    size: int


def encode_chunk(chunk: Chunk) -> EncodedChunk:
    """Cleans, encodes and shuffles the samples of a chunk; writes their arrays, and keys for finding duplicates."""
    encoding = chunk.encoding
    if isinstance(chunk.samples, pathlib.Path):
        samples, known = load_samples(chunk.samples), load_prepared(chunk.samples)
    else:
        samples, known = chunk.samples, {}
    segmentations = encoding.segmentations if encoding.training and encoding.bpe_dropout else 1
    times = np.fromiter((getattr(each, "times", 1) if encoding.training else 1 for each in samples), np.int32)
    values = {name: [sample[name] for sample in samples] for name in encoding.features}
    features = text_features(encoding.features)
    # If a feature has several texts, the first counts.
    texts = {name: [v[0] for v in values[name]] if each.multiple else values[name] for name, each in features.items()}
    prepared = {
        name: _prepared(_encoder_of(encoding, each), texts[name], known.get(name)) for name, each in features.items()
    }
    dropped = _Dropped(len(samples), chunk.first, list(texts.values()))
    if encoding.training and texts:
        _drop_by_cleaning(dropped, encoding, texts, prepared)
    kept = np.flatnonzero(dropped.kept_mask)
    same = _identical([without_tags(column, encoding.tags) for column in texts.values()], len(samples))[kept]
    chosen = _take(kept, {**values, **prepared})
    arrays = _arrays(encoding, chosen)
    if encoding.training:
        if texts:
            lengths = np.stack([arrays[name + LENGTHS] for name in texts]) - 1  # [texts, rows], without EOS
            _drop_by_length(dropped, encoding, lengths, kept)
        fit = np.flatnonzero(dropped.kept_mask[kept])
        kept, same = kept[fit], same[fit]
        if encoding.cleaning.duplicates != filters.NO and texts:
            _write_keys(chunk, _take(kept, texts), kept, times[kept])
        if encoding.bpe_dropout:
            # The limits above apply to the usual segmentation, so the same pairs are kept with and without dropout.
            arrays = _drawn_segmentations(chunk, _take(fit, chosen))
            kept, fit = np.tile(kept, segmentations), np.arange(len(fit) * segmentations)
            same = np.concatenate([same, np.zeros(len(kept) - len(same), bool)])  # a pair counts once
        order = np.random.default_rng([encoding.seed, 1, chunk.index]).permutation(len(fit))
        arrays, kept, same = take_rows(arrays, fit[order]), kept[order], same[order]
        if encoding.cleaning.duplicates != filters.NO:
            arrays[POSITIONS] = chunk.first + kept.astype(np.int64)
    if np.any(times != 1):
        arrays[TIMES] = times[kept]
    if np.any(same):
        arrays[IDENTICAL] = same
    return EncodedChunk(
        read=len(samples),
        rows=len(kept) // segmentations,
        samples=int(times[kept].sum()) // segmentations,
        drops=dropped.counts,
        examples=dropped.examples,
        size=write_arrays(chunk.directory / "rows" / f"{chunk.index:06d}", arrays),
    )


def _drop_by_cleaning(
    dropped: "_Dropped",
    encoding: Encoding,
    texts: Mapping[str, Sequence[str]],
    prepared: Mapping[str, Sequence[str]],
) -> None:
    """Drops samples by the filters of ``encoding.cleaning``, from their texts before and after the text steps."""
    evaluated = encoding.evaluation_keys
    known_keys = duplicates.read_evaluation_keys(*evaluated) if evaluated[0] else {}
    columns = [
        Column(
            without_tags(texts[name], encoding.tags),
            without_tags(prepared[name], encoding.tags),
            encoding.languages[feature.side == TARGET],
        )
        for name, feature in text_features(encoding.features).items()
    ]
    for reason, unfit in filters.unfit_pairs(encoding.cleaning, columns, known_keys):
        dropped.drop(reason, unfit)


def _drop_by_length(dropped: "_Dropped", encoding: Encoding, lengths: np.ndarray, kept: np.ndarray) -> None:
    """Drops samples by ``lengths`` int [texts, rows], in subwords, of the samples ``kept`` so far, int [rows]."""
    limits = [limit for limit in (encoding.max_tokens, encoding.cleaning.max_subwords) if limit]
    if limits:
        dropped.drop(TOO_LONG, lengths.max(0) > min(limits), kept)
    if encoding.max_length_ratio:
        dropped.drop(LENGTH_RATIO, lengths.max(0) > encoding.max_length_ratio * lengths.min(0), kept)


def _take(rows: np.ndarray, columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Returns the given rows of all columns."""
    return {name: [column[row] for row in rows] for name, column in columns.items()}


def _write_keys(chunk: Chunk, texts: Mapping[str, Sequence[str]], rows: np.ndarray, times: np.ndarray) -> None:
    """Writes the keys for finding duplicates; ``texts`` and ``times`` are those of the given rows of the chunk."""
    columns = [Column(column, ()) for column in texts.values()]
    duplicates.write_keys(
        chunk.directory, chunk.index, chunk.encoding.cleaning.duplicates, columns, chunk.first + rows, times
    )


def _drawn_segmentations(chunk: Chunk, columns: Mapping[str, Sequence[Any]]) -> Arrays:
    """Returns the arrays of samples in the segmentations that BPE-dropout draws, one segmentation after the other."""
    encoding = chunk.encoding
    seeds = np.random.default_rng([encoding.seed, 3, chunk.index]).integers(1 << 31, size=encoding.segmentations)
    versions = [_arrays(encoding, columns, seed) for seed in seeds.tolist()]
    return {name: np.concatenate([version[name] for version in versions]) for name in versions[0]}


def without_tags(texts: Sequence[str], tags: Sequence[str]) -> Sequence[str]:
    """Returns texts without the tag that some begin with."""
    if not tags:
        return texts
    parts = ((text.partition(" ") if text.startswith("<") else ("", "", text), text) for text in texts)
    return [rest if word in tags else text for (word, _, rest), text in parts]


def _identical(columns: Sequence[Sequence[str]], rows: int) -> np.ndarray:
    """Returns which rows have the same text in both columns: bool [rows]; none if there are not two columns."""
    if len(columns) != 2:
        return np.zeros(rows, bool)
    return np.fromiter((one.strip() == other.strip() for one, other in zip(*columns, strict=True)), bool, rows)


class _Dropped:
    """The dropped samples of a chunk, their numbers by reason, and the first sample of each reason."""

    def __init__(self, rows: int, first: int, texts: list[list[str]]) -> None:
        self.counts: collections.Counter = collections.Counter()
        self.examples: dict[str, tuple[int, str]] = {}
        self.kept_mask = np.ones(rows, bool)
        self._first, self._texts = first, texts

    def drop(self, reason: str, unfit: np.ndarray, rows: np.ndarray | slice = slice(None)) -> None:
        """Drops the samples of ``rows`` that are ``unfit``, bool [rows], and not dropped yet."""
        mask = np.zeros(len(self.kept_mask), bool)
        mask[rows] = unfit
        dropped = np.flatnonzero(self.kept_mask & mask)
        if len(dropped):
            row = int(dropped[0])
            self.counts[reason] += len(dropped)
            self.examples.setdefault(reason, (self._first + row, filters.beginnings([t[row] for t in self._texts])))
            self.kept_mask[dropped] = False


def _prepared(encoder: SubwordEncoder, texts: Sequence[str], known: Mapping[int, str] | None) -> list[str]:
    """Returns texts after the text steps; ``known`` has rows whose result is known already."""
    if not known:
        return encoder.prepare(texts)
    rest = iter(encoder.prepare([text for row, text in enumerate(texts) if row not in known]))
    return [known[row] if row in known else next(rest) for row in range(len(texts))]


def _arrays(encoding: Encoding, columns: Mapping[str, Sequence[Any]], seed: int | None = None) -> Arrays:
    """Returns the arrays of samples; with a seed, in a segmentation that BPE-dropout draws."""
    arrays: Arrays = {}
    for name, column in columns.items():
        arrays[name], arrays[name + LENGTHS] = _flatten(encoding, name, column, seed)
    return arrays


def _flatten(encoding: Encoding, name: str, values: Sequence[Any], seed: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the items of all values one after the other, and int32 [samples], the number of items of each."""
    feature = encoding.features[name]
    if isinstance(feature, Floats):
        return np.asarray(values, np.int32), np.ones(len(values), np.int32)
    if isinstance(feature, Text):
        encoder = _encoder_of(encoding, feature)
        size = encoder.vocab_size
        if seed is None:
            lists = encoder.encode_batch(values, add_eos=True)
        else:
            lists = encoder.sample_batch(values, encoding.bpe_dropout, seed, add_eos=True)
    elif isinstance(feature, Ids):
        lists, size = list(values), feature.size
    else:
        raise TypeError(f"{type(feature).__name__} is not one of the feature types Text, Ids and Floats")
    lengths = np.fromiter(map(len, lists), np.int32, len(lists))
    dtype = np.uint16 if size <= 1 << 16 else np.int32
    return np.fromiter(itertools.chain.from_iterable(lists), dtype, int(lengths.sum(dtype=np.int64))), lengths


def _encoder_of(encoding: Encoding, feature: Text) -> SubwordEncoder:
    return load_encoder(*(encoding.target_model if feature.side == TARGET else encoding.source_model))


@functools.lru_cache(maxsize=2)
def load_encoder(path: str, sha256: str) -> SubwordEncoder:
    """Loads a subword model once in every process; the SHA-256 distinguishes models under the same path."""
    del sha256
    return SubwordEncoder.from_file(path)
