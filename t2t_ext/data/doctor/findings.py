"""Draws conclusions from a diagnosis: what filters drop, findings to check, faults to fix."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t2t_ext.data.datasets import manifest
from t2t_ext.data.doctor.alignment import joined
from t2t_ext.data.doctor.diagnosis import TRAIN, Diagnosis
from t2t_ext.data.doctor.examination import SIDES
from t2t_ext.data.generation import cleaning as filters
from t2t_ext.data.generation.cleaning import REASONS, Cleaning

# Shares (of pairs, and of unknown characters) above which something is pointed out.
_SHARE_OF_NOTE = 0.01
_UNKNOWN_OF_NOTE = 0.001
# Reasons that are reported elsewhere, in other words.
_ELSEWHERE = (filters.DUPLICATE, filters.TEST_OVERLAP)
# Settings that turn on filters whose reasons have other names.
_SETTINGS = {
    filters.TOO_FEW_WORDS: "min_words",
    filters.TOO_MANY_WORDS: "max_words",
    filters.WORD_RATIO: "max_word_ratio",
    filters.TOO_LONG: "max_subwords",
    filters.DUPLICATE: "duplicates",
}


@dataclasses.dataclass(frozen=True)
class FilterRow:
    """A filter and how many pairs it drops ``alone`` and ``in_order``, after earlier filters (None: it is off)."""

    reason: str
    setting: str
    alone: int
    in_order: int | None


def filter_rows(diagnosis: Diagnosis) -> list[FilterRow]:
    """Returns what every filter drops, in the order of the filters."""
    train = diagnosis.train
    rows = []
    for reason in REASONS:
        if reason not in train.alone and reason not in train.in_order:
            continue
        is_on = reason in train.in_order
        settings = diagnosis.cleaning if is_on else diagnosis.all_filters
        in_order = train.in_order[reason] if is_on else None
        rows.append(FilterRow(reason, _setting(settings, reason), train.alone[reason], in_order))
    return rows


def quantiles(counts: np.ndarray, shares: Sequence[float] = (0.5, 0.95, 0.99)) -> list[int]:
    """Returns for each share the length that this share of the texts does not exceed.

    ``counts`` int64 [lengths] is the number of texts of each length.
    """
    total = int(counts.sum())
    return [int(np.searchsorted(np.cumsum(counts), share * total)) if total else 0 for share in shares]


def faults(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields the reasons why the data cannot be generated as they are."""
    for name, split in diagnosis.splits.items():
        if name != TRAIN:
            for reason, count in (+split.reading.refused).items():
                words, first = manifest.in_words(reason), split.reading.first.get(reason, "?")
                yield f"{name}: {count:,} unusable line(s), {words} (first: {first})"
            if not split.examined.pairs:
                yield f"{name} is empty"
            elif 0 < split.fewest_references < split.references:
                fewest, most = split.fewest_references, split.references
                yield f"{name}: sources have {fewest} to {most} references, but every one needs the same number"
    train = diagnosis.train
    if train.alone[filters.EMPTY] == train.pairs:
        yield "every training pair has an empty side"
    elif train.alone[filters.EMPTY] + train.filled[filters.LENGTH_RATIO] == train.pairs:
        yield "every training pair has an empty side, or more subwords on one side than max_length_ratio allows"
    elif not train.left and diagnosis.asked:
        yield "no training pair is left after cleaning"


def findings(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields what a person should look at and what can be done about it, the most important first."""
    found = [*_of_reading(diagnosis), *_of_filters(diagnosis), *_of_repetitions(diagnosis), *_of_figures(diagnosis)]
    yield from (finding.text for finding in sorted(found, key=lambda finding: (finding.rank, -finding.size)))


class _Finding(NamedTuple):
    rank: int
    size: int
    text: str


# Ranks of findings: the text is useless; something is lost or damaged; figures are misleading; usual; harmless.
_USELESS, _DAMAGED, _MISLEADING, _USUAL, _HARMLESS = range(5)


def _of_reading(diagnosis: Diagnosis) -> Iterator[_Finding]:
    """Yields blocks that look misaligned, and lines that were left out or changed during reading."""
    for name, split in diagnosis.splits.items():
        reading = split.reading
        for block in joined(split.examined.shifted):
            count = block.last - block.first + 1
            where = f"{abs(block.offset)} line(s) further {'down' if block.offset > 0 else 'up'}"
            ends = " to ".join(reading.name_of(position) for position in (block.first, block.last))
            text = (
                f"{name}, {ends} ({percent(count, split.examined.pairs)}), look misaligned: lengths, names and numbers "
                f"agree if the target is read {where}; look for a line that is missing or there twice before them, or "
                "leave them out"
            )
            yield _Finding(_USELESS, count, text)
        refused = getattr(reading, "refused", {})  # already reported by ``faults``
        for rank, what, counts in ((_DAMAGED, "left out", reading.drops), (_HARMLESS, "changed", reading.notes)):
            for reason, count in counts.items():
                if count and not (rank == _DAMAGED and refused.get(reason)):
                    first = f" (first: {reading.first[reason]})" if reason in reading.first else ""
                    yield _Finding(rank, count, f"{name}: {count:,} line(s) {what}: {manifest.in_words(reason)}{first}")


def _of_filters(diagnosis: Diagnosis) -> Iterator[_Finding]:
    """Yields the filters' reasons that apply to pairs; pairs with an empty side count only for that reason."""
    train = diagnosis.train
    for reason in train.alone:
        count = train.alone[reason] if reason == filters.EMPTY else train.filled[reason]
        setting = _setting(diagnosis.all_filters, reason)
        # Pairs that are dropped in any case, and wrongly decoded characters, are reported however few there are.
        is_certain = reason == filters.ENCODING or "=" not in setting
        if count > (0 if is_certain else _SHARE_OF_NOTE * train.pairs) and reason not in _ELSEWHERE:
            advice = f": --cleaning={setting}" if "=" in setting else " (always dropped)"
            advice = " (dropped)" if reason in train.in_order and diagnosis.asked else advice
            share = percent(count, train.pairs)
            text = f"{count:,} ({share}) of the training pairs: {manifest.in_words(reason)}{advice}"
            is_no_translation = reason == filters.IDENTICAL and count > manifest.LOUD_IDENTICAL_SHARE * train.pairs
            rank = _DAMAGED if is_certain else _USELESS if is_no_translation else _USUAL
            yield _Finding(rank, count, text)
    for name, split in diagnosis.splits.items():
        for reason in (filters.EMPTY, filters.ENCODING):
            count = split.examined.alone[reason]
            if name != TRAIN and count:
                text = f"{name}: {count:,} pair(s) with {manifest.in_words(reason)}, which are never dropped from it"
                yield _Finding(_DAMAGED, count, text)


def _of_repetitions(diagnosis: Diagnosis) -> Iterator[_Finding]:
    """Yields findings about pairs that repeat within train or occur both in train and in an evaluation set."""
    pairs, repeated = diagnosis.train.pairs, diagnosis.repeated.get(filters.PAIR, 0)
    if repeated > _SHARE_OF_NOTE * pairs:
        text = f"{repeated:,} ({percent(repeated, pairs)}) of the training pairs occurred before"
        yield _Finding(_USUAL, repeated, f"{text}: --cleaning=duplicates=true")
    for name, split in diagnosis.splits.items():
        found, different = split.found_in_train.get("normalized source", 0), split.different.get("normalized source", 0)
        if found:
            text = (
                f"{found:,} of the {different:,} different sources of {name} ({percent(found, different)}) stand in "
                f"train (case and punctuation aside): --cleaning=test_overlap=true takes them out of train"
            )
            yield _Finding(_MISLEADING, found, text)


def _of_figures(diagnosis: Diagnosis) -> Iterator[_Finding]:
    """Yields numbers of pairs that differ from published ones, and shares of characters without a subword."""
    for name, split in diagnosis.splits.items():
        count, published = split.examined.pairs, diagnosis.published.get(name, split.examined.pairs)
        if count != published:
            text = f"{name} has {count:,} pairs, published are {published:,}"
            yield _Finding(_MISLEADING, abs(count - published), text)
    for side, sums in zip(SIDES, diagnosis.train.sides, strict=True):
        unknown, characters = sums.totals["unknown"], sums.totals["characters"]
        if unknown > _UNKNOWN_OF_NOTE * characters:
            text = (
                f"{percent(unknown, characters)} of the characters of the {side} are unknown to the subword model: "
                f"was it made for this language?"
            )
            yield _Finding(_MISLEADING, unknown, text)


def _setting(settings: Cleaning, reason: str) -> str:
    name = _SETTINGS.get(reason, reason)
    if name in settings.names():
        value = getattr(settings, name)
        return f"{name}={value:g}" if isinstance(value, float) else f"{name}={str(value).lower()}"
    return "always" if reason == filters.EMPTY else "max_length_ratio"


def percent(part: int, whole: int) -> str:
    """Returns a share in percent, with a third decimal if it is very small."""
    share = part / whole if whole else 0.0
    return f"{share:.3%}" if 0 < share < 0.001 else f"{share:.2%}"
