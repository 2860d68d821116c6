"""Tests of the tables in reports on several systems."""

import json
import pathlib

from t2t_ext.bin import experiment
from t2t_ext.evaluation.score_table import ScoreRecord, ScoreTable
from t2t_ext.experiments import report, results
from t2t_ext.experiments.plan import Options, Stage, plan

BOOK = experiment.recipe_book()


def comparison(path):
    """Returns a stage with a finished comparison of three systems."""
    test = {"baseline": "one", "p_randomization": 0.25}
    content = {
        "names": ["one", "another", "third"],
        "scores": [
            {
                "label": "BLEU",
                "systems": {
                    "one": {"value": 30.0, "confidence": 1.25},
                    "another": {"value": 31.5, "confidence": None},
                    "third": {"value": 29.25, "confidence": 1.0},
                },
                "tests": [
                    {**test, "system": "another", "difference": 1.5, "p_bootstrap": 0.001},
                    {**test, "system": "third", "difference": -0.75, "p_bootstrap": 0.2},
                ],
            },
            {"label": "chrF2", "systems": {}, "tests": []},
        ],
    }
    path.write_text(json.dumps(content))
    return Stage(
        name="compare test", kind="compare", command="compare", flags={}, folder=path.parent, output=path, key="",
        seed=2, split="test",
    )  # fmt: skip


def test_differences_to_the_baseline_stand_beside_the_scores(tmp_path):
    stage = comparison(tmp_path / "compare.test.json")
    missing = Stage(
        name="compare dev", kind="compare", command="compare", flags={}, folder=tmp_path,
        output=tmp_path / "not_there.json", key="",
    )  # fmt: skip
    found = results.comparisons([stage, missing])
    assert [(each["split"], each["seed"], each["baseline"], each["label"]) for each in found] == [
        ("test", 2, "one", "BLEU")
    ]
    assert found[0]["systems"]["another"] == {
        "score": 31.5, "confidence": None, "difference": 1.5, "p_bootstrap": 0.001, "p_randomization": 0.25,
    }  # fmt: skip
    lines = [line.split() for line in report.tests_section(found[0]).text().splitlines()]
    assert ["one", "30.00", "±", "1.25"] in lines
    assert ["another", "31.50", "-", "+1.50", "0.001", "0.250"] in lines
    assert ["third", "29.25", "±", "1.00", "-0.75", "0.200", "0.250"] in lines


def test_a_line_for_each_system(tmp_path):
    figure = results.Figure(name="test", label="BLEU", by_seed={1: 30.0, 2: 31.0}, published=None)
    size = results.Figure(name="parameters", label="", by_seed={1: 12345.0}, published=None)
    table = report.side_by_side({"a": [figure, size], "longer": [figure]}, {"a": "its words"})
    lines = [line.split() for line in table.text().splitlines()]
    assert ["test", "parameters"] in lines
    assert ["a", "30.50", "12,345", "its", "words"] in lines
    assert ["longer", "30.50", "-"] in lines


def test_all_published_scores_of_a_protocol_are_reported(tmp_path):
    recipe = BOOK.recipe("liu2020_table5_summarization_transformer")
    stages = plan(recipe, BOOK, Options(work_dir=pathlib.Path(tmp_path)))
    (stage,) = [stage for stage in stages if stage.kind == "score"]
    scores = {"ROUGE-1": 38.0, "ROUGE-2": 17.0, "ROUGE-L": 30.0, "ROUGE-Lsum": 36.5}
    ScoreTable(stage.output).add(
        ScoreRecord(
            step=10, checkpoint="model.ckpt-10", weights="", search="", scoring="", translations="x.txt", lines=10,
            seconds=2.0, scores=scores, signatures=dict.fromkeys(scores, "nrefs:1"),
        )
    )  # fmt: skip
    figures = {figure.name: figure for figure in results.collect(recipe, stages)}
    assert {name: (figure.mean, figure.published) for name, figure in figures.items() if figure.signature} == {
        "test": (38.0, 39.3), "test ROUGE-2": (17.0, 17.3), "test ROUGE-Lsum": (36.5, 36.2),
    }  # fmt: skip
