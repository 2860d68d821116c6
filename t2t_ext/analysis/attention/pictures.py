"""Draws attention as heat maps in PNG format, for TensorBoard and for files."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_ext.analysis.attention.maps import AttentionMap
from t2t_ext.reporting.figures import new_figure, saved

_CELL = 0.24  # inches
_LETTER = 0.085
_HIDDEN = "#ececec"
_GRID_COLUMNS = 4


def attention_picture(shown: AttentionMap) -> bytes:
    """Returns a PNG file with all heads of a map side by side, on one scale from 0 to 1; dark means a large weight."""
    columns = min(shown.heads, _GRID_COLUMNS)
    rows = math.ceil(shown.heads / columns)
    width = 1.7 + 0.18 * len(shown.columns)
    height = 1.2 + 0.18 * len(shown.rows)
    with new_figure(columns * width, rows * height, dpi=80) as figure:
        axes = figure.subplots(rows, columns, squeeze=False).flat
        for head, axis in enumerate(axes):
            if head >= shown.heads:
                axis.set_visible(False)
                continue
            place = head % columns
            last = place == columns - 1 or head == shown.heads - 1
            _heat_map(axis, shown, shown.weights[head], 1.0, left=not place, right=last, font=6)
            axis.set_title(f"head {head + 1}", fontsize=8)
        return saved(figure, "png")


def head_picture(shown: AttentionMap, head: int | None, most: float) -> bytes:
    """Returns a PNG file of one head (counted from 0; None: the mean); the darkest color is the weight ``most``."""
    weights = shown.of_head(head)
    across = _CELL * len(shown.columns) + _LETTER * (_longest(shown.rows) + _longest(shown.predicted)) + 1.5
    down = _CELL * len(shown.rows) + _LETTER * _longest(shown.columns) + 1.0
    which = f"mean of {shown.heads} heads" if head is None else f"head {head + 1}"
    title = f"{shown.title}, {which}"
    with new_figure(max(across, _LETTER * len(title) + 0.4), down, dpi=120) as figure:
        axis = figure.subplots()
        image = _heat_map(axis, shown, weights, most, left=True, right=True, font=9)
        figure.colorbar(image, ax=axis, shrink=0.7, pad=0.02, aspect=24).ax.tick_params(labelsize=7)
        figure.suptitle(title, x=0.01, horizontalalignment="left", fontsize=10)
        return saved(figure, "png")


def _heat_map(
    axis: Any, shown: AttentionMap, weights: np.ndarray, most: float, *, left: bool, right: bool, font: int
) -> Any:
    """Draws weights float [Q, K] on an axis; returns the image."""
    import matplotlib

    colors = matplotlib.colormaps["Blues"].with_extremes(bad=_HIDDEN)
    masked = np.ma.masked_array(weights, shown.hidden)
    image = axis.imshow(masked, cmap=colors, vmin=0.0, vmax=most, aspect="auto", interpolation="nearest")
    axis.set_xticks(range(len(shown.columns)), shown.columns, rotation=90)
    axis.set_yticks(range(len(shown.rows)), shown.rows if left else [""] * len(shown.rows))
    axis.tick_params(labelsize=font, length=2)
    columns = {
        "mixed": "source tokens | target inputs",
        "future": f"inputs of {'r2l' if shown.side == 'l2r' else 'l2r'}",
        "backward": "tokens of the backward decoder",
        "self": "inputs",
    }
    axis.set_xlabel(columns.get(shown.kind, "source tokens"), fontsize=font)
    if left:
        axis.set_ylabel("source tokens" if not shown.predicted else "inputs", fontsize=font)
    if right and shown.predicted:
        beside = axis.secondary_yaxis("right")
        beside.set_yticks(range(len(shown.rows)), [f"→ {piece}" for piece in shown.predicted])
        beside.tick_params(labelsize=font, length=0)
    if shown.boundary:
        axis.axvline(shown.boundary - 0.5, color="#d55e00", linewidth=1.5)
    return image


def _longest(labels: Sequence[str]) -> int:
    return max(map(len, labels), default=0)
