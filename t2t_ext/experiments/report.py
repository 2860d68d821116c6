"""The report of an experiment: the scores of each seed, their mean and deviation, and the paper's figure."""

from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext.experiments.plan import Options, Stage
from t2t_ext.experiments.recipes import Paper, Recipe
from t2t_ext.experiments.results import Figure, comparisons
from t2t_ext.experiments.stages import Reranked, read_output, score_record
from t2t_ext.reporting import figures as drawing
from t2t_ext.reporting import report as reporting
from t2t_ext.reporting.report import Block, Items, Note, Paragraph, Report, Section
from t2t_ext.reporting.table import Column, Table, columns
from t2t_ext.runs.run_directory import package_versions


def write_report(
    recipe: Recipe,
    paper: Paper,
    figures: Sequence[Figure],
    stages: Sequence[Stage],
    options: Options,
    beside: Mapping[str, Sequence[Figure]],
    rows: Mapping[str, str],
) -> str:
    """Writes ``report.txt``, ``report.json``, ``report.html`` and ``report.png`` into the recipe's folder.

    ``beside`` and ``rows`` are the figures and the row labels of the recipes shown next to this one, by name. Returns
    the text.
    """
    systems = {**beside, recipe.name: figures}
    rows = {**rows, recipe.name: recipe.row}
    compared = comparisons(stages)
    content = {
        "recipe": recipe.name,
        "paper": paper.citation,
        "table": recipe.table,
        "row": recipe.row,
        "published_setting": not options.changes(),
        "changes": options.changes(),
        "figures": [figure.to_json() for figure in figures],
        "beside": {name: [figure.to_json() for figure in each] for name, each in beside.items()},
        "rows": {name: rows[name] for name in systems},
        # The runs behind a system's scores: seed -> one run, or the two of reranking.
        "runs": {
            name: {
                str(stage.seed): [str(run) for run in stage.runs]
                for stage in stages
                if stage.kind == "score" and stage.system == name
            }
            for name in systems
        },
        "comparisons": compared,
        "notes": list(recipe.notes),
        "commands": [stage.command_line for stage in stages],
        "versions": package_versions(),
    }
    png, svg = _pictures(recipe, paper, systems, options)
    sections: list[Block] = []
    if len(systems) > 1:
        sections.append(Section("Side by side, means over the seeds", [side_by_side(systems, rows)]))
    sections += [tests_section(each) for each in compared]
    sections += _more(stages)
    report = _build(recipe, paper, figures, options, svg, sections)
    text = report.text() + "\n"
    contents = {"report.txt": text, "report.json": reporting.as_json(content), "report.html": report.page()}
    folder = options.work_dir / recipe.name
    names = reporting.write(reporting.directory_for(folder, "--work_dir"), {**contents, "report.png": png})
    return f"{text}\n{', '.join(names[:-1])} and {names[-1]} are in {folder}\n"


def _build(
    recipe: Recipe, paper: Paper, figures: Sequence[Figure], options: Options, svg: bytes, sections: Sequence[Block]
) -> Report:
    rows = []
    for figure in figures:
        published, deviation = figure.published, figure.deviation
        difference = None
        if published is not None:
            sign = "+" if figure.mean >= published else "-"
            difference = f"{sign}{figure.shown(abs(figure.mean - published))}"
        rows.append([
            f"{figure.name} ({figure.label})",
            None if published is None else figure.shown(published),
            figure.shown(figure.mean),
            None if deviation is None else figure.shown(deviation),
            difference,
            "  ".join(map(figure.shown, figure.by_seed.values())),
        ])  # fmt: skip
    title = f"{recipe.name}: {paper.short}, {recipe.table}, {recipe.row}"
    changes = options.changes()
    blocks: list[Block] = [Paragraph(f"{title}\n{paper.citation}")]
    blocks += [Note(f"NOT {recipe.setting}: {', '.join(changes)}")] if changes else []
    blocks += [Note(note) for note in recipe.notes]
    blocks += [Paragraph(f"the paper's hardware: {recipe.hardware}")] if recipe.hardware else []
    blocks.append(Table(columns("", "paper", "mean", "deviation", "difference", "by seed"), rows, missing="-"))
    blocks.append(Items([f"{figure.name}: {figure.signature}" for figure in figures if figure.signature], ""))
    blocks.append(reporting.Figure(svg, "Scores of each seed; the table has the numbers"))
    return Report(title, [*blocks, *sections], "t2t_ext-experiment")


def side_by_side(systems: Mapping[str, Sequence[Figure]], rows: Mapping[str, str]) -> Table:
    """Returns a table with a line for each system: each figure's mean over the seeds, and the row label."""
    names = list(dict.fromkeys(figure.name for figures in systems.values() for figure in figures))
    lines = []
    for system, figures in systems.items():
        means = {figure.name: figure.shown(figure.mean) for figure in figures}
        lines.append([system, *map(means.get, names), rows.get(system, "")])
    return Table([*columns("", *names), Column("", words=True)], lines, missing="-")


def tests_section(compared: Mapping[str, Any]) -> Section:
    """Returns one entry of ``comparisons`` as a table of differences to the baseline and their significance."""
    headings = [Column(""), Column(compared["label"], ".2f"), Column("95%", lambda half: f"± {half:.2f}")]
    headings += [Column("difference", "+.2f"), *columns("p (bootstrap)", "p (randomization)", format=".3f")]
    keys = ("score", "confidence", "difference", "p_bootstrap", "p_randomization")
    rows = [[name, *(values.get(key, "") for key in keys)] for name, values in compared["systems"].items()]
    title = f"{compared['split']}, seed {compared['seed']}, each against {compared['baseline']}"
    return Section(title, [Table(headings, rows, missing="-")])


def _more(stages: Sequence[Stage]) -> list[Block]:
    """Returns the shares of the winning directions and of reranking's winners, and where the comparisons are."""
    lines = []
    for stage in stages:
        record = score_record(stage) if stage.kind == "score" else None
        if record is not None and record.directions:
            shown = ", ".join(f"{name} {100 * found['share']:.1f}%" for name, found in record.directions.items())
            lines.append(f"{stage.label}, seed {stage.seed}: {stage.system} was generated {shown}")
        if stage.command == "rerank" and stage.output.exists():
            shares = read_output(stage, Reranked)["winners"]
            shown = ", ".join(f"{name} {100 * share:.1f}%" for name, share in shares.items())
            lines.append(f"{stage.split}, seed {stage.seed}: reranking's winners are in the list of {shown}")
        if stage.kind == "compare" and stage.output.exists():
            lines.append(f"{stage.split}: tests, lengths, ends and sentences are in {stage.flags['html']}")
    return [Items(lines, "")] if lines else []


def _pictures(
    recipe: Recipe, paper: Paper, systems: Mapping[str, Sequence[Figure]], options: Options
) -> tuple[bytes, bytes]:
    """Draws, as PNG and SVG, the seeds' scores with the paper's as a line; with several beams, a curve per system."""
    shown = [each for each in systems[recipe.name] if each.signature or each.name.startswith("average")]
    groups: dict[str, list[Figure]] = {}
    for each in shown:
        groups.setdefault(each.name.partition(", beam ")[0], []).append(each)
    title = f"{recipe.name}\n{paper.short}, {recipe.table}, {recipe.row}"
    title += f"\nNOT {recipe.setting}" if options.changes() else ""
    with drawing.new_figure(max(4.0, 2.2 * len(groups)), 4.2) as canvas:
        panels = canvas.subplots(1, max(1, len(groups)), squeeze=False)[0]
        for axis, (name, members) in zip(panels, groups.items(), strict=False):
            if ", beam " in members[0].name:
                _draw_beams(axis, name, systems)
            else:
                _draw_seeds(axis, members[0])
            axis.set_ylabel(members[0].label)
            axis.set_title(name, fontsize=9)
            axis.legend(fontsize=7)
            drawing.plain(axis)
        canvas.suptitle(title, fontsize=9)
        return drawing.saved(canvas, "png"), drawing.saved(canvas, "svg")


def _draw_seeds(axis: Any, figure: Figure) -> None:
    seeds = [str(seed) for seed in figure.by_seed]
    scores = list(figure.by_seed.values())
    axis.plot(seeds, scores, "o", color=drawing.color(0), label="seeds")
    tips = [f"seed {seed}: {figure.shown(score)}" for seed, score in figure.by_seed.items()]
    drawing.points(axis, seeds, scores, tips)
    axis.axhline(figure.mean, color=drawing.color(0), linewidth=1, label=f"mean {figure.mean:.2f}")
    if figure.published is not None:
        axis.axhline(figure.published, color=drawing.color(1), linestyle="--", label=f"paper {figure.published:.2f}")
    axis.set_xlabel("seed")


def _draw_beams(axis: Any, name: str, systems: Mapping[str, Sequence[Figure]]) -> None:
    for place, (system, figures) in enumerate(systems.items()):
        named = [(each.name.partition(", beam "), each.mean) for each in figures]
        points = [(int(beam), mean) for (label, _, beam), mean in named if label == name and beam]
        if points:
            beams, means = zip(*points, strict=True)
            axis.plot(beams, means, "o-", color=drawing.color(place), label=system)
            tips = [f"{system}, beam {beam}: {mean:.2f}" for beam, mean in points]
            drawing.points(axis, beams, means, tips)
    axis.set_xscale("log", base=2)
    axis.set_xlabel("beam size")
