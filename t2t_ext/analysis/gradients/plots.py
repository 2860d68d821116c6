"""Draws figures of gradient norms: curves over the steps of training, and a bar for each layer."""

import math
from collections.abc import Sequence
from typing import Any

from t2t_ext.analysis.gradients.groups import title_of
from t2t_ext.analysis.gradients.series import System
from t2t_ext.reporting import figures

_PANELS = 3  # side by side
_WIDE_RANGE = 30  # ratio beyond which the smallest bars would be invisible on a linear scale


def curves(systems: Sequence[System], names: Sequence[str]) -> tuple[bytes, bytes]:
    """Draws norms over steps, with a panel for each part and a line for each run; returns the figure as PNG and SVG."""
    columns = min(_PANELS, len(names))
    rows = math.ceil(len(names) / columns)
    with figures.new_figure(max(4.2 * columns, 5.2), 2.7 * rows + 0.6) as figure:
        panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
        for panel, name in zip(panels, names, strict=False):
            for place, system in enumerate(systems):
                for series in system.series:
                    if series.named(name) in series.norms:
                        norms = series.norms[series.named(name)]
                        marker = "." if len(norms) < 30 else None
                        panel.plot(series.steps, norms, color=figures.color(place), linewidth=1.3, marker=marker)
                        pairs = zip(series.steps, norms, strict=True)
                        tips = [f"{system.label}, step {step}: {norm:.4g}" for step, norm in pairs]
                        figures.points(panel, series.steps, norms, tips)
            panel.set_title(title_of(name), fontsize=9)
            _logarithmic(panel)
            figures.plain(panel)
        for panel in panels[len(names) :]:
            panel.set_visible(False)
        for panel in panels[len(names) - columns : len(names)]:
            panel.tick_params(labelbottom=True)  # also in columns without a panel in the last row
        figure.supxlabel("step", fontsize=9)
        figure.supylabel("gradient norm", fontsize=9)
        figures.legend(figure, [system.label for system in systems])
        return figures.saved(figure, "png"), figures.saved(figure, "svg")


def bars(systems: Sequence[System], stacks: Sequence[Sequence[str]]) -> tuple[bytes, bytes]:
    """Draws mean norms with their standard errors, with a panel for each stack and a group of bars for each layer.

    Returns the figure as PNG and SVG.
    """
    counts = [len(stack) * len(systems) for stack in stacks]
    width = max(1.6 + 0.24 * max(counts) + 0.25 * max(map(len, stacks)), 5.2)
    with figures.new_figure(width, 2.9 * len(stacks) + 0.5) as figure:
        for panel, stack in zip(figure.subplots(len(stacks), 1, squeeze=False).flat, stacks, strict=True):
            for place, system in enumerate(systems):
                means = [system.mean(name) for name in stack]
                heights = [None if mean is None else mean.value for mean in means]
                errors = [0.0 if mean is None or math.isnan(mean.error) else mean.error for mean in means]
                tips = [f"{system.label}, {title_of(name)}: {mean}" for name, mean in zip(stack, means, strict=True)]
                figures.bars(panel, len(systems), place, heights, errors, tips)
            panel.set_xticks(range(len(stack)), [title_of(name) for name in stack], rotation=30 * (len(stack) > 8))
            panel.set_ylabel("gradient norm", fontsize=9)
            values = [mean.value for system in systems for name in stack if (mean := system.mean(name))]
            if 0 < min(values) < max(values) / _WIDE_RANGE:
                _logarithmic(panel)
            figures.plain(panel)
        figures.legend(figure, [system.label for system in systems])
        return figures.saved(figure, "png"), figures.saved(figure, "svg")


def _logarithmic(panel: Any) -> None:
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")

    def minor(value: float, _: int) -> str:
        """Labels 2 and 5 of each decade if the axis spans less than two decades, which have too few major labels."""
        low, high = panel.get_ylim()
        digit = round(value / 10 ** math.floor(math.log10(value)))
        return f"{value:g}" if high < 100 * low and digit in (2, 5) else ""

    panel.yaxis.set_minor_formatter(minor)
