"""Tables, tests and the figure of ``comparison.py``, from the stored results alone."""

import dataclasses
import pathlib
import re
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from _comparison_plan import PLAIN, Cell, Job, Plan
from _comparison_store import Record, best_losses, has_diverged, unpack
from _comparison_tests import Difference, difference, holm

from t2t_ext.io import files
from t2t_ext.reporting import figures

_LEVEL = 0.05
_SEEDS_TO_CONCLUDE = 3
_WIDTH = 150


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
      number: Its number, which other rows are compared with it by.
      words: It in words.
      name: Its recipe.
      main: Whether it is a main row.
      runs: Its results by seed, those with the family's rate and dropout.
      counts: What BLEU counts in every sentence, by seed: float [sentences, 10].
      control: Number of the row that it is compared with; None for the first.
      difference: To its control; None where there is none, or no seed that both have.
    """

    number: int
    words: str
    name: str
    main: bool
    runs: Mapping[int, Record]
    counts: Mapping[int, np.ndarray]
    control: int | None
    difference: Difference | None

    def mean(self, *path: str) -> float | None:
        """Returns the mean of a figure of the results over the seeds; None where none has it."""
        found = [value for run in self.runs.values() if (value := _at(run, path)) is not None]
        return statistics.fmean(found) if found else None

    def bleu(self) -> str:
        """Returns mean and sample standard deviation of test BLEU."""
        values = [run["test"]["BLEU"] for run in self.runs.values()]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):.2f}{spread}"


def _at(record: Any, path: Sequence[str]) -> Any:
    for name in path:
        record = record.get(name)
        if record is None:
            return None
    return record


def write(plan: Plan, records: Mapping[Job, Record], out: pathlib.Path) -> None:
    """Writes ``OUT.md`` and ``OUT.png``, which goes to a folder ``images`` beside that of OUT where there is one."""
    folder = out.parent.parent / "images"
    picture = (folder if folder.is_dir() else out.parent) / f"{out.name}.png"
    link = f"../images/{picture.name}" if folder.is_dir() else picture.name
    made = rows(plan, records)
    files.write_text_atomically(out.with_suffix(".md"), markdown(plan, records, made, link))
    files.write_bytes_atomically(picture, draw(made))
    print(f"written: {out.with_suffix('.md')} and {picture}", flush=True)


# === Rows ===


def rows(plan: Plan, records: Mapping[Job, Record]) -> dict[str, list[Row]]:
    """Returns for each recipe of training the rows that have a result, main rows first, with their tests."""
    cells = plan.best_so_far(best_losses(records))
    return {variant: _rows(plan, records, cells, variant) for variant in plan.variants}


def _rows(plan: Plan, records: Mapping[Job, Record], cells: Mapping[str, Cell], variant: str) -> list[Row]:
    names = [*plan.main, *plan.ablations]
    tuned = plan.cells(best_losses(records))
    usable = [(job, each) for job, each in sorted(records.items()) if job.variant == variant and not has_diverged(each)]
    runs: dict[str, dict[int, Record]] = {}
    for name in names:
        family = plan.family(name)
        # A row has its first run before its family is tuned, perhaps in another cell than the best one until then.
        wanted = [cells.get(family), *([plan.grid.first] if plan.grid and family not in tuned else [])]
        found = [{job.seed: each for job, each in usable if (job.row, job.cell) == (name, cell)} for cell in wanted]
        runs[name] = next(filter(None, found), {})
    counts = {
        name: {seed: unpack(run["test"]["counts"], run["test"]["sentences"]) for seed, run in each.items()}
        for name, each in runs.items()
    }
    made = []
    for number, name in enumerate(names, 1):
        control = plan.control(name)
        tested = difference(counts[name], counts[control]) if control else None
        compared = names.index(control) + 1 if control else None
        if runs[name]:
            main, own = name in plan.main, (runs[name], counts[name])
            made.append(Row(number, plan.words(name), name, main, *own, compared, tested))
    return made


def conclusion(tested: Difference, corrected: float) -> str:
    """Returns what a difference to the control says, by the protocol's rule.

    Args:
      tested: The difference.
      corrected: Its p of the randomization, after Holm's correction.
    """
    if tested.seeds < _SEEDS_TO_CONCLUDE:
        return "too few seeds"
    if corrected >= _LEVEL or tested.low <= 0 <= tested.high:
        return "no difference shown"
    return "**above**" if tested.value > 0 else "**below**"


# === Markdown ===


def markdown(plan: Plan, records: Mapping[Job, Record], made: Mapping[str, Sequence[Row]], picture: str) -> str:
    """Returns the page.

    Args:
      plan: The rows that there will be.
      records: All results, those of the grid among them.
      made: What ``rows`` has made of them.
      picture: Where the figure is.
    """
    parts = [f"# Comparison at convergence: {plan.title}", _about(plan, records, made)]
    for variant, each in made.items():
        main = [row for row in each if row.main]
        words = plan.variants[variant].get("words", "plain recipe")
        if main:
            parts += [f"## Main rows, {words}", _tests_table(main), _more_table(main), _length_table(main)]
    if any(made.values()):
        parts.append(f"![BLEU against minutes of training and against parameters]({picture})")
    ablations = [row for row in made[PLAIN] if not row.main]
    if ablations:
        text = "Each against the row whose number stands beside it, with the seeds that both have: indications."
        parts += ["## Ablations", text, _ablation_table(ablations)]
    orders = _orders_table(plan, made[PLAIN])
    if orders:
        parts += [
            "## The papers' orders",
            "Gains in BLEU there and here; papers' corpora and sizes are others.",
            orders,
        ]
    if plan.grid:
        parts += ["## Tuning", _grid_table(plan, records)]
    signatures = sorted({each["test"]["signature"] for each in records.values() if not has_diverged(each)})
    parts += [f"`{signature}`" for signature in signatures]
    return "\n\n".join(parts) + "\n"


def _about(plan: Plan, records: Mapping[Job, Record], made: Mapping[str, Sequence[Row]]) -> str:
    missing = [plan.words(name) for name in plan.main if name not in {row.name for row in made[PLAIN]}]
    tuned = plan.cells(best_losses(records))  # without a grid all families are
    untuned = [family for family in plan.families() if family not in tuned]
    hours = sum(each["minutes"] - each["minutes_before"] for each in records.values()) / 60
    others = [each for each in records.values() if each["ended"] != "early stopping"]
    limit = [f"{each['name']}, seed {each['seed']} ({each['ended']})" for each in others]
    machines = sorted({", ".join(filter(None, [each["machine"], each.get("precision")])) for each in records.values()})
    dates = sorted(each["date"] for each in records.values())
    days = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    sentences = [
        f"{len(records)} training{'s' if len(records) > 1 else ''}, {hours:,.1f} hours of updates, {days};",
        f"{'; '.join(machines)}.",
        f"Early stopping ended all but {', '.join(limit)}." if limit else "Early stopping ended all of them.",
        f"Not trained yet: {'; '.join(missing)}." if missing else "",
        "Not tuned in full yet, so the rows are those of the best cell so far, or of the first one: "
        f"{'; '.join(untuned)}."
        if untuned
        else "",
        "Differences are those of the mean over the seeds to the row whose number stands beside them, with the 95 % "
        "interval of a bootstrap over sentences and seeds; Holm: p of the randomization, corrected for their number.",
    ]
    command = f"    python benchmarks/comparison.py --corpus={plan.corpus} --report"
    return "\n".join(textwrap.wrap(" ".join(filter(None, sentences)), _WIDTH)) + "\n\n" + command


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [headings, ["---"] * len(headings), *lines])


def _shown(value: float | None, form: str = ",.2f") -> str:
    return "" if value is None else format(value, form)


def _compared(row: Row) -> list[str]:
    """Returns the cells about a row's difference: control, difference, interval, both p."""
    tested = row.difference
    if tested is None:
        return [""] * 5
    low_high = f"{tested.low:+.2f} to {tested.high:+.2f}"
    return [str(row.control), f"{tested.value:+.2f}", low_high, _p(tested.p_bootstrap), _p(tested.p_randomization)]


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _tests_table(main: Sequence[Row]) -> str:
    tested = [row for row in main if row.difference]
    corrected = holm([row.difference.p_randomization for row in tested if row.difference])
    holms = {row.name: p for row, p in zip(tested, corrected, strict=True)}
    lines = []
    for row in main:
        p = holms.get(row.name)
        said = [_p(p), conclusion(row.difference, p)] if p is not None and row.difference else ["", ""]
        cells = [str(row.number), figures.short(row.words, 50), str(len(row.runs)), row.bleu()]
        lines.append([*cells, *_compared(row), *said])
    headings = ("", "", "seeds", "BLEU", "to", "difference", "95 %", "p boot", "p rand", "Holm", "")
    return _table(headings, lines)


def _more_table(main: Sequence[Row]) -> str:
    columns: list[tuple[str, tuple[str, ...], str]] = [
        ("parameters", ("parameters",), ",.0f"),
        ("dev BLEU", ("dev", "BLEU"), ".2f"),
        ("chrF2", ("test", "chrF2"), ".2f"),
        ("length", ("test", "length_ratio"), ".3f"),
        ("first 4", ("test", "first"), ".1f"),
        ("last 4", ("test", "last"), ".1f"),
        ("updates", ("updates_to_best",), ",.0f"),
        ("minutes", ("minutes_to_best",), ",.1f"),
        ("in all", ("minutes",), ",.1f"),
        ("training tokens/s", ("tokens_per_second",), ",.0f"),
        ("sentences/s", ("sentences_per_second",), ",.0f"),
    ]
    lines = [[str(row.number), *(_shown(row.mean(*path), form) for _, path, form in columns)] for row in main]
    note = (
        "Length: over that of the references. First 4, last 4: tokens that the reference has at the same place, in "
        "percent. Updates and minutes: until the chosen checkpoint; first weights of another run count in the minutes, "
        "evaluations do not. Speeds are those of machines that others used, too."
    )
    return "\n".join(textwrap.wrap(note, _WIDTH)) + "\n\n" + _table(("", *(each[0] for each in columns)), lines)


def _length_table(main: Sequence[Row]) -> str:
    first = next(iter(main[0].runs.values()))["test"]["by_length"]
    labels = [label for label, (sentences, _) in first.items() if sentences]
    lines = []
    for row in main:
        found: list[str] = []
        for label in labels:
            values = [run["test"]["by_length"][label][1] for run in row.runs.values()]
            found.append(_shown(statistics.fmean(values) if None not in values else None))
        lines.append([str(row.number), *found])
    headings = ["", *(f"{label} words ({first[label][0]:,})" for label in labels)]
    return "BLEU by the length of the source (sentences):\n\n" + _table(headings, lines)


def _ablation_table(found: Sequence[Row]) -> str:
    lines = []
    for row in found:
        size, dev = row.mean("parameters"), row.mean("dev", "BLEU")
        lines.append(
            [
                str(row.number),
                figures.short(row.words, 64),
                _shown(size, ",.0f"),
                _shown(dev),
                row.bleu(),
                *_compared(row),
            ]
        )
    return _table(("", "", "parameters", "dev", "BLEU", "to", "difference", "95 %", "p boot", "p rand"), lines)


def _orders_table(plan: Plan, found: Sequence[Row]) -> str:
    by_name = {row.name: row for row in found}
    tests: list[tuple[str, Row, Row, float, Difference]] = []
    for paper, orders in plan.orders.items():
        for above, below, gain in orders:
            pair = [by_name[name] for name in (above, below) if name in by_name]
            if len(pair) == 2 and (tested := difference(*(row.counts for row in pair))):
                tests.append((paper, pair[0], pair[1], gain, tested))
    corrected = holm([tested.p_randomization for *_, tested in tests])
    lines = []
    for (paper, above, below, gain, tested), p in zip(tests, corrected, strict=True):
        said = {"**above**": "**holds**", "**below**": "**contradicted**", "no difference shown": "not decided"}
        verdict = conclusion(tested, p)
        order = f"{_brief(above)} > {_brief(below)}"
        interval = f"{tested.low:+.2f} to {tested.high:+.2f}"
        here = [f"{tested.value:+.2f}", interval, _p(tested.p_randomization), _p(p)]
        lines.append([paper, order, f"{gain:+.2f}", *here, said.get(verdict, verdict)])
    return _table(("paper", "order", "there", "here", "95 %", "p rand", "Holm", ""), lines) if lines else ""


def _brief(row: Row) -> str:
    return figures.short(re.sub(r" \(.*?\)", "", row.words), 42)


def _grid_table(plan: Plan, records: Mapping[Job, Record]) -> str:
    cells = plan.cells(best_losses(records))
    names = list(plan.grid.values) if plan.grid else []
    lines = []
    for family in plan.families():
        row = plan.tuned_on(family)
        for job, record in sorted(records.items()):
            if job.row != row or not plan.is_of_the_grid(job):
                continue
            if has_diverged(record):
                scores, note = ["", ""], "diverged"
            else:
                scores = [f"{record['dev_loss']:.4f}", f"{record['dev']['BLEU']:.2f}"]
                note = "chosen" if job.cell == cells.get(family) else ""
            lines.append([family, *(f"{value:g}" for value in job.cell), *scores, f"{record['updates']:,}", note])
    return _table(("family", *names, "lowest dev loss", "dev BLEU", "updates", ""), lines)


# === Figure ===


def draw(made: Mapping[str, Sequence[Row]]) -> bytes:
    """Draws test BLEU, mean and deviation, against minutes and against parameters, with the rows' numbers, as PNG."""
    panels: list[tuple[str, Callable[[Row], float | None]]] = [
        ("minutes of training until the chosen checkpoint", lambda row: row.mean("minutes_to_best")),
        ("million parameters", lambda row: (row.mean("parameters") or 0.0) / 1e6),
    ]
    shown = [(variant, row) for variant, each in made.items() for row in each if row.main]
    with figures.new_figure(11, 5.2) as figure:
        for axes, (label, place) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
            for variant, row in shown:
                x, values = place(row), [run["test"]["BLEU"] for run in row.runs.values()]
                if x is None:
                    continue
                spread = statistics.stdev(values) if len(values) > 1 else None
                filled = {} if variant == PLAIN else {"markerfacecolor": "white"}
                style = {"color": figures.color(row.number - 1), "marker": figures.marker(row.number - 1), **filled}
                mean = statistics.fmean(values)
                axes.errorbar([x], [mean], yerr=spread, capsize=2, markersize=5, linestyle="none", **style)
                axes.annotate(str(row.number), (x, mean), (4, 3), textcoords="offset points", fontsize=8)
            axes.set(xlabel=label)
            figures.plain(axes)
        figure.axes[0].set_ylabel("test BLEU")
        names = dict.fromkeys(f"{row.number} {figures.short(row.words, 40)}" for _, row in shown)
        figure.suptitle("\n".join(textwrap.wrap("; ".join(names), 165)), fontsize=7)
        return figures.saved(figure, "png")
