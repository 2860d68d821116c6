"""The commands that comparison.py starts are such that t2t_ext-experiment accepts them."""

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
