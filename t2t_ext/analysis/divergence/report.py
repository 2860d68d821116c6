"""The divergence of local and global attention as text, TSV, JSON, a picture and one page. Imports no TensorFlow."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from t2t_ext.io import files
from t2t_ext.reporting import page
from t2t_ext.reporting.figures import COLOURS, new_figure, saved

PAGE, TABLE, NUMBERS, PICTURE = "divergence.html", "divergence.tsv", "divergence.json", "divergence.png"
_MARKERS = "osD^vPX"
_OVERALL = "E_d"


@dataclasses.dataclass(frozen=True, eq=False)
class Divergences:
    """The divergences of a stack's modules.

    Attributes:
      layers: The layers that have a module, counted from 0.
      values: float64 [sentences, len(layers)], dv^l in nats of each sentence.
    """

    layers: tuple[int, ...]
    values: np.ndarray

    @property
    def sentences(self) -> int:
        """How many sentences were measured."""
        return len(self.values)

    def layer(self, layer: int) -> tuple[float, float] | None:
        """Returns dv^l of a layer, the mean over sentences, and its standard error; None where it has no module."""
        return _mean(self.values[:, self.layers.index(layer)]) if layer in self.layers else None

    @property
    def overall(self) -> tuple[float, float]:
        """E_d (equation 13), over the layers that have a module, and its standard error over sentences."""
        return _mean(self.values.mean(axis=1))


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Returns the mean of values float [n] and its standard error, NaN of a single one."""
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return float(values.mean()), error


@dataclasses.dataclass(frozen=True)
class Measured:
    """A run's divergences.

    Attributes:
      label: What the run is called.
      run: Its directory.
      checkpoint: The checkpoint's name.
      kernel_size: f, the neighbouring positions that a local context joins.
      stacks: ``encoder``, ``decoder`` -> the divergences of its modules.
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


def tables(runs: Sequence[Measured]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yields stack, header and rows of the table of each stack, a row for each run, for people."""
    for stack in _stacks(runs):
        layers = _layers(runs, stack)
        header = ["run", "f", *(f"layer {layer + 1}" for layer in layers), _OVERALL, "sentences"]
        rows = []
        for run in runs:
            if stack in run.stacks:
                found = run.stacks[stack]
                cells = [_shown(found.layer(layer)) for layer in layers]
                rows.append([run.label, str(run.kernel_size), *cells, _shown(found.overall), str(found.sentences)])
        yield stack, header, rows


def text(runs: Sequence[Measured], measured: str) -> str:
    """Returns the tables for a terminal."""
    lines = [measured]
    for stack, header, rows in tables(runs):
        cells = [header, *rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
        lines += ["", stack]
        for row in cells:
            first, *others = (
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  ".join([first, *others]).rstrip())
    return "\n".join(lines)


def tsv(runs: Sequence[Measured]) -> str:
    """Returns a row for each layer of each run, and one for its mean over layers, for machines."""
    lines = ["\t".join(["run", "kernel_size", "stack", "layer", "divergence", "standard_error", "sentences"])]
    for run, stack, layer, (value, error), found in _rows(runs):
        numbers = [f"{value:.6g}", "" if math.isnan(error) else f"{error:.6g}", str(found.sentences)]
        label = run.label.replace("\t", " ")
        lines.append("\t".join([label, str(run.kernel_size), stack, layer, *numbers]))
    return "\n".join(lines) + "\n"


def _rows(runs: Sequence[Measured]) -> Iterator[tuple[Measured, str, str, tuple[float, float], Divergences]]:
    for run in runs:
        for stack, found in run.stacks.items():
            for layer in found.layers:
                yield run, stack, str(layer + 1), found.layer(layer), found
            yield run, stack, _OVERALL, found.overall, found


def write(
    directory: files.PathLike, runs: Sequence[Measured], measured: str, settings: dict[str, Any], notes: Sequence[str]
) -> list[str]:
    """Writes page, tables and picture into a directory, which is made where it is missing.

    Args:
      directory: Where to.
      runs: What was measured.
      measured: Of what, a sentence.
      settings: What was measured and how, for machines.
      notes: What a reader should know beside.

    Returns:
      The names of the files, the page first.

    Raises:
      UserError: The directory cannot be written to.
    """
    directory = page.made(directory)
    png, svg = pictures(runs)
    caption = (
        "Left: of each layer. Right: the mean over layers by kernel size. Bars are standard errors over sentences."
    )
    parts = [*map(page.note, notes), f"<p>{page.text(measured)}</p>", _explained()]
    parts.append(page.figure(svg, "Divergence by layer and by kernel size; the tables have the numbers", caption))
    for stack, header, rows in tables(runs):
        parts += [f"<h2>{page.text(stack.capitalize())}</h2>", page.table(header, rows)]
    about = [[run.label, str(run.run), run.checkpoint, str(run.kernel_size)] for run in runs]
    parts.append(page.table(["run", "directory", "checkpoint", "f"], about, kind="words"))
    title = "Divergence of local and global attention"
    files.write_bytes_atomically(directory / PICTURE, png)
    files.write_text_atomically(directory / TABLE, tsv(runs))
    files.write_text_atomically(directory / NUMBERS, _json(runs, settings))
    files.write_text_atomically(directory / PAGE, page.page(title, parts, "t2t_ext-analyze divergence"))
    return [PAGE, TABLE, NUMBERS, PICTURE]


def _explained() -> str:
    return (
        '<p class="small">Ampomah et al. (2021, equations 10 to 13): the Jensen-Shannon divergence between what the '
        "local and the global attention of a dual contextual module look at, with natural logarithms, so that it is "
        f"between 0 (the same) and ln 2 = {math.log(2):.3f} (nothing in common). {_OVERALL} is the mean over the "
        "layers that have a module. Larger values: the two attend to different things.</p>"
    )


def _json(runs: Sequence[Measured], settings: dict[str, Any]) -> str:
    records = []
    for run in runs:
        stacks: dict[str, Any] = {}
        for stack, found in run.stacks.items():
            layers = {str(layer + 1): _pair(found.layer(layer)) for layer in found.layers}
            stacks[stack] = {"layers": layers, _OVERALL: _pair(found.overall), "sentences": found.sentences}
        record = {"label": run.label, "run": str(run.run), "checkpoint": run.checkpoint}
        records.append({**record, "kernel_size": run.kernel_size, "stacks": stacks})
    return json.dumps({"settings": settings, "runs": records}, ensure_ascii=False, indent=1) + "\n"


def _pair(found: tuple[float, float] | None) -> dict[str, float | None]:
    value, error = found or (math.nan, math.nan)
    return {"mean": value, "standard_error": None if math.isnan(error) else error}


def _shown(found: tuple[float, float] | None) -> str:
    if found is None:
        return ""
    value, error = found
    return f"{value:.4f}" + ("" if math.isnan(error) else f" ± {error:.4f}")


# === The picture ===


def pictures(runs: Sequence[Measured]) -> tuple[bytes, bytes]:
    """Draws, for each stack, the divergence by layer, a curve for each run, and its mean over layers by kernel size.

    Args:
      runs: What was measured.

    Returns:
      A PNG file, and the same as SVG.
    """
    from matplotlib.lines import Line2D

    stacks = _stacks(runs)
    with new_figure(8.6, 3.1 * len(stacks) + 0.5, dpi=110) as figure:
        for stack, (left, right) in zip(stacks, figure.subplots(len(stacks), 2, squeeze=False), strict=True):
            there = [(place, run) for place, run in enumerate(runs) if stack in run.stacks]
            for place, run in there:
                found = run.stacks[stack]
                means = [found.layer(layer) for layer in found.layers]
                _points(left, place, [layer + 1 for layer in found.layers], means, line="-")
            sizes = sorted({run.kernel_size for _, run in there})
            if all([run.kernel_size for _, run in there].count(size) == 1 for size in sizes):
                ordered = sorted((run.kernel_size, run.stacks[stack].overall[0]) for _, run in there)
                right.plot(*zip(*ordered, strict=True), color="#8c8c8c", linewidth=1.0, zorder=1)
            for place, run in there:
                _points(right, place, [run.kernel_size], [run.stacks[stack].overall], line="")
            left.set_xticks([layer + 1 for layer in _layers(runs, stack)])
            left.set_xlabel("layer", fontsize=9)
            left.set_ylabel("divergence (nats)", fontsize=9)
            right.set_xticks(sizes)
            right.set_xlim(sizes[0] - 0.5, sizes[-1] + 0.5)
            right.set_xlabel("kernel size f", fontsize=9)
            for panel, what in ((left, "by layer"), (right, f"{_OVERALL}, mean over layers")):
                panel.set_title(f"{stack.capitalize()}: {what}", fontsize=9)
                _plain(panel)
        handles = [
            Line2D([], [], color=_colour(place), marker=_marker(place), label=_short(run.label))
            for place, run in enumerate(runs)
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=5, frameon=False, fontsize=9)
        return saved(figure, "png"), saved(figure, "svg")


def _points(panel: Any, place: int, x: Sequence[float], means: Sequence[tuple[float, float]], line: str) -> None:
    errors = [0.0 if math.isnan(error) else error for _, error in means]
    values = [value for value, _ in means]
    panel.errorbar(
        x, values, errors, color=_colour(place), marker=_marker(place), markersize=5, linestyle=line, linewidth=1.3,
        capsize=3,
    )  # fmt: skip


def _plain(panel: Any) -> None:
    panel.set_ylim(bottom=0)
    panel.grid(axis="y", color="#d9d9d9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(labelsize=8)
    for edge in ("top", "right"):
        panel.spines[edge].set_visible(False)


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _marker(place: int) -> str:
    return _MARKERS[place % len(_MARKERS)]


def _short(label: str) -> str:
    return label if len(label) <= 28 else f"{label[:13]}…{label[-14:]}"
