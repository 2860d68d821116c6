"""Draws the figures of a comparison as self-contained SVG. matplotlib is imported only when something is drawn."""

from collections.abc import Callable, Sequence
from typing import Any

from t2t_ext.evaluation.comparison.comparison import Comparison
from t2t_ext.reporting import figures

_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")
_NAME_LENGTH = 20
# BLEU of fewer sentences says little, but a drawn line would look like a result.
_LEAST_SENTENCES = 10


def scores(comparison: Comparison, block: int) -> bytes:
    """Draws the scores of metric number ``block`` with their confidence intervals; returns SVG."""
    values = comparison.scores[block]

    def draw(axes: Any) -> None:
        for place, (name, score) in enumerate(values.systems.items()):
            (bar,) = axes.bar(place, score.value, 0.6, **_bar(place))
            figures.tip(bar, f"{name}: {score.format(score.value)}")
            if score.confidence is not None and score.mean is not None:
                axes.errorbar(place, score.mean, score.confidence, color="black", capsize=5, linewidth=1.2)
            axes.annotate(
                score.format(score.value), (place, 0), (0, 4), textcoords="offset points", ha="center", **_LABEL
            )
        axes.set_xticks(range(len(values.systems)), [_short(name) for name in values.systems])
        axes.set_ylabel(values.label)

    each = max(1.0, 0.09 * max(len(_short(name)) for name in values.systems))  # inches
    return _figure(draw, width=1.6 + each * len(values.systems))


def bleu_by_length(comparison: Comparison) -> bytes:
    """Draws BLEU by source length, with the number of sentences; returns SVG."""
    return _by_length(comparison, lambda each, name: each.bleu[name], "BLEU", None)


def ratio_by_length(comparison: Comparison) -> bytes:
    """Draws the length ratio by source length; returns SVG."""
    return _by_length(comparison, lambda each, name: each.length_ratio[name], "length / reference length", 1.0)


def ends(comparison: Comparison) -> bytes:
    """Draws the accuracy of tokens at the first and last positions; returns SVG."""
    count = comparison.settings.end_tokens

    def draw(axes: Any) -> None:
        ticks = [*range(count), *range(count + 1, 2 * count + 1)]
        labels = [str(place + 1) for place in range(count)] + [str(place - count) for place in range(count)]
        for place, (name, each) in enumerate(comparison.ends.items()):
            first = [_nan(value) for value in each.first_by_position]
            last = [_nan(value) for value in reversed(each.last_by_position)]
            axes.plot(range(count), first, label=_short(name), **_line(place))
            axes.plot(range(count + 1, 2 * count + 1), last, **_line(place))
            tips = [f"{name}, {label}: {value:.1f}%" for label, value in zip(labels, first + last, strict=True)]
            figures.points(axes, ticks, first + last, tips)
        axes.set_xticks(ticks, labels)
        axes.set_xlabel("position from the beginning / from the end")
        axes.set_ylabel("correct tokens (%)")
        axes.set_ylim(bottom=0)

    return _figure(draw)


def f1_by_frequency(comparison: Comparison) -> bytes:
    """Draws F1 of words by their frequency; returns SVG."""

    def draw(axes: Any) -> None:
        count = len(comparison.names)
        for place, (name, buckets) in enumerate(comparison.by_frequency.items()):
            left = [bucket + (place - (count - 1) / 2) * 0.8 / count for bucket in range(len(buckets))]
            heights = [bucket.f1 or 0 for bucket in buckets]
            drawn = axes.bar(left, heights, 0.8 / count, label=_short(name), **_bar(place))
            for bar, bucket, height in zip(drawn, buckets, heights, strict=True):
                figures.tip(bar, f"{name}, {bucket.label}: F1 {height:.2f}")
        axes.set_xticks(range(len(buckets)), [bucket.label for bucket in buckets])
        axes.set_xlabel(f"occurrences in the {comparison.frequencies_of}")
        axes.set_ylabel("F1 (%)")

    return _figure(draw)


def _by_length(
    comparison: Comparison, value: Callable[[Any, str], float | None], label: str, line: float | None
) -> bytes:
    bins = comparison.by_length
    enough = drawn_bins([each.sentences for each in bins])

    def draw(axes: Any) -> None:
        if line is not None:
            axes.axhline(line, color="#595959", linewidth=1, linestyle=":")
        for place, name in enumerate(comparison.names):
            values = [_nan(value(each, name) if drawn else None) for each, drawn in zip(bins, enough, strict=True)]
            axes.plot(range(len(bins)), values, label=_short(name), **_line(place))
            tips = [f"{name}, {each.label}: {value:.3g}" for each, value in zip(bins, values, strict=True)]
            figures.points(axes, range(len(bins)), values, tips)
        few = ["" if drawn else ", too few" for drawn in enough]
        axes.set_xticks(
            range(len(bins)), [f"{e.label}\n({e.sentences}{note})" for e, note in zip(bins, few, strict=True)]
        )
        axes.set_xlabel(f"length of the {comparison.length_of} in {comparison.settings.length_unit} (sentences)")
        axes.set_ylabel(label)

    return _figure(draw)


def drawn_bins(sentences: Sequence[int]) -> list[bool]:
    """Returns whether to draw each bin: those with ten or more sentences, or all bins if no bin has that many."""
    enough = [count >= _LEAST_SENTENCES for count in sentences]
    return enough if any(enough) else [True] * len(enough)


_LABEL = {"color": "black", "bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}}


def _bar(place: int) -> dict[str, Any]:
    hatch = _HATCHES[place % len(_HATCHES)]
    return {"color": figures.color(place), "edgecolor": "white", "hatch": hatch, "linewidth": 0.5}


def _line(place: int) -> dict[str, Any]:
    return {"color": figures.color(place), "marker": figures.marker(place), "linewidth": 1.6, "markersize": 6}


def _nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _short(name: str) -> str:
    return figures.short(name, _NAME_LENGTH)


def _figure(draw: Callable[[Any], None], width: float = 6.2, height: float = 3.2) -> bytes:
    with figures.new_figure(width, height) as figure:
        axes = figure.add_subplot()
        draw(axes)
        figures.plain(axes)
        if labels := axes.get_legend_handles_labels()[1]:
            figure.legend(loc="outside upper left", ncols=figures.legend_columns(figure, labels), frameon=False)
        return figures.saved(figure, "svg")
