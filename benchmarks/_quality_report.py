"""Makes the tables, JSON and picture of ``time_to_quality.py``: recipes side by side, mean and range over seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from _quality_curves import Run, Spread, reached, to_target

from t2t_ext.reporting import figures
from t2t_ext.reporting.report import Figure, Paragraph, Report
from t2t_ext.reporting.table import Table, columns

Groups = Mapping[str, Sequence[Run]]  # recipe -> its runs, one for each seed
# Field of a point -> (heading of its table, divisor, format)
_QUANTITIES = {
    "minutes": ("Minutes of training, evaluations not counted,", 1.0, ",.2f"),
    "minutes_counted": ("Minutes of training and evaluations", 1.0, ",.2f"),
    "updates": ("Updates", 1.0, ",.0f"),
    "tokens": ("Million target tokens", 1e6, ",.2f"),
}
_HOW = {False: "at the first evaluation that reaches it", True: "interpolated between evaluations"}


def report(groups: Groups, targets: Sequence[float], baseline: str, command: str, *, interpolated: bool) -> Report:
    """Returns the tables and the picture.

    Args:
      groups: The runs.
      targets: The dev BLEU values to reach.
      baseline: The recipe with whose minutes the others are compared; empty: none.
      command: The command line that makes the report.
      interpolated: See ``_quality_curves.reached``.
    """
    blocks: list[Any] = [_summary(groups)]
    for field, (title, unit, form) in _QUANTITIES.items() if targets else ():
        rows = [
            [name, *(_scaled(to_target(runs, each, field, interpolated=interpolated), unit, form) for each in targets)]
            for name, runs in groups.items()
        ]
        blocks.append(_table(f"{title} until dev BLEU, {_HOW[interpolated]}", "", targets, rows))
    if baseline and targets and len(groups) > 1:
        caption = f"How many times as fast as {baseline}, by mean minutes of training, evaluations not counted"
        blocks.append(_table(caption, "", targets, _quotients(groups, targets, baseline, interpolated)))
    several = max(len(runs) for runs in groups.values()) > 1
    notes = ["Mean (least–most) over seeds; 'n of m' where not all reached the target."] if several else []
    notes += ["Start-up and the writing of checkpoints are in no minutes; tokens have EOS and no padding."]
    signatures = {run.test_signature for runs in groups.values() for run in runs if run.test_signature}
    blocks += [Paragraph(note) for note in notes]
    blocks += [Paragraph(signature, "signature") for signature in sorted(signatures)]
    described = "dev BLEU over minutes of training and over target tokens"
    blocks.append(Figure(lambda: picture(groups, targets, "svg"), described))
    return Report("Time to quality", blocks, command)


def _table(caption: str, first: str, targets: Sequence[float], rows: Sequence[Sequence[Any]]) -> Table:
    return Table(columns(first, *(f"{target:g}" for target in targets)), rows, caption, missing="-")


def _scaled(spread: Spread, unit: float, form: str) -> str:
    return Spread(tuple(value / unit for value in spread.values), spread.of).shown(form)


def _quotients(groups: Groups, targets: Sequence[float], baseline: str, interpolated: bool) -> list[list[Any]]:
    """Returns the baseline's mean minutes divided by each recipe's, if all seeds of both reached the target."""

    def mean(runs: Sequence[Run], target: float) -> float | None:
        found = to_target(runs, target, "minutes", interpolated=interpolated)
        return found.mean if len(found.values) == found.of else None

    rows: list[list[Any]] = []
    for name, runs in groups.items():
        rows.append([name])
        for target in targets:
            base, own = mean(groups[baseline], target), mean(runs, target)
            rows[-1].append(f"{base / own:.2f}" if base and own else None)
    return rows


def _summary(groups: Groups) -> Table:
    headings = (
        "", "parameters", "seeds", "start-up s", "updates", "minutes", "target tokens/s", "best dev BLEU", "after min",
        "test BLEU of it", "ended by",
    )  # fmt: skip
    rows = []
    for name, runs in groups.items():
        best = [(run, point) for run in runs if (point := run.best)]
        quantities: list[tuple[list[float | None], str]] = [
            ([run.startup_seconds for run in runs], ".1f"),
            ([run.updates for run in runs], ",.0f"),
            ([run.minutes for run in runs], ",.2f"),
            ([_rate(run) for run, _ in best], ",.0f"),
            ([point.bleu for _, point in best], ".2f"),
            ([point.minutes for _, point in best], ",.2f"),
            ([run.test for run in runs], ".2f"),
        ]
        shown = [
            Spread(tuple(value for value in values if value is not None), len(runs)).shown(form)
            for values, form in quantities
        ]
        parameters = next((run.parameters for run in runs if run.parameters), None)
        ended = ", ".join(dict.fromkeys(run.ended for run in runs if run.ended))
        rows.append([name, f"{parameters:,}" if parameters else None, str(len(runs)), *shown, ended or None])
    return Table(columns(*headings), rows, missing="-")


def _rate(run: Run) -> float | None:
    """Returns target tokens per second up to the last evaluation; None if no time has passed."""
    minutes = run.points[-1].minutes - run.minutes_before
    return run.points[-1].tokens / minutes / 60 if minutes > 0 else None


def markdown(made: Report) -> str:
    """Returns the tables and paragraphs in Markdown."""
    parts = []
    for block in made.blocks:
        if isinstance(block, Table):
            cells = [[column.heading for column in block.columns], *block.cells()]
            lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells]
            lines.insert(1, "|---" * len(block.columns) + "|")
            parts.append("\n".join([*([f"{block.caption}:", ""] if block.caption else []), *lines]))
        elif isinstance(block, Paragraph):
            parts.append(f"`{block.words}`" if block.kind == "signature" else block.words)
    return "\n\n".join(parts) + "\n"


def figures_json(groups: Groups, targets: Sequence[float], *, interpolated: bool) -> dict[str, Any]:
    """Returns all figures in machine-readable form: each target, both ways, for every run, and the runs themselves."""
    recipes = {}
    for name, runs in groups.items():
        recipes[name] = {
            "targets": {
                f"{target:g}": {
                    field: {"mean": found.mean, "values": list(found.values), "seeds": found.of}
                    for field in _QUANTITIES
                    for found in [to_target(runs, target, field, interpolated=interpolated)]
                }
                for target in targets
            },
            "runs": [run.to_json() | {"targets": _both_ways(run, targets)} for run in runs],
        }
    return {"targets": list(targets), "reached": _HOW[interpolated], "recipes": recipes}


def _both_ways(run: Run, targets: Sequence[float]) -> dict[str, Any]:
    found = {}
    for target in targets:
        first, between = (reached(run.points, target, interpolated=way) for way in (False, True))
        fields = {
            way: {field: getattr(point, field) for field in _QUANTITIES} if point else None
            for way, point in (("first", first), ("interpolated", between))
        }
        found[f"{target:g}"] = fields
    return found


def picture(groups: Groups, targets: Sequence[float], kind: str) -> bytes:
    """Draws dev BLEU over minutes of training and over target tokens, mean and range over seeds, as png or svg."""
    panels = (
        ("minutes", 1.0, "minutes of training, evaluations not counted"),
        ("tokens", 1e6, "million target tokens"),
    )
    with figures.new_figure(11, 4.6) as figure:
        for axes, (field, unit, label) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
            lines = [
                _draw(axes, place, name, [run for run in runs if run.points], field, unit)
                for place, (name, runs) in enumerate(groups.items())
            ]
            for target in targets:
                axes.axhline(target, color="#999999", linewidth=0.7, linestyle="--")
            axes.set(xlabel=label, xlim=(0, None), ylim=(0, None))
            figures.plain(axes)
        figure.axes[0].set_ylabel("dev BLEU")
        figure.legend(handles=lines, loc="outside upper left", ncols=4, frameon=False, fontsize=9)
        return figures.saved(figure, kind)


def _draw(axes: Any, place: int, name: str, runs: Sequence[Run], field: str, unit: float) -> Any:
    """Draws a recipe's seeds, and their mean and range as far as all seeds reach; returns the line of the mean."""
    color = figures.color(place)
    curves = [
        (np.array([getattr(point, field) for point in run.points]) / unit, np.array([p.bleu for p in run.points]))
        for run in runs
    ]
    every, mean = np.array([]), np.array([])
    if curves:
        first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
        every = np.unique(np.concatenate([x for x, _ in curves]))
        every = every[(every >= first) & (every <= last)]
        values = np.array([np.interp(every, x, y) for x, y in curves])
        mean = values.mean(0)
    if len(curves) > 1:
        for x, y in curves:
            axes.plot(x, y, color=color, linewidth=0.6, alpha=0.5)
        axes.fill_between(every, values.min(0), values.max(0), color=color, alpha=0.15, linewidth=0)
    style = {"marker": figures.marker(place), "markersize": 4, "markevery": max(len(curves), 1)}
    # Colors and markers repeat after the seventh recipe, so lines are then dashed, and later dotted.
    dashes = ("-", "--", ":")[place // len(figures.COLORS) % 3]
    return axes.plot(every, mean, dashes, color=color, label=figures.short(name), **style)[0]
