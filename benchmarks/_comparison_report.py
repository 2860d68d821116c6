"""Writes the tables, tests and figures of ``comparison.py``, only from the stored results."""

import dataclasses
import pathlib
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import _comparison_alphas
import _comparison_figures
import _comparison_teachers
import numpy as np
from _comparison_pairs import SEEDS_TO_CONCLUDE, Tests
from _comparison_plan import PLAIN, TUNING, Grid, Job, Order, Plan
from _comparison_robustness import MEASURES_NOTE, MORE_SEEDS_NOTE, SEEDS_NOTE, Robustness, below_chance
from _comparison_store import LAST_EVALUATIONS, Record, dev_scores, has_diverged, unpack
from _comparison_tests import Difference, bleu, difference, without_penalty

from t2t_ext.io import files
from t2t_ext.reporting import figures

_LEVEL = 0.05
_WIDTH = 150
_SAME_MINUTES = 0.05  # times of one evaluation, stored twice, agree within this
BRIEF = 28  # characters of a row's name in the table of the papers' orders, which names two rows in a line
_NARROW = 24  # the same for tables with many columns
_FEW_SENTENCES = 30  # groups by length with fewer sentences get no BLEU
_TAIL = 2000  # updates
EARLY_NOTE = (
    "†: the first of several settings, which are compared before the row is trained. These trainings ended earlier "
    "than those of finished rows; some models were still improving. Their differences are to controls that were "
    "trained the same way, not to finished rows."
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
      number: Its number, by which other rows refer to it as their control.
      words: Its name in words.
      name: Its recipe.
      main: Whether it is a main row.
      early: Whether its runs are cells of the grid, which end earlier.
      runs: Seed -> its result, with the family's learning rate and dropout.
      counts: Seed -> BLEU's counts of every sentence: float [sentences, 10].
      control: Number of the row that it is compared with; None for the first.
      difference: The difference from its control; None if there is no control, or no common seed.
      corrected: The larger p of the difference, after Holm's correction; None with too few seeds.
      unpenalized: The difference of BLEU without the brevity penalty; None if there is no difference.
    """

    number: int
    words: str
    name: str
    main: bool
    early: bool
    runs: Mapping[int, Record]
    counts: Mapping[int, np.ndarray]
    control: int | None
    difference: Difference | None
    corrected: float | None
    unpenalized: Difference | None

    def title(self, width: int) -> str:
        """Returns its name in words, shortened to ``width`` characters, and a mark if it ended early."""
        return figures.short(self.words, width) + (_comparison_figures.EARLY if self.early else "")

    def mean(self, *path: str) -> float | None:
        """Returns the mean over the seeds of a figure in the results; None if no result has it."""
        found = [value for run in self.runs.values() if (value := _at(run, path)) is not None]
        return statistics.fmean(found) if found else None

    def each(self, *path: str) -> str:
        """Returns a figure in the results of every seed, in the order of the seeds, as text."""
        return ", ".join(_shown(_at(run, path), ".2f") for _, run in sorted(self.runs.items()))

    def bleu(self) -> str:
        """Returns mean and sample standard deviation of test BLEU, as text."""
        values = [run["test"]["BLEU"] for run in self.runs.values()]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):.2f}{spread}"

    def empty(self) -> float:
        """Returns the number of empty translations in the test set, as the mean over the seeds."""
        return statistics.fmean(float((each[:, 0] == 0).sum()) for each in self.counts.values())

    def precision(self) -> float:
        """Returns the mean of test BLEU without the brevity penalty."""
        return statistics.fmean(float(bleu(without_penalty(each).sum(axis=0))) for each in self.counts.values())


def _at(record: Any, path: Sequence[str]) -> Any:
    for name in path:
        record = record.get(name)
        if record is None:
            return None
    return record


def write(
    plan: Plan, records: Mapping[Job, Record], out: pathlib.Path, replaced: Mapping[Job, Record] | None = None
) -> None:
    """Writes ``OUT.md`` and its figures.

    The figures are ``OUT.png`` and, if rows are compared, ``OUT_differences.png``. They go to the folder ``images``
    beside OUT's folder, if that exists. ``replaced`` are former results of trainings that were made again.
    """
    folder = out.parent.parent / "images"
    made = rows(plan, records)
    drawn = {
        "": _comparison_figures.costs(plan, made),
        "_differences": _comparison_figures.differences(plan, [row for row in made[PLAIN] if row.main]),
    }
    links, written = {}, [out.with_suffix(".md")]
    for suffix, picture in drawn.items():
        if picture:
            written.append((folder if folder.is_dir() else out.parent) / f"{out.name}{suffix}.png")
            links[suffix] = f"../images/{written[-1].name}" if folder.is_dir() else written[-1].name
            files.write_bytes_atomically(written[-1], picture)
    files.write_text_atomically(written[0], markdown(plan, records, made, links, replaced))
    print(f"written: {', '.join(map(str, written))}", flush=True)


# === Rows ===


def rows(plan: Plan, records: Mapping[Job, Record]) -> dict[str, list[Row]]:
    """Returns training recipe -> the rows that have a result, main rows first, with their tests."""
    return {variant: _rows(plan, records, variant) for variant in plan.variants}


Found = tuple[Mapping[int, Record], Mapping[int, np.ndarray]]  # results and BLEU's counts by seed


def finished_counts(
    plan: Plan, records: Mapping[Job, Record], variant: str = PLAIN
) -> dict[str, Mapping[int, np.ndarray]]:
    """Returns trained row -> seed -> BLEU's counts of every sentence."""
    found = {name: _found(plan, records, name, variant)[1] for name in (*plan.main, *plan.ablations)}
    return {name: counts for name, counts in found.items() if counts}


def _rows(plan: Plan, records: Mapping[Job, Record], variant: str) -> list[Row]:
    names = [*plan.main, *plan.ablations]
    found = {name: _found(plan, records, name, variant) for name in names}
    early = {name: _found(plan, records, name, TUNING) for name in names} if variant == PLAIN else {}
    finished = {name: counts for name, (_, counts) in found.items() if counts}
    tests = Tests(plan, finished)
    tests_of_precision = Tests(plan, {name: _without_penalty(counts) for name, counts in finished.items()})
    made = []
    for number, name in enumerate(names, 1):
        is_early = not found[name][0] and name in early
        runs, counts = early[name] if is_early else found[name]
        if not runs:
            continue
        control = plan.control(name)
        tested, corrected, unpenalized = None, None, None
        if control and is_early:  # rows that ended early are compared only with each other
            others = early[control][1]
            tested = difference(counts, others)
            unpenalized = difference(_without_penalty(counts), _without_penalty(others))
        elif control:
            tested, corrected = tests.of(name, control)
            unpenalized, _ = tests_of_precision.of(name, control)
        made.append(
            Row(
                number,
                plan.words(name),
                name,
                name in plan.main,
                is_early,
                runs,
                counts,
                names.index(control) + 1 if control else None,
                tested,
                corrected,
                unpenalized,
            )
        )
    return made


def _without_penalty(counts: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    return {seed: without_penalty(each) for seed, each in counts.items()}


def _found(plan: Plan, records: Mapping[Job, Record], name: str, variant: str, *, further_seeds: bool = False) -> Found:
    """Returns the results of a row with its family's learning rate and dropout (the first ones until it is tuned).

    Results with the plan's ``further_seeds`` are returned only if ``further_seeds`` is set, and then only these.
    """
    family, tuned = plan.family(name), plan.cells(dev_scores(records))
    # Rows that ended early are compared with each other, so all of them have the first cell.
    cells = [tuned[family]] if family in tuned and variant != TUNING else [plan.grid.first] if plan.grid else [()]
    usable = [(job, each) for job, each in sorted(records.items()) if not has_diverged(each)]
    further = plan.further_seeds.get(name, ())
    for cell in cells:
        of_row = {job.seed: each for job, each in usable if (job.row, job.variant, job.cell) == (name, variant, cell)}
        runs = {seed: run for seed, run in of_row.items() if (seed in further) is further_seeds}
        if runs:
            return runs, {seed: unpack(run["test"]["counts"], run["test"]["sentences"]) for seed, run in runs.items()}
    return {}, {}


def conclusion(tested: Difference, corrected: float) -> str:
    """Returns the conclusion from a difference to the control, by the protocol's rule.

    Args:
      tested: The difference.
      corrected: The larger of its two p, after Holm's correction.
    """
    if tested.seeds < SEEDS_TO_CONCLUDE:
        return "too few seeds"
    if corrected >= _LEVEL or tested.low <= 0 <= tested.high:
        return "no difference shown"
    return "**above**" if tested.value > 0 else "**below**"


# === Markdown ===


def markdown(
    plan: Plan,
    records: Mapping[Job, Record],
    made: Mapping[str, Sequence[Row]],
    links: Mapping[str, str],
    replaced: Mapping[Job, Record] | None = None,
) -> str:
    """Returns the page.

    Args:
      plan: All planned rows.
      records: All results, including those of the grid.
      made: The return value of ``rows`` for these results.
      links: Ending of a figure's name -> the link to it.
      replaced: Former results of trainings that were made again.
    """
    parts = [f"# Comparison at convergence: {plan.title}", _about(plan, records, made)]
    if "_differences" in links:
        parts.append(f"![Differences to the controls, and the papers' own]({links['_differences']})")
    for variant, each in made.items():
        main = [row for row in each if row.main]
        words = plan.variants[variant].get("words", "plain recipe")
        if main:
            parts += [f"## Main rows, {words}", _tests_table(main)]
            parts += [_seeds_table(main)] if any(len(row.runs) > 1 for row in main) else []
            parts += [_more_table(main), _length_table(main), _penalty_table(main)]
            parts += [_alpha_table(plan, main)]
            parts += [_recipe_table(main, made[PLAIN])] if variant != PLAIN else []
    if any(made.values()):
        parts.append(f"![BLEU against minutes of training and against parameters]({links['']})")
    ablations = [row for row in made[PLAIN] if not row.main]
    if ablations:
        text = "Each against the row whose number stands beside it, with the seeds that both have: indications. "
        text += below_chance([row.difference for row in ablations if row.difference])
        parts += ["## Ablations", _wrapped(text), _ablation_table(ablations)]
    orders = _orders_table(plan, made[PLAIN])
    if orders:
        parts += [
            "## The papers' orders",
            "Gains in BLEU there and here; papers' corpora and sizes are others.",
            orders,
        ]
    further = {name: _found(plan, records, name, PLAIN, further_seeds=True)[0] for name in plan.further_seeds}
    parts += _robustness(plan, made[PLAIN], replaced or {}, further)
    if plan.grid:
        parts += ["## Tuning", _wrapped(_grid_note(plan.grid)), _grid_table(plan, records)]
    taught = _comparison_teachers.lines_of_table(list(records.values()))
    if taught:
        told = ("BLEU", "reference", "length", "failed")
        headings = [f"{split}: {each}" for split in ("train", "dev") for each in told]
        parts += [
            "## Pseudo references",
            _wrapped(_comparison_teachers.LEGEND),
            _table(("seed", "teacher", *headings), taught),
        ]
    parts += map(_wrapped, _comparison_teachers.warnings(list(records.values())))
    signatures = sorted({each["test"]["signature"] for each in records.values() if not has_diverged(each)})
    parts += [f"`{signature}`" for signature in signatures]
    return "\n\n".join(filter(None, parts)) + "\n"


def _about(plan: Plan, records: Mapping[Job, Record], made: Mapping[str, Sequence[Row]]) -> str:
    missing = [plan.words(name) for name in plan.main if name not in {row.name for row in made[PLAIN]}]
    tuned = plan.cells(dev_scores(records))  # without a grid, all families count as tuned
    untuned = [family for family in plan.families() if family not in tuned]
    hours = sum(_own_minutes(record, records.get(plan.began(job))) for job, record in records.items()) / 60
    others = [each for each in records.values() if each["ended"] not in ("early stopping", "budget")]
    limit = [f"{each['name']}, seed {each['seed']} ({each['ended']})" for each in others]
    machines = sorted({", ".join(filter(None, [each["machine"], each.get("precision")])) for each in records.values()})
    dates = sorted(each["date"] for each in records.values())
    days = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    sentences = [
        f"{len(records)} result{'s' if len(records) > 1 else ''}, {hours:,.1f} hours of updates, {days};",
        f"{'; '.join(machines)}.",
        f"Early stopping ended all but {', '.join(limit)}." if limit else "",
        f"Not trained yet: {'; '.join(missing)}." if missing else "",
        f"Not tuned in full yet, so the rows are those of the first cell: {'; '.join(untuned)}." if untuned else "",
        "Differences are those of the mean over the seeds that a row and the one whose number stands beside it both "
        "have, with the 95 % interval of a bootstrap of sentences, with the variance of seeds where there are "
        "several; Holm: the larger p of both tests, corrected for the number of pairs that there will be: the papers' "
        "main claims, and all others.",
        EARLY_NOTE if any(row.early for row in made[PLAIN]) else "",
    ]
    command = f"    python benchmarks/comparison.py --corpus={plan.corpus} --report"
    return f"{_wrapped(' '.join(filter(None, sentences)))}\n\n{command}"


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH, break_on_hyphens=False))


def _own_minutes(record: Record, cell: Record | None) -> float:
    """Returns a training's own minutes, without those of the grid's cell whose run it continued, if it did."""
    own = record["minutes"] - record["minutes_before"]
    return own - (cell["minutes"] - cell["minutes_before"]) if cell and _went_on(record, cell) else own


def _went_on(record: Record, cell: Record) -> bool:
    """Returns whether a training's evaluations begin with all those of a cell, at the same minutes."""
    began, points = cell.get("curve", []), record.get("curve", [])
    if not began or len(points) < len(began):
        return False
    # A training that is made anew may repeat the scores, but not the times, which are stored rounded.
    return all(
        [step, *scores] == [other_step, *other_scores] and abs(minutes - other_minutes) < _SAME_MINUTES
        for (step, minutes, *scores), (other_step, other_minutes, *other_scores) in zip(began, points, strict=False)
    )


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [headings, ["---"] * len(headings), *lines])


def _shown(value: float | None, form: str = ",.2f") -> str:
    return "" if value is None else format(value, form)


def _compared(row: Row) -> list[str]:
    """Returns the table cells about a row's difference: control, difference, interval, both p."""
    tested = row.difference
    if tested is None:
        return [""] * 5
    low_high = f"{tested.low:+.2f} to {tested.high:+.2f}"
    return [
        str(row.control),
        f"{tested.value:+.2f}",
        low_high,
        shown_p(tested.p_bootstrap),
        shown_p(tested.p_randomization),
    ]


def shown_p(value: float) -> str:
    """Returns a p with three decimal places, as text."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _tests_table(main: Sequence[Row]) -> str:
    lines = []
    for row in main:
        said = said_of(row.difference, row.corrected)
        cells = [str(row.number), row.title(50), str(len(row.runs)), row.bleu()]
        lines.append([*cells, *_compared(row), *said])
    headings = ("", "", "seeds", "BLEU", "to", "difference", "95 %", "p boot", "p rand", "Holm", "")
    return _table(headings, lines)


def _seeds_table(main: Sequence[Row]) -> str:
    lines = [
        [
            str(row.number),
            ", ".join(map(str, sorted(row.runs))),
            *(row.each(split, "BLEU") for split in ("test", "dev")),
        ]
        for row in main
    ]
    return _table(("", "seeds", "test BLEU of each", "dev BLEU of each"), lines)


def said_of(tested: Difference | None, corrected: float | None) -> list[str]:
    """Returns the p after Holm's correction and the conclusion; both are empty if nothing is compared."""
    if tested is None:
        return ["", ""]
    return ["", "too few seeds"] if corrected is None else [shown_p(corrected), conclusion(tested, corrected)]


def _tail(row: Row) -> float | None:
    """Returns by how much the development loss fell in the last updates, as the mean over the seeds."""
    falls = []
    for run in row.runs.values():
        losses = {updates: loss for updates, _, loss, _ in run.get("curve") or []}
        if losses and (before := losses.get(max(losses) - _TAIL)) is not None:
            falls.append(before - losses[max(losses)])
    return statistics.fmean(falls) if falls else None


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
    lines = [
        [str(row.number), *(_shown(row.mean(*path), form) for _, path, form in columns), _shown(_tail(row), ".3f")]
        for row in main
    ]
    note = (
        "Length: over that of the references. First 4, last 4: tokens that the reference has at the same place, in "
        "percent. Updates and minutes: until the chosen checkpoint; the trainings of first weights and of teachers "
        "count in the minutes, evaluations and the making of pseudo references do not. Speeds are those of machines "
        f"that others used, too. Tail: by how much the development loss fell in the last {_TAIL:,} updates."
    )
    return _wrapped(note) + "\n\n" + _table(("", *(each[0] for each in columns), "tail"), lines)


def _length_table(main: Sequence[Row]) -> str:
    first = next(iter(main[0].runs.values()))["test"]["by_length"]
    labels = [label for label, (sentences, _) in first.items() if sentences >= _FEW_SENTENCES]
    lines = []
    for row in main:
        found: list[str] = []
        for label in labels:
            values = [run["test"]["by_length"][label][1] for run in row.runs.values()]
            found.append(_shown(statistics.fmean(values) if None not in values else None))
        lines.append([str(row.number), *found])
    headings = ["", *(f"{label} words ({first[label][0]:,})" for label in labels)]
    title = f"BLEU by the length of the source (sentences), where there are {_FEW_SENTENCES} of a length:"
    return title + "\n\n" + _table(headings, lines)


def _penalty_table(main: Sequence[Row]) -> str:
    note = (
        "BLEU without its brevity penalty: what would be left of the differences if all translations were as long as "
        "the references, and as precise as they are. Not corrected, and no conclusion: longer translations are less "
        "precise. Empty: empty translations of the test set, mean over the seeds."
    )
    lines = []
    for row in main:
        without = dataclasses.replace(row, difference=row.unpenalized)
        kept = f"{row.difference.value:+.2f}" if row.difference else ""
        length = _shown(row.mean("test", "length_ratio"), ".3f")
        lines.append(
            [str(row.number), length, f"{row.empty():.1f}", f"{row.precision():.2f}", *_compared(without), kept]
        )
    headings = ("", "length", "empty", "without", "to", "difference", "95 %", "p boot", "p rand", "difference of BLEU")
    return _wrapped(note) + "\n\n" + _table(headings, lines)


def _alpha_table(plan: Plan, main: Sequence[Row]) -> str:
    """Returns a table of the rows with the length penalty that each would choose; empty if none was measured."""
    chosen = {row.number: found for row in main if (found := _comparison_alphas.Chosen.of(row.runs)).found}
    lines = []
    for row in main:
        if row.number not in chosen:
            continue
        here, control = chosen[row.number], chosen.get(row.control or 0)
        tested = difference(here.counts(), control.counts()) if control else None
        title = figures.short(plan.brief(row.name), _NARROW) + _comparison_alphas.AGAIN * here.again()
        before = _shown(here.before(control) if control else None, "+.2f")
        lines.append(
            [str(row.number), title, *here.cells(), *_compared(dataclasses.replace(row, difference=tested)), before]
        )
    if not lines:
        return ""
    again = any(each.again() for each in chosen.values())
    note = " ".join([_comparison_alphas.NOTE, *([_comparison_alphas.AGAIN_NOTE] if again else [])])
    return _wrapped(note) + "\n\n" + _table(_comparison_alphas.HEADINGS, lines)


def _recipe_table(main: Sequence[Row], plain: Sequence[Row]) -> str:
    """Returns a table of each row's change by another training recipe; empty if no row has both recipes."""
    note = (
        "What this recipe changes: each row minus the same row of the plain recipe, the seeds that both have. Not "
        "corrected, and no conclusion."
    )
    others = {row.name: row for row in plain if not row.early}
    lines = []
    for row in main:
        other = others.get(row.name)
        tested = difference(row.counts, other.counts) if other else None
        if other is None or tested is None:
            continue
        both = [
            dataclasses.replace(each, runs={seed: run for seed, run in each.runs.items() if seed in opposite.runs})
            for each, opposite in ((row, other), (other, row))
        ]
        changes = []
        for path, form in ((("dev", "BLEU"), "+.2f"), (("test", "chrF2"), "+.2f"), (("updates_to_best",), "+,.0f")):
            here, there = (each.mean(*path) for each in both)
            changes.append(_shown(None if here is None or there is None else here - there, form))
        compared = dataclasses.replace(row, difference=tested)
        lines.append([str(row.number), str(tested.seeds), both[1].bleu(), *_compared(compared)[1:], *changes])
    headings = ("", "seeds", "plain", "difference", "95 %", "p boot", "p rand", "dev BLEU", "chrF2", "updates")
    return _wrapped(note) + "\n\n" + _table(headings, lines) if lines else ""


def _ablation_table(found: Sequence[Row]) -> str:
    lines = []
    for row in found:
        size, dev = row.mean("parameters"), row.mean("dev", "BLEU")
        lines.append(
            [
                str(row.number),
                row.title(64),
                _shown(size, ",.0f"),
                _shown(dev),
                row.bleu(),
                *_compared(row),
            ]
        )
    return _table(("", "", "parameters", "dev", "BLEU", "to", "difference", "95 %", "p boot", "p rand"), lines)


def _orders_table(plan: Plan, found: Sequence[Row]) -> str:
    by_name = {row.name: row for row in found}
    finished = Tests(plan, {row.name: row.counts for row in found if not row.early})
    tests: list[tuple[str, Order, Row, Row, Difference, float | None]] = []
    for paper, orders in plan.orders.items():
        for order in orders:
            above, below = by_name.get(order.above), by_name.get(order.below)
            if not above or not below or above.early != below.early:
                continue
            early = above.early
            tested, p = (
                (difference(above.counts, below.counts), None) if early else finished.of(order.above, order.below)
            )
            if tested:
                tests.append((paper, order, above, below, tested, p))
    lines = []
    for paper, order, above, below, tested, p in tests:
        words = {"**above**": "**holds**", "**below**": "**contradicted**", "no difference shown": "not decided"}
        holms, said = said_of(tested, p)
        there = ["" if order.gain is None else f"{order.gain:+.2f}", order.where]
        interval = f"{tested.low:+.2f} to {tested.high:+.2f}"
        here = [f"{tested.value:+.2f}", interval, shown_p(tested.p_bootstrap), shown_p(tested.p_randomization), holms]
        pair = f"{_brief(plan, above)} > {_brief(plan, below)}"
        lines.append([paper.replace(" et al.", ""), pair, *there, *here, words.get(said, said)])
    headings = ("paper", "order", "there", "on", "here", "95 %", "p boot", "p rand", "Holm", "")
    return _table(headings, lines) if lines else ""


def _robustness(
    plan: Plan,
    found: Sequence[Row],
    replaced: Mapping[Job, Record],
    further: Mapping[str, Mapping[int, Record]],
) -> list[str]:
    """Returns the sections about other measures and seeds for the pairs' differences; empty without finished pairs."""
    finished = {row.name: row for row in found if row.main and not row.early}
    former: dict[str, dict[int, Record]] = {}
    for job, record in replaced.items():
        if job.variant == PLAIN and job.row in finished and job.seed in finished[job.row].runs:
            former.setdefault(job.row, {})[job.seed] = record
    runs = {name: row.runs for name, row in finished.items()}
    robustness = Robustness(plan, runs, former, {name: each for name, each in further.items() if each})
    if not robustness.pairs:
        return []

    def named(lines: Sequence[Sequence[str]]) -> list[list[str]]:
        both = [(finished[line[0]], finished[line[1]]) for line in lines]
        names = [
            [str(row.number), figures.short(plan.brief(row.name), _NARROW), str(control.number)]
            for row, control in both
        ]
        return [[*each, *line[2:]] for each, line in zip(names, lines, strict=True)]

    headings = ("", "", "to", "seeds", "BLEU", "95 %", "no penalty", "95 %", "dev BLEU", "95 %", "chrF2")
    parts = ["## Other measures", _wrapped(MEASURES_NOTE), _table(headings, named(robustness.measures()))]
    by_seeds = robustness.seeds()
    if by_seeds:
        least = robustness.found_in_four_of_five()
        kinds = {"root": f"with the {plan.brief(plan.main[0])}", "others": "without it"}
        ranges = [f"{low:.1f} to {high:.1f} BLEU in pairs {kinds[kind]}" for kind, (low, high) in least.items()]
        text = f"By the widths of the intervals a difference is found in four of five cases from {', '.join(ranges)} "
        parts += ["## Other seeds", _wrapped(SEEDS_NOTE), _wrapped(text + "(before correction, which asks for more).")]
        more = [_more_seeds(plan, finished[name], each) for name, each in further.items() if each and name in finished]
        parts += [_wrapped(" ".join([MORE_SEEDS_NOTE, *more, *robustness.more_seeds_of_both()]))] if more else []
        parts.append(_table(("", "", "to", *robustness.seed_headings()), named(by_seeds)))
    return parts


def _more_seeds(plan: Plan, row: Row, further: Mapping[int, Record]) -> str:
    """Returns a sentence about a row with more seeds than the others."""
    whole = dataclasses.replace(row, runs={**row.runs, **further})
    seeds = ", ".join(map(str, sorted(whole.runs)))
    scores = f"{whole.each('test', 'BLEU')}; development BLEU {whole.each('dev', 'BLEU')}."
    return f"{plan.brief(row.name)}: {whole.bleu()} with seeds {seeds}: {scores}"


def _brief(plan: Plan, row: Row) -> str:
    return figures.short(plan.brief(row.name), BRIEF) + (_comparison_figures.EARLY if row.early else "")


def _grid_note(grid: Grid) -> str:
    order = "" if grid.full else ", which begins with the first cell of each family and goes from hparam to hparam"
    return (
        f"Each cell once, seed 1. The mean development BLEU of the last {LAST_EVALUATIONS} evaluations chooses; a cell "
        f"that is not better by more than {grid.margin:g} does not take the place of the one that the search stands "
        f"at{order}."
    )


def _grid_table(plan: Plan, records: Mapping[Job, Record]) -> str:
    chosen_by = dev_scores(records)
    cells = plan.cells(chosen_by)
    names = list(plan.grid.values) if plan.grid else []
    lines = []
    for family in plan.families():
        # Cells of rows other than the one that is tuned are their first results, from before the tuning.
        of_family = [job for job in sorted(records) if job.variant == TUNING and plan.family(job.row) == family]
        for job in sorted(of_family, key=lambda each: not plan.is_of_the_grid(each)):
            record, of_grid = records[job], plan.is_of_the_grid(job)
            if has_diverged(record):
                scores, note = [""] * 3, "diverged"
            else:
                scores = [f"{record['dev_loss']:.4f}", f"{record['dev']['BLEU']:.2f}", f"{chosen_by[job]:.2f}"]
                note = "chosen" if of_grid and job.cell == cells.get(family) else ""
            named = family if of_grid else f"{family}: {plan.brief(job.row)}"
            lines.append([named, *(f"{value:g}" for value in job.cell), *scores, f"{record['updates']:,}", note])
    return _table(("family", *names, "lowest dev loss", "best dev BLEU", "last five", "updates", ""), lines)
