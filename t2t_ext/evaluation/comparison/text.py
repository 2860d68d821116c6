"""A comparison of systems as text for a terminal."""

from collections.abc import Iterable, Sequence

from t2t_ext.evaluation.comparison.comparison import Comparison, ProtocolScores
from t2t_ext.evaluation.comparison.differing_sentences import DifferingSentence, SentenceView

MISSING = "-"


def render(comparison: Comparison) -> str:
    """Returns the whole report, ending without a newline."""
    lines = [_heading(comparison)]
    lines += [f"note: {note}" for note in comparison.notes]
    for block in comparison.scores:
        lines += ["", *_score_block(block)]
    for section in (_length_section, _ends_section, _direction_section, _frequency_section, _sentence_section):
        found = section(comparison)
        lines += ["", *found] if found else []
    return "\n".join(lines)


def number(value: float | None, decimals: int = 2) -> str:
    """Writes a number, or what stands for none."""
    return MISSING if value is None else f"{value:.{decimals}f}"


def wins(comparison: Comparison) -> list[str]:
    """Says of each system but the baseline in how many sentences it is the better one."""
    return [
        f"{name}: better than {comparison.names[0]} in {better} sentences, worse in {worse}, equal in {equal}"
        for name, (better, worse, equal) in comparison.wins().items()
    ]


def p_value(value: float) -> str:
    """Writes a probability: four decimals, with a star below 0.05."""
    return f"{value:.4f}{' *' if value < 0.05 else ''}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Sets cells in columns: the first to the left, the others to the right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _heading(comparison: Comparison) -> str:
    references = f"{comparison.references} reference{'s' if comparison.references > 1 else ''}"
    others = comparison.names[1:]
    against = f"; the baseline is {comparison.names[0]}" if others else ""
    return f"{', '.join(comparison.names)}: {comparison.segments} segments, {references}{against}"


def _score_block(block: ProtocolScores) -> list[str]:
    header = ["system", block.label, "95% confidence"]
    tests = {test.system: test for test in block.tests}
    if tests:
        header += ["difference", "p (bootstrap)", "p (randomisation)"]
    rows = []
    for name, score in block.systems.items():
        row = [
            name,
            score.format(score.value),
            f"{score.format(score.mean or 0)} ± {score.format(score.confidence or 0)}",
        ]
        if tests:
            test = tests.get(name)
            row += (
                [f"{test.difference:+.{score.decimals}f}", p_value(test.p_bootstrap), p_value(test.p_randomization)]
                if test
                else ["baseline", "", ""]
            )
        rows.append(row)
    first = next(iter(block.systems.values()))
    better = "" if first.higher_is_better else "; lower is better"
    lines = [f"== {block.protocol}: {block.label}{better}", *table(header, rows), f"[{first.signature}]"]
    if tests:
        lines.append(f"[{block.tests[0].signature_randomization}]  * = below 0.05")
    if block.pairs:
        lines += ["difference of the row's system to the column's (p of the paired bootstrap):", *table(*pairs(block))]
    return lines


def pairs(block: ProtocolScores) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows of the table of all paired tests: the row's system minus the column's."""
    names = list(block.systems)
    decimals = next(iter(block.systems.values())).decimals
    cells = {}
    for test in block.pairs:
        cells[test.system, test.baseline] = f"{test.difference:+.{decimals}f} ({p_value(test.p_bootstrap)})"
        cells[test.baseline, test.system] = f"{0 - test.difference:+.{decimals}f} ({p_value(test.p_bootstrap)})"
    return ["", *names], [[row, *(cells.get((row, column), "") for column in names)] for row in names]


def _length_section(comparison: Comparison) -> list[str]:
    names = comparison.names
    header = [comparison.settings.length_unit, "sentences"]
    header += [f"BLEU {name}" for name in names] + [f"ratio {name}" for name in names]
    header += [f"tokens {name}" for name in names]
    rows = [
        [
            each.label,
            str(each.sentences),
            *(number(each.bleu[name]) for name in names),
            *(number(each.length_ratio[name], 3) for name in names),
            *(number(each.average_length[name], 1) for name in names),
        ]
        for each in comparison.by_length
    ]
    return [
        f"== BLEU, length ratio and mean tokens by length of the {comparison.length_of} ({comparison.analysed}; "
        "10-20 is 10 to 19)",
        *table(header, rows),
    ]


def _ends_section(comparison: Comparison) -> list[str]:
    count = comparison.settings.end_tokens
    places = [str(place) for place in range(1, count + 1)]
    header = ["system", f"first {count}", f"last {count}", *places, *(f"-{place}" for place in reversed(places))]
    rows = [
        [
            name,
            number(ends.first),
            number(ends.last),
            *(number(value, 1) for value in ends.first_by_position),
            *(number(value, 1) for value in reversed(ends.last_by_position)),
        ]
        for name, ends in comparison.ends.items()
    ]
    return [
        "== Accuracy of the tokens at both ends, per cent (position from the beginning, from the end)",
        *table(header, rows),
    ]


def _direction_section(comparison: Comparison) -> list[str]:
    lines = []
    for system, parts in comparison.by_direction.items():
        shares = ", ".join(f"{100 * part.share:.1f}% {part.direction}" for part in parts)
        lines += [
            f"== Sentences that each direction of {system} won: {shares}",
            *table(*directions(comparison, system)),
        ]
    return lines


def directions(comparison: Comparison, system: str) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows of the table of the sentences that each direction of a system won."""
    names = comparison.names
    header = ["won by", "sentences", *(f"BLEU {name}" for name in names), *(f"tokens {name}" for name in names)]
    rows = [
        [
            part.direction,
            str(part.sentences),
            *(number(part.bleu[name]) for name in names),
            *(number(part.average_length[name], 1) for name in names),
        ]
        for part in comparison.by_direction[system]
    ]
    return header, rows


def _frequency_section(comparison: Comparison) -> list[str]:
    header = ["seen", "words", *(f"F1 {name}" for name in comparison.names)]
    buckets = zip(*comparison.by_frequency.values(), strict=True)
    rows = [[row[0].label, str(row[0].reference_words), *(number(bucket.f1) for bucket in row)] for row in buckets]
    return [f"== F1 of words by how often they occur in the {comparison.frequencies_of}", *table(header, rows)]


def _sentence_section(comparison: Comparison) -> list[str]:
    if len(comparison.names) > 1:
        title = "== Sentences that differ most in chrF; [words] are not in all systems"
    else:
        title = "== Sentences with the lowest chrF; [words] are not in the reference"
    lines = [title, *wins(comparison)]
    for sentence in comparison.differing:
        lines += ["", *_sentence(sentence)]
    return (
        lines
        if comparison.differing or not comparison.settings.sentences
        else [*lines, "", "none: every sentence has the same chrF in all systems"]
    )


def _sentence(sentence: DifferingSentence) -> list[str]:
    rows = [("source", sentence.source)] if sentence.source is not None else []
    rows += [("reference", reference) for reference in sentence.references]
    alone = len(sentence.systems) == 1
    shown = [(name, view, _marked(view, alone)) for name, view in sentence.systems.items()]
    width = max(len("reference"), *(len(name) for name in sentence.systems))
    lines = [f"line {sentence.number}"]
    lines += [f"  {name.ljust(width)}  {text}" for name, text in rows]
    lines += [
        f"  {name.ljust(width)}  {text}  (chrF {view.chrf:.1f}, BLEU {view.bleu:.1f})" for name, view, text in shown
    ]
    return lines


def _marked(view: SentenceView, alone: bool) -> str:
    """Returns the words with brackets around each run of words that differ."""
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
    return text + ("]" if inside else "")
