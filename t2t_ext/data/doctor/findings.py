"""Conclusions of a diagnosis: filters and what they drop, findings to check, faults to fix."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from t2t_ext.data.datasets import manifest
from t2t_ext.data.doctor.alignment import joined
from t2t_ext.data.doctor.diagnosis import TRAIN, Diagnosis
from t2t_ext.data.doctor.examination import SIDES
from t2t_ext.data.generation import cleaning as filters
from t2t_ext.data.generation.cleaning import REASONS, Cleaning

# From which share on something is pointed out.
_SHARE_OF_NOTE = 0.01
_UNKNOWN_OF_NOTE = 0.001
# The setting that turns a filter on, where it is called otherwise than the reason.
_SETTINGS = {
    filters.TOO_FEW_WORDS: "min_words",
    filters.TOO_MANY_WORDS: "max_words",
    filters.WORD_RATIO: "max_word_ratio",
    filters.TOO_LONG: "max_subwords",
    filters.DUPLICATE: "duplicates",
}


@dataclasses.dataclass(frozen=True)
class FilterRow:
    """A filter and how many pairs it drops: ``alone``, and ``in_order`` after those before it (None: it is off)."""

    reason: str
    setting: str
    alone: int
    in_order: int | None


def filter_rows(diagnosis: Diagnosis) -> list[FilterRow]:
    """Returns what every filter drops, in their order."""
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
    """Returns the lengths that so many of the texts do not exceed; ``counts`` int64 [lengths] are the texts of each."""
    total = int(counts.sum())
    return [int(np.searchsorted(np.cumsum(counts), share * total)) if total else 0 for share in shares]


def faults(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields why the data cannot be generated as they are."""
    for name, split in diagnosis.splits.items():
        if name != TRAIN:
            for reason, count in (+split.reading.refused).items():
                words, first = manifest.in_words(reason), split.reading.first.get(reason, "?")
                yield f"{name}: {count:,} unusable line(s), {words} (first: {first})"
            if not split.examined.pairs:
                yield f"{name} is empty"
    train = diagnosis.train
    if train.alone[filters.EMPTY] == train.pairs:
        yield "every training pair has an empty side"
    elif not train.left and diagnosis.asked:
        yield "no training pair is left after cleaning"


def findings(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields what a person should look at, and what may be done about it."""
    train = diagnosis.train
    for name, split in diagnosis.splits.items():
        for block in joined(split.examined.shifted):
            share = percent(block.last - block.first + 1, split.examined.pairs)
            where = f"{abs(block.offset)} line(s) further {'down' if block.offset > 0 else 'up'}"
            ends = " to ".join(split.reading.name_of(position) for position in (block.first, block.last))
            yield (
                f"{name}, {ends} ({share}), look misaligned: lengths, names "
                f"and numbers agree if the target is read {where}; look for a line that is missing or there twice "
                "before them, or leave them out"
            )
    for reason, count in train.alone.items():
        # Characters that were decoded wrongly and empty lines say that something went wrong, however few they are.
        least = 0 if reason in (filters.ENCODING, filters.EMPTY) else _SHARE_OF_NOTE * train.pairs
        if count > least and reason not in (filters.DUPLICATE, filters.TEST_OVERLAP):
            setting = _setting(diagnosis.all_filters, reason)
            advice = f": --cleaning={setting}" if "=" in setting else " (always dropped)"
            advice = " (dropped)" if reason in train.in_order and diagnosis.asked else advice
            yield (f"{percent(count, train.pairs)} of the training pairs: {manifest.in_words(reason)}{advice}")
    repeated = diagnosis.repeated.get(filters.PAIR, 0)
    if repeated > _SHARE_OF_NOTE * train.pairs:
        yield f"{percent(repeated, train.pairs)} of the training pairs occurred before: --cleaning=duplicates=true"
    for name, split in diagnosis.splits.items():
        found, different = split.found_in_train.get("normalized source", 0), split.different.get("normalized source", 0)
        if found:
            yield (
                f"{found:,} of the {different:,} different sources of {name} ({percent(found, different)}) stand in "
                f"train (case and punctuation aside): --cleaning=test_overlap=true takes them out of train"
            )
        if name in diagnosis.published and split.examined.pairs != diagnosis.published[name]:
            yield f"{name} has {split.examined.pairs:,} pairs, published are {diagnosis.published[name]:,}"
    for side, sums in zip(SIDES, train.sides, strict=True):
        unknown, characters = sums.totals["unknown"], sums.totals["characters"]
        if unknown > _UNKNOWN_OF_NOTE * characters:
            yield (
                f"{percent(unknown, characters)} of the characters of the {side} are unknown to the subword model: "
                f"was it made for this language?"
            )


def _setting(settings: Cleaning, reason: str) -> str:
    name = _SETTINGS.get(reason, reason)
    if name in settings.names():
        value = getattr(settings, name)
        return f"{name}={value:g}" if isinstance(value, float) else f"{name}={str(value).lower()}"
    return "always" if reason == filters.EMPTY else "max_length_ratio"


def percent(part: int, whole: int) -> str:
    """Writes a share in percent, with a third decimal where it is very small."""
    share = part / whole if whole else 0.0
    return f"{share:.3%}" if 0 < share < 0.001 else f"{share:.2%}"
