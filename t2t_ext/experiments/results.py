"""The results of an experiment: quantities with a value for each seed, mean, deviation and the paper's figure."""

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from t2t_ext.evaluation.score_table import ScoreRecord
from t2t_ext.experiments.plan import Stage
from t2t_ext.experiments.recipes import Recipe
from t2t_ext.experiments.stages import read_output, score_record
from t2t_ext.io import stored
from t2t_ext.runs import checkpoints


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A quantity of the report.

    Attributes:
      name: A stage's label (a split, perhaps with a beam), ``LABEL SCORE`` for a further score, or one of
        ``recipes.OTHER_FIGURES``.
      label: What it measures, such as ``BLEU_cased``.
      by_seed: Seed -> value.
      published: The paper's figure; None if it gives none.
      signature: The scoring signature, which makes the value comparable; empty if there is none.
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
        """The sample standard deviation over the seeds; None for a single seed."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    def shown(self, value: float) -> str:
        """Returns a value of this quantity, formatted for the report."""
        return f"{value:,.0f}" if self.name == "parameters" else f"{value:.2f}"

    def to_json(self) -> dict[str, Any]:
        """Returns the figure as a JSON object."""
        values = dataclasses.asdict(self) | {"mean": self.mean, "deviation": self.deviation}
        values["by_seed"] = {str(seed): value for seed, value in self.by_seed.items()}
        return values


def collect(recipe: Recipe, stages: Sequence[Stage]) -> list[Figure]:
    """Returns the figures of a recipe for the stages that are done, those of the splits first."""
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
            by_seed = {seed: record.scores[score] for seed, record in records.items()}
            signature = next(iter(records.values())).signatures[score]
            published = recipe.published.get(name)
            figures.append(Figure(name=name, label=score, by_seed=by_seed, published=published, signature=signature))
    figures += _averages(recipe, figures, splits)
    return figures + _other_figures(recipe, found, runs) + _end_figures(recipe, stages)


def _averages(recipe: Recipe, figures: Sequence[Figure], splits: Mapping[str, str]) -> list[Figure]:
    """Returns the means of the main score over the test sets, one for each beam size."""
    found, figures = [], [figure for figure in figures if figure.name in splits]
    for ending in dict.fromkeys(figure.name.removeprefix(splits[figure.name]) for figure in figures):
        tests = [each for each in figures if splits[each.name] != "dev" and each.name == splits[each.name] + ending]
        if len(tests) > 1:
            seeds = set.intersection(*(set(figure.by_seed) for figure in tests))
            mean = {seed: statistics.fmean(figure.by_seed[seed] for figure in tests) for seed in sorted(seeds)}
            published = None if ending else recipe.published.get("average")
            found.append(Figure(name=f"average{ending}", label=tests[0].label, by_seed=mean, published=published))
    return found


def _other_figures(
    recipe: Recipe, found: Mapping[str, Mapping[int, ScoreRecord]], runs: Mapping[int, Sequence[pathlib.Path]]
) -> list[Figure]:
    """Returns parameters and speeds; if runs translate together, their parameters and their times per step add up."""
    parameters, steps, sentences = {}, {}, {}
    for seed in {seed: None for records in found.values() for seed in records}:
        last = [checkpoints.list_checkpoints(run)[-1:] for run in runs[seed]]
        groups = [checkpoints.read_info(path).groups["model"] for paths in last for path in paths]
        shapes = [entry["shape"] for group in groups for entry in group.values()]
        parameters[seed] = float(sum(map(math.prod, shapes)))
        rates = [_train_steps_per_second(run / "metrics.jsonl") for run in runs[seed]]
        if all(rates):
            steps[seed] = 1 / sum(1 / rate for rate in rates)
        records = [each[seed] for each in found.values() if seed in each]
        seconds = sum(record.seconds for record in records)
        if seconds:
            sentences[seed] = sum(record.lines for record in records) / seconds
    rows = (
        ("parameters", "numbers that are learned", parameters),
        ("train_steps_per_second", "steps/s of training", steps),
        ("sentences_per_second", "sentences/s of decoding", sentences),
    )
    return [
        Figure(name=name, label=label, by_seed=values, published=recipe.published.get(name))
        for name, label, values in rows
        if values
    ]


def _end_figures(recipe: Recipe, stages: Sequence[Stage]) -> list[Figure]:
    """Returns the accuracy at both ends, averaged over the test sets, if translations were analyzed."""
    compared = [stage for stage in stages if stage.kind == "compare" and stage.output.exists()]
    tests = [stage for stage in compared if stage.split != "dev"] or compared
    values: dict[str, list[float]] = {"first": [], "last": []}
    for stage in tests:
        ends = read_output(stage, _Compared).get("ends", {}).get(recipe.name, {})
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


class _LoggedTime(TypedDict):
    """The fields that are read from a line of the log."""

    kind: str
    step: stored.Count
    seconds: float


class _SystemScore(TypedDict):
    value: float
    confidence: NotRequired[float | None]


class _PairedTest(TypedDict):
    system: str
    difference: float
    p_bootstrap: float | None
    p_randomization: float | None


class _ComparedScore(TypedDict):
    label: str
    systems: dict[str, _SystemScore]
    tests: list[_PairedTest]


class _Ends(TypedDict):
    first: float | None
    last: float | None


class _Compared(TypedDict):
    """The fields that are read from the report of t2t_ext-compare."""

    names: list[str]
    scores: list[_ComparedScore]
    ends: NotRequired[dict[str, _Ends]]


def comparisons(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """Returns the first score of every finished comparison, for ``report.json``.

    Each has ``split``, ``seed``, ``label``, ``baseline`` and ``systems``: name -> ``score``, ``confidence`` (half the
    width of the 95 % interval) and, except for the baseline, ``difference``, ``p_bootstrap``, ``p_randomization``.
    """
    found = []
    for stage in stages:
        if stage.kind != "compare" or not stage.output.exists():
            continue
        content = read_output(stage, _Compared)
        first = content["scores"][0]
        systems = {
            name: {"score": score["value"], "confidence": score["confidence"]}
            for name, score in first["systems"].items()
        }
        for test in first["tests"]:
            systems[test["system"]] |= {key: test[key] for key in ("difference", "p_bootstrap", "p_randomization")}
        baseline = content["names"][0]
        where = {"split": stage.split, "seed": stage.seed, "label": first["label"]}
        found.append({**where, "baseline": baseline, "systems": systems})
    return found


def _train_steps_per_second(metrics: pathlib.Path) -> float:
    """Returns the median speed over the log's lines, without the first, which includes start-up, if there are more."""
    rates, before = [], 0
    for line in metrics.read_bytes().splitlines() if metrics.exists() else []:
        try:
            record = stored.parse(line, _LoggedTime)
        except stored.Damaged:
            continue
        if record["kind"] == "train" and record["seconds"] > 0:
            rates.append((record["step"] - before) / record["seconds"])
            before = record["step"]
    return statistics.median(rates[1:] or rates) if rates else 0.0
