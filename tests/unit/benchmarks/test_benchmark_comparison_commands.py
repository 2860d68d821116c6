"""The commands that comparison.py starts are such that t2t_ext-experiment accepts them, and they do their work."""

import json

import pytest

from t2t_ext.bin import experiment


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("corpus", ["multi30k", "iwslt14_small"])
def test_experiment_accepts_the_commands(benchmark, stores, make_plan, tmp_path, capsys, corpus, seed):
    """With and without teachers, as a continued run, and reranked; the right seeds."""
    rows = [
        f"comparison_{name}"
        for name in ("transformer", "synchronous", "cross_view_continued", "dynamic_conv", "rerank")
    ]
    plan = make_plan(corpus, tune=False, all_rows=True)
    args = benchmark._parser().parse_args([f"--work_dir={tmp_path / 'w'}", "--tmp_dir=RAW", "--train_steps=700"])
    store = stores.Store(tmp_path / "r.json")
    work = benchmark.ExperimentWork(args, plan, store, tmp_path / "w", tmp_path / "recipes")
    variants = [name for name in ("plain", "patient") if name in plan.variants]
    jobs, _ = plan.jobs({}, [seed], variants)
    work.write_recipes(jobs)
    wanted = [job for job in jobs if job.row in rows]
    assert len(wanted) >= 4
    for job in wanted:
        module, *flags = work.command(job)[2:]
        assert module == "t2t_ext.bin.experiment"
        assert experiment.main([*flags, "--dry_run"]) == 0, capsys.readouterr().err
        said = capsys.readouterr().out
        assert f"/{plan.name(job)}/seed{seed}" in said
        with_teachers = "synchronous" in job.row
        assert (f"--teachers_seed={seed}" in flags) == with_teachers
        assert ("pseudo-references" in said) == with_teachers


@pytest.mark.slow
def test_a_training_on_the_offline_corpus_from_data_to_the_report(benchmark, tmp_path, capsys):
    results = tmp_path / "results.json"
    flags = [f"--work_dir={tmp_path}", f"--results={results}", "--corpus=cldr", "--only=comparison_transformer"]
    flags += ["--no_tuning", "--seeds=1", "--variants=plain", "--cores=1", "--train_steps=20"]
    flags += ["--train=local_eval_frequency=10,eval_bleu_sentences=4", "--hparams=precision=float32"]
    assert benchmark.main(flags) == 0
    [record] = json.loads(results.read_text())["results"]
    assert (record["updates"], record["ended"], len(record["curve"])) == (20, "limit", 2)
    assert record["test"]["sentences"] > 100
    assert "| 1 | Transformer | 1 |" in results.with_suffix(".md").read_text()
    assert benchmark.main(flags) == 0  # nothing is left to do
    assert benchmark.main([*flags, "--alphas"]) == 0
    [measured] = json.loads(results.read_text())["results"]
    chosen = measured.pop("chosen_alpha")
    assert measured == record
    assert chosen["dev"]["0.6"] == pytest.approx(record["dev"]["BLEU"], abs=1e-3)
    assert chosen["test_before"]["BLEU"] == record["test"]["BLEU"]
    assert not chosen["again"]
    assert "| 1 | Transformer | 1 | " in results.with_suffix(".md").read_text().split("Translated again")[1]
    capsys.readouterr()
    assert benchmark.main([*flags, "--alphas"]) == 0
    assert "done already" in capsys.readouterr().out
    assert benchmark.main([*flags, "--report"]) == 0
