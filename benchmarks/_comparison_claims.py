"""The table of conclusions in docs/comparison.md: the papers' main claims, and other pairs that hold when corrected."""

import pathlib
import textwrap
from collections.abc import Mapping

import _comparison_readme
from _comparison_pairs import SEEDS_TO_CONCLUDE, Tests
from _comparison_plan import Job, Pair, Plan
from _comparison_report import finished_counts, said_of, shown_p
from _comparison_store import Record

_WIDTH = 150
_HEADINGS = ("", "compared with", "difference (95 %)", "p", "corrected", "published", "conclusion")


def marks(plan: Plan) -> tuple[str, str]:
    """Returns the two lines between which a page has the conclusions on a corpus."""
    return _comparison_readme.marks(plan, "conclusions")


def update(page: pathlib.Path, plan: Plan, records: Mapping[Job, Record]) -> bool:
    """Writes the table into a page between its marks; returns whether the page has the marks."""
    return _comparison_readme.write_between(page, marks(plan), table(plan, records))


def table(plan: Plan, records: Mapping[Job, Record]) -> str:
    """Returns the table of the main claims, decided or not, and of the other pairs that hold.

    The sentence below it says out of how many pairs these are, and how many pairs still lack seeds. The text is empty
    before any pair is trained.
    """
    tests = Tests(plan, finished_counts(plan, records))
    primary, others = plan.pairs()
    claims, controls = ([_cells(plan, tests, pair) for pair in family] for family in (primary, others))
    if not any(cells[2] for cells in (*claims, *controls)):
        return ""
    held = [cells for cells in controls if cells[-1].startswith("**")]
    waiting = sum(not cells[4] for cells in controls)
    note = (
        f"The first {len(claims)} are the papers' main claims, corrected among themselves. Of the {len(controls)} "
        f"other pairs that are tested the table has the {len(held)} that hold after correction; the rest shows no "
        f"difference{f' or does not have {SEEDS_TO_CONCLUDE} seeds yet ({waiting} pairs)' if waiting else ''}."
    )
    lines = [f"| {' | '.join(cells)} |" for cells in (_HEADINGS, ["---"] * len(_HEADINGS), *claims, *held)]
    return "\n".join([*lines, "", *textwrap.wrap(note, _WIDTH, break_on_hyphens=False)])


def _cells(plan: Plan, tests: Tests, pair: Pair) -> list[str]:
    row, control, published = _turned(plan, pair)
    tested, corrected = tests.of(row, control)
    names = [f"{(brief := plan.brief(row))[:1].upper()}{brief[1:]}", plan.brief(control)]
    found = ["", ""]
    if tested:
        found = [f"{tested.value:+.2f} ({tested.low:+.2f} to {tested.high:+.2f})", shown_p(tested.p)]
    holm, said = said_of(tested, corrected)
    return [*names, *found, holm, published, said]


def _turned(plan: Plan, pair: Pair) -> tuple[str, str, str]:
    """Returns a pair in a paper's order, with the paper's gain; otherwise as a row and its control."""
    for orders in plan.orders.values():
        for order in orders:
            if {order.above, order.below} == pair:
                published = "" if order.gain is None else f"{order.gain:+.2f} ({order.where})"
                return order.above, order.below, published
    row, control = sorted(pair, key=lambda name: plan.control(name) not in pair)
    return row, control, ""
