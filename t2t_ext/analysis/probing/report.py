"""The results of probing tasks as text, TSV, JSON, a picture and one page. Imports no TensorFlow."""

import json
from collections.abc import Sequence
from typing import Any

from t2t_ext.analysis.probing.results import Probed, ProbingReport, TaskResult
from t2t_ext.analysis.probing.senteval import PARTITIONS, TASKS
from t2t_ext.io import files
from t2t_ext.reporting import page
from t2t_ext.reporting.figures import COLOURS, new_figure, saved

PAGE, TABLE, NUMBERS, PICTURE = "probing.html", "probing.tsv", "probing.json", "probing.png"
_PAPER_TASKS = {name: sum(category == name for _, category in TASKS.values()) for _, name in TASKS.values()}


def header(report: ProbingReport) -> list[str]:
    """Returns the header of the table for people."""
    cells = ["task", "classes", "majority"]
    for number, label in enumerate(report.labels):
        cells += [label, "95%"]
        cells += ["sd"] if _seeds(report) > 1 else []
        cells += [f"- {report.labels[0]}", "p"] if number else []
    return cells


def rows(report: ProbingReport) -> list[list[str]]:
    """Returns the rows of the table for people, in percent: the tasks of each category, then their mean."""
    found = []
    for category, tasks in report.by_category.items():
        for each in tasks:
            row = [each.task.name, str(len(each.task.classes)), _percent(each.task.majority)]
            for label, probed in each.runs.items():
                row += [_percent(probed.accuracy), "-".join(map(_percent, probed.interval))]
                row += [_percent(probed.deviation)] if probed.deviation is not None else []
                compared = each.compared(label)
                row += [f"{100 * compared[0]:+.2f}", _p(compared[2])] if compared else []
            found.append(row)
        of = f" of {_PAPER_TASKS[category]}" if category in _PAPER_TASKS else ""
        row = [f"mean, {category} ({len(tasks)}{of})", "", ""]
        for number, label in enumerate(report.labels):
            row += [_percent(report.mean(category, label)), ""] + [""] * (_seeds(report) > 1)
            difference = report.mean(category, label) - report.mean(category, report.labels[0])
            row += [f"{100 * difference:+.2f}", ""] if number else []
        found.append(row)
    return found


def text(report: ProbingReport) -> str:
    """Returns the table for a terminal."""
    cells = [header(report), *rows(report)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [report.measured, ""]
    for row in cells:
        first, *others = (
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *others]).rstrip())
    return "\n".join(lines)


def tsv(report: ProbingReport) -> str:
    """Returns a row for each run and task, then for each run and category, for machines; accuracies from 0 to 1."""
    names = ["run", "task", "category", "classes", "test_sentences", "majority", "accuracy", "low", "high", "deviation"]
    lines = ["\t".join([*names, "seeds", "difference", "p", "test"])]
    for each in report.tasks:
        for label, probed in each.runs.items():
            difference, test, p = each.compared(label) or (None, "", None)
            numbers = [each.task.majority, probed.accuracy, *probed.interval, probed.deviation]
            cells = [_clean(label), each.task.stem, each.task.category, str(len(each.task.classes))]
            cells += [str(each.test_sentences), *map(_number, numbers), str(len(probed.right))]
            lines.append("\t".join([*cells, _number(difference), _number(p), test]))
    for category in report.by_category:
        for label in report.labels:
            mean = _number(report.mean(category, label))
            lines.append("\t".join([_clean(label), "mean", category, "", "", "", mean, *[""] * 7]))
    return "\n".join(lines) + "\n"


def write(directory: files.PathLike, report: ProbingReport, notes: Sequence[str]) -> list[str]:
    """Writes page, tables and picture into a directory, which is made where it is missing.

    Args:
      directory: Where to.
      report: The results.
      notes: What a reader should know beside.

    Returns:
      The names of the files, the page first.

    Raises:
      UserError: The directory cannot be written to.
    """
    directory = page.made(directory)
    png, svg = pictures(report)
    parts = [*map(page.note, notes), f"<p>{page.text(report.measured)}</p>", _explained(report)]
    caption = "Lines at the tops are 95% intervals; a dashed line is the commonest class."
    parts.append(page.figure(svg, "Accuracy of each task; the table has the numbers", caption))
    parts.append(page.table(header(report), rows(report), caption="Accuracy in percent"))
    about = [[run.label, str(run.run), run.checkpoint, run.about] for run in report.runs]
    parts.append(page.table(["run", "directory", "checkpoint", "model"], about, kind="words"))
    parts.append(_tasks(report))
    title = "Probing tasks: " + " / ".join(report.labels)
    files.write_bytes_atomically(directory / PICTURE, png)
    files.write_text_atomically(directory / TABLE, tsv(report))
    files.write_text_atomically(directory / NUMBERS, _json(report, notes))
    files.write_text_atomically(directory / PAGE, page.page(title, parts, "t2t_ext-analyze probing"))
    return [PAGE, TABLE, NUMBERS, PICTURE]


def _explained(report: ProbingReport) -> str:
    tests = {compared[1] for each in report.tasks for label in each.runs if (compared := each.compared(label))}
    words = (
        "Conneau et al. (2018); Ampomah et al. (2021, section 7.1 and table 4). The encoder is frozen, only the "
        "classifier learns. “Majority” is the accuracy of always saying what is commonest in training; “95%” is "
        "Wilson's interval, of the choice of test sentences."
    )
    if _seeds(report) > 1:
        words += f" Accuracies are means over {_seeds(report)} classifiers of different seeds, “sd” their deviation."
    if tests:
        words += f" “p” is of the difference to {report.labels[0]}: {', '.join(sorted(tests))}, each task by itself."
    return f'<p class="small">{page.text(words)}</p>'


def _tasks(report: ProbingReport) -> str:
    cells = [
        [each.task.name, each.task.category, each.task.path.name, *(str(len(each.task.partitions[name])) for name in
         PARTITIONS), str(sum(each.task.dropped.values())), _epochs(each)]
        for each in report.tasks
    ]  # fmt: skip
    names = ["task", "category", "file", "training", "validation", "test", "lines left out", "best epochs"]
    return page.table(names, cells, caption="Sentences")


def _epochs(each: TaskResult) -> str:
    return "; ".join(", ".join(map(str, probed.best_epochs)) for probed in each.runs.values())


def _json(report: ProbingReport, notes: Sequence[str]) -> str:
    tasks = []
    for each in report.tasks:
        task = each.task
        tasks.append(
            {
                "task": task.name,
                "category": task.category,
                "file": str(task.path),
                "sha256": task.sha256,
                "classes": task.classes,
                "sentences": {name: len(task.partitions[name]) for name in PARTITIONS},
                "left_out": task.dropped,
                "test_sentences_in_training": task.repeated,
                "majority": task.majority,
                "runs": {label: _record(each, label, probed) for label, probed in each.runs.items()},
            }
        )
    means = {
        category: {label: report.mean(category, label) for label in report.labels} for category in report.by_category
    }
    runs = [
        {"label": run.label, "run": str(run.run), "checkpoint": run.checkpoint, "model": run.about}
        for run in report.runs
    ]
    content = {"settings": report.settings, "notes": list(notes), "runs": runs, "means": means, "tasks": tasks}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _record(each: TaskResult, label: str, probed: Probed) -> dict[str, Any]:
    low, high = probed.interval
    record: dict[str, Any] = {
        "accuracy": probed.accuracy,
        "interval": [low, high],
        "accuracies_by_seed": [float(right.mean()) for right in probed.right],
        "validation_by_epoch": [list(curve) for curve in probed.validation],
        "best_epochs": list(probed.best_epochs),
    }
    compared = each.compared(label)
    if compared:
        record["compared"] = {"difference": compared[0], "test": compared[1], "p": compared[2]}
    return record


def _seeds(report: ProbingReport) -> int:
    return max((len(probed.right) for each in report.tasks for probed in each.runs.values()), default=1)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _clean(label: str) -> str:
    return label.replace("\t", " ")


# === The picture ===


def pictures(report: ProbingReport) -> tuple[bytes, bytes]:
    """Draws a group of bars for each task, a bar for each run, the categories side by side.

    Args:
      report: The results.

    Returns:
      A PNG file, and the same as SVG.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    labels, thick = report.labels, 0.8 / len(report.labels)
    width = 1.4 + sum(max(1.4, len(tasks) * (0.55 + 0.28 * len(labels))) for tasks in report.by_category.values())
    with new_figure(max(width, 5.2), 3.6, dpi=110) as figure:
        ratios = [max(1.4, len(tasks)) for tasks in report.by_category.values()]
        panels = figure.subplots(1, len(ratios), squeeze=False, sharey=True, width_ratios=ratios)[0]
        for panel, (category, tasks) in zip(panels, report.by_category.items(), strict=True):
            for place, label in enumerate(labels):
                found = [each.runs[label] for each in tasks]
                left = [x + (place - (len(labels) - 1) / 2) * thick for x in range(len(tasks))]
                heights = [100 * each.accuracy for each in found]
                ends = [[100 * abs(each.interval[side] - each.accuracy) for each in found] for side in (0, 1)]
                panel.bar(
                    left, heights, thick, color=_colour(place), yerr=ends, error_kw={"elinewidth": 1, "capsize": 2}
                )
            for x, each in enumerate(tasks):
                panel.plot([x - 0.45, x + 0.45], [100 * each.task.majority] * 2, color="black", linestyle=(0, (2, 1)),
                           linewidth=1.1)  # fmt: skip
            panel.set_xticks(range(len(tasks)), [_short(each.task.name, 12) for each in tasks])
            panel.set_xlim(-0.6, len(tasks) - 0.4)
            panel.set_ylim(0, 100)
            panel.set_title(category.capitalize(), fontsize=9)
            panel.grid(axis="y", color="#d9d9d9", linewidth=0.6)
            panel.set_axisbelow(True)
            panel.tick_params(labelsize=8)
            for edge in ("top", "right"):
                panel.spines[edge].set_visible(False)
        panels[0].set_ylabel("accuracy (%)", fontsize=9)
        handles = [Patch(color=_colour(place), label=_short(label, 28)) for place, label in enumerate(labels)]
        handles.append(Line2D([], [], color="black", linestyle=(0, (2, 1)), linewidth=1.1, label="commonest class"))
        figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=9)
        return saved(figure, "png"), saved(figure, "svg")


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _short(label: str, most: int) -> str:
    return label if len(label) <= most else f"{label[: most // 2 - 1]}…{label[-(most - most // 2) :]}"
