"""What came out of an experiment: each seed's scores, mean and deviation, and the paper's figure beside them."""

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext.experiments.plan import Options, Stage, run_folder
from t2t_ext.experiments.recipes import Paper, Recipe
from t2t_ext.experiments.score_table import ScoreRecord
from t2t_ext.experiments.stages import score_record
from t2t_ext.persistence import checkpoints, files
from t2t_ext.persistence.run_directory import package_versions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A quantity of the report.

    Attributes:
      name: A split, or one of ``recipes.OTHER_FIGURES``.
      label: What it is, such as ``BLEU_cased``.
      by_seed: Seed -> value.
      published: The paper's figure, None where it gives none.
      signature: What makes the value comparable; empty where there is nothing to say.
    """

    name: str
    label: str
    by_seed: Mapping[int, float]
    published: float | None
    signature: str = ""

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self.by_seed.values())

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over the seeds; None for a single one."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """Returns the figure as a JSON object."""
        values = dataclasses.asdict(self) | {"mean": self.mean, "deviation": self.deviation}
        values["by_seed"] = {str(seed): value for seed, value in self.by_seed.items()}
        return values


def collect(recipe: Recipe, stages: Sequence[Stage], owner: str, options: Options) -> list[Figure]:
    """Returns the figures of an experiment whose stages are done, those of the splits first."""
    found: dict[str, dict[int, ScoreRecord]] = {}
    for stage in stages:
        record = score_record(stage) if stage.kind == "score" else None
        if record is not None:
            found.setdefault(stage.split, {})[stage.seed] = record
    figures = []
    for split, records in found.items():
        label = next(iter(next(iter(records.values())).scores))
        figures.append(
            Figure(
                name=split,
                label=label,
                by_seed={seed: record.scores[label] for seed, record in records.items()},
                published=recipe.published.get(split),
                signature=next(iter(records.values())).signatures[label],
            )
        )
    tests = [figure for figure in figures if figure.name != "dev"]
    if len(tests) > 1:
        seeds = set.intersection(*(set(figure.by_seed) for figure in tests))
        mean = {seed: statistics.fmean(figure.by_seed[seed] for figure in tests) for seed in sorted(seeds)}
        figures.append(
            Figure(name="average", label=tests[0].label, by_seed=mean, published=recipe.published.get("average"))
        )
    return figures + _other_figures(recipe, found, owner, options)


def _other_figures(
    recipe: Recipe, found: Mapping[str, Mapping[int, ScoreRecord]], owner: str, options: Options
) -> list[Figure]:
    """Returns parameters and speeds."""
    parameters, steps, sentences = {}, {}, {}
    for seed in {seed: None for records in found.values() for seed in records}:
        run = run_folder(owner, options, seed) / "run"
        parameters[seed] = float(_count_parameters(run))
        rate = _train_steps_per_second(run / "metrics.jsonl")
        if rate:
            steps[seed] = rate
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


def write_report(
    recipe: Recipe, paper: Paper, figures: Sequence[Figure], stages: Sequence[Stage], options: Options
) -> str:
    """Writes ``report.txt``, ``report.json`` and ``report.png`` into the recipe's folder.

    Returns:
      The text.
    """
    folder = options.work_dir / recipe.name
    folder.mkdir(parents=True, exist_ok=True)
    text = report_text(recipe, paper, figures, options)
    content = {
        "recipe": recipe.name,
        "paper": paper.citation,
        "table": recipe.table,
        "row": recipe.row,
        "published_setting": not options.changes(),
        "changes": options.changes(),
        "figures": [figure.to_json() for figure in figures],
        "notes": list(recipe.notes),
        "commands": [stage.command_line for stage in stages],
        "versions": package_versions(),
    }
    files.write_text_atomically(folder / "report.txt", text)
    files.write_text_atomically(folder / "report.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    _draw(recipe, paper, figures, options, folder / "report.png")
    return text + f"\nreport.txt, report.json and report.png are in {folder}\n"


def report_text(recipe: Recipe, paper: Paper, figures: Sequence[Figure], options: Options) -> str:
    """Returns the report for people."""
    lines = [f"{recipe.name}: {paper.short}, {recipe.table}, {recipe.row}", f"  {paper.citation}", ""]
    rows = [["", "paper", "mean", "deviation", "difference", "by seed"]]
    for figure in figures:
        shown = _number if figure.name in ("parameters",) else _score
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


def _draw(recipe: Recipe, paper: Paper, figures: Sequence[Figure], options: Options, path: pathlib.Path) -> None:
    """Draws the seeds' scores with the paper's figure as a line."""
    from matplotlib import figure as drawing

    shown = [each for each in figures if each.signature or each.name == "average"]
    canvas = drawing.Figure(figsize=(max(4.0, 2.2 * len(shown)), 4.2), dpi=100, layout="constrained")
    for axis, each in zip(canvas.subplots(1, max(1, len(shown)), squeeze=False)[0], shown, strict=False):
        seeds = [str(seed) for seed in each.by_seed]
        axis.plot(seeds, list(each.by_seed.values()), "o", color="tab:blue", label="seeds")
        axis.axhline(each.mean, color="tab:blue", linewidth=1, label=f"mean {each.mean:.2f}")
        if each.published is not None:
            axis.axhline(each.published, color="tab:red", linestyle="--", label=f"paper {each.published:.2f}")
        axis.set(xlabel="seed", ylabel=each.label)
        axis.set_title(each.name, fontsize=9)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    title = f"{recipe.name}\n{paper.short}, {recipe.table}, {recipe.row}"
    title += "\nNOT the published setting" if options.changes() else ""
    canvas.suptitle(title.replace("$", r"\$"), fontsize=9)
    with files.atomic_file(path) as temporary:
        canvas.savefig(temporary, format="png")


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


def _score(value: float) -> str:
    return f"{value:.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}"
