"""Tables of a report that has several systems: their figures, and what is certain about their differences."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_ext.experiments.plan import Stage

if TYPE_CHECKING:
    from t2t_ext.experiments.figure import Figure

_LEFT, _RIGHT = "left", "right"


def shown_figure(name: str, value: float) -> str:
    """Returns the value of a figure of this name for people."""
    return f"{value:,.0f}" if name == "parameters" else f"{value:.2f}"


def side_by_side(systems: Mapping[str, Sequence["Figure"]], rows: Mapping[str, str]) -> str:
    """Returns a table with a line for each system: the mean over the seeds of each figure; empty for a single one.

    Args:
      systems: Name -> figures, as ``report.collect`` returns them.
      rows: Name -> its words in the table; those that have none are left without.
    """
    if len(systems) < 2:
        return ""
    names = list(dict.fromkeys(figure.name for figures in systems.values() for figure in figures))
    table = [["", *names, ""]]
    for system, figures in systems.items():
        means = {figure.name: shown_figure(figure.name, figure.mean) for figure in figures}
        table.append([system, *(means.get(name, "-") for name in names), rows.get(system, "")])
    sides = [_LEFT, *[_RIGHT] * len(names), _LEFT]
    return "\n".join(["", "  side by side, means over the seeds:", *_aligned(table, sides)]) + "\n"


def comparisons(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """Returns the first score of every comparison that is done, for ``report.json``.

    Each is ``split``, ``seed``, ``label``, ``baseline``, and ``systems``: name -> ``score``, ``confidence`` (half the
    width of the 95 % interval) and, of all but the baseline, ``difference``, ``p_bootstrap``, ``p_randomization``.
    """
    found = []
    for stage in stages:
        if stage.kind != "compare" or not stage.output.exists():
            continue
        content = json.loads(stage.output.read_text(encoding="utf-8"))
        first = content["scores"][0]
        systems = {
            name: {"score": score["value"], "confidence": score["confidence"]}
            for name, score in first["systems"].items()
        }
        for test in first["tests"]:
            systems[test["system"]] |= {key: test[key] for key in ("difference", "p_bootstrap", "p_randomization")}
        baseline = content["names"][0]
        where = {"split": stage.split, "seed": stage.seed, "label": first["label"]}
        found.append({**where, "baseline": baseline, "systems": systems})
    return found


def tests_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Returns what ``comparisons`` found as tables; empty for nothing."""
    lines: list[str] = []
    for each in found:
        table = [["", each["label"], "95 %", "difference", "p (bootstrap)", "p (randomisation)"]]
        for name, values in each["systems"].items():
            half = values["confidence"]
            row = [name, f"{values['score']:.2f}", "-" if half is None else f"± {half:.2f}"]
            if "difference" in values:
                row += [f"{values['difference']:+.2f}"]
                row += [f"{values[test]:.3f}" for test in ("p_bootstrap", "p_randomization")]
            table.append([*row, *[""] * (len(table[0]) - len(row))])
        lines += ["", f"  {each['split']}, seed {each['seed']}, each against {each['baseline']}:"]
        lines += _aligned(table, [_LEFT, *[_RIGHT] * (len(table[0]) - 1)])
    return "\n".join(lines) + "\n" if lines else ""


def _aligned(table: Sequence[Sequence[str]], sides: Sequence[str]) -> list[str]:
    """Returns the lines of a table whose columns are aligned."""
    widths = [max(len(row[column]) for row in table) for column in range(len(sides))]
    lines = []
    for row in table:
        cells = zip(row, widths, sides, strict=True)
        shown = [cell.rjust(width) if side == _RIGHT else cell.ljust(width) for cell, width, side in cells]
        lines.append(("  " + "  ".join(shown)).rstrip())
    return lines
