"""What all figures share: colors, fonts, axes, and files made of them.

Figures are made without pyplot: nothing global, no display. matplotlib is imported when something is drawn. Colors are
those of Okabe and Ito (2008), "Color Universal Design", which people with any color vision can tell apart; lines also
differ in markers.
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
_TIP = "tip:"  # begins the name, within a figure, of what has a tooltip; the words follow
_MOST_TIPS = 200  # points of a line; of more, they would lie on each other
# The font that matplotlib brings has no Chinese, Japanese or Korean; these, where they are installed, do.
_MORE_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei", "Droid Sans Fallback", "Microsoft YaHei", "PingFang SC", "Noto Sans Arabic",
    "Noto Sans Devanagari", "Noto Sans Hebrew", "Noto Sans Thai",
)  # fmt: skip


@contextmanager
def new_figure(width: float, height: float, dpi: int = 110) -> Iterator[Any]:
    """Yields a figure of so many inches, under the settings that all pictures are drawn with."""
    import matplotlib
    from matplotlib.figure import Figure

    style = {
        "font.family": _fonts(),
        "svg.fonttype": "none",  # whoever opens it has fonts for words in any script
        "svg.hashsalt": "t2t_ext",
        "text.parse_math": False,  # "$" would start a formula
    }
    with matplotlib.rc_context(cast(Any, style)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box is drawn instead
        yield Figure(figsize=(width, height), dpi=dpi, layout="constrained")


@functools.cache
def _fonts() -> list[str]:
    """Returns matplotlib's own font, and those installed that have what it lacks."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _MORE_FONTS if name in installed)]


def saved(figure: Any, kind: str) -> bytes:
    """Returns a figure as a file, ``png`` or ``svg``; in the latter bars and points have tooltips."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
    if kind == "svg":
        return re.sub(rf'<g id="{_TIP}([^"]*)">'.encode(), rb"<g><title>\1</title>", buffer.getvalue())
    return buffer.getvalue()


def tip(artist: Any, words: str) -> None:
    """Gives a bar or another part of a figure a tooltip."""
    artist.set_gid(_TIP + words)


def points(axes: Any, x: Iterable[Any], y: Iterable[float], tips: Iterable[str]) -> None:
    """Gives the points of a line tooltips, within a circle around each; not where there are very many."""
    there = [place for place in zip(x, y, tips, strict=True) if not math.isnan(place[1])]
    if len(there) <= _MOST_TIPS:
        for left, height, words in there:
            (circle,) = axes.plot([left], [height], "o", color="#ffffff", alpha=0.0, markersize=11, zorder=5)
            tip(circle, words)


def color(place: int) -> str:
    """Returns the color of the system, run or side at a place, from 0."""
    return COLORS[place % len(COLORS)]


def marker(place: int) -> str:
    """Returns its marker."""
    return _MARKERS[place % len(_MARKERS)]


def plain(axes: Any) -> None:
    """Leaves of the frame of an axes the left and the lower edge, and draws faint lines across."""
    axes.grid(axis="y", color="#d9d9d9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)


def legend_columns(figure: Any, labels: Sequence[str]) -> int:
    """Returns how many of these labels fit side by side into the legend of a figure, five at most."""
    width = 0.7 + 0.1 * max(map(len, labels), default=0)  # inches, with its color and the gaps
    return min(5, max(1, int(figure.get_figwidth() / width)))


def legend(figure: Any, labels: Sequence[str], *more: Any, lines: bool = False) -> None:
    """Puts a legend above a figure: the colors of the places 0, 1, ... with their labels, and further handles.

    Colors are shown as areas, or as lines with markers.
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
    """Draws the bar of one of so many systems (``groups``) in each group, at its place from 0; None leaves a gap.

    Errors are half the length of the line at the top of each, or two such lists, down and up; None draws none.
    """
    thick = 0.8 / groups
    left = [x + (place - (groups - 1) / 2) * thick for x in range(len(heights))]
    values = [float("nan") if height is None else height for height in heights]
    drawn = axes.bar(left, values, thick, color=color(place), yerr=errors, error_kw={"elinewidth": 1, "capsize": 2})
    for bar, words in zip(drawn, tips, strict=True):
        tip(bar, words)


def short(label: str, most: int = 28) -> str:
    """Returns a label of at most so many characters; of a longer one beginning and end."""
    return label if len(label) <= most else f"{label[: most // 2 - 1]}…{label[-(most - most // 2) :]}"
