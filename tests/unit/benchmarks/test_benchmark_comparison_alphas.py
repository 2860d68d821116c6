"""The length penalty that rows of comparison.py choose on the development set."""

import importlib

import pytest
from made_up_results import counts_of, made_up

ROOT = "comparison_transformer"


@pytest.fixture(scope="module")
def alphas(benchmark):
    return importlib.import_module("_comparison_alphas")


@pytest.fixture
def stages_with(benchmark, make_plan, plans, stores, tmp_path):
    """Returns the stages of a training with an alpha."""
    plan = make_plan("iwslt14_small")
    args = benchmark._parser().parse_args([f"--work_dir={tmp_path}"])
    work = benchmark.ExperimentWork(args, plan, stores.Store(tmp_path / "r.json"), tmp_path, tmp_path / "recipes")
    job = plans.Job(ROOT, "plain", (), 1)
    work.write_recipes([job])
    return lambda alpha=None: work.stages(job, alpha)


def measure(alphas, stages_with, monkeypatch, dev, sha256="s"):
    """Returns what is measured if development BLEU is ``dev``, alpha -> BLEU, and the stages that were carried out."""
    done = []

    def described(stage):
        assert done[-1] is stage
        alpha = float(stage.flags["decode_hparams"].partition("alpha=")[2])
        return {"BLEU": dev[alpha] - 3 * (stage.split == "test"), "length_ratio": alpha, "sha256": "s", "sentences": 9}

    monkeypatch.setattr(alphas, "described_score", described)
    name = next(each.system for each in stages_with() if each.kind == "score")
    found = alphas.measured(stages_with, done.append, {"name": name, "test": {"sha256": sha256}})
    return found, [(each.split, each.flags["decode_hparams"]) for each in done]


def test_alpha_goes_up_until_development_bleu_falls(alphas, stages_with, monkeypatch):
    found, done = measure(alphas, stages_with, monkeypatch, {0.6: 20.0, 1.0: 21.0, 1.4: 20.5, 1.8: 30.0})
    assert done == [
        ("dev", "beam_size=4,alpha=0.6"), ("dev", "beam_size=4,alpha=1"), ("dev", "beam_size=4,alpha=1.4"),
        ("test", "beam_size=4,alpha=0.6"), ("test", "beam_size=4,alpha=1"),
    ]  # fmt: skip
    assert (found["alpha"], found["dev"]) == (1.0, {"0.6": 20.0, "1": 21.0, "1.4": 20.5})
    assert (found["test"]["BLEU"], found["test_before"]) == (18.0, {"BLEU": 17.0, "length_ratio": 0.6})
    assert not found["again"]


def test_the_protocols_alpha_may_be_the_best(alphas, stages_with, monkeypatch):
    found, done = measure(alphas, stages_with, monkeypatch, {0.6: 20.0, 1.0: 19.0}, sha256="of another training")
    assert [split for split, _ in done] == ["dev", "dev", "test"]
    assert (found["alpha"], found["test"]["BLEU"]) == (0.6, 17.0)
    assert found["again"]


def test_another_alpha_is_a_search_with_the_same_run(stages_with):
    own, other = stages_with(), stages_with(1.4)
    assert [each.marker for each in own if each.kind != "score"] == [
        each.marker for each in other if each.kind != "score"
    ]
    assert [each.key for each in own if each.kind == "train"] == [each.key for each in other if each.kind == "train"]
    of_own, of_other = ({each.output for each in stages if each.kind == "score"} for stages in (own, other))
    assert len(of_own) == len(of_other) == 2
    assert not of_own & of_other


def test_rows_with_the_alpha_of_their_choice(make_plan, plans, stores, benchmark):
    """Only rows that were measured are in the table, and a row is compared if its control was measured, too."""
    reports = benchmark._comparison_report
    plan, records = make_plan(tune=False), {}
    for row, noise, bleu in ((ROOT, 0.5, 40.0), ("comparison_enc_dc", 0.1, 41.0), ("comparison_full_dc", 0.1, 41.0)):
        job = plans.Job(row, "plain", (), 1)
        records[job] = made_up(stores, job, bleu)
        if row != "comparison_full_dc":
            counts = stores.pack(counts_of(stores, plans, noise, 1))
            test = {"BLEU": bleu + 1, "length_ratio": 0.98, "sentences": records[job]["test"]["sentences"]}
            records[job]["chosen_alpha"] = {
                "dev": {"0.6": 42.0, "1": 42.5, "1.4": 42.25},
                "alpha": 1.0,
                "test": {**test, "counts": counts},
                "test_before": {"BLEU": bleu - 0.5 * (row == ROOT), "length_ratio": 0.95},
                "again": row == ROOT,
            }
    page = reports.markdown(plan, records, reports.rows(plan, records), {"": "picture.png"})
    _, rest = page.split("Translated again")
    assert "‡: measured on another training" in rest
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in rest.split("\n\n")[1].splitlines()[2:]]
    assert [line[0] for line in lines] == ["1", "5"]
    assert lines[0][1:] == ["Transformer‡", "1", "1", "42.50", "0.50", "0.980", "41.00", "39.50", *[""] * 6]
    assert lines[1][2:10] == ["1", "1", "42.50", "0.50", "0.980", "42.00", "41.00", "1"]
    assert float(lines[1][10]) > 5
    assert lines[1][14] == "+1.50"


def test_without_measurements_there_is_no_table(make_plan, plans, stores, benchmark):
    reports = benchmark._comparison_report
    plan, job = make_plan(tune=False), plans.Job(ROOT, "plain", (), 1)
    records = {job: made_up(stores, job, 40.0)}
    assert "alpha" not in reports.markdown(plan, records, reports.rows(plan, records), {"": "picture.png"})


def test_a_run_that_is_gone_is_not_measured(benchmark, make_plan, plans, stores, tmp_path, capsys):
    results = stores.Store(tmp_path / "r.json")
    flags = [f"--work_dir={tmp_path / 'w'}", f"--results={results.path}", "--corpus=iwslt14_small", "--alphas"]
    flags += ["--seeds=1", "--variants=plain", f"--only={ROOT}"]
    job = plans.Job(ROOT, "plain", (), 1)
    args = benchmark._parser().parse_args(flags)
    work = benchmark.ExperimentWork(args, make_plan("iwslt14_small"), results, tmp_path / "w", tmp_path / "recipes")
    work.write_recipes([job])
    results.add({**made_up(stores, job, 40.0), "settings": work.settings(job)})
    assert benchmark.main(flags) == 0
    assert "seed 1: its run is gone" in capsys.readouterr().out
    assert benchmark.main([each for each in flags if not each.startswith("--work_dir")]) == 2
    assert "--work_dir=DIR says where the runs are" in capsys.readouterr().err
