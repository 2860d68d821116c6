"""Tests of benchmarks/comparison.py: grid and order, a queue of simulated commands, tests, stored results, tables."""

import fnmatch
import importlib
import json
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from made_up_results import counts_of, made_up

FOLDER = pathlib.Path(__file__).parents[3] / "benchmarks"
ROOT = "comparison_transformer"


# === Grid and order ===


def test_every_recipe_is_a_row_of_one_family(make_plan, book):
    plan = make_plan()
    rows = [*plan.main, *plan.ablations]
    assert sorted(rows) == [name for name in book.names() if name.startswith("comparison_")]
    families = plan._content["families"].values()
    for row in rows:
        assert sum(any(fnmatch.fnmatch(row, each) for each in patterns) for patterns in families) == 1
    assert {plan.control(row) for row in rows} - {""} <= set(rows)
    assert plan.control(ROOT) == ""
    assert plan.control("comparison_cross_view_continued") == "comparison_transformer_longer"
    assert plan.control("comparison_cross_view") == ROOT
    written = [pair for orders in plan._content["orders"].values() for pair in orders]
    assert sum(len(each) for each in plan.orders.values()) == len(written)
    assert {row for pair in written for row in pair[:2]} <= set(rows)
    primary, others = plan.pairs()
    assert len(primary) == len(plan._content["primary"]["pairs"]) == 5
    assert len(others) == len(set(others) - set(primary)) > 15
    assert plan.shares_runs("comparison_cross_view_continued", "comparison_transformer_longer")
    assert plan.shares_runs("comparison_rerank", ROOT)
    assert not plan.shares_runs("comparison_synchronous", "comparison_transformer_both_pseudo")
    assert {len(pair) for paper, orders in plan._content["orders"].items() for pair in orders if "20" in paper} == {4}


@pytest.mark.parametrize("more", [{}, {"full": True}, {"tune": False}])
def test_every_training_comes_after_what_it_needs_and_their_number_is_known(make_plan, plans, more):
    """With made-up scores, the whole queue trains no more than announced, each job once and after those it needs."""
    plan, done, rng = make_plan(**more), {}, random.Random(1)
    variants = list(plan.variants)
    first, later = plan.jobs({}, [1, 2, 3], variants)
    count, trained = len(first) + later, []
    while True:
        jobs, later = plan.jobs(done, [1, 2, 3], variants)
        assert len(jobs) + later <= count
        count = len(jobs) + later
        waiting, cells = set(jobs) - set(trained), plan.cells(done)
        needs = {job: plan.needs(job, cells) for job in jobs}
        assert None not in needs.values()
        ready = [job for job in jobs if job in waiting and not waiting & set(needs[job])]
        if not ready:
            break
        trained += ready
        done |= {job: 10 * rng.random() for job in ready if job.row != "comparison_rerank"}
    assert (waiting, later) == (set(), 0)
    assert len(trained) == len(set(trained)) == count
    assert trained[0].row == ROOT
    assert {job.seed for job in trained if job.row in plan.ablations} == {1, 2}
    rows = [job for job in trained if job.variant != plans.TUNING]
    assert {job.cell == cells[plan.family(job.row)] for job in rows} == {True}
    assert {plan.is_of_the_grid(job) for job in trained if job not in rows} <= {True}
    chosen = {(job.row, job.variant, job.seed) for job in rows}
    wanted = {variant: plan.rows_of(variant) for variant in variants}
    seeds = {variant: (1, 2, 3) if variant == "plain" else (1,) for variant in variants}
    assert chosen >= {
        (row, variant, seed) for variant, rows in wanted.items() for row in rows for seed in seeds[variant]
    }
    assert {job.seed for job in rows if job.variant != "plain" and job.row not in plan.ablations} == {1}
    assert wanted["plain"] == plan.main
    assert set(wanted["best"]) == {plan.tuned_on(plan.family(row)) for row in wanted["best"]}


def test_only_some_rows_and_what_they_need(make_plan):
    plan = make_plan()
    jobs, later = plan.jobs({}, [1], ["plain"], ["comparison_cross_view_continued"])
    assert {(job.row, job.variant) for job in jobs} == {(ROOT, "tuning")}  # the row continues from there, with its rate
    assert (len(jobs), later) == (2, 4)  # two more cells of the grid, the Transformer, and the row itself
    jobs, later = plan.jobs({}, [1], ["plain"], ["comparison_full_dc"])
    assert {(job.row, job.variant) for job in jobs} == {("comparison_enc_dc", "tuning")}
    assert (len(jobs), later) == (2, 3)


def test_one_cell_of_every_family_comes_before_the_rest_of_the_grid(make_plan, plans):
    plan = make_plan()
    jobs, _ = plan.jobs({}, [1, 2], ["plain"])
    without_teachers = [row for row in map(plan.tuned_on, plan.families()) if not plan._needed(row, 1)]
    assert [(job.row, job.cell) for job in jobs[:5]] == [(row, plan.grid.first) for row in without_teachers]
    assert {job.variant for job in jobs} == {"tuning"}
    assert jobs[5].row == ROOT
    scores = tuned(plans, ROOT, {(0.2, 0.0075): 41.0, (0.3, 0.0075): 41.3})
    assert plan.cells(scores) == {}
    other = {plans.Job(ROOT, "plain", cell, 1): 43.0 for cell in [(0.3, 0.00375), (0.3, 0.015)]}
    assert plan.cells(scores | other) == {}  # results of rows say nothing about the grid


def test_seeds_of_the_main_claims_come_before_those_of_other_rows(make_plan):
    plan = make_plan(tune=False)
    jobs = plan.jobs({}, [1, 2, 3], ["plain"])[0]
    claims = {row for pair in plan._content["primary"]["pairs"] for row in pair}
    places = {(job.row, job.seed): place for place, job in enumerate(jobs)}
    claims |= {other for row in claims for other, _ in plan._needed(row, 2)}  # such as a teacher
    others = [row for row in plan.main if row not in claims]
    last_of_the_claims = max(places[row, seed] for row in claims for seed in (2, 3))
    assert max(places[row, 1] for row in plan.main) < min(places[row, seed] for row in claims for seed in (2, 3))
    assert last_of_the_claims < min(places[row, seed] for row in others for seed in (2, 3))
    assert max(places[row, seed] for row in others for seed in (2, 3)) < places[plan.ablations[-1], 1]


def tuned(plans, row, scores):
    return {plans.Job(row, plans.TUNING, cell, 1): score for cell, score in scores.items()}


def test_rows_have_the_cell_that_their_family_is_tuned_to(make_plan, plans):
    """The row that was tuned continues where its cell ended; other rows, seeds and recipes start anew."""
    plan, chosen = make_plan(), (0.3, 0.015)
    scores = tuned(plans, ROOT, {(0.2, 0.0075): 41.0, (0.3, 0.0075): 41.3, (0.3, 0.00375): 41.4, (0.3, 0.015): 41.6})
    assert plan.cells(scores) == {"Transformer": chosen}
    jobs, _ = plan.jobs(scores, [1, 2, 3], ["plain"])
    rows = [job for job in jobs if job.variant == "plain"]
    assert {plan.family(job.row) for job in rows} == {"Transformer"}
    assert {job.cell for job in rows} == {chosen}
    assert {"comparison_transformer_r2l", "comparison_cross_view_continued", "comparison_rerank"} <= {
        job.row for job in rows
    }
    first = plans.Job(ROOT, "plain", chosen, 1)
    assert plan.began(first) == plans.Job(ROOT, plans.TUNING, chosen, 1)
    r2l = plans.Job("comparison_transformer_r2l", "plain", chosen, 1)  # if it was trained in that cell as a first one
    assert plan.began(r2l) == plans.Job("comparison_transformer_r2l", plans.TUNING, chosen, 1)
    others = [(ROOT, "plain", 2), (ROOT, "best", 1), (ROOT, "tuning", 1)]
    assert {plan.began(plans.Job(row, variant, chosen, seed)) for row, variant, seed in others} == {None}
    assert make_plan(tune=False).began(plans.Job(ROOT, "plain", (), 1)) is None


def test_cells_of_the_grid_end_earlier_and_take_converged_teachers(make_plan, plans, benchmark, tmp_path):
    plan, cell = make_plan(), (0.2, 0.0075)
    jobs = [plans.Job("comparison_synchronous", variant, cell, 1) for variant in ("tuning", "plain")]
    jobs += [plans.Job(ROOT, "tuning", cell, 1), plans.Job(ROOT, "plain", cell, 1)]
    jobs.append(plans.Job("comparison_transformer_r2l", "plain", cell, 1))
    cells = {"Transformer": cell, "synchronous": cell}
    (tmp_path / "tuned.toml").write_text(plan.toml(jobs, cells))
    own = benchmark.recipe_book(str(tmp_path))
    tuning, plain = (own.recipe(plan.name(job)) for job in jobs[:2])
    assert tuning.train["eval_early_stopping_metric_delta"] > plain.train["eval_early_stopping_metric_delta"]
    assert {**tuning.train, "eval_early_stopping_metric_delta": 0} == {
        **plain.train, "eval_early_stopping_metric_delta": 0
    }  # fmt: skip
    assert tuning.pseudo_references == plain.pseudo_references
    assert tuning.pseudo_references["l2r"] == plan.name(jobs[3])
    assert plan.needs(jobs[0], cells) == plan.needs(jobs[1], cells) == [jobs[3], jobs[4]]


def test_a_row_goes_on_with_the_run_of_its_cell(benchmark, make_plan, stores, plans, tmp_path):
    plan, cell = make_plan(), (0.2, 0.0075)
    args = benchmark._parser().parse_args([f"--work_dir={tmp_path}", "--tmp_dir=RAW"])
    work = benchmark.ExperimentWork(args, plan, stores.Store(tmp_path / "r.json"), tmp_path / "m", tmp_path / "r")
    row, grid = (plans.Job(ROOT, variant, cell, 1) for variant in ("plain", "tuning"))
    work.write_recipes([row, grid])
    work.prepare(row)
    assert not work.folder(row).exists()  # the run of the cell is not here, so the row starts anew
    run = work.folder(grid) / "run"
    assert run.parents[2] == work.folder(row).parents[1]  # beside the data and teachers of rows
    (run / "checkpoints" / "model.ckpt-00000500").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    work.folder(row).mkdir(parents=True)
    work.prepare(row)
    assert (work.folder(row) / "run" / "checkpoints" / "model.ckpt-00000500").is_dir()
    assert run.is_dir()
    (run / "config.json").write_text("other")
    work.prepare(row)
    assert (work.folder(row) / "run" / "config.json").read_text() == "{}"  # a row that has begun is left alone


@pytest.mark.parametrize("corpus", ["multi30k", "iwslt14", "cldr"])
def test_tuned_recipes_are_recipes(benchmark, make_plan, tmp_path, corpus, monkeypatch):
    """Recipes, their first weights and teachers have the rate and dropout of their families; commands are valid."""
    plan = make_plan(corpus, all_rows=True)
    dropout, rates = plan.grid.values.values()
    scores = {}
    for _ in range(5):
        for job in plan.jobs(scores, [1], ["plain"])[0]:
            scores.setdefault(job, 100 * job.cell[1])  # the highest rate wins
    jobs = plan.jobs(scores, [1, 2], list(plan.variants))[0]
    (tmp_path / "tuned.toml").write_text(plan.toml(jobs, plan.cells(scores)))
    own = benchmark.recipe_book(str(tmp_path))
    ending = f"dropout{dropout[0]:g}.rate{max(rates):g}"
    names = {plan.name(job) for job in jobs}
    assert {f"{ROOT}.{ending}", f"comparison_cross_view_continued.best.{ending}"} <= names
    recipe = own.recipe(f"comparison_cross_view_continued.best.{ending}")
    assert recipe.warm_start == f"{ROOT}.best.{ending}"
    assert recipe.row.endswith(", SimCut")
    assert recipe.hparams["simcut_alpha"] == 3.0
    assert recipe.hparams["learning_rate_constant"] == max(rates)
    adam = own.recipe(f"{ROOT}.papers.dropout{dropout[0]:g}").hparams  # the rate is not the tuned one
    assert (adam["optimizer"], adam["learning_rate_constant"]) == ("adam", 2.0)
    assert adam["layer_prepostprocess_dropout"] == dropout[0]
    assert "optimizer_schedule_free_power" not in adam
    less = own.recipe(f"{ROOT}.less_dropout.rate{max(rates):g}").hparams  # the dropout is not the tuned one
    assert less == own.recipe(f"{ROOT}.{ending}").hparams | {"layer_prepostprocess_dropout": 0.1}
    if corpus == "multi30k":
        both = own.recipe(f"comparison_synchronous.{ending}").pseudo_references
        assert both["r2l"] == f"comparison_transformer_r2l.{ending}"
        assert own.recipe(f"comparison_rerank.best.{ending}").rerank["l2r"] == f"{ROOT}.best.{ending}"
    if corpus == "iwslt14":
        assert own.recipe(f"comparison_layer_coordination.{ending}").hparams["num_hidden_layers"] == 14
    options = benchmark.plans.Options(work_dir=tmp_path / "w", tmp_dir="RAW", seeds=(2,))
    for name in (f"comparison_cross_view_continued.best.{ending}", f"comparison_layer_coordination.{ending}"):
        benchmark.check_commands(benchmark.plans.plan(own.recipe(name), own, options))


@pytest.mark.parametrize("corpus", ["iwslt14_small", "tatoeba_small"])
def test_a_corpus_without_a_grid(benchmark, stores, make_plan, tmp_path, corpus):
    """Rate and dropout are those tuned for the families on Multi30k, and rows find the runs that they need."""
    plan, tuned_plan = make_plan(corpus), make_plan()
    cells = tuned_plan.cells(stores.dev_scores(stores.Store(benchmark._RESULTS / "comparison_multi30k.json").records))
    jobs, later = plan.jobs({}, [1, 2, 3], ["plain"])
    assert (plan.grid, later) == (None, 0)
    (tmp_path / "tuned.toml").write_text(plan.toml(jobs, plan.cells({})))
    own = benchmark.recipe_book(str(tmp_path))
    for job in jobs:
        hparams = own.recipe(plan.name(job)).hparams
        assert tuple(hparams[name] for name in tuned_plan.grid.values) == cells[plan.family(job.row)], job
    if corpus == "iwslt14_small":
        continued = own.recipe("comparison_cross_view_continued.untuned")
        assert continued.warm_start == f"{ROOT}.untuned"
        assert (continued.train["train_steps"], continued.train["eval_early_stopping_steps"]) == (33000, 0)
    assert own.recipe("comparison_synchronous.untuned").pseudo_references["r2l"] == "comparison_transformer_r2l.untuned"


def test_no_two_trainings_want_other_things_in_one_place(benchmark, make_plan, plans, tmp_path):
    """Pseudo references of plain Transformers, of those with SimCut, and of another seed have separate places."""
    plan = make_plan(tune=False, all_rows=True)
    args = benchmark._parser().parse_args([f"--work_dir={tmp_path}", "--tmp_dir=RAW"])
    store = benchmark._comparison_store.Store(tmp_path / "r.json")
    work = benchmark.ExperimentWork(args, plan, store, tmp_path / "multi30k", tmp_path / "recipes")
    jobs, _ = plan.jobs({}, [1, 2], ["plain", "best"], ["comparison_rerank", "comparison_synchronous"])
    work.write_recipes(jobs)
    keys = {}
    for job in jobs:
        stages = work.stages(job)
        for stage in stages:
            assert keys.setdefault(stage.marker, stage.key) == stage.key
        runs = {stage.folder.parents[1] for stage in stages if stage.kind == "train"}
        assert {f"--work_dir={folder}" for folder in runs} <= {*work.command(job)}
    pseudo = [marker for marker in keys if marker.name.startswith("pseudo_references")]
    assert len(pseudo) == 3
    student = plans.Job("comparison_synchronous", "plain", (), 2)
    teachers = [plans.Job(name, "plain", (), 2) for name in (ROOT, "comparison_transformer_r2l")]
    assert plan.needs(student, {"Transformer": (), "synchronous": ()}) == teachers
    trained = {stage.folder for stage in work.stages(student) if stage.kind == "train"}
    assert trained == {work.folder(job) for job in [student, *teachers]}
    plain = next(job for job in jobs if job.variant == "plain")
    assert work.folder(plain) == tmp_path / "multi30k" / "runs" / "comparison_transformer.untuned" / "seed1"


@pytest.mark.parametrize("hparams", ["", "hidden_size=16"])
def test_results_of_both_precisions_go_together(benchmark, stores, make_plan, tmp_path, hparams):
    """A training uses the precision that it is given, but the settings by which results are compared omit it."""
    plan, found = make_plan(tune=False), {}
    for precision in ("float32", "mixed_bfloat16"):
        flags = [f"--work_dir={tmp_path}", "--tmp_dir=RAW", f"--precision={precision}", f"--hparams={hparams}"]
        args = benchmark._parser().parse_args(flags)
        work = benchmark.ExperimentWork(args, plan, stores.Store(tmp_path / "r.json"), tmp_path / "w", tmp_path / "r")
        job = plan.jobs({}, [1], ["plain"])[0][0]
        work.write_recipes([job])
        stages = work.stages(job)
        trained = next(stage for stage in stages if stage.kind == "train").flags["hparams"]
        assert f"precision={precision}" in trained.split(",")
        assert trained.count("precision=") == 1
        assert stores._precision_of(stages) == precision
        assert f"--hparams={hparams}{',' if hparams else ''}precision={precision}" in work.command(job)
        found[precision] = work.settings(job)
    assert found["float32"] == found["mixed_bfloat16"]
    assert ("hidden_size=16" in found["float32"]["train --hparams"].split(",")) == bool(hparams)
    assert "precision" not in str(found)


# === The queue ===


TWO_SLOTS = ((0,), (0, 0))  # also on a machine with only one core


class Pretended:
    """Simulates trainings: the commands only write down their cores, and the results are made up."""

    def __init__(self, folder, stores, code="0"):
        self.root, self.code, self.stores, self.started, self.prepared = folder, code, stores, [], []
        self.lost, self.came_out = set(), "0"  # jobs whose runs are gone; digest of their translations if made again

    def prepare(self, job):
        self.prepared.append(job)

    def command(self, job):
        self.started.append(job)
        assert job in self.prepared
        text = "import os, sys, time, pathlib; pathlib.Path(sys.argv[1]).write_text(str(os.sched_getaffinity(0)))\n"
        return [sys.executable, "-S", "-c", f"{text}{self.code}", str(self.folder(job) / "cores"), job.row]

    def folder(self, job):
        return self.root / f"{job.row}.{job.variant}.{job.cell}.{job.seed}"

    def unfinished(self, job):
        return {self.root / job.row}

    def gone(self, job):
        return job in self.lost

    def record_of_failed(self, job, seconds):
        if not (self.folder(job) / "diverged").exists():
            return None
        whole = made_up(self.stores, job, 0.0)
        kept = ("row", "variant", "cell", "seed", "name", "words", "date", "machine", "settings", "updates", "minutes",
                "minutes_before", "seconds")  # fmt: skip
        return {**{name: whole[name] for name in kept}, "ended": "diverged", "dev_loss": None}

    def record(self, job, seconds):
        made = made_up(self.stores, job, 40.0 + job.seed + 10 * job.cell[0] - 100 * job.cell[1])
        made["test"]["sha256"] = self.came_out if job in self.lost else "0"
        self.lost.discard(job)
        return {**made, "precision": "float32"}


@pytest.fixture
def queue_of(benchmark, make_plan, stores, tmp_path, monkeypatch):
    """Returns a function that makes a queue of the Transformer and the views, with one slot by default."""
    module = importlib.import_module("_comparison_queue")
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.05)
    plan = make_plan()

    def make(code="0", only=("comparison_transformer", "comparison_cross_view"), cores=((0,),)):
        store, work = stores.Store(tmp_path / "results.json"), Pretended(tmp_path / "runs", stores, code)
        queue = module.Queue(plan, store, work, lambda: plan.jobs(store.scores(), [1, 2], ["plain"], only), cores)
        return queue, work, store

    return make


def test_a_queue_tunes_then_trains_and_a_second_one_has_nothing_to_do(queue_of, capsys):
    queue, work, store = queue_of()
    queue.run()
    assert queue.failed == {}
    assert len(work.started) == len(set(work.started)) == len(store.records) == 12
    rows = [(job.row, job.cell, job.seed) for job in work.started if job.variant == "plain"]
    assert sorted(rows) == [(row, (0.3, 0.00375), seed) for row in ("comparison_cross_view", ROOT) for seed in (1, 2)]
    assert (work.folder(work.started[0]) / "cores").read_text() == "{0}"
    said = capsys.readouterr().out
    assert "12 of 12 trainings done" in said
    assert "min left" in said
    again, work, _ = queue_of()
    again.run()
    assert work.started == []


def test_rows_of_a_failed_training_wait_and_the_next_command_tries_again(queue_of):
    queue, work, store = queue_of("if sys.argv[2].endswith('cross_view'): sys.exit('no luck')")
    queue.run()
    assert {job.row for job in store.records} == {ROOT}
    assert len(store.records) == 6
    assert all("no luck Its output is in" in why for why in queue.failed.values())
    assert {job.row for job in queue.failed} == {"comparison_cross_view"}
    again, work, store = queue_of()
    again.run()
    assert ROOT not in {job.row for job in work.started}
    assert len(store.records) == 12


@pytest.mark.parametrize("came_out", ["0", "1"])
def test_a_run_that_is_gone_is_made_again_for_those_that_take_it(queue_of, came_out, capsys, stores):
    """The stored result stays; if the new translations differ, this is stored and reported."""
    queue_of()[0].run()
    queue, work, store = queue_of(only=("comparison_transformer_longer",))
    before = dict(store.records)
    teachers = [job for job in before if job.row == ROOT and job.variant == "plain"]
    work.lost, work.came_out = {*teachers, *(job for job in before if job.row != ROOT)}, came_out
    queue.run()
    assert [job.row for job in work.started] == [ROOT, "comparison_transformer_longer"] * 2
    assert work.started[::2] == teachers  # not those of the views, which no wanted training needs
    output = capsys.readouterr().out
    assert "again: its run is gone, and others take it" in output
    assert ("OTHER translations" in output) is (came_out == "1")
    for job in teachers:
        assert store.records[job].pop("made_again", []) == (
            [{"date": "2026-11-23", "machine": "a machine", "precision": "float32", "BLEU": before[job]["test"]["BLEU"],
              "sha256": "1"}] if came_out == "1" else []
        )  # fmt: skip
        assert store.records[job] == {**before[job]}
    assert len(store.records) == len(before) + 2


def test_an_unexpected_error_ends_no_other_training(queue_of, capsys):
    queue, work, store = queue_of(only=(ROOT,))
    made, broken = work.record, []

    def record(job, seconds):
        if job.cell[0] == 0.3 and not broken:
            broken.append(job)
            raise TypeError("such a number")
        return made(job, seconds)

    work.record = record
    queue.run()
    assert list(queue.failed) == broken
    assert "failed: TypeError: such a number. The traceback is in " in capsys.readouterr().out
    assert "in record" in (work.folder(broken[0]) / "queue.log").read_text()
    assert len(store.records) == 1


def test_a_cell_that_diverges_is_a_result(queue_of, benchmark, make_plan, differences, tmp_path, monkeypatch, capsys):
    """A cell with too high a rate is not chosen, and the other trainings of the family continue."""
    code = "if '0.015' in sys.argv[1]: pathlib.Path(sys.argv[1]).with_name('diverged').touch(); sys.exit('not finite')"
    queue, work, store = queue_of(code)
    queue.run()
    assert queue.failed == {}
    assert len(store.records) == 12
    assert {job.cell[1] for job, record in store.records.items() if record["ended"] == "diverged"} == {0.015}
    assert "diverged after 9,000 updates" in capsys.readouterr().out
    assert {job.cell for job in work.started if job.variant == "plain"} == {(0.3, 0.00375)}
    again, work, _ = queue_of()
    again.run()
    assert work.started == []
    monkeypatch.setattr(differences, "SAMPLES", 500)
    monkeypatch.setattr(differences, "TRIALS", 500)
    assert benchmark.main(["--report", f"--results={tmp_path / 'results.json'}"]) == 0
    page = (tmp_path / "results.md").read_text()
    assert "| Transformer | 0.3 | 0.015 |  |  |  | 9,000 | diverged |" in page
    assert "comparison_transformer, seed 1 (diverged)" in page


def test_one_training_at_a_time_works_on_a_stage(queue_of):
    """Trainings that need the same unfinished stage (here: of one row) do not run side by side."""
    queue, _work, _ = queue_of("time.sleep(0.2)", only=[ROOT], cores=TWO_SLOTS)
    together = []
    original = queue._started

    def started(job, cores, markers):
        together.append(len(queue._running))
        return original(job, cores, markers)

    queue._started = started
    queue.run()
    assert together == [0] * 6


def test_what_waits_for_a_stage_starts_when_the_stage_is_done(queue_of, tmp_path):
    """The second training waits only for the data that the first one makes, not for the end of the first."""
    data, other = tmp_path / "data", tmp_path / "other"
    wait = f"until = time.monotonic() + 30\nwhile not pathlib.Path({str(other)!r}).exists(): "
    code = (
        f"if sys.argv[2] == {ROOT!r}:\n time.sleep(0.2); pathlib.Path({str(data)!r}).touch()\n"
        f"else: pathlib.Path({str(other)!r}).touch()\n"
        f"{wait}time.sleep(0.01); assert time.monotonic() < until"
    )
    queue, work, _ = queue_of(code, only=(ROOT, "comparison_cross_view"), cores=TWO_SLOTS)
    own = work.unfinished
    work.unfinished = lambda job: own(job) | (set() if data.exists() else {data})
    queue.run()
    assert queue.failed == {}
    assert {job.row for job in work.started[:2]} == {ROOT, "comparison_cross_view"}


def test_an_interrupted_queue_ends_its_trainings(queue_of, monkeypatch):
    queue, _work, store = queue_of("time.sleep(60)")

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("_comparison_queue").time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        queue.run()
    assert [each.process.returncode for each in queue._running.values()] == [-signal.SIGTERM]
    assert store.records == {}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells the trainings")
def test_trainings_of_a_killed_queue_end(tmp_path):
    """After kill -9 of the queue, no training is left that could collide with the next command."""
    code = f"""
import sys, time, types, pathlib
sys.path.insert(0, {str(FOLDER)!r})
import _comparison_queue as module
work = types.SimpleNamespace(command=lambda job: [sys.executable, "-S", "-c", "import time; time.sleep(60)"],
                             prepare=lambda job: None, folder=lambda job: pathlib.Path({str(tmp_path)!r}))
plan = types.SimpleNamespace(name=lambda job: "a")
queue = module.Queue(plan, None, work, None, [[0]])
running = queue._started(types.SimpleNamespace(seed=1), [0], set())
print(running.process.pid, flush=True)
time.sleep(60)
"""
    queue = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    queue.stdout.readline()
    pid = int(queue.stdout.readline())
    queue.kill()
    queue.wait()
    until = time.monotonic() + 10
    while pathlib.Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not pathlib.Path(f"/proc/{pid}").exists()


# === Stored results ===


def test_results_are_on_the_disk_at_once(stores, plans, tmp_path):
    store, path = stores.Store(tmp_path / "r.json"), tmp_path / "r.json"
    job, other = (plans.Job("comparison_enc_dc", "plain", (0.2, 0.0075), seed) for seed in (1, 2))
    elsewhere = stores.Store(path)
    store.add(made_up(stores, job, 40.0))
    elsewhere.add(made_up(stores, other, 41.0))  # the result of another command stays
    store.add(made_up(stores, job, 42.0))
    again = stores.Store(path)
    assert [record["test"]["BLEU"] for record in again.records.values()] == [42.0, 41.0]
    assert list(again.records) == [job, other]
    assert len(path.read_text().splitlines()) == 4  # one line per result
    again.check(job, {"train --a": "1"})
    with pytest.raises(stores.UserError, match="train --a: '1', now '2'"):
        again.check(job, {"train --a": "2"})
    path.write_text("{")
    with pytest.raises(stores.UserError, match="is damaged"):
        stores.Store(path)
    path.write_text('{"format": 7, "results": []}')
    with pytest.raises(stores.UserError, match="format 7, known is 1"):
        stores.Store(path)


def write_run(folder, steps, bleus, command="translate-all"):
    """Writes a run of `steps` updates, each ten of which take half a minute, with its checkpoint."""
    run = folder / "run"
    checkpoint = run / "checkpoints" / f"model.ckpt-{steps:08d}"
    checkpoint.mkdir(parents=True)
    variables = {"model": {name: {"shape": shape, "dtype": "float32"} for name, shape in (("a", [2, 3]), ("b", [4]))}}
    (checkpoint / "checkpoint.json").write_text(
        json.dumps({"format_version": 1, "step": steps, "files": {}, "groups": variables, "metadata": {}})
    )
    window = {"kind": "train", "seconds": 30.0, "source_tokens_per_step": 150.0, "target_tokens_per_step": 150.0}
    lines = [{**window, "step": step, "tokens_per_second": 100.0} for step in range(10, steps + 1, 10)]
    lines += [
        {"kind": "eval", "step": step, "seconds": 6.0, "bleu": bleu, "loss": 3.0 - bleu / 20}
        for step, bleu in zip(range(10, steps + 1, 10), bleus, strict=True)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_scores(stage, bleu):
    stage.output.parent.mkdir(parents=True, exist_ok=True)
    if stage.command == "rerank":
        scores = {"reranked": [{"name": "BLEU", "value": bleu, "signature": "nrefs:1"}]}
        found = {"winners": {"l2r": 0.5, "r2l": 0.5}, "scores": scores, "lines": 9, "seconds": 3.0}
        stage.output.write_text(json.dumps(found))
        return
    stage.output.mkdir()
    record = {
        "step": 1, "checkpoint": "c", "weights": "", "search": "", "scoring": "", "translations": "t", "lines": 30,
        "seconds": 2.0, "scores": {"BLEU_cased": bleu}, "signatures": {"BLEU_cased": "nrefs:1"},
    }  # fmt: skip
    (stage.output / "scores.jsonl").write_text(json.dumps(record) + "\n")


@pytest.mark.parametrize("row", ["comparison_cross_view_continued", "comparison_rerank"])
def test_result_of_a_training(benchmark, stores, plans, book, tmp_path, monkeypatch, row):
    """Minutes of first weights count and are listed separately; reranking has its parts' parameters and no training."""
    options = benchmark.plans.Options(work_dir=tmp_path, seeds=(2,))
    recipe = book.recipe(row)
    stages = benchmark.plans.plan(recipe, book, options)
    for stage in stages:
        if stage.kind == "train":
            first = stage.owner == ROOT
            write_run(stage.folder, 40 if first else 30, [10.0, 30.0, 20.0, 25.0][: 4 if first else 3])
        elif stage.kind == "score":
            write_scores(stage, 33.25)
    monkeypatch.setattr(stores, "_analysis", lambda stage: {"chrF2": 50.0, "sentences": 3, "counts": stage.split})
    job = plans.Job(row, "plain", (0.2, 0.0075), 2)
    cell = {"layer_prepostprocess_dropout": 0.2, "learning_rate_constant": 0.0075}
    found = stores.record_of(job, cell, recipe, stages, 12.3, cores=2)
    assert stores.key(found) == job
    scores = {"BLEU": 33.25, "signature": found["test"]["signature"], "sentences": 3}
    assert found["test"] == {**scores, "chrF2": 50.0, "counts": "test"}
    assert found["dev"] == {**scores, "counts": "dev"}
    assert found["machine"].endswith(", 2 cores a training")
    assert found["settings"]["data --problem"] == "translate_deen_multi30k"
    if row == "comparison_rerank":
        assert (found["parameters"], found["updates"], found["dev_loss"], found["curve"]) == (20, 70, None, [])
        assert (found["minutes"], found["minutes_before"], found["minutes_to_best"]) == (3.5, 3.5, 2.0)
        assert found["sentences_per_second"] == 3.0
        assert not [name for name in found["settings"] if name.startswith("score test --l2r")]
    else:
        assert (found["parameters"], found["updates"], found["updates_to_best"]) == (10, 30, 20)
        assert (found["minutes"], found["minutes_before"], found["minutes_to_best"]) == (3.5, 2.0, 3.0)
        assert (found["dev_loss"], found["tokens_per_second"], found["sentences_per_second"]) == (1.5, 100, 15.0)
        assert found["curve"] == [[10, 2.5, 2.5, 10.0], [20, 3.0, 1.5, 30.0], [30, 3.5, 2.0, 20.0]]
        assert found["settings"]["train --train_steps"] == "8000"
        assert found["settings"][f"train {ROOT} --train_steps"] == "40000"
    assert found["ended"] == ("early stopping" if row == "comparison_rerank" else "budget")


# === Tests of differences ===


def test_differences_over_seeds(differences, stores, plans):
    good, bad = ({seed: counts_of(stores, plans, noise, seed) for seed in (1, 2, 3)} for noise in (0.1, 0.4))
    found = differences.difference(good, bad)
    mean = np.mean(
        [differences.bleu(each[seed].sum(0)) * sign for each, sign in ((good, 1), (bad, -1)) for seed in good]
    )
    assert found.value == pytest.approx(2 * mean)
    assert 0 < found.low < found.value < found.high
    assert found.p_randomization < 0.001 > found.p_bootstrap - 0.001
    same = differences.difference(good, good)
    assert (same.value, same.p_randomization, same.seeds) == (0.0, 1.0, 3)
    assert same.low <= 0 <= same.high
    one = differences.difference({3: good[3]}, bad)
    assert one.seeds == 1
    assert differences.difference({4: good[3]}, bad) is None


def test_three_seeds_are_not_three_times_as_many_sentences(differences, stores, plans):
    """Three copies of the same translations have the p of a single seed."""
    good, bad = (counts_of(stores, plans, noise, 1) for noise in (0.18, 0.2))
    one = differences.difference({1: good}, {1: bad})
    three = differences.difference(dict.fromkeys((1, 2, 3), good), dict.fromkeys((1, 2, 3), bad))
    assert three.p_randomization == pytest.approx(one.p_randomization, abs=0.02)
    assert three.high - three.low == pytest.approx(one.high - one.low, rel=0.1)


# === The command ===


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--corpus=multi30"], "Did you mean 'multi30k'"),
        ([], "--work_dir=DIR"),
        (["--work_dir={tmp}", "--only=comparison_enc_d"], "Did you mean 'comparison_enc_dc'"),
        (["--work_dir={tmp}", "--seeds=a"], "--seeds=1,2,3"),
        (["--work_dir={tmp}", "--variants=bset"], "none of plain, best, papers, less_dropout"),
        (["--work_dir={tmp}", "--cores=1000"], "cores that this command may use"),
        (["--report"], "has no results yet"),
    ],
)
def test_mistakes_on_the_command_line(benchmark, tmp_path, capsys, flags, message):
    given = [flag.format(tmp=tmp_path) for flag in flags]
    assert benchmark.main([*given, f"--results={tmp_path / 'r.json'}"]) != 0
    assert message in capsys.readouterr().err


def test_dry_run_lists_what_is_done(benchmark, tmp_path, capsys, stores, make_plan):
    flags = [f"--work_dir={tmp_path}", f"--results={tmp_path / 'r.json'}", "--only=comparison_enc_dc", "--dry_run"]
    assert benchmark.main(flags) == 0
    said = capsys.readouterr().out
    assert "11 trainings, 0 of them done already" in said
    assert "to do comparison_enc_dc.tuning.dropout0.2.rate0.0075, seed 1" in said
    assert not (tmp_path / "multi30k").exists()  # a queue that works there keeps its recipes
    job = make_plan().jobs({}, [1], ["plain"], ["comparison_enc_dc"])[0][0]
    stores.Store(tmp_path / "r.json").add(made_up(stores, job, 40.0))
    assert benchmark.main(flags) != 0
    assert "made with other settings" in capsys.readouterr().err
    stored = json.loads((tmp_path / "r.json").read_text())
    assert len(stored["results"]) == 1


def test_a_queue_that_ends_reports_what_another_command_has_stored(benchmark, tmp_path, stores, make_plan, monkeypatch):
    job = make_plan().jobs({}, [1], ["plain"], ["comparison_transformer"])[0][0]

    def train(*_):
        stores.Store(tmp_path / "r.json").add(made_up(stores, job, 40.0))
        return {}

    monkeypatch.setattr(benchmark, "_train", train)
    flags = [f"--work_dir={tmp_path}", f"--results={tmp_path / 'r.json'}"]
    assert benchmark.main(flags) == 0
    assert "1 result, " in (tmp_path / "r.md").read_text()
