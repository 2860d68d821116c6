"""Counts properties of a parallel text before training, chunk by chunk.

All results can be added up, so any number of processes can examine chunks, and memory does not grow with the text.
"""

import collections
import dataclasses
import functools
import heapq
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from t2t_ext.data.doctor.alignment import Block, shifted_blocks
from t2t_ext.data.generation import cleaning as filters
from t2t_ext.data.generation import duplicates, text_checks
from t2t_ext.data.generation.cleaning import Cleaning, Column
from t2t_ext.data.generation.encoding import without_tags
from t2t_ext.data.text.special_ids import UNK_ID
from t2t_ext.data.text.text_encoder import SubwordEncoder

LONGEST_COUNTED = 1000
SIDES = ("source", "target")
# Centers of the bins for ratios of target words to source words, four to an octave, and the bounds between bins.
RATIOS = 2.0 ** np.arange(-4, 4.01, 0.25)
_RATIO_BOUNDS = np.sqrt(RATIOS[1:] * RATIOS[:-1])
# Other scripts are counted together.
SCRIPTS = (
    "Latn", "Cyrl", "Grek", "Hani", "Hira", "Kana", "Hang", "Arab", "Hebr", "Deva", "Beng", "Taml", "Thai", "Geor",
    "Armn", "Ethi",
)  # fmt: skip
OTHER_SCRIPT = "other"
WORST_KEPT = 3
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# Reasons whose examples are the longest pairs instead of the first ones.
_BY_LENGTH = (filters.TOO_MANY_WORDS, filters.TOO_LONG)


@dataclasses.dataclass
class Side:
    """Sums over the texts of one side.

    Attributes:
      lengths: int64 [3, LONGEST_COUNTED + 1], number of texts by length in words, subwords and characters; longer
        texts are counted in the last column.
      totals: Number of words, subwords, characters, and characters that the subword model does not know (``unknown``);
        number of texts that have such characters (``texts_with_unknown``).
      longest: Length of the longest text in ``words`` and in ``subwords``.
      scripts: Number of letters by script.
    """

    lengths: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros([3, LONGEST_COUNTED + 1], np.int64))
    totals: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    longest: dict[str, int] = dataclasses.field(default_factory=lambda: {"words": 0, "subwords": 0})
    scripts: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def add(self, other: Self) -> None:
        """Adds the sums of other texts."""
        self.lengths += other.lengths
        self.totals.update(other.totals)
        self.scripts.update(other.scripts)
        self.longest = {name: max(value, other.longest[name]) for name, value in self.longest.items()}


@dataclasses.dataclass
class Examination:
    """Sums over the pairs of a split.

    Attributes:
      pairs: Number of pairs.
      sides: The sums of source and target.
      ratios: int64 [bins], number of pairs by the ratio of target words to source words; see ``RATIOS``.
      alone: Number of pairs that each filter would drop if it were the only one, by reason.
      filled: The same without pairs that have an empty side, which most filters would drop as well.
      in_order: Number of pairs that the filters drop when applied one after the other, by reason.
      left: Number of pairs that are left.
      worst: For each reason, the worst or first pairs: (badness, minus the number from 0, a text for people).
      overlap: Number of pairs with a text that occurs in an evaluation set, by ``exact source``, ``normalized pair``
        and so on.
      found: The keys of evaluation texts that occur here, by the same names.
      shifted: Windows in which one side is some lines ahead of the other.
    """

    pairs: int = 0
    sides: tuple[Side, Side] = dataclasses.field(default_factory=lambda: (Side(), Side()))
    ratios: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(len(RATIOS), np.int64))
    alone: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    filled: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    in_order: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    left: int = 0
    worst: dict[str, list[tuple[float, int, str]]] = dataclasses.field(default_factory=dict)
    overlap: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    found: dict[str, set[bytes]] = dataclasses.field(default_factory=lambda: collections.defaultdict(set))
    shifted: list[Block] = dataclasses.field(default_factory=list)

    def add(self, other: Self) -> None:
        """Adds the sums of other pairs."""
        self.shifted += other.shifted
        self.pairs += other.pairs
        self.left += other.left
        self.ratios += other.ratios
        for mine, theirs in zip(self.sides, other.sides, strict=True):
            mine.add(theirs)
        for name in ("alone", "filled", "in_order", "overlap"):
            getattr(self, name).update(getattr(other, name))
        for reason, worst in other.worst.items():
            self.worst[reason] = heapq.nlargest(WORST_KEPT, [*self.worst.get(reason, []), *worst])
        for name, keys in other.found.items():
            self.found[name] |= keys


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How chunks are examined.

    Attributes:
      languages: Tags of source and target, or empty.
      models: The files of the subword models of source and target, each with the SHA-256 of its content.
      all_filters: Settings with every filter on, to count what each filter would drop alone.
      cleaning: The filters that are applied one after the other.
      max_length_ratio: Data generation's limit on the ratio of subwords; 0 for none.
      tags: Words that a source may begin with. They count as subwords and distinguish pairs, but are not part of the
        text.
      evaluation_keys: The file with the keys of the texts of dev and test sets by ``exact source``, ``normalized pair``
        and so on, and its SHA-256; if empty, overlap is not looked for.
      directory: The directory for the keys that identify duplicates: ``alone`` for all pairs, ``in_order`` for the
        pairs that no other filter drops. None: duplicates are not looked for.
    """

    languages: tuple[str, str]
    models: tuple[tuple[str, str], tuple[str, str]]
    all_filters: Cleaning
    cleaning: Cleaning
    max_length_ratio: float = 0.0
    tags: tuple[str, ...] = ()
    evaluation_keys: tuple[str, str] = ("", "")
    directory: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True)
class ExaminedChunk:
    """Consecutive pairs to be examined: ``first`` is the number of the first, from 0; ``texts`` has both sides."""

    index: int
    first: int
    texts: tuple[list[str], list[str]]
    plan: Plan


def examine(chunk: ExaminedChunk) -> Examination:
    """Returns the sums over a chunk, and writes the keys for finding duplicates."""
    plan = chunk.plan
    result = Examination(pairs=len(chunk.texts[0]))
    columns, subwords = [], []
    for side, texts in enumerate(chunk.texts):
        encoder, unknown = _loaded(*plan.models[side])
        prepared = encoder.prepare(texts)
        ids = encoder.encode_batch(prepared)
        columns.append(Column(without_tags(texts, plan.tags), without_tags(prepared, plan.tags), plan.languages[side]))
        subwords.append(np.fromiter(map(len, ids), np.int64, len(ids)))
        _count_side(result.sides[side], columns[-1], ids, unknown)
    words = np.stack([filters.word_counts(column.prepared) for column in columns])
    filled = words.min(0) > 0
    ratios = words[1][filled] / words[0][filled]
    result.ratios += np.bincount(np.searchsorted(_RATIO_BOUNDS, ratios), minlength=len(RATIOS))
    keys: dict[str, frozenset[bytes]] = {}  # for the filter ``test_overlap``
    if plan.evaluation_keys[0]:
        wanted = duplicates.read_evaluation_keys(*plan.evaluation_keys)
        for name, own in overlap_key_sets([column.texts for column in columns]).items():
            known = [key for key in own if key in wanted[name]]
            result.overlap[name] += len(known)
            result.found[name].update(known)
        keys = {kind: wanted[f"normalized {kind}"] for kind in (filters.SOURCE, filters.TARGET, filters.PAIR)}
    _apply_filters(chunk, columns, np.stack(subwords), keys, result)
    result.shifted = shifted_blocks(chunk.first, *(column.texts for column in columns))
    return result


@functools.lru_cache(maxsize=2)
def _loaded(path: str, sha256: str) -> tuple[SubwordEncoder, np.ndarray]:
    """Loads a subword model once in every process; returns it and its ``unknown_characters``."""
    del sha256
    encoder = SubwordEncoder.from_file(path)
    return encoder, unknown_characters(encoder)


def _count_side(side: Side, column: Column, ids: Sequence[Sequence[int]], unknown_of_id: np.ndarray) -> None:
    words = filters.word_counts(column.prepared)
    subwords = np.fromiter(map(len, ids), np.int64, len(ids))
    characters = np.fromiter(map(len, column.texts), np.int64, len(ids))
    for row, counts in enumerate((words, subwords, characters)):
        side.lengths[row] += np.bincount(np.minimum(counts, LONGEST_COUNTED), minlength=LONGEST_COUNTED + 1)
    flat = np.fromiter((number for line in ids for number in line), np.int64, int(subwords.sum()))
    unknown = unknown_of_id[flat]
    by_text = np.add.reduceat(np.append(unknown, 0), np.cumsum(subwords) - subwords) * (subwords > 0)
    side.totals.update(
        words=int(words.sum()),
        subwords=int(subwords.sum()),
        characters=int(characters.sum()),
        unknown=int(unknown.sum()),
        texts_with_unknown=int((by_text > 0).sum()),
    )
    side.longest = {"words": int(words.max(initial=0)), "subwords": int(subwords.max(initial=0))}
    side.scripts.update(text_checks.letters_by_script(column.texts, SCRIPTS, OTHER_SCRIPT))


def unknown_characters(encoder: SubwordEncoder) -> np.ndarray:
    """Returns for every id how many characters without a subword it stands for: int64 [ids].

    The value is 1 for UNK and for the first byte of every character that SentencePiece spells in bytes, otherwise 0.
    """
    table = np.zeros(encoder.vocab_size, np.int64)
    for number, piece in enumerate(encoder.pieces(range(encoder.vocab_size))):
        match = _BYTE_PIECE.fullmatch(piece)
        if match and int(match.group(1), 16) & 0xC0 != 0x80:  # not a continuation byte
            table[number] = 1
    table[UNK_ID] = 1
    return table


def overlap_key_sets(texts: Sequence[Sequence[str]]) -> dict[str, list[bytes]]:
    """Returns the keys of pairs by kind of comparison: ``exact source``, ``normalized pair`` and so on."""
    columns = [Column(side, ()) for side in texts]
    found = {}
    for how, keys in (("exact", filters.duplicate_keys), ("normalized", filters.overlap_keys)):
        for kind in (filters.SOURCE, filters.TARGET, filters.PAIR):
            found[f"{how} {kind}"] = keys(kind, columns)[kind]
    return found


def _apply_filters(
    chunk: ExaminedChunk,
    columns: Sequence[Column],
    subwords: np.ndarray,
    keys: Mapping[str, frozenset[bytes]],
    result: Examination,
) -> None:
    """Counts what every filter drops alone and in order, and keeps examples."""
    plan, rows = chunk.plan, result.pairs
    ratios = subwords.max(0) / np.maximum(subwords.min(0), 1)
    by_ratio = (filters.LENGTH_RATIO, filters.WORD_RATIO)
    badness = {**dict.fromkeys(_BY_LENGTH, subwords.max(0)), **dict.fromkeys(by_ratio, ratios)}
    is_empty = np.zeros(rows, bool)
    for reason, unfit in _unfit(plan, plan.all_filters, columns, subwords, keys):
        result.alone[reason] += int(unfit.sum())
        is_empty |= unfit & (reason == filters.EMPTY)
        result.filled[reason] += int((unfit & ~is_empty).sum())
        scores = badness.get(reason, np.zeros(rows))
        worst = heapq.nlargest(WORST_KEPT, ((float(scores[row]), -int(row)) for row in np.flatnonzero(unfit)))
        result.worst[reason] = [
            (score, row - chunk.first, filters.beginnings([texts[-row] for texts in chunk.texts]))
            for score, row in worst
        ]
    left = np.ones(rows, bool)
    for reason, unfit in _unfit(plan, plan.cleaning, columns, subwords, keys):
        result.in_order[reason] += int((left & unfit).sum())
        left &= ~unfit
    result.left = int(left.sum())
    if plan.directory is not None:
        for kind in (filters.PAIR, filters.SOURCE, filters.TARGET):
            positions, whole = chunk.first + np.arange(rows), [Column(texts, ()) for texts in chunk.texts]
            duplicates.write_keys(plan.directory / "alone", chunk.index, kind, whole, positions)
        if plan.cleaning.duplicates != filters.NO:
            kept = np.flatnonzero(left)
            chosen_columns = [Column([texts[int(row)] for row in kept], ()) for texts in chunk.texts]
            kind, positions = plan.cleaning.duplicates, chunk.first + kept
            duplicates.write_keys(plan.directory / "in_order", chunk.index, kind, chosen_columns, positions)


def _unfit(
    plan: Plan,
    cleaning: Cleaning,
    columns: Sequence[Column],
    subwords: np.ndarray,
    keys: Mapping[str, frozenset[bytes]],
) -> Any:
    """Yields reasons and bool [pairs] in the order of the filters, including the filters on subwords."""
    yield from filters.unfit_pairs(cleaning, columns, keys)
    if cleaning.max_subwords:
        yield filters.TOO_LONG, subwords.max(0) > cleaning.max_subwords
    if plan.max_length_ratio:
        yield filters.LENGTH_RATIO, subwords.max(0) > plan.max_length_ratio * subwords.min(0)
