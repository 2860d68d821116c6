"""A diagnosis in words, and as JSON."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_ext.data.datasets import summary
from t2t_ext.data.doctor.diagnosis import TRAIN, Diagnosis, SplitDiagnosis
from t2t_ext.data.doctor.examination import LONGEST_COUNTED, RATIOS, SIDES, Side
from t2t_ext.data.generation import cleaning as filters
from t2t_ext.data.generation.cleaning import REASONS, Cleaning

# Rows of ``Side.lengths``.
WORDS, SUBWORDS, CHARACTERS = range(3)
LENGTH_BOUNDS = (1, 5, 10, 20, 30, 40, 50, 75, 100, 175, 250, LONGEST_COUNTED)
_BARS = "▁▂▃▄▅▆▇█"
_BAR_WIDTH = 24
# From which share on something is pointed out.
_SHARE_OF_NOTE = 0.01
_FAR_RATIO = 3.0
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
    """What a filter drops: ``alone`` if it were the only one; ``in_order`` after those before it (None: it is off)."""

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
        rows.append(
            FilterRow(
                reason, _setting(settings, reason), train.alone[reason], train.in_order[reason] if is_on else None
            )
        )
    return rows


def quantiles(counts: np.ndarray, shares: Sequence[float] = (0.5, 0.95, 0.99)) -> list[int]:
    """Returns the lengths that so many of the texts do not exceed.

    Args:
      counts: int64 [lengths], how many texts have each length.
      shares: In (0, 1].
    """
    total = int(counts.sum())
    return [int(np.searchsorted(np.cumsum(counts), share * total)) if total else 0 for share in shares]


def length_bins(counts: np.ndarray) -> list[tuple[str, int]]:
    """Returns a histogram with few bins: what they are called, and how many texts they hold."""
    bins = [("0", int(counts[0]))] if counts[0] else []
    for first, last in zip(LENGTH_BOUNDS, [*LENGTH_BOUNDS[1:], len(counts)], strict=True):
        label = f"{first}-{last - 1}" if last < len(counts) else f"{first} and more"
        bins.append((label, int(counts[first:last].sum())))
    return bins


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Returns all figures, ready for JSON."""
    return {
        "problem": diagnosis.problem,
        "languages": list(diagnosis.languages),
        "subword_model": {"origin": diagnosis.subword_model, "sizes": list(diagnosis.vocab_sizes)},
        "splits": {name: _split_json(name, split, diagnosis.published) for name, split in diagnosis.splits.items()},
        "cleaning": {"asked": diagnosis.asked, "settings": diagnosis.cleaning.given()},
        "filters": [dataclasses.asdict(row) for row in filter_rows(diagnosis)],
        "left": diagnosis.train.left,
        "repeated": diagnosis.repeated,
        "repeated_example": diagnosis.repeated_example,
        "worst": {reason: [text for *_, text in worst] for reason, worst in sorted(diagnosis.train.worst.items())},
        "findings": list(findings(diagnosis)),
        "faults": list(faults(diagnosis)),
    }


def faults(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields why the data cannot be generated as they are."""
    for name, split in diagnosis.splits.items():
        if name != TRAIN:
            for reason, count in split.reading.drops.items():
                yield f"{name}: {count:,} unusable line(s), {reason} (first: {split.reading.first.get(reason, '?')})"
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
    for reason, count in train.alone.items():
        if count > _SHARE_OF_NOTE * train.pairs and reason not in (filters.DUPLICATE, filters.TEST_OVERLAP):
            yield (
                f"{_percent(count, train.pairs)} of the training pairs: {summary.REASONS.get(reason, reason)}"
                f"{_advice(reason, diagnosis)}"
            )
    repeated = diagnosis.repeated.get(filters.PAIR, 0)
    if repeated > _SHARE_OF_NOTE * train.pairs:
        yield f"{_percent(repeated, train.pairs)} of the training pairs occurred before: --cleaning=duplicates=true"
    for name, split in diagnosis.splits.items():
        found, different = split.found_in_train.get("normalized source", 0), split.different.get("normalized source", 0)
        if found:
            yield (
                f"{found:,} of the {different:,} different sources of {name} ({_percent(found, different)}) stand in "
                f"train (case and punctuation aside): --cleaning=test_overlap=true takes them out of train"
            )
        if name in diagnosis.published and split.examined.pairs != diagnosis.published[name]:
            yield f"{name} has {split.examined.pairs:,} pairs, published are {diagnosis.published[name]:,}"
    for side, sums in zip(SIDES, train.sides, strict=True):
        unknown, characters = sums.totals["unknown"], sums.totals["characters"]
        if unknown > _UNKNOWN_OF_NOTE * characters:
            yield (
                f"{_percent(unknown, characters)} of the characters of the {side} are unknown to the subword model: "
                f"was it made for this language?"
            )


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields the whole picture for a terminal."""
    arrow = " -> ".join(filter(None, diagnosis.languages))
    yield f"{diagnosis.problem}{f' ({arrow})' if arrow else ''}"
    yield ""
    yield "Pairs"
    for name, split in diagnosis.splits.items():
        yield from _split_lines(name, split, diagnosis.published)
    yield ""
    sizes = "/".join(f"{size:,}" for size in dict.fromkeys(diagnosis.vocab_sizes))
    yield f"Text of train (subword model: {sizes} ids, {diagnosis.subword_model})"
    yield from _side_lines(diagnosis.train.sides)
    yield ""
    yield "Length in words (train)"
    yield from _histogram_lines(diagnosis.train.sides)
    yield ""
    yield from _ratio_lines(diagnosis.train.ratios)
    yield ""
    yield from _filter_lines(diagnosis)
    yield ""
    yield from _repetition_lines(diagnosis)
    worst = {reason: found for reason, found in diagnosis.train.worst.items() if found}
    if worst:
        yield ""
        yield "Worst, or first, of each"
        for reason in (reason for reason in REASONS if reason in worst):
            for *_, text in worst[reason]:
                yield f"  {reason}: {text}"
    for title, sentences in (("Look at", findings(diagnosis)), ("Must be mended", faults(diagnosis))):
        found = list(sentences)
        if found:
            yield ""
            yield title
            yield from (f"  * {sentence}" for sentence in found)


def _setting(settings: Cleaning, reason: str) -> str:
    name = _SETTINGS.get(reason, reason)
    if name in settings.names():
        return f"{name}={_shown(getattr(settings, name))}"
    return "always" if reason == filters.EMPTY else "max_length_ratio"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _advice(reason: str, diagnosis: Diagnosis) -> str:
    if reason in diagnosis.train.in_order and diagnosis.asked:
        return " (dropped)"
    setting = _setting(diagnosis.all_filters, reason)
    return f": --cleaning={setting}" if "=" in setting else " (always dropped)"


def _split_json(name: str, split: SplitDiagnosis, published: Mapping[str, int]) -> dict[str, Any]:
    examined = split.examined
    sides = {}
    for side, sums in zip(SIDES, examined.sides, strict=True):
        sides[side] = {
            "totals": dict(sums.totals),
            "longest": sums.longest,
            "letters_by_script": dict(sums.scripts),
            "words_histogram": _without_zeros_at_end(sums.lengths[WORDS]),
            "subwords_histogram": _without_zeros_at_end(sums.lengths[SUBWORDS]),
        }
    return {
        "pairs": examined.pairs,
        "published": published.get(name),
        "corpora": {corpus: dict(counted) for corpus, counted in split.reading.corpora.items()},
        "references": split.references,
        "dropped_while_reading": dict(split.reading.drops),
        "changed_while_reading": dict(split.reading.notes),
        "first": split.reading.first,
        "sides": sides,
        "ratios": RATIOS.tolist(),
        "ratio_histogram": examined.ratios.tolist(),
        "overlap_with_evaluation_sets": dict(examined.overlap),
        "different_texts": split.different,
        "found_in_train": split.found_in_train,
        "unfit_pairs_by_filter": dict(examined.alone),
    }


def _without_zeros_at_end(counts: np.ndarray) -> list[int]:
    return np.trim_zeros(counts, "b").tolist()


def _split_lines(name: str, split: SplitDiagnosis, published: Mapping[str, int]) -> Iterator[str]:
    references = f", {split.references} references" if split.references > 1 else ""
    count = split.examined.pairs
    yield f"  {name}: {count:,}{references}{summary.beside_published(count, published.get(name))}"
    for corpus, counted in split.reading.corpora.items():
        yield f"    {summary.corpus_line(corpus, counted)}"
    for what, counts in (("left out while reading", split.reading.drops), ("changed", split.reading.notes)):
        for reason, number in counts.items():
            words = summary.REASONS.get(reason, reason)
            yield f"    {what}: {number:,}, {words} (first: {split.reading.first.get(reason, '?')})"
    if name != TRAIN:
        for reason, number in split.examined.alone.items():
            if number and reason in (filters.EMPTY, filters.ENCODING, filters.IDENTICAL, filters.SCRIPT):
                yield f"    {number:,}: {summary.REASONS.get(reason, reason)}"


def _side_lines(sides: Sequence[Side]) -> Iterator[str]:
    yield f"  {'':34}{SIDES[0]:>22}{SIDES[1]:>22}"
    for title, row in (("words", WORDS), ("subwords", SUBWORDS)):
        cells = ["/".join(map(str, [*quantiles(side.lengths[row]), side.longest[title]])) for side in sides]
        yield f"  {f'{title}: median/95%/99%/longest':34}{cells[0]:>22}{cells[1]:>22}"
    for title, part, whole in (("words a text", "words", "texts"), ("subwords a word", "subwords", "words")):
        totals = [{**side.totals, "texts": int(side.lengths[WORDS].sum())} for side in sides]
        cells = [f"{total.get(part, 0) / max(total.get(whole, 0), 1):.2f}" for total in totals]
        yield f"  {title:34}{cells[0]:>22}{cells[1]:>22}"
    cells = [_percent(side.totals["unknown"], side.totals["characters"]) for side in sides]
    yield f"  {'characters without a subword':34}{cells[0]:>22}{cells[1]:>22}"
    cells = [_percent(side.totals["texts_with_unknown"], int(side.lengths[WORDS].sum())) for side in sides]
    yield f"  {'texts with such characters':34}{cells[0]:>22}{cells[1]:>22}"
    for script in dict.fromkeys(name for side in sides for name, _ in side.scripts.most_common(4)):
        cells = [_percent(side.scripts[script], sum(side.scripts.values())) for side in sides]
        yield f"  {f'letters in the script {script}':34}{cells[0]:>22}{cells[1]:>22}"


def _histogram_lines(sides: Sequence[Side]) -> Iterator[str]:
    histograms = [length_bins(side.lengths[WORDS]) for side in sides]
    labels = list(dict.fromkeys(label for bins in histograms for label, _ in bins))
    labels.sort(key=lambda label: int(label.split("-")[0].split()[0]))
    counts = [dict(bins) for bins in histograms]
    totals = [max(1, sum(bins.values())) for bins in counts]
    most = max(count / total for bins, total in zip(counts, totals, strict=True) for count in bins.values())
    last = max((n for n, label in enumerate(labels) if any(bins.get(label) for bins in counts)), default=0)
    for label in labels[: last + 1]:
        cells = []
        for bins, total in zip(counts, totals, strict=True):
            share = bins.get(label, 0) / total
            cells.append(f"{'█' * round(share / max(most, 1e-9) * _BAR_WIDTH):{_BAR_WIDTH}} {share:7.2%}")
        yield f"  {label:>13}  {cells[0]}   {cells[1]}"


def _ratio_lines(ratios: np.ndarray) -> Iterator[str]:
    yield "Words of the target for each word of the source (train)"
    total = int(ratios.sum())
    middle = [RATIOS[index] for index in quantiles(ratios, (0.05, 0.5, 0.95))]
    spark = "".join(_BARS[min(7, int(8 * count / max(ratios.max(), 1)))] if count else " " for count in ratios)
    yield f"  1/16 |{spark}| 16    5% up to {middle[0]:.2f}, median {middle[1]:.2f}, 5% from {middle[2]:.2f}"
    beyond = int(ratios[(RATIOS > _FAR_RATIO) | (RATIOS < 1 / _FAR_RATIO)].sum())
    yield f"  {_percent(beyond, total)} differ by a factor of more than about {_FAR_RATIO:g}"


def _filter_lines(diagnosis: Diagnosis) -> Iterator[str]:
    train = diagnosis.train
    which = "the problem's and --cleaning's filters" if diagnosis.asked else "all filters; none of them is set"
    yield f"What filters would drop of {train.pairs:,} training pairs (in order: {which})"
    yield f"  {'':16}{'setting':>24}{'alone':>12}{'':>9}{'in order':>12}"
    for row in filter_rows(diagnosis):
        in_order = "-" if row.in_order is None else f"{row.in_order:,}"
        share = _percent(row.alone, train.pairs)
        yield f"  {row.reason:16}{row.setting:>24}{row.alone:>12,}{share:>9}{in_order:>12}"
    yield f"  {'left':16}{'':45}{train.left:>12,} ({_percent(train.left, train.pairs)})"


def _repetition_lines(diagnosis: Diagnosis) -> Iterator[str]:
    train = diagnosis.train
    yield "Repetitions within train"
    for kind, count in diagnosis.repeated.items():
        example = f" (first: {diagnosis.repeated_example[kind]})" if count else ""
        yield f"  the same {kind}: {count:,}, {_percent(count, train.pairs)}{example}"
    for name, split in diagnosis.splits.items():
        if split.different:
            yield f"Different texts of {name} that stand in train"
            for kind, different in split.different.items():
                found = split.found_in_train[kind]
                yield f"  {kind}: {found:,} of {different:,}, {_percent(found, different)}"
    if train.overlap:
        shown = ", ".join(f"{kind} {count:,}" for kind, count in train.overlap.items() if count) or "none"
        yield f"Training pairs of which a text stands in dev or test: {shown}"


def _percent(part: int, whole: int) -> str:
    share = part / whole if whole else 0.0
    return f"{share:.3%}" if 0 < share < 0.001 else f"{share:.2%}"
