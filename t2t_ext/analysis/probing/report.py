"""Presents the results of probing tasks as text, TSV, JSON, a picture and one page. Imports no TensorFlow."""

from collections.abc import Sequence
from typing import Any

from t2t_ext.analysis.probing.results import Probed, ProbingReport, TaskResult
from t2t_ext.analysis.probing.senteval import PARTITIONS, TASKS
from t2t_ext.io import files
from t2t_ext.reporting import figures
from t2t_ext.reporting import report as reporting
from t2t_ext.reporting.report import Block, Figure, Note, PageOnly, Paragraph, Report
from t2t_ext.reporting.table import Column, Table, columns

PAGE, TABLE, NUMBERS, PICTURE = "probing.html", "probing.tsv", "probing.json", "probing.png"
_PAPER_TASKS = {name: sum(category == name for _, category in TASKS.values()) for _, name in TASKS.values()}


def table(report: ProbingReport) -> Table:
    """Returns the displayed table, in percent: the tasks of each category, followed by their mean."""
    first, with_seeds = report.labels[0], _seeds(report) > 1
    headings = [Column("task"), Column("classes"), Column("majority", _percent, hint="Always the commonest class")]
    for number, label in enumerate(report.labels):
        headings += [Column(label, _percent), Column("95%", hint="Wilson's interval, of the choice of test sentences")]
        headings += [Column("sd", _percent, hint="Standard deviation over seeds")] if with_seeds else []
        if number:
            headings.append(Column(f"- {first}", lambda value: f"{100 * value:+.2f}"))
            headings.append(Column("p", lambda p: "<0.001" if p < 0.001 else f"{p:.3f}"))
    rows = []
    for category, tasks in report.by_category.items():
        for each in tasks:
            row: list[Any] = [each.task.name, len(each.task.classes), each.task.majority]
            for number, (label, probed) in enumerate(each.runs.items()):
                row += [probed.accuracy, "-".join(map(_percent, probed.interval))]
                row += [probed.deviation] if with_seeds else []
                difference, _, p = each.compared(label) or (None, "", None)
                row += [difference, p] if number else []
            rows.append(row)
        of = f" of {_PAPER_TASKS[category]}" if category in _PAPER_TASKS else ""
        row = [f"mean, {category} ({len(tasks)}{of})", None, None]
        for number, label in enumerate(report.labels):
            mean = report.mean(category, label)
            row += [mean, None, *[None] * with_seeds]
            row += [mean - report.mean(category, first), None] if number else []
        rows.append(row)
    return Table(headings, rows, "Accuracy in percent")


def records(report: ProbingReport) -> Table:
    """Returns a machine-readable table: a row per run and task, then per run and category; accuracies are 0 to 1."""
    names = ["run", "task", "category", "classes", "test_sentences", "majority", "accuracy", "low", "high", "deviation"]
    names += ["seeds", "difference", "p", "test"]
    rows: list[list[Any]] = []
    for each in report.tasks:
        task = each.task
        for label, probed in each.runs.items():
            difference, test, p = each.compared(label) or (None, "", None)
            rows.append([
                label, task.stem, task.category, len(task.classes), each.test_sentences, task.majority, probed.accuracy,
                *probed.interval, probed.deviation, len(probed.right), difference, p, test,
            ])  # fmt: skip
    for category in report.by_category:
        for label in report.labels:
            rows.append([label, "mean", category, *[None] * 3, report.mean(category, label), *[None] * 7])
    return Table(columns(*names), rows)


def build(report: ProbingReport, notes: Sequence[str] = (), svg: bytes = b"") -> Report:
    """Returns the results as a report with notes for the reader; a terminal gets no picture."""
    blocks: list[Block] = [*map(Note, notes), Paragraph(report.measured), Paragraph(_explained(report), "small")]
    if svg:
        caption = "Lines at the tops are 95% intervals; a dashed line is the commonest class."
        blocks.append(Figure(svg, "Accuracy of each task; the table has the numbers", caption))
    runs = [[run.label, str(run.run), run.checkpoint, run.about] for run in report.runs]
    tasks = [
        [each.task.name, each.task.category, each.task.path.name]
        + [len(each.task.partitions[name]) for name in PARTITIONS]
        + [
            sum(each.task.dropped.values()),
            "; ".join(", ".join(map(str, probed.best_epochs)) for probed in each.runs.values()),
        ]
        for each in report.tasks
    ]
    names = ("training", "validation", "test", "lines left out", "best epochs")
    headings = [*columns("task", "category", "file", words=True), *columns(*names)]
    blocks += [
        table(report),
        PageOnly(Table(columns("run", "directory", "checkpoint", "model", words=True), runs)),
        PageOnly(Table(headings, tasks, "Sentences")),
    ]
    return Report("Probing tasks: " + " / ".join(report.labels), blocks, "t2t_ext-analyze probing")


def write(directory: files.PathLike, report: ProbingReport, notes: Sequence[str]) -> list[str]:
    """Writes page, tables and picture into a directory, which is created if it is missing.

    Returns the names of the files, the page first.

    Raises:
      UserError: The directory cannot be written to.
    """
    png, svg = pictures(report)
    page, numbers = build(report, notes, svg).page(), reporting.as_json(_content(report, notes))
    return reporting.write(directory, {PAGE: page, TABLE: records(report).tsv(), NUMBERS: numbers, PICTURE: png})


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
    return words


def _content(report: ProbingReport, notes: Sequence[str]) -> dict[str, Any]:
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
    return {"settings": report.settings, "notes": list(notes), "runs": runs, "means": means, "tasks": tasks}


def _record(each: TaskResult, label: str, probed: Probed) -> dict[str, Any]:
    record: dict[str, Any] = {
        "accuracy": probed.accuracy,
        "interval": list(probed.interval),
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


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


# === The picture ===


def pictures(report: ProbingReport) -> tuple[bytes, bytes]:
    """Draws a group of bars for each task, with a bar for each run and the categories side by side.

    Returns the figure as PNG and SVG.
    """
    from matplotlib.lines import Line2D

    labels = report.labels
    width = 1.4 + sum(max(1.4, len(tasks) * (0.55 + 0.28 * len(labels))) for tasks in report.by_category.values())
    with figures.new_figure(max(width, 5.2), 3.6) as figure:
        ratios = [max(1.4, len(tasks)) for tasks in report.by_category.values()]
        panels = figure.subplots(1, len(ratios), squeeze=False, sharey=True, width_ratios=ratios)[0]
        for panel, (category, tasks) in zip(panels, report.by_category.items(), strict=True):
            for place, label in enumerate(labels):
                found = [each.runs[label] for each in tasks]
                errors = [[100 * abs(each.interval[side] - each.accuracy) for each in found] for side in (0, 1)]
                heights = [100 * each.accuracy for each in found]
                pairs = zip(tasks, heights, strict=True)
                tips = [f"{label}, {each.task.name}: {height:.2f}%" for each, height in pairs]
                figures.bars(panel, len(labels), place, heights, errors, tips)
            for x, each in enumerate(tasks):
                panel.plot([x - 0.45, x + 0.45], [100 * each.task.majority] * 2, color="black", linestyle=(0, (2, 1)),
                           linewidth=1.1)  # fmt: skip
            panel.set_xticks(range(len(tasks)), [figures.short(each.task.name, 12) for each in tasks])
            panel.set_xlim(-0.6, len(tasks) - 0.4)
            panel.set_ylim(0, 100)
            panel.set_title(category.capitalize(), fontsize=9)
            figures.plain(panel)
        panels[0].set_ylabel("accuracy (%)", fontsize=9)
        commonest = Line2D([], [], color="black", linestyle=(0, (2, 1)), linewidth=1.1, label="commonest class")
        figures.legend(figure, labels, commonest)
        return figures.saved(figure, "png"), figures.saved(figure, "svg")
