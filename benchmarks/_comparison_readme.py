"""The short table in README.md, made from the same stored results as a corpus's page."""

import pathlib
import textwrap
from collections.abc import Mapping, Sequence

from _comparison_plan import PLAIN, Job, Plan
from _comparison_report import EARLY_NOTE, Row, rows, said_of
from _comparison_store import Record, dev_scores

from t2t_ext.io import files

_WIDTH = 150


def marks(plan: Plan, part: str = "") -> tuple[str, str]:
    """Returns the two lines between which a page has the table of a corpus, or another ``part`` about it."""
    name = f"comparison_{plan.corpus}" + (f" {part}" if part else "")
    return f"<!-- {name}: written by benchmarks/comparison.py --report -->", f"<!-- end of {name} -->"


def update(page: pathlib.Path, plan: Plan, records: Mapping[Job, Record]) -> bool:
    """Writes the table into a page between its marks; returns whether the page has the marks."""
    return write_between(page, marks(plan), table(plan, records))


def write_between(page: pathlib.Path, lines: tuple[str, str], made: str) -> bool:
    """Writes a text into a page between two lines; returns whether the page has these lines."""
    begin, end = lines
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, found, rest = text.partition(begin + "\n")
    _, closed, after = rest.partition(end)
    if not found or not closed:
        return False
    files.write_text_atomically(page, f"{before}{found}{made}\n{closed}{after}")
    return True


def table(plan: Plan, records: Mapping[Job, Record]) -> str:
    """Returns README.md's table of the plain recipe's main rows, and how far to trust it; empty if there is no row."""
    made = {row.name: row for row in rows(plan, records)[PLAIN]}
    main = [made[name] for name in plan.readme if name in made]
    if not main:
        return ""
    lines = [
        "| | BLEU | difference (95 %) | p | conclusion | published | million parameters | minutes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in main:
        control, tested = plan.control(row.name), row.difference
        beside = f", to {plan.words(control)}" if control and control != plan.main[0] else ""
        cells = [
            f"{row.title(60)}{beside}",
            row.bleu(),
            f"{tested.value:+.2f} ({tested.low:+.2f} to {tested.high:+.2f})" if tested else "",
            *said_of(row.difference, row.corrected),
            "{:+g} ({})".format(*published) if (published := plan.published(row.name)) else "",
            f"{(row.mean('parameters') or 0) / 1e6:.2f}",
            f"{row.mean('minutes_to_best') or 0:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    said = [_trust(plan, records, main), _where_and_when(main), *([EARLY_NOTE] if any(r.early for r in main) else [])]
    return "\n".join([*lines, "", *textwrap.wrap(" ".join(said), _WIDTH, break_on_hyphens=False)])


def _trust(plan: Plan, records: Mapping[Job, Record], main: Sequence[Row]) -> str:
    """Returns a text that says how many seeds the rows have, and whether they are tuned."""
    seeds = sorted({len(row.runs) for row in main})
    if seeds[-1] == 1:
        said = "One seed a row."
    else:
        counts = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        said = f"Mean and standard deviation of {counts} seeds."
        if len(seeds) > 1:
            said += " Differences are over the seeds that both rows have, so they are not always those of the means."
    tuned, families = plan.cells(dev_scores(records)), {plan.family(row.name): None for row in main}
    untuned = [family for family in families if family not in tuned]
    if not untuned:
        return f"{said} Rate and dropout are tuned for each family of models."
    if len(untuned) < len(families):
        return f"{said} Rate and dropout are not tuned yet for {', '.join(untuned)}."
    return f"{said} Rate and dropout are the same for all, not tuned for each yet: indications, no conclusions."


def _where_and_when(main: Sequence[Row]) -> str:
    runs = [run for row in main for run in row.runs.values()]
    machines = sorted({run["machine"].split(",")[0] for run in runs})
    dates = sorted({run["date"] for run in runs})
    return f"{', '.join(machines)}, {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}."
