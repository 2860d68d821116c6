"""The two figures of ``comparison.py``: quality against costs, and differences beside the papers'."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from _comparison_plan import PLAIN, Plan

from t2t_ext.reporting import figures

if TYPE_CHECKING:
    from _comparison_report import Row

EARLY = " †"  # after the name of a row that ended early
_NOT_FINISHED = "#8c8c8c"  # color of a row that ended early
_HALF = {"markerfacecoloralt": "white"}
_FILLINGS: list[dict[str, Any]] = [  # how points are filled, for each training recipe
    {},
    {"markerfacecolor": "white"},
    {"fillstyle": "left", **_HALF},
    {"fillstyle": "bottom", **_HALF},
    {"fillstyle": "top", **_HALF},
]
_UNPENALIZED: dict[str, Any] = {
    "color": "#000000", "marker": "x", "markersize": 5, "linestyle": "none", "zorder": 3,
}  # fmt: skip
_SAME_SIZE = 0.02  # models whose numbers of parameters differ by this share or less count as equally large
_LINE = 0.27  # inches per row in the figure of differences


def costs(plan: Plan, made: Mapping[str, Sequence["Row"]]) -> bytes:
    """Draws test BLEU (mean and deviation) against minutes and against parameters, with the rows' numbers, as PNG.

    Most rows have about equally many parameters, so their points are drawn side by side.

    Args:
      plan: The plan, which has the words for each training recipe.
      made: Training recipe -> its rows.
    """
    from matplotlib.lines import Line2D

    shown = [(variant, row) for variant, each in made.items() for row in each if row.main]
    points = []
    for _, row in shown:
        values = [run["test"]["BLEU"] for run in row.runs.values()]
        points.append((statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None))
    minutes = [row.mean("minutes_to_best") or None for _, row in shown]
    sizes = [row.mean("parameters") or 0.0 for _, row in shown]
    columns, bands = _columns(sizes, [mean for mean, _ in points])
    with figures.new_figure(14, 5.6) as figure:
        by_time, by_size = figure.subplots(1, 2, sharey=True)
        for axes, places in ((by_time, minutes), (by_size, columns)):
            for (variant, row), x, (mean, deviation) in zip(shown, places, points, strict=True):
                if x is not None:
                    axes.errorbar([x], [mean], yerr=deviation, capsize=2, **_style(plan, variant, row))
            figures.plain(axes)
        _show_minutes(by_time, [each for each in minutes if each])
        _show_bands(by_size, bands)
        by_time.set_ylabel("test BLEU")
        named = {f"{row.number}  {row.title(40)}": _style(plan, PLAIN, row) for _, row in shown}
        handles = [Line2D([], [], label=name, **style) for name, style in named.items()]
        for variant in (name for name in made if name != PLAIN and any(each == name for each, _ in shown)):
            style = {"linestyle": "none", "marker": "o", "color": "#000000", **_filling(plan, variant)}
            handles.append(Line2D([], [], label=f"with {plan.variants[variant].get('words', variant)}", **style))
        figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8)
        figure.draw_without_rendering()  # lays out the axes
        for axes, places in ((by_time, minutes), (by_size, columns)):
            labels = [f"{row.number}{EARLY.strip() if row.early else ''}" for _, row in shown]
            both = zip(places, points, labels, strict=True)
            there = [(x, mean, deviation or 0.0, each) for x, (mean, deviation), each in both if x]
            _label(axes, there)
        return figures.saved(figure, "png")


class _Band(NamedTuple):
    """A band of points with about equally many parameters: where it begins and ends, and the mean number."""

    left: float
    right: float
    size: float


def _columns(sizes: Sequence[float], heights: Sequence[float]) -> tuple[list[float], list[_Band]]:
    """Returns each point's place on the axis and the bands; points of one size are side by side, sorted by height."""
    places, bands, x = [0.0] * len(sizes), [], 1.0
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    groups: list[list[int]] = []
    for point in order:
        if groups and sizes[point] <= sizes[groups[-1][0]] * (1 + _SAME_SIZE):
            groups[-1].append(point)
        else:
            groups.append([point])
    for group in groups:
        for place, point in enumerate(sorted(group, key=heights.__getitem__)):
            places[point] = x + place
        bands.append(_Band(x, x + len(group) - 1, statistics.fmean(sizes[point] for point in group)))
        x += len(group) + 1
    return places, bands


def _show_minutes(axes: Any, minutes: Sequence[float]) -> None:
    """Sets the scale of the axis of minutes so that the fast rows, which are the majority, have enough room."""
    from matplotlib.ticker import NullLocator

    axes.set(xscale="log", xlabel="minutes of training until the chosen checkpoint")
    axes.xaxis.set_minor_locator(NullLocator())
    lowest, highest = min(minutes, default=1.0), max(minutes, default=1.0)
    ticks = [factor * 10**power for power in range(-1, 6) for factor in (1, 2, 5)]
    ticks = [each for each in ticks if lowest / 1.6 < each < highest * 1.6]
    axes.set_xticks(ticks, [f"{each:g}" for each in ticks])


def _show_bands(axes: Any, bands: Sequence[_Band]) -> None:
    """Labels the bands on the axis of parameters and draws the boundaries between them."""
    axes.set_xlabel("million parameters (those of one size side by side)")
    axes.set_xticks([(each.left + each.right) / 2 for each in bands], [f"{each.size / 1e6:.2f}" for each in bands])
    axes.tick_params(axis="x", length=0)
    for before, after in itertools.pairwise(bands):
        axes.axvline((before.right + after.left) / 2, color="#d9d9d9", linewidth=0.6)


def _label(axes: Any, points: Sequence[tuple[float, float, float, str]]) -> None:
    """Writes labels of points (x, y, deviation) above their bars, or where they overlap least."""
    if not points:
        return
    scale = 72.0 / axes.figure.dpi  # from pixels to typographic points
    ends = [[(x, y - deviation), (x, y), (x, y + deviation)] for x, y, deviation, _ in points]
    bars = [axes.transData.transform(each) * scale for each in ends]
    taken = [(x - 3.0, y - 3.0, x + 3.0, y + 3.0) for _, (x, y), _ in bars]
    taken += [(x - 1.0, low, x + 1.0, high) for (x, low), _, (_, high) in bars]
    for (x, y, _, text), ((left, bottom), (_, low), (_, top)) in zip(points, bars, strict=True):
        width, height = 5.2 * len(text), 6.5
        beside = [(-width / 2, top - low + 5.0), (4.0, 3.0), (4.0, -9.0), (-4.0 - width, 3.0), (-4.0 - width, -9.0)]
        beside += [(-width / 2, bottom - low - 12.0), (5.0, -3.0), (-5.0 - width, -3.0)]
        boxes = [(left + dx, low + dy, left + dx + width, low + dy + height) for dx, dy in beside]
        crossed = [sum(_overlap(box, other) for other in taken) for box in boxes]
        best = crossed.index(min(crossed))
        taken.append(boxes[best])
        axes.annotate(text, (x, y), beside[best], textcoords="offset points", fontsize=8)


_Box = tuple[float, float, float, float]


def _overlap(box: _Box, other: _Box) -> float:
    """Returns the area of the intersection of two boxes."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    return max(width, 0.0) * max(height, 0.0)


def _style(plan: Plan, variant: str, row: "Row") -> dict[str, Any]:
    """Returns the style of a row's points, which is different for each of the first 49 rows."""
    place = row.number - 1
    look = {"color": figures.color(place), "marker": figures.marker(place + place // len(figures.COLORS))}
    return {**look, "markersize": 5, "linestyle": "none", **_filling(plan, variant)}


def _filling(plan: Plan, variant: str) -> dict[str, Any]:
    """Returns how the points of a training recipe are filled: completely for the plain recipe."""
    return _FILLINGS[list(plan.variants).index(variant) % len(_FILLINGS)]


def differences(plan: Plan, found: Sequence["Row"]) -> bytes | None:
    """Draws each row's difference from its control with its 95 % interval, and the paper's difference, as PNG.

    Args:
      plan: The plan, which has the controls and the papers' gains.
      found: The rows; those without a difference are left out. If none is left, None is returned.
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
            labels.append(f"{row.title(60)}{_to_control(plan, row)}")
        axes.set_yticks(range(len(tested)), labels, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(f"difference of test BLEU, to the {plan.words(plan.main[0])} where no other row is named")
        figures.plain(axes)
        axes.grid(axis="x", color="#d9d9d9", linewidth=0.6)
        figure.legend(handles=_legend([row for row, _ in tested]), loc="outside upper left", ncols=4, frameon=False)
        return figures.saved(figure, "png")


def _to_control(plan: Plan, row: "Row") -> str:
    control = plan.control(row.name)
    return "" if control == plan.main[0] else f", to {plan.brief(control)}"


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
