"""A comparison of systems as one HTML page that holds everything and opens without a network.

Figures are embedded SVG, there is no script, and all text from files is escaped.
"""

import base64
import html
from collections.abc import Iterable, Sequence

from t2t_ext.evaluation.comparison import plots as compare_plots
from t2t_ext.evaluation.comparison.comparison import Comparison, ProtocolScores
from t2t_ext.evaluation.comparison.differing_sentences import DifferingSentence, SentenceView
from t2t_ext.evaluation.comparison.text import directions, number, p_value, pairs, wins
from t2t_ext.version import __version__

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 70rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-bottom: 1px solid #bbb; }
table { border-collapse: collapse; margin: .5rem 0 1rem; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom: 2px solid #888; }
code { font-size: .8rem; color: #444; overflow-wrap: anywhere; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; vertical-align: top; }
figcaption { font-weight: 600; } img { max-width: 100%; }
.sentence { border: 1px solid #ccc; border-radius: .4rem; padding: .2rem .8rem; margin: 1rem 0; }
.sentence table { display: table; width: 100%; } .sentence td { text-align: left; border: 0; vertical-align: top; }
.sentence th { white-space: nowrap; text-align: left; border: 0; font-weight: 600; width: 1%; vertical-align: top; }
.sentence td.score { white-space: nowrap; width: 1%; color: #444; text-align: right; }
.wrong { background: #fde3c8; } .differs { text-decoration: underline 2px; font-weight: 600; }
.note { background: #fff6d6; border-left: 4px solid #b58900; padding: .3rem .8rem; }
"""


def render(comparison: Comparison) -> str:
    """Returns the page."""
    names = comparison.names
    title = " / ".join(names)
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p>{comparison.segments} segments, {comparison.references} reference(s). {_baseline(names)}</p>",
        *(f'<p class="note">{_text(note)}</p>' for note in comparison.notes),
        "<h2>Scores</h2>",
    ]
    for index, block in enumerate(comparison.scores):
        parts += [
            _figure(f"{block.protocol}: {block.label}", compare_plots.scores(comparison, index), "95% confidence")
        ]
    parts += [_scores(block) for block in comparison.scores]
    for (name, draw), body in zip(compare_plots.titles(comparison), _tables(comparison), strict=True):
        parts += [f"<h2>{_text(name)}</h2>", _figure(name, draw(), f"computed with {comparison.analysed}"), body]
    for system in comparison.by_direction:
        title = f"Sentences that each direction of {system} won"
        parts += [f"<h2>{_text(title)}</h2>", _table(f"BLEU by {comparison.analysed}", *directions(comparison, system))]
    parts += _sentences(comparison)
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{_text(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f"<footer><p>t2t_ext-compare {__version__}</p></footer>\n</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return html.escape(text, quote=True)


def _baseline(names: Sequence[str]) -> str:
    return f"Differences and tests are against {_text(names[0])}." if len(names) > 1 else ""


def _figure(title: str, svg: str, caption: str) -> str:
    data = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return (
        f'<figure><figcaption>{_text(title)}</figcaption><img alt="{_text(title)}; the table has the numbers" '
        f'src="data:image/svg+xml;base64,{data}"><br><small>{_text(caption)}</small></figure>'
    )


def _table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in header)
    body = "\n".join(
        f'<tr><th scope="row">{_text(row[0])}</th>' + "".join(f"<td>{_text(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return f"<table><caption>{_text(caption)}</caption><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def _scores(block: ProtocolScores) -> str:
    tests = {test.system: test for test in block.tests}
    header = ["system", block.label, "95% confidence"]
    header += ["difference", "p (paired bootstrap)", "p (randomisation)"] if tests else []
    rows = []
    for name, score in block.systems.items():
        interval = f"{score.format(score.mean or 0)} ± {score.format(score.confidence or 0)}"
        row = [name, score.format(score.value), interval]
        if name in tests:
            test = tests[name]
            difference = f"{test.difference:+.{score.decimals}f}"
            row += [difference, p_value(test.p_bootstrap), p_value(test.p_randomization)]
        elif tests:
            row += ["baseline", "", ""]
        rows.append(row)
    first = next(iter(block.systems.values()))
    better = "higher is better" if first.higher_is_better else "lower is better"
    signatures = [first.signature, *(test.signature_randomization for test in block.tests[:1])]
    lines = "<br>".join(f"<code>{_text(each)}</code>" for each in signatures)
    star = " * = p below 0.05." if tests else ""
    made = _table(f"{block.protocol}: {block.label}, {better}", header, rows) + f"<p>{lines}{star}</p>"
    if block.pairs:
        made += _table("All pairs: the row's system minus the column's (p of the paired bootstrap)", *pairs(block))
    return made


def _tables(comparison: Comparison) -> list[str]:
    """Returns the tables below the figures of ``compare_plots.titles``, in their order."""
    names, bins = comparison.names, comparison.by_length
    unit = comparison.settings.length_unit
    bleu = [[each.label, str(each.sentences), *(number(each.bleu[name]) for name in names)] for each in bins]
    ratio = [
        [
            each.label,
            *(number(each.length_ratio[name], 3) for name in names),
            *(number(each.average_length[name], 1) for name in names),
            number(each.average_reference_length, 1),
        ]
        for each in bins
    ]
    end = comparison.settings.end_tokens
    places = [*(str(place) for place in range(1, end + 1)), *(str(place) for place in range(-end, 0))]
    ends = [
        [name, number(each.first), number(each.last)]
        + [number(value, 1) for value in (*each.first_by_position, *reversed(each.last_by_position))]
        for name, each in comparison.ends.items()
    ]
    words = [
        [row[0].label, str(row[0].reference_words)]
        + [number(value) for bucket in row for value in (bucket.f1, bucket.precision, bucket.recall)]
        for row in zip(*comparison.by_frequency.values(), strict=True)
    ]
    measures = [f"{measure} {name}" for name in names for measure in ("F1", "precision", "recall")]
    lengths = [*(f"ratio {name}" for name in names), *(f"tokens {name}" for name in names), "tokens reference"]
    return [
        _table("10-20 holds lengths from 10 to 19", [unit, "sentences", *names], bleu),
        _table("Length ratio, and mean number of tokens", [unit, *lengths], ratio),
        _table("Per cent right", ["system", f"first {end}", f"last {end}", *places], ends),
        _table(f"By occurrences in the {comparison.frequencies_of}", ["seen", "words", *measures], words),
    ]


def _sentences(comparison: Comparison) -> list[str]:
    alone = len(comparison.names) == 1
    title = "Sentences with the lowest chrF" if alone else "Sentences that differ most in chrF"
    legend = '<span class="wrong">Shaded</span> words are not in the closest reference'
    legend += "." if alone else '; <span class="differs">underlined</span> words are not in all systems.'
    shown = [_sentence(sentence) for sentence in comparison.differing]
    counts = [f"<p>{_text(line)} (chrF).</p>" for line in wins(comparison)]
    if not comparison.settings.sentences:
        return [f"<h2>{title}</h2>", *counts] if counts else []
    return [f"<h2>{title}</h2>", *counts, f"<p>{legend}</p>", *(shown or ["<p>None.</p>"])]


def _sentence(sentence: DifferingSentence) -> str:
    rows = []
    if sentence.source is not None:
        rows.append(("source", _text(sentence.source), ""))
    rows += [("reference", _text(reference), "") for reference in sentence.references]
    rows += [
        (name, _words(view), f"chrF {view.chrf:.1f}, BLEU {view.bleu:.1f}") for name, view in sentence.systems.items()
    ]
    body = "\n".join(
        f'<tr><th scope="row">{_text(name)}</th><td dir="auto">{text}</td><td class="score">{score}</td></tr>'
        for name, text, score in rows
    )
    return f'<section class="sentence"><h3>Line {sentence.number}</h3><table>{body}</table></section>'


def _words(view: SentenceView) -> str:
    shown = []
    for word in view.words:
        classes = " ".join(name for name, on in (("wrong", not word.in_reference), ("differs", not word.shared)) if on)
        shown.append(f'<span class="{classes}">{_text(word.text)}</span>' if classes else _text(word.text))
    return " ".join(shown)
