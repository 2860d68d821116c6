"""The two figures of ``comparison.py``: quality against costs, and differences beside the papers'."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from _comparison_plan import PLAIN, Plan

from t2t_ext.reporting import figures

if TYPE_CHECKING:
    from _comparison_report import Row

EARLY = " †"  # behind the name of a row that ended early
_NOT_FINISHED = "#8c8c8c"  # color of a row that ended early
_HALF = {"markerfacecoloralt": "white"}
_FILLINGS: list[dict[str, Any]] = [  # of the points of each recipe of training
    {},
    {"markerfacecolor": "white"},
    {"fillstyle": "left", **_HALF},
    {"fillstyle": "bottom", **_HALF},
]
_UNPENALIZED: dict[str, Any] = {
    "color": "#000000", "marker": "x", "markersize": 5, "linestyle": "none", "zorder": 3,
}  # fmt: skip
_LINE = 0.27  # inches a row in the figure of differences


def costs(plan: Plan, made: Mapping[str, Sequence["Row"]]) -> bytes:
    """Draws test BLEU, mean and deviation, against minutes and against parameters, with the rows' numbers, as PNG.

    Args:
      plan: It has the words for each recipe of training.
      made: Recipe of training -> its rows.
    """
    from matplotlib.lines import Line2D

    panels: list[tuple[str, Callable[[Row], float | None]]] = [
        ("minutes of training until the chosen checkpoint", lambda row: row.mean("minutes_to_best")),
        ("million parameters", lambda row: (row.mean("parameters") or 0.0) / 1e6),
    ]
    shown = [(variant, row) for variant, each in made.items() for row in each if row.main]
    with figures.new_figure(13, 5.2) as figure:
        for axes, (words, place) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
            for variant, row in shown:
                x, values = place(row), [run["test"]["BLEU"] for run in row.runs.values()]
                if x is None:
                    continue
                spread = statistics.stdev(values) if len(values) > 1 else None
                mean = statistics.fmean(values)
                axes.errorbar([x], [mean], yerr=spread, capsize=2, **_style(plan, variant, row))
                label = f"{row.number}{EARLY.strip() if row.early else ''}"
                axes.annotate(label, (x, mean), (4, 3), textcoords="offset points", fontsize=8)
            axes.set(xlabel=words)
            figures.plain(axes)
        figure.axes[0].set_ylabel("test BLEU")
        named = {f"{row.number}  {row.title(40)}": _style(plan, PLAIN, row) for _, row in shown}
        handles = [Line2D([], [], label=name, **style) for name, style in named.items()]
        for variant in (name for name in made if name != PLAIN and any(each == name for each, _ in shown)):
            style = {"linestyle": "none", "marker": "o", "color": "#000000", **_filling(plan, variant)}
            handles.append(Line2D([], [], label=f"with {plan.variants[variant].get('words', variant)}", **style))
        figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8)
        return figures.saved(figure, "png")


def _style(plan: Plan, variant: str, row: "Row") -> dict[str, Any]:
    """Returns the look of a row's points: no two of the first 49 have the same."""
    place = row.number - 1
    look = {"color": figures.color(place), "marker": figures.marker(place + place // len(figures.COLORS))}
    return {**look, "markersize": 5, "linestyle": "none", **_filling(plan, variant)}


def _filling(plan: Plan, variant: str) -> dict[str, Any]:
    """Returns how points of a recipe of training are filled: in full if it is the plain one."""
    return _FILLINGS[list(plan.variants).index(variant) % len(_FILLINGS)]


def differences(plan: Plan, found: Sequence["Row"]) -> bytes | None:
    """Draws each row's difference to its control with its 95 % interval, and the one that a paper has, as PNG.

    Args:
      plan: It has the controls and the papers' gains.
      found: Rows; those without a difference are left out, and None is returned where none is left.
    """
    tested = [(row, row.difference) for row in found if row.difference]
    if not tested:
        return None
    with figures.new_figure(9.5, 1.2 + _LINE * len(tested)) as figure:
        axes = figure.subplots()
        axes.axvline(0, color="#000000", linewidth=0.8)
        labels = []
        for place, (row, each) in enumerate(tested):
            color = _NOT_FINISHED if row.early else figures.color(0)
            axes.plot([each.low, each.high], [place, place], color=color, linewidth=1.6)
            axes.plot([each.value], [place], "o", color=color, markersize=5)
            if row.unpenalized:
                axes.plot([row.unpenalized.value], [place], **_UNPENALIZED)
            published = plan.published(row.name)
            if published:
                look = {"color": figures.color(1), "markerfacecolor": "white", "markersize": 5, "zorder": 4}
                axes.plot([published[0]], [place], "D", **look)
            labels.append(f"{row.title(44)}{_beside(plan, row)}")
        axes.set_yticks(range(len(tested)), labels, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(f"difference of test BLEU, to the {plan.words(plan.main[0])} where no other row is named")
        figures.plain(axes)
        axes.grid(axis="x", color="#d9d9d9", linewidth=0.6)
        figure.legend(handles=_legend([row for row, _ in tested]), loc="outside upper left", ncols=4, frameon=False)
        return figures.saved(figure, "png")


def _beside(plan: Plan, row: "Row") -> str:
    control = plan.control(row.name)
    return "" if control == plan.main[0] else f", beside {plan.brief(control)}"


def _legend(shown: Sequence["Row"]) -> list[Any]:
    from matplotlib.lines import Line2D

    looks: list[tuple[bool, str, dict[str, Any]]] = [
        (any(not row.early for row in shown), "here, 95 %", {"color": figures.color(0), "marker": "o"}),
        (any(row.early for row in shown), "here, first setting (†)", {"color": _NOT_FINISHED, "marker": "o"}),
        (True, "without the brevity penalty", _UNPENALIZED),
        (
            True,
            "in the paper, on its corpus",
            {"color": figures.color(1), "marker": "D", "linestyle": "none", "markerfacecolor": "white"},
        ),
    ]
    return [Line2D([], [], label=label, **{"markersize": 5, **look}) for there, label, look in looks if there]
