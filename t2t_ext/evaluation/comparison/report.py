"""Presents a comparison of systems as a report: text for a terminal, and one HTML page with figures."""

from typing import Any

from t2t_ext.evaluation.comparison import plots
from t2t_ext.evaluation.comparison.comparison import Comparison, ProtocolScores
from t2t_ext.evaluation.comparison.differing_sentences import SentenceView
from t2t_ext.reporting.html import element, joined
from t2t_ext.reporting.report import Block, Definitions, Either, Figure, Note, Paragraph, Report, Section
from t2t_ext.reporting.table import Column, Table, columns

_MISSING = "-"
FEWEST_TO_RESAMPLE = 10  # with fewer segments, samples are so much alike that the bootstrap's p says nothing


def build(comparison: Comparison) -> Report:
    """Returns the whole report; figures are drawn only when its page is created."""
    references = f"{comparison.references} reference{'s' if comparison.references > 1 else ''}"
    against = f"; the baseline is {comparison.names[0]}" if len(comparison.names) > 1 else ""
    heading = f"{', '.join(comparison.names)}: {comparison.segments} segments, {references}{against}"
    blocks: list[Block] = [Paragraph(heading), *map(Note, comparison.notes)]
    if len(comparison.names) > 1 and comparison.segments < FEWEST_TO_RESAMPLE:
        blocks.append(
            Note(f"With fewer than {FEWEST_TO_RESAMPLE} segments the bootstrap says nothing; its p is left out.")
        )
    blocks += [_scores(comparison, number) for number in range(len(comparison.scores))]
    blocks += [_lengths(comparison), _ends(comparison)]
    blocks += [_directions(comparison, system) for system in comparison.by_direction]
    blocks.append(_frequencies(comparison))
    blocks += _sentences(comparison)
    return Report(" / ".join(comparison.names), blocks, "t2t_ext-compare")


# === Scores ===


def _scores(comparison: Comparison, number: int) -> Section:
    """Returns the scores of one metric with their confidence intervals and tests."""
    block = comparison.scores[number]
    tests = {test.system: test for test in block.tests}
    headings = columns("system", block.label, "95% confidence")
    if tests:
        headings += [
            Column("difference"),
            Column("p (bootstrap)", hint="Paired bootstrap resampling; * below 0.05"),
            Column("p (randomization)", hint="Paired approximate randomization; * below 0.05"),
        ]
    rows: list[list[Any]] = []
    for name, score in block.systems.items():
        confidence = f"{score.format(score.mean or 0)} ± {score.format(score.confidence or 0)}"
        row = [name, score.format(score.value), confidence]
        if name in tests:
            test = tests[name]
            difference = f"{test.difference:+.{score.decimals}f}"
            bootstrap = p_value(test.p_bootstrap) if comparison.segments >= FEWEST_TO_RESAMPLE else _MISSING
            row += [difference, bootstrap, p_value(test.p_randomization)]
        elif tests:
            row += ["baseline", "", ""]
        rows.append(row)
    first = next(iter(block.systems.values()))
    blocks: list[Block] = [
        Figure(lambda: plots.scores(comparison, number), f"{block.label} of each system; the table has the numbers"),
        Table(headings, rows),
        Paragraph(first.signature, "signature"),
    ]
    if block.tests:
        blocks += [Paragraph(block.tests[0].signature_randomization, "signature"), Paragraph("* p below 0.05")]
    if block.pairs:
        blocks.append(pairs(block))
    better = "" if first.higher_is_better else "; lower is better"
    return Section(f"{block.protocol}: {block.label}{better}", blocks)


def p_value(value: float) -> str:
    """Returns a p-value as text: four decimals, with a star if it is below 0.05."""
    return f"{value:.4f}{' *' if value < 0.05 else ''}"


def pairs(block: ProtocolScores) -> Table:
    """Returns the table of all paired tests: the row's system minus the column's."""
    names = list(block.systems)
    decimals = next(iter(block.systems.values())).decimals
    cells = {}
    for test in block.pairs:
        for row, column, difference in (
            (test.system, test.baseline, test.difference),
            (test.baseline, test.system, 0 - test.difference),
        ):
            cells[row, column] = f"{difference:+.{decimals}f} ({p_value(test.p_randomization)})"
    rows = [[row, *(cells.get((row, column)) for column in names)] for row in names]
    caption = "All pairs: the row's system minus the column's (p of approximate randomization)"
    return Table(columns("", *names), rows, caption)


# === Lengths, ends, directions, frequencies ===


def _of_each(comparison: Comparison, what: str, decimals: int = 2) -> list[Column]:
    """Returns a column of numbers for each system."""
    return columns(*(f"{what} {name}" for name in comparison.names), format=f".{decimals}f")


def _lengths(comparison: Comparison) -> Section:
    names, of = comparison.names, comparison.length_of
    headings = [
        *columns(comparison.settings.length_unit, "sentences"),
        *_of_each(comparison, "BLEU"),
        *_of_each(comparison, "ratio", 3),
        *_of_each(comparison, "tokens", 1),
        Column("tokens reference", ".1f"),
    ]
    rows = [
        [each.label, each.sentences]
        + [part[name] for part in (each.bleu, each.length_ratio, each.average_length) for name in names]
        + [each.average_reference_length]
        for each in comparison.by_length
    ]
    blocks: list[Block] = [
        Figure(lambda: plots.bleu_by_length(comparison), f"BLEU by length of the {of}"),
        Figure(lambda: plots.ratio_by_length(comparison), f"Length ratio by length of the {of}"),
        Table(headings, rows, missing=_MISSING),
    ]
    title = f"BLEU, length ratio and mean tokens by length of the {of} ({comparison.analyzed}; 10-20 is 10 to 19)"
    return Section(title, blocks)


def _ends(comparison: Comparison) -> Section:
    count = comparison.settings.end_tokens
    places = [*(str(place) for place in range(1, count + 1)), *(str(place) for place in range(-count, 0))]
    headings = [Column("system"), *columns(f"first {count}", f"last {count}", format=".2f")]
    headings += columns(*places, format=".1f")
    rows = [
        [name, each.first, each.last, *each.first_by_position, *reversed(each.last_by_position)]
        for name, each in comparison.ends.items()
    ]
    figure = Figure(lambda: plots.ends(comparison), "Accuracy of the first and last tokens")
    title = "Accuracy of the tokens at both ends, percent (position from the beginning, from the end)"
    return Section(title, [figure, Table(headings, rows, missing=_MISSING)])


def _directions(comparison: Comparison, system: str) -> Section:
    """Returns the sentences that each direction of a system won."""
    parts = comparison.by_direction[system]
    headings = [*columns("won by", "sentences"), *_of_each(comparison, "BLEU"), *_of_each(comparison, "tokens", 1)]
    rows = [
        [part.direction, part.sentences]
        + [values[name] for values in (part.bleu, part.average_length) for name in comparison.names]
        for part in parts
    ]
    shares = ", ".join(f"{100 * part.share:.1f}% {part.direction}" for part in parts)
    title = f"Sentences that each direction of {system} won: {shares}"
    return Section(title, [Table(headings, rows, missing=_MISSING)])


def _frequencies(comparison: Comparison) -> Section:
    measures = [f"{measure} {name}" for name in comparison.names for measure in ("F1", "precision", "recall")]
    rows = [
        [row[0].label, row[0].reference_words]
        + [value for bucket in row for value in (bucket.f1, bucket.precision, bucket.recall)]
        for row in zip(*comparison.by_frequency.values(), strict=True)
    ]
    figure = Figure(lambda: plots.f1_by_frequency(comparison), "F1 of words by frequency")
    table = Table([*columns("seen", "words"), *columns(*measures, format=".2f")], rows, missing=_MISSING)
    return Section(f"F1 of words by how often they occur in the {comparison.frequencies_of}", [figure, table])


# === Sentences ===


def _sentences(comparison: Comparison) -> list[Block]:
    first, alone = comparison.names[0], len(comparison.names) == 1
    title = "Sentences with the lowest chrF" if alone else "Sentences that differ most in chrF"
    blocks: list[Block] = [
        Paragraph(f"{name}: better than {first} in {better} sentences, worse in {worse}, equal in {equal}")
        for name, (better, worse, equal) in comparison.wins().items()
    ]
    if comparison.settings.sentences:
        legend = ["; ", element("span", "underlined", class_="differs"), " ones are not in all systems."]
        shaded = [element("span", "Shaded", class_="wrong"), " words are not in the closest reference"]
        shown = element("p", *shaded, *(["."] if alone else legend))
        blocks.append(Either(f"[words] are not in {'the reference' if alone else 'all systems'}", shown))
        for each in comparison.differing:
            rows: list[tuple[str, str | Either]] = [] if each.source is None else [("source", each.source)]
            rows += [("reference", reference) for reference in each.references]
            rows += [(name, _marked(view, alone)) for name, view in each.systems.items()]
            blocks.append(Definitions(rows, f"line {each.number}"))
        if not comparison.differing:
            blocks.append(Paragraph("none: every sentence has the same chrF in all systems"))
    return [Section(title, blocks)] if blocks else []


def _marked(view: SentenceView, alone: bool) -> Either:
    """Returns the words; differing ones are in brackets on a terminal and in elements with classes on a page."""
    text, inside = "", False
    for word in view.words:
        differs = not word.in_reference if alone else not word.shared
        if inside and not differs:
            text += "]"
        text += " " if text else ""
        if differs and not inside:
            text += "["
        text += word.text
        inside = differs
    scores = f"chrF {view.chrf:.1f}, BLEU {view.bleu:.1f}"
    page: list[str] = []
    for word in view.words:
        classes = " ".join(["wrong"] * (not word.in_reference) + ["differs"] * (not word.shared))
        page += [element("span", word.text, class_=classes) if classes else word.text, " "]
    page.append(element("span", scores, class_="weak"))
    return Either(f"{text}{']' if inside else ''}  ({scores})", joined(page))
