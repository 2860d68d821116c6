"""Draws attention as SVG within a page: a square with a tooltip for each weight, in the page's light or dark colors."""

import unicodedata
from collections.abc import Sequence

from t2t_ext.analysis.attention.maps import AttentionMap
from t2t_ext.reporting.figures import short
from t2t_ext.reporting.html import Html, element, joined

_CELL = 16  # pixels, as for all lengths here
_FONT = 11
_LETTER = 6.8  # mean width of a letter; twice as much in East Asian scripts
_GAP = 5
_LONGEST = 16  # characters of a label; the tooltip shows all of it


def heat_map(shown: AttentionMap, head: int | None, most: float, described: str) -> tuple[Html, int]:
    """Draws a head, counted from 0, or the mean over all heads (None); a weight of ``most`` gets the full color.

    Every weight and truncated label has a tooltip; ``described`` is for screen readers. Returns picture and width.
    """
    weights, hidden = shown.of_head(head), shown.hidden
    predicted = [f"→ {piece}" for piece in shown.predicted]
    left, top = _width(shown.rows), _width(shown.columns)
    wide, high = len(shown.columns) * _CELL, len(shown.rows) * _CELL
    parts: list[Html] = []
    for row, label in enumerate(shown.rows):
        middle = f"{top + row * _CELL + _CELL // 2 + 4}"
        parts.append(_label(label, x=f"{left - _GAP}", y=middle, text_anchor="end"))
        if predicted:
            parts.append(_label(predicted[row], x=f"{left + wide + _GAP}", y=middle))
    for column, label in enumerate(shown.columns):
        middle = f"{left + column * _CELL + _CELL // 2 + 4}"
        parts.append(_label(label, transform=f"translate({middle} {top - _GAP}) rotate(-90)"))
    size = str(_CELL)
    for row, label in enumerate(shown.rows):
        which = f"{label} ({predicted[row]})" if predicted else label
        for column, weight in enumerate(weights[row]):
            x, y = f"{left + column * _CELL}", f"{top + row * _CELL}"
            if hidden[row, column]:
                parts.append(element("rect", x=x, y=y, width=size, height=size, class_="unseen"))
                continue
            words = element("title", f"{which}: {shown.columns[column]} {weight:.3f}")
            strength = f"{min(1.0, float(weight) / most):.2f}"
            parts.append(element("rect", words, x=x, y=y, width=size, height=size, fill_opacity=strength))
    bound = left + shown.boundary * _CELL
    if shown.boundary:
        parts.append(element("path", d=f"M{bound} {top}v{high}", class_="bound"))
    parts.append(element("path", d=f"M{left} {top}h{wide}v{high}h{-wide}z", class_="frame"))
    width, height = left + wide + (_width(predicted) if predicted else 2), top + high + 2
    svg = element(
        "svg", *parts, viewBox=f"0 0 {width} {height}", width=f"{width}", height=f"{height}", role="img",
        aria_label=described, font_size=f"{_FONT}",
    )  # fmt: skip
    return svg, width


def scale(most: float) -> Html:
    """Returns the legend for all pictures of a page."""
    return element(
        "p", "weight 0", element("i"), f"{most:.2f}", element("i", class_="unseen"),
        "cannot be seen; one scale for all pictures", class_="scale",
    )  # fmt: skip


def _label(words: str, **where: str) -> Html:
    cut = short(words, _LONGEST)
    return element("text", joined([cut]), element("title", words) if cut != words else Html(), **where)


def _width(labels: Sequence[str]) -> int:
    """Returns the width of the widest of these labels, including the gaps around it."""
    wide = max((sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in short(label, _LONGEST))
                for label in labels), default=0)  # fmt: skip
    return round(wide * _LETTER) + 2 * _GAP
