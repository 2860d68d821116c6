"""Tests of benchmarks/time_to_quality.py: curves from small logs, a queue with a simulated trainer, and a real run."""

import dataclasses
import importlib
import json
import math
import os
import pathlib
import signal
import sys
import threading
import time

import pytest

FOLDER = pathlib.Path(__file__).parents[3] / "benchmarks"
PROBLEM = "translate_ende_cldr"


@pytest.fixture(scope="module")
def benchmark():
    return importlib.import_module("time_to_quality")


@pytest.fixture(scope="module")
def curves(benchmark):
    return benchmark.curves


def window(step, seconds, rate=100.0):
    return {
        "kind": "train", "step": step, "seconds": seconds, "tokens_per_second": rate, "source_tokens_per_step": 40.0,
        "target_tokens_per_step": 60.0, "examples_per_step": 5.0, "loss": 1.0,
    }  # fmt: skip


def evaluation(step, bleu, seconds=6.0):
    return {"kind": "eval", "step": step, "loss": 2.0, "seconds": seconds, **({} if bleu is None else {"bleu": bleu})}


def write_run(folder, *records):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def rising(folder, bleus, minutes=1.0):
    """Writes a run with an evaluation every 60 updates, which take the given number of minutes."""
    records = []
    for number, bleu in enumerate(bleus, 1):
        records += [window(60 * number, 60 * minutes, 100 / minutes), evaluation(60 * number, bleu)]
    return write_run(folder, *records)


# === Curves ===


def test_minutes_and_tokens_of_a_run(curves, tmp_path):
    # 59 of the first 60 updates were timed, at a second each; an evaluation lies inside the second window.
    run = write_run(
        tmp_path / "mine", window(60, 59.0), evaluation(60, None), evaluation(90, 10.0), window(120, 60.0),
        evaluation(120, 20.0, 12.0), evaluation(150, 30.0),
    )  # fmt: skip
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"kind": "train", "st')  # a line that is still being written
    found = curves.read_run(run)
    assert (found.name, found.updates, found.minutes) == ("mine", 120, pytest.approx(2.0))
    first, second, third = found.points
    assert (first.updates, first.bleu, first.loss) == (90, 10.0, 2.0)
    assert (first.minutes, first.minutes_counted, first.tokens) == pytest.approx((1.5, 1.7, 5400))
    assert (second.minutes, second.minutes_counted, second.tokens) == pytest.approx((2.0, 2.4, 7200))
    assert (third.minutes, third.minutes_counted, third.tokens) == pytest.approx((2.5, 3.0, 9000))  # at the last rate
    assert found.best is third
    assert curves.read_run(run, before=4.0).points[0].minutes == pytest.approx(5.5)
    assert curves.read_run(tmp_path / "nothing").points == []


def test_a_loss_that_is_no_number_is_null_in_the_log(curves, tmp_path):
    run = write_run(tmp_path / "run", window(60, 59.0), {**evaluation(60, 10.0), "loss": None})
    assert math.isnan(curves.read_run(run).points[0].loss)


def test_a_pause_is_no_training(curves, tmp_path):
    """A stop of the process for half an hour in the third minute does not count; a merely slow window does."""
    windows = [window(60, 60.0), window(120, 60.0), window(180, 1860.0, 100 / 31), window(240, 600.0, 10.0)]
    found = curves.read_run(write_run(tmp_path / "mine", *windows, window(300, 60.0), evaluation(300, 10.0)))
    assert (found.minutes, found.points[0].minutes) == pytest.approx((14.0, 14.0))
    assert found.points[0].tokens == pytest.approx(300 * 60)
    twice = curves.read_run(
        write_run(tmp_path / "twice", window(60, 60.0), window(60, 0.0))
    )  # a window without updates
    assert (twice.updates, twice.minutes) == (60, pytest.approx(1.0))


def test_first_evaluation_and_interpolated(curves, tmp_path):
    points = curves.read_run(rising(tmp_path / "run", [10.0, 30.0, 20.0, 50.0])).points
    assert curves.reached(points, 30.0).updates == 120
    assert curves.reached(points, 25.0).minutes == pytest.approx(2.0)
    between = curves.reached(points, 25.0, interpolated=True)
    assert (between.minutes, between.tokens) == pytest.approx((1.75, 6300))
    assert (between.updates, between.bleu) == (105, 25.0)
    assert curves.reached(points, 5.0, interpolated=True).minutes == pytest.approx(0.5)
    assert curves.reached(points, 40.0).updates == 240  # a later drop to 20 does not undo the 30 that was reached
    assert curves.reached(points, 50.1) is None


def test_spread_over_seeds(curves, tmp_path):
    runs = [curves.read_run(rising(tmp_path / str(seed), bleus)) for seed, bleus in enumerate(([10, 30], [30], [20]))]
    assert curves.to_target(runs, 15.0, "minutes").shown(".1f") == "1.3 (1.0–2.0)"
    assert curves.to_target(runs, 30.0, "updates").shown(",.0f") == "90 (60–120), 2 of 3"
    assert curves.to_target(runs[:1], 30.0, "updates").shown(",.0f") == "120"
    assert curves.to_target(runs, 31.0, "updates").shown(",.0f") == "-"


FAIRSEQ = """\
2026-11-21 10:00:00 | INFO | fairseq_cli.train | Namespace(no_progress_bar=False)
2026-11-21 10:00:20 | INFO | fairseq.trainer | begin training epoch 1
2026-11-21 10:00:20 | INFO | fairseq_cli.train | Start iterating over samples
2026-11-21 10:01:20 | INFO | train_inner | {"epoch": 1, "loss": "12.3", "wps": "900", "wpb": "100", "num_updates": "10"}
2026-11-21 10:02:20 | INFO | fairseq_cli.train | begin validation on "valid" subset
2026-11-21 10:02:50 | INFO | valid | {"epoch": 1, "valid_loss": "5", "valid_bleu": "12.5", "valid_num_updates": "20"}
2026-11-21 10:02:52 | INFO | fairseq.checkpoint_utils | Saved checkpoint c.pt (20 updates) (writing took 2.0 seconds)
2026-11-21 10:02:52 | INFO | train_inner | {"epoch": 1, "loss": "9.3", "wps": "900", "wpb": "120", "num_updates": "20"}
2026-11-21 10:03:52 | INFO | train_inner | {"epoch": 1, "loss": "9.3", "wps": "900", "wpb": "110", "num_updates": "30"}
2026-11-21 10:04:52 | INFO | fairseq_cli.train | begin validation on "valid" subset
2026-11-21 10:05:52 | INFO | valid | {"epoch": 2, "valid_loss": "4", "valid_bleu": "25", "valid_num_updates": "40"}
Traceback or anything else
"""


def test_log_of_fairseq(curves, tmp_path):
    (tmp_path / "log").write_text(FAIRSEQ)
    run = curves.read_fairseq(tmp_path / "log")
    assert [(point.updates, point.bleu) for point in run.points] == [(20, 12.5), (40, 25.0)]
    assert [point.minutes for point in run.points] == pytest.approx([2.0, 4.0])
    assert [point.minutes_counted for point in run.points] == pytest.approx([2.5, 5.5])
    assert run.points[0].tokens == pytest.approx(2000)  # at this validation, the last ten updates had not been logged
    assert run.points[1].tokens == pytest.approx(4400)
    assert (run.updates, run.minutes) == (30, pytest.approx(3.0))
    (tmp_path / "without").write_text("\n".join(line for line in FAIRSEQ.splitlines() if "valid" not in line))
    assert curves.read_fairseq(tmp_path / "without").points == []


# === Recipes ===

RECIPES = """\
[mine]
template = true
paper = "t2t_ext"
table = "x"
row = "x"
problem = "translate_ende_cldr"
scoring = "sacrebleu"
model = "transformer"
hparams_set = "transformer_test"
train = { train_steps = 100, local_eval_frequency = 20 }
checkpoint = "best"

[mine_slow]
extends = "mine"
row = "slow"
hparams = { learning_rate_constant = 0.1 }

[mine_fast]
extends = "mine"
row = "fast"
seeds = 3
"""


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(RECIPES)
    return path


def test_recipes_that_flags_name(benchmark, recipe_file):
    jobs = benchmark._quality_jobs
    known, own = jobs.book(recipe_file)
    assert own == ["mine_fast", "mine_slow"]
    assert [each.name for each in jobs.chosen([], known, own, "", "transformer")] == own
    assert [each.name for each in jobs.chosen(["mine_s*"], known, own, "", "transformer")] == ["mine_slow"]
    [inline] = jobs.chosen(
        ["a=transformer_test:precision=mixed_bfloat16,batch_size=64"], known, own, PROBLEM, "transformer"
    )
    assert (inline.hparams_set, inline.model) == ("transformer_test", "transformer")
    assert inline.hparams == {"precision": "mixed_bfloat16", "batch_size": "64"}
    assert inline.scoring == "sacrebleu"


def test_recipes_that_were_tried(benchmark, tmp_path):
    """Every recipe of benchmarks/quality.toml has a plan whose commands are valid."""
    known, own = benchmark._quality_jobs.book(FOLDER / "quality.toml")
    recipes = benchmark._quality_jobs.chosen([], known, own, "", "")
    assert len(recipes) == len(own) > 5
    options = benchmark.Options(work_dir=tmp_path, seeds=[3])
    found = benchmark._quality_jobs.jobs(recipes, known, options, benchmark._quality_jobs.Budget(), "")
    for job, recipe in zip(found, recipes, strict=True):
        flags = job.training.flags
        assert int(flags["local_eval_frequency"]) % flags["log_step_count_steps"] == 0
        assert f"hparams_set={recipe.hparams_set}" in job.training.command_line
        assert job.stages[-1].flags["checkpoints"] == "best"


@pytest.mark.parametrize(
    ("texts", "problem", "message"),
    [
        (["mine_fsat"], "", "Did you mean 'mine_fast'"),
        (["x*"], "", "no recipe has such a name"),
        (["a=transformer_test"], "", "--problem=NAME says what to translate"),
        (["a=transformer_tset"], PROBLEM, "transformer_test"),
        (["a=transformer_test:nope=1"], PROBLEM, "nope"),
        (["a=transformer_test:nope"], PROBLEM, "--recipe=a=transformer_test:"),
        (["a=transformer_test", "a=transformer_tiny"], PROBLEM, "two recipes"),
        (["cldr_synchronous"], "", "not one training"),
    ],
)
def test_recipes_that_cannot_be(benchmark, recipe_file, texts, problem, message):
    known, own = benchmark._quality_jobs.book(recipe_file)
    with pytest.raises(benchmark.UserError, match=message):
        benchmark._quality_jobs.chosen(texts, known, own, problem, "transformer")


# === The queue ===

PRETENDER = """\
#!{python} -S
import json, os, pathlib, signal, sys, time
module, flags = sys.argv[2], dict(part[2:].split("=", 1) for part in sys.argv[3:])
run = pathlib.Path(flags["output_dir"])
if module.endswith("translate_all"):
    folder = pathlib.Path(flags["translations_dir"]) / "best.test.beam4.alpha0.6"
    folder.mkdir(parents=True, exist_ok=True)
    record = dict(step=1, checkpoint="c", weights="", search="", scoring="", translations="t", lines=1, seconds=1.0,
                  scores={{"BLEU": 12.5}}, signatures={{"BLEU": "nrefs:1"}})
    (folder / "scores.jsonl").write_text(json.dumps(record) + "\\n")
    sys.exit(0)
if flags["random_seed"] == "13":
    sys.exit("error: no luck")
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
path, every = run / "metrics.jsonl", int(flags["local_eval_frequency"])
run.mkdir(parents=True, exist_ok=True)
def log(record):
    with open(path, "a") as file:
        file.write(json.dumps(record) + "\\n")
def evaluate(step):
    if f'"eval", "step": {{step}},' in path.read_text():
        return
    log(dict(kind="eval", step=step, bleu=step / 10, loss=1.0, seconds=6.0))
def leave(status):
    folder = run / "checkpoints" / f"model.ckpt-{{step:08d}}"
    folder.mkdir(parents=True, exist_ok=True)
    variables = {{"model": {{n: {{"shape": s, "dtype": "float32"}} for n, s in [("a", [2, 3]), ("b", [4])]}}}}
    (folder / "checkpoint.json").write_text(json.dumps(
        dict(format_version=1, step=step, files={{}}, groups=variables, metadata={{}})))
    (run / "cores").write_text(json.dumps(sorted(os.sched_getaffinity(0))))
    sys.exit(status)
saved = sorted((run / "checkpoints").glob("*")) if (run / "checkpoints").exists() else []
step = int(saved[-1].name[-8:]) if saved else 0
print(f"first step after {{step + 1.5}} s", flush=True)
if saved and step >= int(flags["train_steps"]):
    evaluate(step)
while step < int(flags["train_steps"]):
    if not saved and int(flags["train_steps"]) > 100:  # whoever stops it has some time
        time.sleep(0.05)
    step += 5
    if step % 10 == 0:
        log(dict(kind="train", step=step, seconds=30.0, tokens_per_second=100.0, source_tokens_per_step=150.0,
                 target_tokens_per_step=150.0))
    if step % every == 0:
        evaluate(step)
    if stopped:
        leave(143)
leave(0)
"""


@pytest.fixture
def pretending(benchmark, tmp_path, monkeypatch):
    """Returns a function that runs commands with a simulated trainer: 10 updates in half a minute, BLEU updates/10."""
    program = tmp_path / "pretender"
    program.write_text(PRETENDER.format(python=sys.executable))
    program.chmod(0o755)
    runs = benchmark._quality_runs
    monkeypatch.setattr(runs, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(runs.sys, "executable", str(program))

    def call(*flags):
        common = [f"--work_dir={tmp_path / 'w'}", "--data_dir=D", "--say_every=0.2", f"--problem={PROBLEM}"]
        recipe = "" if any(flag.startswith("--recipe") for flag in flags) else "--recipe=a=transformer_test"
        return benchmark.main([*common, "--eval_every=20", *filter(None, [recipe]), *flags])

    return call


def result(tmp_path, name="a", seed=1):
    return json.loads((tmp_path / "w" / "results" / f"{name}.seed{seed}.json").read_text())


def test_ends_at_the_target(pretending, tmp_path, capsys):
    assert pretending("--targets=3,6", "--updates=1000", "--seeds=1,2,1", "--jobs=1") == 0
    for seed in (1, 2):
        found = result(tmp_path, seed=seed)
        assert (found["ended"], found["test"], found["parameters"]) == ("target", 12.5, 10)
        assert found["test_signature"] == "BLEU nrefs:1"
        assert found["startup_seconds"] == 1.5
        assert 60 <= found["updates"] < 200
        run = tmp_path / "w" / "a" / f"seed{seed}" / "run"
        assert json.loads((run / "cores").read_text()) == found["on_cores"]
        assert len(found["on_cores"]) == 1
    text = capsys.readouterr().out
    assert "0 of 2 done" in text
    assert "min of training left" in text
    assert "| a | 2.00 (2.00–2.00) | 3.00 (3.00–3.00) |" in (tmp_path / "w" / "quality.md").read_text()
    stored = json.loads((tmp_path / "w" / "quality.json").read_text())
    assert stored["recipes"]["a"]["targets"]["6"]["minutes_counted"]["values"] == pytest.approx([3.3, 3.3])
    assert stored["recipes"]["a"]["runs"][0]["targets"]["3"]["interpolated"]["minutes"] == pytest.approx(1.5)


def test_ends_with_the_minutes_and_continues(pretending, tmp_path, capsys):
    assert pretending("--minutes=1.5") == 0
    first = result(tmp_path)
    assert first["ended"] == "minutes"
    [saved] = (tmp_path / "w" / "a" / "seed1" / "run" / "checkpoints").iterdir()
    last = first["points"][-1]["updates"]
    assert saved.name == f"model.ckpt-{last:08d}"  # evaluated at the update where it was stopped
    assert 30 <= last < 100
    assert pretending("--minutes=1.5") == 0  # done already
    assert "1 trainings, 1 of them done already" in capsys.readouterr().out
    assert result(tmp_path)["date"] == first["date"]
    assert pretending("--updates=200") == 0
    second = result(tmp_path)
    assert (second["ended"], second["updates"]) == ("updates", 200)
    assert second["points"][: len(first["points"])] == first["points"]
    assert pretending("--updates=200", "--hparams=attention_dropout=0.3") == 2
    assert "was made with other settings" in capsys.readouterr().err


def test_resumes_after_an_interruption(pretending, tmp_path, capsys):
    run = tmp_path / "w" / "a" / "seed1" / "run"

    def interrupt():
        while not (run / "metrics.jsonl").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=interrupt).start()
    assert pretending("--updates=200") == 130
    assert "a, seed 1: stopped; the same command resumes it" in capsys.readouterr().out
    assert not (tmp_path / "w" / "results").exists()
    [saved] = (run / "checkpoints").iterdir()
    assert 0 < int(saved.name[-8:]) < 200
    assert pretending("--updates=200") == 0
    found = result(tmp_path)
    assert [point["updates"] for point in found["points"]] == list(range(20, 201, 20))
    assert found["startup_seconds"] == 1.5  # the time of the first start


def test_first_weights_of_another_recipe_take_their_time(pretending, tmp_path, capsys):
    path = tmp_path / "next.toml"
    text = (
        RECIPES
        + """
[mine_next]
extends = "mine"
row = "continues"
warm_start = "mine_fast"
train = { train_steps = 40 }
"""
    )
    path.write_text(text)
    assert pretending(f"--recipes={path}", "--recipe=mine_next", "--recipe=mine_fast", "--jobs=1") == 0
    assert [point["minutes"] for point in result(tmp_path, "mine_fast")["points"]] == pytest.approx([1, 2, 3, 4, 5])
    assert [point["minutes"] for point in result(tmp_path, "mine_next")["points"]] == pytest.approx([6, 7])
    assert "| mine_next | 10 | 1 | 1.5 | 40 | 7.00 | 50 |" in (tmp_path / "w" / "quality.md").read_text()
    flags = [f"--recipes={path}", "--recipe=mine_next"]
    assert pretending(*flags, "--minutes=4", f"--work_dir={tmp_path / 'other'}") == 1
    assert "took 5.0 min, the whole budget" in capsys.readouterr().out


def test_a_training_that_fails_does_not_end_the_others(pretending, tmp_path, capsys):
    assert pretending("--updates=20", "--seeds=13,1", "--jobs=1") == 1
    assert "failed: a, seed 13: train, seed 13 ended with status 1: error: no luck" in capsys.readouterr().out
    assert result(tmp_path)["ended"] == "updates"
    assert not (tmp_path / "w" / "results" / "a.seed13.json").exists()


def test_one_benchmark_in_a_folder(pretending, benchmark, tmp_path, capsys):
    with_lock = benchmark._quality_runs.Trainings([], [[0]], tmp_path / "w")
    assert pretending("--updates=20") == 2
    assert "is at work there" in capsys.readouterr().err
    with_lock._lock.close()
    assert pretending("--updates=20") == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--recipe=a=transformer_test"], "Nothing ends the training"),
        (["--recipe=a=transformer_test", "--updates=5", "--cores=999"], "cores that this command may use"),
        (["--recipe=a=transformer_test", "--updates=5", "--jobs=-1"], "cores that this command may use"),
        (["--recipe=a=transformer_test", "--updates=5", "--minutes=nan"], "--minutes=nan: a number of minutes"),
        (["--recipe=a=transformer_test", "--updates=5", "--seeds=x"], "--seeds=x: whole numbers"),
        (["--recipe=a=transformer_test", "--updates=5", "--seeds="], "--seeds=: whole numbers"),
        (["--recipe=a=transformer_test", "--updates=5", "--seeds=1.5"], "--seeds=1.5: whole numbers"),
        (["--recipe=a=transformer_test", "--targets=30,nan"], "--targets=30,nan: numbers"),
        (["--recipe=a=transformer_test", "--updates=5", "--train=train_stepz=1"], "train_stepz"),
        (["--recipes=nowhere.toml"], "there is no such file"),
        (["--compare", "nowhere"], "neither results"),
        (["--fairseq_log=nowhere"], "there is no file nowhere"),
        ([], "says what to train"),
    ],
)
def test_flags_that_are_wrong(benchmark, tmp_path, capsys, flags, message):
    assert benchmark.main([f"--work_dir={tmp_path}", f"--problem={PROBLEM}", "--data_dir=D", *flags]) == 2
    assert message in capsys.readouterr().err


# === Reports ===


def test_compares_finished_runs(benchmark, tmp_path, capsys):
    rising(tmp_path / "slow", [10.0, 20.0, 30.0], minutes=2.0)
    rising(tmp_path / "x" / "fast", [20.0, 40.0], minutes=1.0)
    rising(tmp_path / "y" / "fast", [5.0], minutes=1.0)
    (tmp_path / "log").write_text(FAIRSEQ)
    flags = ["--targets=10,20,30", f"--fairseq_log={tmp_path / 'log'}", f"--out={tmp_path / 'made' / 'beside'}"]
    runs = [str(tmp_path / name) for name in ("slow", "x/fast", "y/fast")]
    assert benchmark.main(["--compare", *runs, *flags]) == 0
    text = (tmp_path / "made" / "beside.md").read_text()
    quotients = text.split("How many times as fast as fairseq")[1].split("\n\n")[1].splitlines()[2:]
    assert quotients == [
        "| slow | 1.00 | 1.00 | - |", "| fast | 2.00 | 4.00 | - |", f"| {tmp_path}/y/fast/fast | - | - | - |",
        "| fairseq | 1.00 | 1.00 | - |",
    ]  # fmt: skip
    assert "| slow | 2.00 | 4.00 | 6.00 |" in text
    assert "| fast | 1.10 | 1.10 | 2.20 |" in text  # includes evaluations
    assert "at the first evaluation that reaches it" in text
    assert (tmp_path / "made" / "beside.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg " in (tmp_path / "made" / "beside.html").read_text()
    assert "Million target tokens until dev BLEU" in capsys.readouterr().out
    assert benchmark.main(["--compare", *runs, *flags, "--interpolate", "--baseline=slow"]) == 0
    text = (tmp_path / "made" / "beside.md").read_text()
    assert "| fast | 0.50 | 1.00 | 1.50 |" in text
    assert "| fast | 4.00 | 4.00 | 4.00 |" in text


def test_picture_of_seeds_that_ended_at_different_times(benchmark, curves, tmp_path):
    runs = [curves.read_run(rising(tmp_path / str(seed), bleus)) for seed, bleus in enumerate(([10, 30], [30]))]
    nothing = dataclasses.replace(runs[0], points=[])
    groups = {"both": runs, "one": runs[:1], "none": [nothing]}
    assert benchmark._quality_report.picture(groups, [20.0], "png").startswith(b"\x89PNG")
    made = benchmark._quality_report.report(groups, [20.0], "none", "x", interpolated=False)
    assert "| none | - |" in benchmark._quality_report.markdown(made)


def test_budgets(benchmark, curves, tmp_path):
    run = curves.read_run(rising(tmp_path / "run", [10.0, 30.0]))
    budget = benchmark._quality_jobs.Budget
    assert budget().ended_by(run) == ""
    assert budget(stop_at=30.0).ended_by(run) == "target"
    assert budget(stop_at=31.0, minutes=2.0).ended_by(run) == "minutes"
    assert budget(stop_at=31.0, minutes=2.1).ended_by(run) == ""
    assert budget().stop_at == math.inf


# === For real ===


@pytest.mark.slow
def test_trains_for_real(benchmark, tmp_path):
    flags = [f"--work_dir={tmp_path}", f"--problem={PROBLEM}", "--updates=20", "--eval_every=10"]
    flags += ["--targets=0.0001,99", "--train=eval_bleu_sentences=8,decode_hparams=beam_size=1"]
    assert benchmark.main([*flags, "--recipe=a=transformer_test:batch_size=256"]) == 0
    stored = json.loads((tmp_path / "quality.json").read_text())
    [run] = stored["recipes"]["a"]["runs"]
    assert (run["ended"], run["updates"]) == ("updates", 20)
    assert [point["updates"] for point in run["points"]] == [10, 20]
    assert 0 < run["points"][0]["minutes"] < run["points"][0]["minutes_counted"]
    assert run["test"] is not None
    assert run["startup_seconds"] > 0
