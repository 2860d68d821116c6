"""Presents a comparison of gradient norms as text, TSV, pictures and one page."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext.analysis.gradients import plots as gradient_plots
from t2t_ext.analysis.gradients import series as gradient_series
from t2t_ext.analysis.gradients.groups import encoder_layers, in_order, stack_of, title_of
from t2t_ext.analysis.gradients.series import ALL, TOP, System
from t2t_ext.analysis.runs import AnalyzedRun
from t2t_ext.io import files
from t2t_ext.reporting import report as reporting
from t2t_ext.reporting.report import Block, Figure, Items, Note, PageOnly, Paragraph, Report, Section
from t2t_ext.reporting.table import Column, Table, columns

PAGE, TABLE, CURVES, BARS = "grad_norms.html", "grad_norms.tsv", "grad_norms_curves.png", "grad_norms_layers.png"
_WHY = (
    "Liu et al. (2020, equation 6): where a decoder layer is connected to a lower encoder layer, the gradient reaches "
    "that layer without passing those above it, and the norm of dLoss/d(parameters of the top encoder layer) becomes "
    "small compared with the conventional model's. That is the first row of the table. “Of all” is the share of the "
    "norm of the whole gradient, for models whose gradients differ in size."
)


@dataclasses.dataclass(frozen=True)
class GradientComparison:
    """A comparison of gradient norms, and how they were measured.

    Attributes:
      systems: The systems; the others are compared with the first.
      measured: A sentence that says what the norms were computed from.
      point: The unit that means are taken over, in the singular, such as ``batch``.
      together: For systems whose batches were also taken all at once: label -> part -> norm of that gradient.
      over_steps: Whether the points are steps of training, so that curves can be drawn.
    """

    systems: Sequence[System]
    measured: str
    point: str
    together: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    over_steps: bool = False

    @property
    def points(self) -> str:
        """``point`` in the plural."""
        return self.point + ("es" if self.point.endswith("ch") else "s")

    @property
    def parts(self) -> list[str]:
        """The rows of the table: the top encoder layer, all layers and parts of any system, the whole gradient."""
        groups = in_order(group for system in self.systems for group in system.groups)
        top = [TOP] if any(each.top for system in self.systems for each in system.series) else []
        return [*top, *groups, ALL]

    @property
    def stacks(self) -> list[list[str]]:
        """The layers of each stack, those that encode the source first."""
        stacks: dict[str, list[str]] = {}
        for name in self.parts:
            stack, number = stack_of(name)
            if number is not None:
                stacks.setdefault(stack, []).append(name)
        return sorted(stacks.values(), key=lambda layers: layers[0] not in encoder_layers(self.parts))

    def ratio(self, system: System, name: str) -> float | None:
        """Returns the mean norm of a part divided by the first system's."""
        mine, first = system.mean(name), self.systems[0].mean(name)
        return mine.value / first.value if mine and first and first.value else None


def logged(runs: Sequence[AnalyzedRun], from_step: int = 0, to_step: int = 0) -> tuple[GradientComparison, list[str]]:
    """Compares the norms that training logged between two steps; also returns notes on them.

    ``to_step`` 0 means to the end. Runs with the same label form one system.

    Raises:
      UserError: A run logged nothing between these steps.
    """
    series = [gradient_series.read(each.directory, from_step, to_step) for each in runs]
    notes = [
        f"{each.damaged} lines of {each.run}/gradient_norms.jsonl cannot be read and are left out"
        for each in series
        if each.damaged
    ]
    ends = {(int(each.steps[0]), int(each.steps[-1])) for each in series}
    if len(ends) > 1:
        notes.append(
            "the runs logged different steps, so their means are of different steps: give --from_step, --to_step"
        )
    first, last = min(start for start, _ in ends), max(end for _, end in ends)
    measured = (
        f"Norms of the gradient of the loss in training, before clipping, with dropout; logged points of steps {first} "
        f"to {last}, each a mean over the steps since the one before."
    )
    systems = gradient_series.systems(series, [each.label for each in runs])
    return GradientComparison(systems, measured, "logged point", over_steps=True), notes


def table(report: GradientComparison) -> Table:
    """Returns the displayed table; parts that a system does not have are empty."""
    first = report.systems[0].label
    headings = [Column("part")]
    for number, system in enumerate(report.systems):
        headings.append(Column(f"{system.label}: norm", str))
        headings.append(Column("of all", ".3f", hint="The norm as a share of that of the whole gradient"))
        if system.label in report.together:
            headings.append(Column(f"{system.label}: together", ".4g", hint="Of the gradient of all batches at once"))
        if number:
            headings.append(Column(f"by {first}", ".3f", hint=f"The norm divided by that of {first}"))
    rows = []
    for name in report.parts:
        row: list[Any] = [title_of(name)]
        for number, system in enumerate(report.systems):
            row += [system.mean(name), system.share(name)]
            if system.label in report.together:
                row.append(report.together[system.label].get(system.series[0].named(name)))
            row += [report.ratio(system, name)] if number else []
        rows.append(row)
    return Table(headings, rows, top=0 if report.parts[0] == TOP else None)


def summary(report: GradientComparison) -> list[str]:
    """Returns one line per system about its top encoder layer."""
    lines = []
    for number, system in enumerate(report.systems):
        mean, share, ratio = system.mean(TOP), system.share(TOP), report.ratio(system, TOP)
        if mean is None:
            lines.append(f"{system.label}: no layers that encode the source")
            continue
        common = encoder_layers(system.groups)  # none if models of different kinds have one label
        bottom = system.mean(common[0]) if common else None
        words = f"{system.label}: norm of dLoss/d({title_of(system.series[0].top)}) = {mean}"
        words += f", {100 * share:.1f}% of the whole gradient's" if share is not None else ""
        words += f", {mean.value / bottom.value:.3f} of the lowest layer's" if bottom and bottom.value else ""
        words += f", {ratio:.3f} of {report.systems[0].label}'s" if number and ratio is not None else ""
        if not stack_of(system.series[0].top)[0]:
            words += "; this layer is the decoder's, too"
        points = f"{mean.count} {report.point if mean.count == 1 else report.points}"
        lines.append(f"{words} ({points if len(system.series) == 1 else f'{len(system.series)} runs'})")
    return lines


def records(report: GradientComparison) -> Table:
    """Returns the comparison in machine-readable form: a row for each part of each system."""
    names = ["system", "part", "group", "mean", "standard_error", "count", "share_of_all", "ratio_to_first", "together"]
    rows = []
    for system in report.systems:
        for name in report.parts:
            mean, group = system.mean(name), system.series[0].named(name)
            if mean is not None:
                rows.append([
                    system.label, name, group, mean.value, mean.error, mean.count, system.share(name),
                    report.ratio(system, name), report.together.get(system.label, {}).get(group),
                ])  # fmt: skip
    return Table(columns(*names), rows)


def build(report: GradientComparison, notes: Sequence[str] = (), svgs: Mapping[str, bytes] | None = None) -> Report:
    """Returns the comparison as a report; ``svgs`` are the pictures by file name, or none for a terminal."""
    svgs = svgs or {}
    blocks: list[Block] = [*map(Note, notes), Paragraph(report.measured), Items(summary(report))]
    blocks.append(Paragraph(_WHY, "small"))
    if CURVES in svgs:
        blocks.append(Section("Over the steps", [Figure(svgs[CURVES], "Gradient norms of layers over training steps")]))
    if BARS in svgs:
        caption = f"Means over {report.points}; the lines at the tops are standard errors."
        blocks.append(Section("By layer", [Figure(svgs[BARS], "Mean gradient norm of each layer", caption)]))
    runs = [
        [system.label, str(each.run), f"{each.steps[0]} to {each.steps[-1]}", str(len(each.steps))]
        for system in report.systems
        for each in system.series
    ]
    blocks.append(Section("By part", [table(report)]))
    blocks.append(PageOnly(Table(columns("system", "run", "steps", report.points, words=True), runs)))
    title = "Gradient norms: " + " / ".join(system.label for system in report.systems)
    return Report(title, blocks, "t2t_ext-analyze grad_norms")


def write(directory: files.PathLike, report: GradientComparison, notes: Sequence[str]) -> list[str]:
    """Writes page, table and pictures into a directory, which is created if it is missing.

    Returns the names of the files, the page first.

    Raises:
      UserError: The directory cannot be written to.
    """
    drawn: dict[str, tuple[bytes, bytes]] = {}
    layers = [name for stack in report.stacks[:1] for name in stack]
    if report.over_steps and layers:
        tops = {each.top for system in report.systems for each in system.series}
        drawn[CURVES] = gradient_plots.curves(report.systems, layers if len(tops) == 1 else [TOP, *layers])
    if report.stacks:
        drawn[BARS] = gradient_plots.bars(report.systems, report.stacks)
    page = build(report, notes, {name: svg for name, (_, svg) in drawn.items()}).page()
    pictures = {name: drawn[name][0] if name in drawn else None for name in (CURVES, BARS)}
    return reporting.write(directory, {PAGE: page, TABLE: records(report).tsv(), **pictures})
