"""Tests of benchmarks/_comparison_plan.py: seeds and layers of ablations, and trainings that continue others."""

import importlib
import re

import pytest

from t2t_ext.config.decode import resolve_decode_hparams

WARM = "comparison_synchronous_warm"
LARGER = "comparison_transformer_both_pseudo_larger_batch"
OTHER = "comparison_enc_dc_kernel_3"


@pytest.mark.parametrize(
    ("corpus", "seeds", "expected"),
    [
        ("multi30k", [1, 2, 3], {WARM: 1, LARGER: 1, OTHER: 2}),
        ("multi30k", [3, 2], {WARM: 2, LARGER: 2, OTHER: 2}),  # seed 1, which the corpus names, is not requested
        ("multi30k", [3], {WARM: 3, LARGER: 3, OTHER: 3}),
        ("tatoeba", [1, 2, 3], {WARM: 2}),  # this corpus names no seeds for ablations
    ],
)
def test_seeds_of_ablations(make_plan, corpus, seeds, expected):
    """Ablations use seed 2, as seed 1 of most rows is the best of its grid; a corpus can name seed 1 for some."""
    plan = make_plan(corpus, tune=False)
    jobs, later = plan.jobs({}, seeds, ["plain"], list(expected))
    assert {job.row: job.seed for job in jobs if job.row in expected} == expected
    assert later == 0
    assert set(plan._corpus.get("ablation_seeds", {}).values()) <= {1}


@pytest.mark.parametrize("corpus", ["multi30k", "iwslt14", "iwslt14_small"])
def test_rows_that_name_a_number_of_layers_have_it(make_plan, corpus):
    plan = make_plan(corpus, tune=False)
    jobs, _ = plan.jobs({}, [1], ["plain"], ["comparison_layer_coordination*"])
    named = [(job, row) for job in jobs if re.fullmatch(r"\d+ layers", row := plan._recipe(job.row).row)]
    for job, row in named:
        hparams = plan._recipe(job.row).hparams | plan.changes(job)
        assert f"{hparams['num_hidden_layers']} layers" == row
    assert len(named) == 2


def test_patterns_of_seeds_name_ablations(make_plan):
    plan = make_plan()
    for pattern in plan._corpus["ablation_seeds"]:
        assert set(plan.matching(pattern)) & set(plan.ablations)


def test_more_patience_goes_on_with_the_plain_run(benchmark, stores, make_plan, plans, tmp_path):
    """It has the plain recipe's hparams, data and run, but ends later; other corpora have no such recipe."""
    plan = make_plan("iwslt14_small")
    assert "patient" not in make_plan("iwslt14").variants
    jobs, _ = plan.jobs({}, [1, 2], ["plain", "patient"], ["comparison_transformer", "comparison_enc_dc"])
    assert [(job.row, job.seed) for job in jobs if job.variant == "patient"] == [
        ("comparison_transformer", 1), ("comparison_enc_dc", 1)
    ]  # fmt: skip
    # It waits for the plain training, which is also trained if only more patience is asked for.
    alone, _ = plan.jobs({}, [1], ["patient"], ["comparison_enc_dc"])
    assert [job.variant for job in alone] == ["plain", "patient"]
    assert plan.needs(alone[1], {}) == [alone[0]]
    args = benchmark._parser().parse_args([f"--work_dir={tmp_path}", "--tmp_dir=RAW"])
    work = benchmark.ExperimentWork(args, plan, stores.Store(tmp_path / "r.json"), tmp_path / "w", tmp_path / "r")
    work.write_recipes(jobs)
    book = benchmark.recipe_book(str(tmp_path / "r"))
    plain, patient = (plans.Job("comparison_enc_dc", variant, (), 1) for variant in ("plain", "patient"))
    short, long = (book.recipe(plan.name(job)) for job in (plain, patient))
    assert (short.hparams, short.problem_options) == (long.hparams, long.problem_options)
    changed = {name for name in short.train if short.train[name] != long.train[name]}
    assert changed == {"eval_early_stopping_steps", "train_steps"}
    assert work.stages(plain)[0] == work.stages(patient)[0]  # the data
    assert work.folder(plain) != work.folder(patient)
    run = work.folder(plain) / "run"
    (run / "checkpoints" / "model.ckpt-00029000").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    work.folder(patient).mkdir(parents=True)
    work.prepare(patient)
    assert (work.folder(patient) / "run" / "checkpoints" / "model.ckpt-00029000").is_dir()
    assert run.is_dir()


@pytest.mark.parametrize("corpus", ["multi30k", "iwslt14", "iwslt14_small", "tatoeba_small"])
def test_training_recipes_look_different(make_plan, corpus):
    pictures, plan = importlib.import_module("_comparison_figures"), make_plan(corpus)
    fillings = [str(pictures._filling(plan, variant)) for variant in plan.variants]
    assert len(set(fillings)) == len(fillings)


@pytest.mark.parametrize(
    ("corpus", "least"), [("multi30k", 0), ("multi30k_4000", 0), ("iwslt14_small", 1), ("tatoeba", 1)]
)
def test_all_translations_of_a_corpus_have_the_same_minimum_length(
    benchmark, stores, make_plan, plans, tmp_path, corpus, least
):
    """Multi30k's first results had empty translations; teachers and reranking follow the same rule."""
    plan = make_plan(corpus, tune=False)
    jobs, _ = plan.jobs({}, [1], ["plain"])
    args = benchmark._parser().parse_args([f"--work_dir={tmp_path}", "--tmp_dir=RAW"])
    work = benchmark.ExperimentWork(args, plan, stores.Store(tmp_path / "r.json"), tmp_path / "w", tmp_path / "r")
    work.write_recipes(jobs)
    stages = [stage for job in jobs for stage in work.stages(job) if stage.kind in ("score", "pseudo")]
    found = {(stage.kind, resolve_decode_hparams(stage.flags["decode_hparams"]).min_length) for stage in stages}
    with_teachers = any(plan._recipe(job.row).pseudo_references for job in jobs)
    assert found == {("score", least), *([("pseudo", least)] if with_teachers else [])}
    assert {resolve_decode_hparams(stage.flags["decode_hparams"]).alpha for stage in stages} == {0.6}
