"""Presents the divergence of local and global attention as text, TSV, JSON, a picture and one page.

Imports no TensorFlow.
"""

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_ext.io import files
from t2t_ext.reporting import figures
from t2t_ext.reporting import report as reporting
from t2t_ext.reporting.report import Block, Figure, Note, PageOnly, Paragraph, Report, Section
from t2t_ext.reporting.table import Column, Table, columns

PAGE, TABLE, NUMBERS, PICTURE = "divergence.html", "divergence.tsv", "divergence.json", "divergence.png"
_OVERALL = "E_d"
_EXPLAINED = (
    "Ampomah et al. (2021, equations 10 to 13): the Jensen-Shannon divergence between local and global attention of a "
    "dual contextual module, with natural logarithms, so that it is between 0 (the same) and ln 2 = "
    f"{math.log(2):.3f} (nothing in common). {_OVERALL} is the mean over the layers that have a module. Larger values: "
    "the two attend to different things."
)


@dataclasses.dataclass(frozen=True, eq=False)
class Divergences:
    """The divergences of the dual contextual modules in a stack.

    Attributes:
      layers: The layers that have a module, counted from 0.
      values: dv^l of each sentence in nats, float64 [sentences, len(layers)].
    """

    layers: tuple[int, ...]
    values: np.ndarray

    @property
    def sentences(self) -> int:
        """The number of sentences measured."""
        return len(self.values)

    def layer(self, layer: int) -> tuple[float, float] | None:
        """Returns a layer's dv^l, averaged over sentences, and its standard error; None if it has no module."""
        return _mean(self.values[:, self.layers.index(layer)]) if layer in self.layers else None

    @property
    def overall(self) -> tuple[float, float]:
        """E_d (equation 13), the mean over the layers that have a module, and its standard error over sentences."""
        return _mean(self.values.mean(axis=1))


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Returns the mean of values float [n] and its standard error, which is NaN for a single value."""
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return float(values.mean()), error


@dataclasses.dataclass(frozen=True)
class Measured:
    """A run's divergences.

    Attributes:
      label: The run's label.
      run: The run's directory.
      checkpoint: The checkpoint's name.
      kernel_size: f, the number of neighboring positions that a local context combines.
      stacks: ``encoder`` or ``decoder`` -> the divergences of its modules.
    """

    label: str
    run: pathlib.Path
    checkpoint: str
    kernel_size: int
    stacks: dict[str, Divergences]


def _stacks(runs: Sequence[Measured]) -> list[str]:
    return [stack for stack in ("encoder", "decoder") if any(stack in run.stacks for run in runs)]


def _layers(runs: Sequence[Measured], stack: str) -> list[int]:
    return sorted({layer for run in runs if stack in run.stacks for layer in run.stacks[stack].layers})


def tables(runs: Sequence[Measured]) -> list[tuple[str, Table]]:
    """Returns each stack with its displayed table, which has a row for each run."""
    found = []
    for stack in _stacks(runs):
        layers = _layers(runs, stack)
        headings = [Column("run"), Column("f", hint="Kernel size of the local context")]
        headings += columns(*(f"layer {layer + 1}" for layer in layers), _OVERALL, format=_shown)
        rows = []
        for run in runs:
            if stack in run.stacks:
                own = run.stacks[stack]
                rows.append([run.label, run.kernel_size, *map(own.layer, layers), own.overall, own.sentences])
        found.append((stack, Table([*headings, Column("sentences")], rows)))
    return found


def records(runs: Sequence[Measured]) -> Table:
    """Returns a machine-readable table with a row for each layer of each run, and one for each mean over layers."""
    names = ["run", "kernel_size", "stack", "layer", "divergence", "standard_error", "sentences"]
    rows: list[list[Any]] = []
    for run in runs:
        for stack, found in run.stacks.items():
            values = {str(layer + 1): found.layer(layer) for layer in found.layers}
            values[_OVERALL] = found.overall
            for layer, value in values.items():
                rows.append([run.label, run.kernel_size, stack, layer, *(value or ()), found.sentences])
    return Table(columns(*names), rows)


def build(runs: Sequence[Measured], measured: str, notes: Sequence[str] = (), svg: bytes = b"") -> Report:
    """Returns the divergences as a report; ``measured`` describes the measurement, and a terminal gets no picture."""
    blocks: list[Block] = [*map(Note, notes), Paragraph(measured), Paragraph(_EXPLAINED, "small")]
    if svg:
        caption = (
            "Left: of each layer. Right: the mean over layers by kernel size. Bars are standard errors over sentences."
        )
        blocks.append(Figure(svg, "Divergence by layer and by kernel size; the tables have the numbers", caption))
    blocks += [Section(stack.capitalize(), [table]) for stack, table in tables(runs)]
    about = [[run.label, str(run.run), run.checkpoint, str(run.kernel_size)] for run in runs]
    blocks.append(PageOnly(Table(columns("run", "directory", "checkpoint", "f", words=True), about)))
    return Report("Divergence of local and global attention", blocks, "t2t_ext-analyze divergence")


def write(
    directory: files.PathLike, runs: Sequence[Measured], measured: str, settings: dict[str, Any], notes: Sequence[str]
) -> list[str]:
    """Writes page, tables and picture into a directory, which is created if it is missing.

    ``settings`` describe the measurement in machine-readable form. Returns the names of the files, the page first.

    Raises:
      UserError: The directory cannot be written to.
    """
    png, svg = pictures(runs)
    page = build(runs, measured, notes, svg).page()
    numbers = reporting.as_json({"settings": settings, "runs": [_record(run) for run in runs]})
    return reporting.write(directory, {PAGE: page, TABLE: records(runs).tsv(), NUMBERS: numbers, PICTURE: png})


def _record(run: Measured) -> dict[str, Any]:
    stacks: dict[str, Any] = {}
    for stack, found in run.stacks.items():
        layers = {str(layer + 1): _pair(found.layer(layer)) for layer in found.layers}
        stacks[stack] = {"layers": layers, _OVERALL: _pair(found.overall), "sentences": found.sentences}
    record = {"label": run.label, "run": str(run.run), "checkpoint": run.checkpoint}
    return {**record, "kernel_size": run.kernel_size, "stacks": stacks}


def _pair(found: tuple[float, float] | None) -> dict[str, float | None]:
    value, error = found or (math.nan, math.nan)
    return {"mean": value, "standard_error": None if math.isnan(error) else error}


def _shown(found: tuple[float, float]) -> str:
    value, error = found
    return f"{value:.4f}" + ("" if math.isnan(error) else f" ± {error:.4f}")


# === The picture ===


def pictures(runs: Sequence[Measured]) -> tuple[bytes, bytes]:
    """Draws, for each stack, the divergence by layer (a curve per run) and the mean over layers by kernel size.

    Returns the figure as PNG and SVG.
    """
    stacks = _stacks(runs)
    with figures.new_figure(8.6, 3.1 * len(stacks) + 0.5) as figure:
        for stack, (left, right) in zip(stacks, figure.subplots(len(stacks), 2, squeeze=False), strict=True):
            there = [(place, run) for place, run in enumerate(runs) if stack in run.stacks]
            for place, run in there:
                found = run.stacks[stack]
                means = [_mean(found.values[:, column]) for column in range(len(found.layers))]
                _points(left, place, [layer + 1 for layer in found.layers], means, "-", f"{run.label}, layer")
            sizes = sorted({run.kernel_size for _, run in there})
            if all([run.kernel_size for _, run in there].count(size) == 1 for size in sizes):
                ordered = sorted((run.kernel_size, run.stacks[stack].overall[0]) for _, run in there)
                right.plot(*zip(*ordered, strict=True), color="#8c8c8c", linewidth=1.0, zorder=1)
            for place, run in there:
                _points(right, place, [run.kernel_size], [run.stacks[stack].overall], "", f"{run.label}, kernel size")
            left.set_xticks([layer + 1 for layer in _layers(runs, stack)])
            left.set_xlabel("layer", fontsize=9)
            left.set_ylabel("divergence (nats)", fontsize=9)
            right.set_xticks(sizes)
            right.set_xlim(sizes[0] - 0.5, sizes[-1] + 0.5)
            right.set_xlabel("kernel size f", fontsize=9)
            for panel, what in ((left, "by layer"), (right, f"{_OVERALL}, mean over layers")):
                panel.set_title(f"{stack.capitalize()}: {what}", fontsize=9)
                figures.plain(panel)
                panel.set_ylim(bottom=0)
        figures.legend(figure, [run.label for run in runs], lines=True)
        return figures.saved(figure, "png"), figures.saved(figure, "svg")


def _points(
    panel: Any, place: int, x: Sequence[int], means: Sequence[tuple[float, float]], line: str, what: str
) -> None:
    errors = [0.0 if math.isnan(error) else error for _, error in means]
    values = [value for value, _ in means]
    panel.errorbar(
        x, values, errors, color=figures.color(place), marker=figures.marker(place), markersize=5, linestyle=line,
        linewidth=1.3, capsize=3,
    )  # fmt: skip
    tips = [f"{what} {number}: {_shown(mean)}" for number, mean in zip(x, means, strict=True)]
    figures.points(panel, x, values, tips)
