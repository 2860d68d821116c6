"""The comparison of gradient norms as text, TSV, pictures and one page."""

import dataclasses
from collections.abc import Sequence

from t2t_ext.analysis.gradients import plots as gradient_plots
from t2t_ext.analysis.gradients.groups import encoder_layers, in_order, stack_of
from t2t_ext.analysis.gradients.series import ALL, TOP, Mean, System
from t2t_ext.io import files
from t2t_ext.reporting import page

PAGE, TABLE, CURVES, BARS = "grad_norms.html", "grad_norms.tsv", "grad_norms_curves.png", "grad_norms_layers.png"


@dataclasses.dataclass(frozen=True)
class Report:
    """What is compared, and how it was measured.

    Attributes:
      systems: The first is what the others are compared with.
      measured: What the norms are of, a sentence.
      point: What means are over, in the singular, such as ``batch``.
      together: Of systems whose batches were also taken all at once: label -> part -> norm of that gradient.
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


def header(report: Report) -> list[str]:
    """Returns the header of the table for people."""
    cells = ["part"]
    for number, system in enumerate(report.systems):
        cells += [f"{system.label}: norm", "of all"]
        cells += [f"{system.label}: together"] if system.label in report.together else []
        cells += [f"by {report.systems[0].label}"] if number else []
    return cells


def rows(report: Report) -> list[list[str]]:
    """Returns the rows of the table for people; parts that a system does not have are blank."""
    found = []
    for name in report.parts:
        row = [name]
        for number, system in enumerate(report.systems):
            share, ratio = system.share(name), report.ratio(system, name)
            row += [_shown(system.mean(name)), "" if share is None else f"{share:.3f}"]
            if system.label in report.together:
                own = system.series[0].named(name)
                row.append(f"{report.together[system.label][own]:.4g}" if own in report.together[system.label] else "")
            row += ["" if ratio is None else f"{ratio:.3f}"] if number else []
        found.append(row)
    return found


def summary(report: Report) -> list[str]:
    """Returns a line for each system about its top encoder layer."""
    lines = []
    for number, system in enumerate(report.systems):
        mean, share, ratio = system.mean(TOP), system.share(TOP), report.ratio(system, TOP)
        if mean is None:
            lines.append(f"{system.label}: no layers that encode the source")
            continue
        bottom = system.mean(encoder_layers(system.groups)[0])
        words = f"{system.label}: norm of dLoss/d({system.series[0].top}) = {mean}"
        words += f", {100 * share:.1f}% of the whole gradient's" if share is not None else ""
        words += f", {mean.value / bottom.value:.3f} of the lowest layer's" if bottom and bottom.value else ""
        words += f", {ratio:.3f} of {report.systems[0].label}'s" if number and ratio is not None else ""
        if not stack_of(system.series[0].top)[0]:
            words += "; this layer writes the target, too"
        lines.append(f"{words} ({_count(system, mean, report)})")
    return lines


def text(report: Report) -> str:
    """Returns the comparison for a terminal."""
    cells = [header(report), *rows(report)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [report.measured, "", *summary(report), ""]
    for row in cells:
        first, *others = (
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *others]).rstrip())
    return "\n".join(lines)


def tsv(report: Report) -> str:
    """Returns the comparison for machines: a row for each part of each system."""
    names = ["system", "part", "group", "mean", "standard_error", "count", "share_of_all", "ratio_to_first", "together"]
    lines = ["\t".join(names)]
    for system in report.systems:
        for name in report.parts:
            mean = system.mean(name)
            if mean is None:
                continue
            together = report.together.get(system.label, {}).get(system.series[0].named(name))
            numbers = [mean.value, mean.error, mean.count, system.share(name), report.ratio(system, name), together]
            cells = ["" if number is None else f"{number:.6g}" for number in numbers]
            label = system.label.replace("\t", " ")
            lines.append("\t".join([label, name, system.series[0].named(name), *cells]))
    return "\n".join(lines) + "\n"


def write(directory: files.PathLike, report: Report, notes: Sequence[str]) -> list[str]:
    """Writes page, table and pictures into a directory, which is made where it is missing.

    Args:
      directory: Where to.
      report: The comparison.
      notes: What a reader should know beside.

    Returns:
      The names of the files, the page first.

    Raises:
      UserError: The directory cannot be written to.
    """
    directory = page.made(directory)
    names, parts = [PAGE, TABLE], [*map(page.note, notes), f"<p>{page.text(report.measured)}</p>", *_summary(report)]
    layers = [name for stack in report.stacks[:1] for name in stack]
    if report.over_steps and layers:
        tops = {each.top for system in report.systems for each in system.series}
        png, svg = gradient_plots.curves(report.systems, layers if len(tops) == 1 else [TOP, *layers])
        files.write_bytes_atomically(directory / CURVES, png)
        names.append(CURVES)
        parts += ["<h2>Over the steps</h2>", page.figure(svg, "Gradient norms of layers over steps of training")]
    else:
        (directory / CURVES).unlink(missing_ok=True)  # of an earlier call that compared something else
    if report.stacks:
        png, svg = gradient_plots.bars(report.systems, report.stacks)
        files.write_bytes_atomically(directory / BARS, png)
        names.append(BARS)
        caption = f"Means over {report.points}; the lines at the tops are standard errors."
        parts += ["<h2>By layer</h2>", page.figure(svg, "Mean gradient norm of each layer", caption)]
    table = page.table(header(report), rows(report), top=0 if report.parts[0] == TOP else None)
    parts += ["<h2>Table</h2>", table, _runs(report)]
    title = "Gradient norms: " + " / ".join(system.label for system in report.systems)
    files.write_text_atomically(directory / TABLE, tsv(report))
    files.write_text_atomically(directory / PAGE, page.page(title, parts, "t2t_ext-analyze grad_norms"))
    return names


def _summary(report: Report) -> list[str]:
    lines = "".join(f"<li>{page.text(line)}</li>" for line in summary(report))
    return [
        f"<ul>{lines}</ul>",
        '<p class="small">Liu et al. (2020, equation 6): where a decoder layer is connected to a lower encoder layer, '
        "the gradient reaches that layer without passing those above it, and the norm of dLoss/d(parameters of the top "
        "encoder layer) becomes small beside the conventional model's. That is the row on top of the table. “Of all” "
        "is the share of the norm of the whole gradient, for models whose gradients differ in size.</p>",
    ]


def _runs(report: Report) -> str:
    rows = [
        [system.label, str(each.run), f"{each.steps[0]} to {each.steps[-1]}", str(len(each.steps))]
        for system in report.systems
        for each in system.series
    ]
    return page.table(["system", "run", "steps", report.points], rows, kind="words")


def _count(system: System, mean: Mean, report: Report) -> str:
    """Returns over how many runs or points a mean is."""
    if len(system.series) > 1:
        return f"{len(system.series)} runs"
    return f"{mean.count} {report.point if mean.count == 1 else report.points}"


def _shown(mean: Mean | None) -> str:
    return "" if mean is None else str(mean)
