"""Figures of gradient norms: over the steps of training, and a bar for each layer."""

import math
from collections.abc import Sequence
from typing import Any

from t2t_ext.analysis.gradients.groups import stack_of
from t2t_ext.analysis.gradients.series import TOP, System
from t2t_ext.reporting.figures import COLOURS, new_figure, saved

_PANELS = 3  # side by side
_WIDE_RANGE = 30  # beyond, the smallest bars could not be seen on a linear scale
_NAMES = 28  # characters of a label


def curves(systems: Sequence[System], names: Sequence[str]) -> tuple[bytes, bytes]:
    """Draws norms over steps, a panel for each part, a line for each run.

    Args:
      systems: With the series of training.
      names: The parts.

    Returns:
      A PNG file, and the same as SVG.
    """
    columns = min(_PANELS, len(names))
    rows = math.ceil(len(names) / columns)
    with new_figure(max(4.2 * columns, 5.2), 2.7 * rows + 0.6, dpi=110) as figure:
        panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
        for panel, name in zip(panels, names, strict=False):
            for place, system in enumerate(systems):
                for number, series in enumerate(system.series):
                    if series.named(name) in series.norms:
                        label = None if number else _short(system.label)
                        norms = series.norms[series.named(name)]
                        marker = "." if len(norms) < 30 else None
                        panel.plot(series.steps, norms, color=_colour(place), linewidth=1.3, marker=marker, label=label)
            panel.set_title(_title(name), fontsize=9)
            _logarithmic(panel)
            _plain(panel)
        for panel in panels[len(names) :]:
            panel.set_visible(False)
        for panel in panels[len(names) - columns : len(names)]:
            panel.tick_params(labelbottom=True)  # of columns whose lowest panel is not there, too
        figure.supxlabel("step", fontsize=9)
        figure.supylabel("gradient norm", fontsize=9)
        _legend(figure, systems)
        return saved(figure, "png"), saved(figure, "svg")


def bars(systems: Sequence[System], stacks: Sequence[Sequence[str]]) -> tuple[bytes, bytes]:
    """Draws mean norms with their standard errors, a panel for each stack, a group of bars for each layer.

    Args:
      systems: What is compared.
      stacks: The layers of each stack.

    Returns:
      A PNG file, and the same as SVG.
    """
    counts = [len(stack) * len(systems) for stack in stacks]
    width = max(1.6 + 0.24 * max(counts) + 0.25 * max(map(len, stacks)), 5.2)
    with new_figure(width, 2.9 * len(stacks) + 0.5, dpi=110) as figure:
        for panel, stack in zip(figure.subplots(len(stacks), 1, squeeze=False).flat, stacks, strict=True):
            thick = 0.8 / len(systems)
            for place, system in enumerate(systems):
                means = [system.mean(name) for name in stack]
                there = [(x, mean) for x, mean in enumerate(means) if mean is not None]
                left = [x + (place - (len(systems) - 1) / 2) * thick for x, _ in there]
                errors = [0.0 if math.isnan(mean.error) else mean.error for _, mean in there]
                panel.bar(
                    left, [mean.value for _, mean in there], thick, color=_colour(place), yerr=errors,
                    error_kw={"elinewidth": 1, "capsize": 2}, label=_short(system.label),
                )  # fmt: skip
            panel.set_xticks(range(len(stack)), [_title(name) for name in stack], rotation=30 * (len(stack) > 8))
            panel.set_ylabel("gradient norm", fontsize=9)
            values = [mean.value for system in systems for name in stack if (mean := system.mean(name))]
            if 0 < min(values) < max(values) / _WIDE_RANGE:
                _logarithmic(panel)
            _plain(panel)
        _legend(figure, systems)
        return saved(figure, "png"), saved(figure, "svg")


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _title(name: str) -> str:
    """Returns the name of a part for people: layers count from 1."""
    stack, number = stack_of(name)
    if name == TOP or number is None:
        return name.replace("_", " ")
    return f"{stack.replace('_', ' ')} layer {number + 1}".strip()


def _logarithmic(panel: Any) -> None:
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.yaxis.set_minor_formatter(lambda value, _: _minor(value, *panel.get_ylim()))


def _minor(value: float, low: float, high: float) -> str:
    """Labels 2 and 5 of a decade where an axis has hardly more than one: a single 0.1 would be no scale."""
    digit = round(value / 10 ** math.floor(math.log10(value)))
    return f"{value:g}" if high < 100 * low and digit in (2, 5) else ""


def _plain(panel: Any) -> None:
    panel.grid(axis="y", color="#d9d9d9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(labelsize=8)
    for edge in ("top", "right"):
        panel.spines[edge].set_visible(False)


def _legend(figure: Any, systems: Sequence[System]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=_colour(place), label=_short(system.label)) for place, system in enumerate(systems)]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=9)


def _short(label: str) -> str:
    return label if len(label) <= _NAMES else f"{label[: _NAMES // 2 - 1]}…{label[-_NAMES // 2 :]}"
