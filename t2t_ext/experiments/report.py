"""What came out of an experiment: each seed's scores, mean and deviation, and the paper's figure beside them."""

import functools
import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext.experiments import tables
from t2t_ext.experiments.figure import Figure
from t2t_ext.experiments.plan import Options, Stage
from t2t_ext.experiments.recipes import Paper, Recipe
from t2t_ext.experiments.score_table import ScoreRecord
from t2t_ext.experiments.stages import score_record
from t2t_ext.io import files
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import package_versions


def collect(recipe: Recipe, stages: Sequence[Stage]) -> list[Figure]:
    """Returns the figures of a recipe, or of one beside it, whose stages are done, those of the splits first."""
    found: dict[str, dict[int, ScoreRecord]] = {}
    runs: dict[int, list[pathlib.Path]] = {}
    splits: dict[str, str] = {}
    for stage in stages:
        record = score_record(stage) if stage.kind == "score" and stage.system == recipe.name else None
        if record is not None:
            found.setdefault(stage.label, {})[stage.seed] = record
            runs[stage.seed] = stage.runs
            splits[stage.label] = stage.split
    figures = []
    for label, records in found.items():
        first, *others = next(iter(records.values())).scores
        for score in (first, *(other for other in others if f"{label} {other}" in recipe.published)):
            name = label if score == first else f"{label} {score}"
            figures.append(
                Figure(
                    name=name,
                    label=score,
                    by_seed={seed: record.scores[score] for seed, record in records.items()},
                    published=recipe.published.get(name),
                    signature=next(iter(records.values())).signatures[score],
                )
            )
    figures += _averages(recipe, figures, splits)
    return figures + _other_figures(recipe, found, runs) + _end_figures(recipe, stages)


def _averages(recipe: Recipe, figures: Sequence[Figure], splits: Mapping[str, str]) -> list[Figure]:
    """Returns the means over the test sets, one for each search that was tried."""
    found, figures = [], [figure for figure in figures if figure.name in splits]
    for ending in dict.fromkeys(figure.name.removeprefix(splits[figure.name]) for figure in figures):
        tests = [
            figure
            for figure in figures
            if splits[figure.name] != "dev" and figure.name.removeprefix(splits[figure.name]) == ending
        ]
        if len(tests) > 1:
            seeds = set.intersection(*(set(figure.by_seed) for figure in tests))
            mean = {seed: statistics.fmean(figure.by_seed[seed] for figure in tests) for seed in sorted(seeds)}
            published = None if ending else recipe.published.get("average")
            found.append(Figure(name=f"average{ending}", label=tests[0].label, by_seed=mean, published=published))
    return found


def _other_figures(
    recipe: Recipe, found: Mapping[str, Mapping[int, ScoreRecord]], runs: Mapping[int, Sequence[pathlib.Path]]
) -> list[Figure]:
    """Returns parameters and speeds; of runs that translate together the parameters, and the time of a step, add up."""
    parameters, steps, sentences = {}, {}, {}
    for seed in {seed: None for records in found.values() for seed in records}:
        parameters[seed] = float(sum(_count_parameters(run) for run in runs[seed]))
        rates = [_train_steps_per_second(run / "metrics.jsonl") for run in runs[seed]]
        if all(rates):
            steps[seed] = 1 / sum(1 / rate for rate in rates)
        records = [each[seed] for each in found.values() if seed in each]
        seconds = sum(record.seconds for record in records)
        if seconds:
            sentences[seed] = sum(record.lines for record in records) / seconds
    rows = (
        ("parameters", "numbers that are learnt", parameters),
        ("train_steps_per_second", "steps/s of training", steps),
        ("sentences_per_second", "sentences/s of decoding", sentences),
    )
    return [
        Figure(name=name, label=label, by_seed=values, published=recipe.published.get(name))
        for name, label, values in rows
        if values
    ]


def _end_figures(recipe: Recipe, stages: Sequence[Stage]) -> list[Figure]:
    """Returns the accuracy at both ends, the mean over the test sets, where translations were analysed."""
    compared = [stage for stage in stages if stage.kind == "compare" and stage.output.exists()]
    tests = [stage for stage in compared if stage.split != "dev"] or compared
    values: dict[str, list[float]] = {"first": [], "last": []}
    for stage in tests:
        ends = json.loads(stage.output.read_text(encoding="utf-8"))["ends"].get(recipe.name, {})
        for end in values:
            values[end] += [ends[end]] if ends.get(end) is not None else []
    return [
        Figure(
            name=f"{end}_tokens",
            label=f"accuracy of the {end} 4 tokens, %",
            by_seed={tests[0].seed: statistics.fmean(found)},
            published=recipe.published.get(f"{end}_tokens"),
        )
        for end, found in values.items()
        if found
    ]


def write_report(
    recipe: Recipe,
    paper: Paper,
    figures: Sequence[Figure],
    stages: Sequence[Stage],
    options: Options,
    beside: Mapping[str, Sequence[Figure]] | None = None,
    rows: Mapping[str, str] | None = None,
) -> str:
    """Writes ``report.txt``, ``report.json`` and ``report.png`` into the recipe's folder.

    Args:
      recipe: What was carried out.
      paper: Where it comes from.
      figures: What came out, as ``collect`` returns it.
      stages: The plan.
      options: What the user changed.
      beside: Figures of the recipes that stand beside this one, by name.
      rows: Their words in the table, by name.

    Returns:
      The text.
    """
    folder = options.work_dir / recipe.name
    folder.mkdir(parents=True, exist_ok=True)
    systems = {**(beside or {}), recipe.name: figures}
    compared = tables.comparisons(stages)
    text = report_text(recipe, paper, figures, options)
    text += tables.side_by_side(systems, {**(rows or {}), recipe.name: recipe.row}) + tables.tests_text(compared)
    text += _comparisons(stages)
    content = {
        "recipe": recipe.name,
        "paper": paper.citation,
        "table": recipe.table,
        "row": recipe.row,
        "published_setting": not options.changes(),
        "changes": options.changes(),
        "figures": [figure.to_json() for figure in figures],
        "beside": {name: [figure.to_json() for figure in each] for name, each in (beside or {}).items()},
        "rows": {name: (rows or {}).get(name, recipe.row) for name in systems},
        "runs": {name: _runs_of(name, stages) for name in systems},
        "comparisons": compared,
        "notes": list(recipe.notes),
        "commands": [stage.command_line for stage in stages],
        "versions": package_versions(),
    }
    files.write_text_atomically(folder / "report.txt", text)
    files.write_text_atomically(folder / "report.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    _draw(recipe, paper, systems, options, folder / "report.png")
    return text + f"\nreport.txt, report.json and report.png are in {folder}\n"


def _runs_of(name: str, stages: Sequence[Stage]) -> dict[str, list[str]]:
    """Returns the paths of the runs that a system's scores are of: seed -> one, or the two of reranking."""
    scored = [stage for stage in stages if stage.kind == "score" and stage.system == name]
    return {str(stage.seed): [str(run) for run in stage.runs] for stage in scored}


def report_text(recipe: Recipe, paper: Paper, figures: Sequence[Figure], options: Options) -> str:
    """Returns the report for people."""
    lines = [f"{recipe.name}: {paper.short}, {recipe.table}, {recipe.row}", f"  {paper.citation}", ""]
    rows = [["", "paper", "mean", "deviation", "difference", "by seed"]]
    for figure in figures:
        shown = functools.partial(tables.shown_figure, figure.name)
        deviation = figure.deviation
        rows.append(
            [
                f"{figure.name} ({figure.label})",
                "-" if figure.published is None else shown(figure.published),
                shown(figure.mean),
                "-" if deviation is None else shown(deviation),
                "-"
                if figure.published is None
                else f"{'+' if figure.mean >= figure.published else '-'}{shown(abs(figure.mean - figure.published))}",
                "  ".join(shown(value) for value in figure.by_seed.values()),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  " + "  ".join(cells).rstrip())
    lines.append("")
    lines += [f"  {figure.name}: {figure.signature}" for figure in figures if figure.signature]
    changes = options.changes()
    if changes:
        lines += ["", f"  NOT the published setting: {', '.join(changes)}"]
    if recipe.hardware:
        lines.append(f"  the paper's hardware: {recipe.hardware}")
    lines += [f"  note: {note}" for note in recipe.notes]
    return "\n".join(lines) + "\n"


def _comparisons(stages: Sequence[Stage]) -> str:
    """Says where the comparisons are, where the winners of reranking come from, and which directions won."""
    lines = []
    for stage in stages:
        record = score_record(stage) if stage.kind == "score" else None
        if record is not None and record.directions:
            shown = ", ".join(f"{name} {100 * found['share']:.1f}%" for name, found in record.directions.items())
            lines.append(f"  {stage.label}, seed {stage.seed}: {stage.system} was written {shown}")
        if stage.command == "rerank" and stage.output.exists():
            shares = json.loads(stage.output.read_text(encoding="utf-8"))["winners"]
            shown = ", ".join(f"{name} {100 * share:.1f}%" for name, share in shares.items())
            lines.append(f"  {stage.split}, seed {stage.seed}: reranking's winners are in the list of {shown}")
        if stage.kind == "compare" and stage.output.exists():
            lines.append(f"  {stage.split}: tests, lengths, ends and sentences are in {stage.flags['html']}")
    return "\n".join(["", *lines, ""]) if lines else ""


def _draw(
    recipe: Recipe, paper: Paper, systems: Mapping[str, Sequence[Figure]], options: Options, path: pathlib.Path
) -> None:
    """Draws the seeds' scores with the paper's figure as a line; of several beams, a curve for each system."""
    from matplotlib import figure as drawing

    shown = [each for each in systems[recipe.name] if each.signature or each.name.startswith("average")]
    groups: dict[str, list[Figure]] = {}
    for each in shown:
        groups.setdefault(each.name.partition(", beam ")[0], []).append(each)
    canvas = drawing.Figure(figsize=(max(4.0, 2.2 * len(groups)), 4.2), dpi=100, layout="constrained")
    for axis, (name, each) in zip(
        canvas.subplots(1, max(1, len(groups)), squeeze=False)[0], groups.items(), strict=False
    ):
        if ", beam " in each[0].name:
            _draw_beams(axis, name, systems)
        else:
            _draw_seeds(axis, each[0])
        axis.set_ylabel(each[0].label)
        axis.set_title(name, fontsize=9)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    title = f"{recipe.name}\n{paper.short}, {recipe.table}, {recipe.row}"
    title += "\nNOT the published setting" if options.changes() else ""
    canvas.suptitle(title.replace("$", r"\$"), fontsize=9)
    with files.atomic_file(path) as temporary:
        canvas.savefig(temporary, format="png")


def _draw_seeds(axis: Any, figure: Figure) -> None:
    axis.plot(
        [str(seed) for seed in figure.by_seed], list(figure.by_seed.values()), "o", color="tab:blue", label="seeds"
    )
    axis.axhline(figure.mean, color="tab:blue", linewidth=1, label=f"mean {figure.mean:.2f}")
    if figure.published is not None:
        axis.axhline(figure.published, color="tab:red", linestyle="--", label=f"paper {figure.published:.2f}")
    axis.set_xlabel("seed")


def _draw_beams(axis: Any, name: str, systems: Mapping[str, Sequence[Figure]]) -> None:
    for system, figures in systems.items():
        named = [(each.name.partition(", beam "), each.mean) for each in figures]
        points = [(int(beam), mean) for (label, _, beam), mean in named if label == name and beam]
        if points:
            axis.plot(*zip(*points, strict=True), "o-", label=system)
    axis.set_xscale("log", base=2)
    axis.set_xlabel("beam size")


def _count_parameters(run: pathlib.Path) -> int:
    found = checkpoints.list_checkpoints(run)
    count = 0
    for entry in checkpoints.read_info(found[-1]).groups["model"].values() if found else ():
        size = 1
        for width in entry["shape"]:
            size *= width
        count += size
    return count


def _train_steps_per_second(metrics: pathlib.Path) -> float:
    """Returns the median over the log's lines, the first (which holds the start) left out where there are others."""
    rates, before = [], 0
    for line in metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []:
        record = json.loads(line)
        if record["kind"] == "train" and record["seconds"] > 0:
            rates.append((record["step"] - before) / record["seconds"])
            before = record["step"]
    return statistics.median(rates[1:] or rates) if rates else 0.0
