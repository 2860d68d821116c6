"""Provides what all figures share: colors, markers, fonts, axes, legends, bars and saving.

Figures are made without pyplot, so there is no global state and no display. matplotlib is imported when something is
drawn. The colors are from Okabe and Ito (2008), "Color Universal Design"; people with any color vision can distinguish
them. Lines also have different markers.
"""

import functools
import io
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_TIP = "tip:"  # the id of a figure element with a tooltip begins with this; the tooltip's text follows
_MOST_TIPS = 200  # points per line; the tooltips of more points would overlap
# matplotlib's own font has no Chinese, Japanese or Korean; these fonts add scripts where they are installed.
_MORE_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei", "Droid Sans Fallback", "Microsoft YaHei", "PingFang SC", "Noto Sans Arabic",
    "Noto Sans Devanagari", "Noto Sans Hebrew", "Noto Sans Thai",
)  # fmt: skip


@contextmanager
def new_figure(width: float, height: float, dpi: int = 110) -> Iterator[Any]:
    """Yields a figure with width and height in inches, with the settings for all figures active inside the block."""
    import matplotlib
    from matplotlib.figure import Figure

    style = {
        "font.family": _fonts(),
        "svg.fonttype": "none",  # text stays text; the viewer's fonts show all scripts
        "svg.hashsalt": "t2t_ext",
        "text.parse_math": False,  # "$" would start a formula
    }
    with matplotlib.rc_context(cast(Any, style)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box is drawn instead
        yield Figure(figsize=(width, height), dpi=dpi, layout="constrained")


@functools.cache
def _fonts() -> list[str]:
    """Returns matplotlib's own font and the installed fonts that add missing scripts."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _MORE_FONTS if name in installed)]


def saved(figure: Any, kind: str) -> bytes:
    """Returns the contents of a figure file, of kind ``png`` or ``svg``; in SVG, bars and points have tooltips."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
    if kind == "svg":
        return re.sub(rf'<g id="{_TIP}([^"]*)">'.encode(), rb"<g><title>\1</title>", buffer.getvalue())
    return buffer.getvalue()


def tip(artist: Any, words: str) -> None:
    """Adds a tooltip with the given words to a bar or another element of a figure."""
    artist.set_gid(_TIP + words)


def points(axes: Any, x: Iterable[Any], y: Iterable[float], tips: Iterable[str]) -> None:
    """Adds tooltips to the points of a line, in an invisible circle around each, unless there are too many points."""
    there = [place for place in zip(x, y, tips, strict=True) if not math.isnan(place[1])]
    if len(there) <= _MOST_TIPS:
        for left, height, words in there:
            (circle,) = axes.plot([left], [height], "o", color="#ffffff", alpha=0.0, markersize=11, zorder=5)
            tip(circle, words)


def color(place: int) -> str:
    """Returns the color of a system, run or side, by its place in the list, from 0."""
    return COLORS[place % len(COLORS)]


def marker(place: int) -> str:
    """Returns the marker of a system, run or side, by its place in the list, from 0."""
    return _MARKERS[place % len(_MARKERS)]


def plain(axes: Any) -> None:
    """Removes the top and right edges of the frame of an axes, and draws a faint horizontal grid."""
    axes.grid(axis="y", color="#d9d9d9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)


def legend_columns(figure: Any, labels: Sequence[str]) -> int:
    """Returns the number of labels that fit side by side in the legend of a figure, at most five."""
    width = 0.7 + 0.1 * max(map(len, labels), default=0)  # inches, with its color and the gaps
    return min(5, max(1, int(figure.get_figwidth() / width)))


def legend(figure: Any, labels: Sequence[str], *more: Any, lines: bool = False) -> None:
    """Adds a legend above a figure: the labels with the colors of the places 0, 1, ..., and further handles.

    Colors appear as filled areas, or with ``lines`` as lines with markers.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Line2D([], [], color=color(place), marker=marker(place), label=short(label))
        if lines
        else Patch(color=color(place), label=short(label))
        for place, label in enumerate(labels)
    ]
    columns = legend_columns(figure, [handle.get_label() for handle in (*handles, *more)])
    figure.legend(handles=[*handles, *more], loc="outside upper left", ncols=columns, frameon=False, fontsize=9)


def bars(axes: Any, groups: int, place: int, heights: Sequence[float | None], errors: Any, tips: Sequence[str]) -> None:
    """Draws the bars of one system, one bar in each group of bars.

    Args:
      axes: The axes to draw on.
      groups: The number of systems, which share the width of each group.
      place: The place of this system, from 0.
      heights: The height of the bar in each group; None leaves a gap.
      errors: The length of the error bars in each direction, or two lists of lengths, down and up; None draws none.
      tips: The tooltip of each bar.
    """
    thick = 0.8 / groups
    left = [x + (place - (groups - 1) / 2) * thick for x in range(len(heights))]
    values = [float("nan") if height is None else height for height in heights]
    drawn = axes.bar(left, values, thick, color=color(place), yerr=errors, error_kw={"elinewidth": 1, "capsize": 2})
    for bar, words in zip(drawn, tips, strict=True):
        tip(bar, words)


def short(label: str, most: int = 28) -> str:
    """Returns a label, shortened in the middle if it has more than ``most`` characters."""
    return label if len(label) <= most else f"{label[: most // 2 - 1]}…{label[-(most - most // 2) :]}"
