"""Presents a diagnosis as a report for people, as figures for machines, and as pictures."""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_ext.data.datasets import manifest
from t2t_ext.data.doctor.alignment import joined
from t2t_ext.data.doctor.diagnosis import TRAIN, Diagnosis, SplitDiagnosis
from t2t_ext.data.doctor.examination import LONGEST_COUNTED, RATIOS, SIDES, Side
from t2t_ext.data.doctor.findings import faults, filter_rows, findings, percent, quantiles
from t2t_ext.data.generation import cleaning as filters
from t2t_ext.data.generation.cleaning import REASONS
from t2t_ext.reporting import figures
from t2t_ext.reporting.report import Block, Figure, Items, Paragraph, Report, Section, as_json, write
from t2t_ext.reporting.table import Column, Table, columns

# Rows of ``Side.lengths``.
WORDS, SUBWORDS, CHARACTERS = range(3)
LENGTH_BOUNDS = (1, 5, 10, 20, 30, 40, 50, 75, 100, 175, 250, LONGEST_COUNTED)
_BARS = "▁▂▃▄▅▆▇█"
_BAR_WIDTH = 24
_SHOWN_SHARE = 0.999  # lengths beyond this share of the texts are left out of the picture
_FAR_RATIO = 3.0


def write_report(diagnosis: Diagnosis, directory: pathlib.Path) -> list[pathlib.Path]:
    """Writes ``report.json``, ``lengths.png``, ``ratios.png`` and a self-contained ``report.html``."""
    names = write(
        directory,
        {
            "report.json": as_json(record(diagnosis)),
            "lengths.png": lengths_picture(diagnosis, "png"),
            "ratios.png": ratios_picture(diagnosis, "png"),
            "report.html": build(diagnosis, for_page=True).page(),
        },
    )
    return [directory / name for name in names]


def build(diagnosis: Diagnosis, for_page: bool = False) -> Report:
    """Returns the whole report; findings come first on a page and last on a terminal."""
    arrow = " -> ".join(filter(None, diagnosis.languages))
    title = f"{diagnosis.problem}{f' ({arrow})' if arrow else ''}"
    check, fix = list(findings(diagnosis)), list(faults(diagnosis))
    clean = [] if check or fix else ["Nothing stands out: these data can be trained on as they are."]
    outcomes = ("Check", check), ("Must be fixed", fix), ("Verdict", clean)
    outcome: list[Block] = [Section(heading, [Items(sentences)]) for heading, sentences in outcomes if sentences]
    if for_page:
        outcome.reverse()
    train = diagnosis.train
    pairs = [line for name, split in diagnosis.splits.items() for line in _split(name, split, diagnosis.published)]
    sizes = "/".join(f"{size:,}" for size in dict.fromkeys(diagnosis.vocab_sizes))
    which = "the problem's and --cleaning's filters" if diagnosis.asked else "all filters; none of them is set"
    filters_table = [
        [manifest.in_words(row.reason), row.setting, row.alone, percent(row.alone, train.pairs), row.in_order]
        for row in filter_rows(diagnosis)
    ]
    filter_columns = [
        *columns("filter", "setting"),
        Column("alone", ",", hint="Pairs dropped if it were the only filter"),
        Column(""),
        Column("in order", ",", hint="Pairs dropped after the filters above it; - it is off"),
    ]
    body: list[Block] = [
        Section("Pairs", [Items(pairs, "")]),
        Section(f"Text of train (subword model: {sizes} ids, {diagnosis.subword_model})", [_sides(train.sides)]),
        Section(
            "Length in words (train)",
            [
                Figure(lambda: lengths_picture(diagnosis, "svg"), "Lengths of the training texts"),
                _histogram(train.sides),
            ],
        ),
        Section(
            "Words of the target for each word of the source (train)",
            [
                Figure(lambda: ratios_picture(diagnosis, "svg"), "Ratios of the lengths of target and source"),
                Items(_ratios(train.ratios), ""),
            ],
        ),
        Section(
            f"What filters would drop of {train.pairs:,} training pairs (in order: {which})",
            [
                Table(filter_columns, filters_table, missing="-"),
                Paragraph(f"left: {train.left:,} ({percent(train.left, train.pairs)})"),
            ],
        ),
        *_repetitions(diagnosis),
    ]
    worst = [f"{manifest.in_words(reason)}: {text}" for reason in REASONS for *_, text in train.worst.get(reason, ())]
    if worst:
        body.append(Section("Worst, or first, of each", [Items(worst, "")]))
    blocks = [*outcome, *body] if for_page else [Paragraph(title), *body, *outcome]
    return Report(f"{title}: the data", blocks, "t2t_ext-doctor")


def length_bins(counts: np.ndarray) -> list[tuple[str, int]]:
    """Returns a histogram with few bins: the label of each bin and its number of texts."""
    bins = [("0", int(counts[0]))] if counts[0] else []
    for first, last in zip(LENGTH_BOUNDS, [*LENGTH_BOUNDS[1:], len(counts)], strict=True):
        label = f"{first}-{last - 1}" if last < len(counts) else f"{first} and more"
        bins.append((label, int(counts[first:last].sum())))
    return bins


def record(diagnosis: Diagnosis) -> dict[str, Any]:
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
        "misaligned": {
            name: [{"first": block.first + 1, "last": block.last + 1, "offset": block.offset} for block in blocks]
            for name, split in diagnosis.splits.items()
            if (blocks := list(joined(split.examined.shifted)))
        },
        "findings": list(findings(diagnosis)),
        "faults": list(faults(diagnosis)),
    }


# === Sections ===


def _split(name: str, split: SplitDiagnosis, published: Mapping[str, int]) -> Iterator[str]:
    references = f", {split.references} references" if split.references > 1 else ""
    count = split.examined.pairs
    yield f"{name}: {count:,}{references}{manifest.beside_published(count, published.get(name))}"
    for corpus, counted in split.reading.corpora.items():
        yield f"  {manifest.corpus_line(corpus, counted)}"
    for what, counts in (("left out while reading", split.reading.drops), ("changed", split.reading.notes)):
        for reason, number in counts.items():
            words = manifest.in_words(reason)
            yield f"  {what}: {number:,}, {words} (first: {split.reading.first.get(reason, '?')})"
    if name != TRAIN:
        for reason, number in split.examined.alone.items():
            if number and reason in (filters.EMPTY, filters.ENCODING, filters.IDENTICAL, filters.SCRIPT):
                yield f"  {number:,}: {manifest.in_words(reason)}"


def _sides(sides: Sequence[Side]) -> Table:
    rows = []
    for title, row in (("words", WORDS), ("subwords", SUBWORDS)):
        cells = ["/".join(map(str, [*quantiles(side.lengths[row]), side.longest[title]])) for side in sides]
        rows.append([f"{title}: median/95%/99%/longest", *cells])
    texts = [int(side.lengths[WORDS].sum()) for side in sides]
    words = [side.totals["words"] for side in sides]
    subwords = [side.totals["subwords"] for side in sides]
    for title, parts, wholes in (("words a text", words, texts), ("subwords a word", subwords, words)):
        rows.append([title, *(f"{part / max(whole, 1):.2f}" for part, whole in zip(parts, wholes, strict=True))])
    unknown = [percent(side.totals["unknown"], side.totals["characters"]) for side in sides]
    rows.append(["characters without a subword", *unknown])
    affected = [side.totals["texts_with_unknown"] for side in sides]
    rows.append(["texts with such characters", *map(percent, affected, texts)])
    for script in dict.fromkeys(name for side in sides for name, _ in side.scripts.most_common(4)):
        cells = [percent(side.scripts[script], sum(side.scripts.values())) for side in sides]
        rows.append([f"letters in the script {script}", *cells])
    return Table(columns("", *SIDES), rows)


def _histogram(sides: Sequence[Side]) -> Table:
    counts = [dict(length_bins(side.lengths[WORDS])) for side in sides]
    labels = sorted({*counts[0], *counts[1]}, key=lambda label: int(label.split("-")[0].split()[0]))
    totals = [max(1, sum(bins.values())) for bins in counts]
    most = max(count / total for bins, total in zip(counts, totals, strict=True) for count in bins.values())
    last = max((n for n, label in enumerate(labels) if any(bins.get(label) for bins in counts)), default=0)
    rows = []
    for label in labels[: last + 1]:
        shares = [bins.get(label, 0) / total for bins, total in zip(counts, totals, strict=True)]
        rows.append(
            [label, *(cell for share in shares for cell in ("█" * round(share / (most or 1) * _BAR_WIDTH), share))]
        )
    headings = [column for side in SIDES for column in (Column(side, words=True), Column("", "7.2%"))]
    return Table([Column("words"), *headings], rows)


def _ratios(ratios: np.ndarray) -> list[str]:
    total = int(ratios.sum())
    middle = [RATIOS[index] for index in quantiles(ratios, (0.05, 0.5, 0.95))]
    spark = "".join(_BARS[min(7, int(8 * count / max(ratios.max(), 1)))] if count else " " for count in ratios)
    beyond = int(ratios[(RATIOS > _FAR_RATIO) | (RATIOS < 1 / _FAR_RATIO)].sum())
    return [
        f"1/16 |{spark}| 16    5% up to {middle[0]:.2f}, median {middle[1]:.2f}, 5% from {middle[2]:.2f}",
        f"{percent(beyond, total)} differ by a factor of more than about {_FAR_RATIO:g}",
    ]


def _repetitions(diagnosis: Diagnosis) -> Iterator[Section]:
    train, lines = diagnosis.train, []
    for kind, count in diagnosis.repeated.items():
        example = f" (first: {diagnosis.repeated_example[kind]})" if count else ""
        lines.append(f"the same {kind}: {count:,}, {percent(count, train.pairs)}{example}")
    yield Section("Repetitions within train", [Items(lines, "")])
    for name, split in diagnosis.splits.items():
        if split.different:
            found = split.found_in_train
            lines = [f"{k}: {found[k]:,} of {n:,}, {percent(found[k], n)}" for k, n in split.different.items()]
            yield Section(f"Different texts of {name} that are in train, too", [Items(lines, "")])
    if train.overlap:
        shown = ", ".join(f"{kind} {count:,}" for kind, count in train.overlap.items() if count) or "none"
        yield Section("Training pairs of which a text is in dev or test", [Paragraph(shown)])


# === For machines ===


def _split_json(name: str, split: SplitDiagnosis, published: Mapping[str, int]) -> dict[str, Any]:
    examined = split.examined
    sides = {}
    for side, sums in zip(SIDES, examined.sides, strict=True):
        sides[side] = {
            "totals": dict(sums.totals),
            "longest": sums.longest,
            "letters_by_script": dict(sums.scripts),
            "words_histogram": np.trim_zeros(sums.lengths[WORDS], "b").tolist(),
            "subwords_histogram": np.trim_zeros(sums.lengths[SUBWORDS], "b").tolist(),
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


# === Pictures ===


def lengths_picture(diagnosis: Diagnosis, kind: str) -> bytes:
    """Draws how long the training texts are, in words and in subwords; returns a ``png`` or ``svg`` file."""
    with figures.new_figure(10, 3.6) as figure:
        for axes, row, unit in zip(figure.subplots(1, 2), (WORDS, SUBWORDS), ("words", "subwords"), strict=True):
            histograms = [side.lengths[row] for side in diagnosis.train.sides]
            last = max(2, *(quantiles(counts, (_SHOWN_SHARE,))[0] for counts in histograms))
            for place, (side, counts) in enumerate(zip(SIDES, histograms, strict=False)):
                axes.step(np.arange(last + 1), counts[: last + 1], where="mid", color=figures.color(place))
                tips = [f"{side}, {length} {unit}: {count:,} texts" for length, count in enumerate(counts[: last + 1])]
                figures.points(axes, np.arange(last + 1), counts[: last + 1], tips)
            axes.set_xlabel(f"length in {unit}")
            axes.set_ylabel("training texts")
            figures.plain(axes)
        figures.legend(figure, SIDES)
        return figures.saved(figure, kind)


def ratios_picture(diagnosis: Diagnosis, kind: str) -> bytes:
    """Draws how many words the targets have for each word of their sources; returns a ``png`` or ``svg`` file."""
    with figures.new_figure(10, 2.6) as figure:
        axes = figure.subplots()
        drawn = axes.bar(np.log2(RATIOS), diagnosis.train.ratios, width=0.22, color=figures.color(0))
        for bar, ratio, count in zip(drawn, RATIOS, diagnosis.train.ratios, strict=True):
            figures.tip(bar, f"{ratio:.3g}: {count:,} pairs")
        ticks = np.arange(-4, 5)
        axes.set_xticks(ticks, [f"{2.0**tick:g}" for tick in ticks])
        axes.set_xlabel("words of the target for each word of the source")
        axes.set_ylabel("training pairs")
        figures.plain(axes)
        return figures.saved(figure, kind)
