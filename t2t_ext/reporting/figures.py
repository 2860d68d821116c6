"""What all figures share: colours, fonts, and files made of them.

Figures are made without pyplot: nothing global, no display. matplotlib is imported when something is drawn. Colours are
those of Okabe and Ito (2008), "Color Universal Design", which people with any colour vision can tell apart.
"""

import functools
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# The font that matplotlib brings has no Chinese, Japanese or Korean; these, where they are installed, do.
_MORE_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei", "Droid Sans Fallback", "Microsoft YaHei", "PingFang SC", "Noto Sans Arabic",
    "Noto Sans Devanagari", "Noto Sans Hebrew", "Noto Sans Thai",
)  # fmt: skip


@contextmanager
def new_figure(width: float, height: float, dpi: int) -> Iterator[Any]:
    """Yields a figure of so many inches, under the settings that all pictures of analyses are drawn with."""
    import matplotlib
    from matplotlib.figure import Figure

    style = {
        "font.family": _fonts(),
        "svg.fonttype": "none",  # whoever opens it has fonts for words in any script
        "svg.hashsalt": "t2t_ext",
        "text.parse_math": False,  # "$" would start a formula
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box is drawn instead
        yield Figure(figsize=(width, height), dpi=dpi, layout="constrained")


@functools.cache
def _fonts() -> list[str]:
    """Returns matplotlib's own font, and those installed that have what it lacks."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _MORE_FONTS if name in installed)]


def saved(figure: Any, kind: str) -> bytes:
    """Returns a figure as a file, ``png`` or ``svg``."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()
