"""Tests of t2t_ext-experiment through the real command: data, two seeds, interruption, kill and resumption."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from t2t_ext.bin import experiment
from t2t_ext.config import problem_options
from t2t_ext.experiments.plan import Options, plan
from t2t_ext.experiments.stages import State, _write_marker, state_of

RECIPE = """
[papers.toy]
short = "Toy"
citation = "A toy, 2026."

[toy_row]
paper = "toy"
table = "Table 0"
row = "toy"
published = { test = 12.5, parameters = 12345.0 }
problem = "translate_parallel_text"
datagen = { vocab_size = 340, num_processes = 1 }
model = "transformer"
hparams_set = "transformer_test"
hparams = { batch_size = 256, learning_rate_warmup_steps = 10 }
average = 3
decode = { beam_size = 2, alpha = 0.6 }
scoring = "sacrebleu"
seeds = 2

[toy_row.train]
train_steps = 60
local_eval_frequency = 5
keep_checkpoint_max = 3
eval_bleu_sentences = -1
best_checkpoint_metric = "loss"
"""


@pytest.fixture
def flags(toy_corpus, tmp_path):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "toy.toml").write_text(RECIPE)
    files = {
        "train_source": toy_corpus.train_source, "train_target": toy_corpus.train_target,
        "dev_source": toy_corpus.dev_source, "dev_target": toy_corpus.dev_target,
        "test_source": toy_corpus.dev_source, "test_target": toy_corpus.dev_target,
    }  # fmt: skip
    options = ",".join(f"{name}={path}" for name, path in files.items())
    return [
        f"--recipes_dir={tmp_path / 'recipes'}", "--recipe=toy_row", f"--work_dir={tmp_path / 'W'}",
        f"--problem_options={options}",
    ]  # fmt: skip


def start(flags):
    return subprocess.Popen(
        [sys.executable, "-m", "t2t_ext.bin.experiment", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )


def wait_for(found, process, seconds=300):
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)


def test_data_stage(flags, tmp_path, capsys):
    assert experiment.main([*flags, "--until=data"]) == 0
    assert "[1/7] data" in capsys.readouterr().out
    assert experiment.main([*flags, "--until=data"]) == 0
    assert "done already" in capsys.readouterr().out
    marker = next((tmp_path / "W" / "data").glob("*.stage.json"))
    assert json.loads(marker.read_text())["status"] == "done"
    # Data with other settings get their own directory. A stage does not begin before the stages it depends on are done.
    assert experiment.main([*flags, "--stage=average"]) == 2
    assert "'train, seed 1' comes before it and is not done" in capsys.readouterr().err
    assert experiment.main([*flags, "--until=data", "--datagen=vocab_size=330"]) == 0
    assert len([path for path in (tmp_path / "W" / "data").iterdir() if path.is_dir()]) == 2


def test_text_that_has_changed_is_noticed_and_no_run_made_from_it_is_lost(flags, toy_corpus, tmp_path, capsys):
    own = tmp_path / "own.txt"
    own.write_bytes(toy_corpus.dev_source.read_bytes())
    flags = [flag.replace(f"test_source={toy_corpus.dev_source}", f"test_source={own}") for flag in flags]
    assert experiment.main([*flags, "--until=data"]) == 0
    [options] = [flag.removeprefix("--problem_options=") for flag in flags if flag.startswith("--problem_options=")]
    book = experiment.recipe_book(str(tmp_path / "recipes"))
    stages = plan(
        book.recipe("toy_row"), book, Options(work_dir=tmp_path / "W", problem_options=problem_options.parse(options))
    )
    [data, train] = [next(stage for stage in stages if stage.kind == kind) for kind in ("data", "train")]
    train.output.mkdir(parents=True)
    _write_marker(train, "begun")
    assert [state_of(stage).word for stage in (data, train)] == ["done", "begun"]

    later, text = time.time_ns() + 10**10, own.read_bytes()
    os.utime(own, ns=(later, later))  # rewritten with the same content
    assert state_of(data).word == "done"
    own.write_bytes(text.replace(b"a", b"o", 1))  # the same length as before
    os.utime(own, ns=(later, later))
    assert state_of(data) == State("changed", (f"{own} is not the own.txt that test was made from",))
    capsys.readouterr()
    assert experiment.main([*flags, "--until=data"]) == 2
    assert "own.txt that test was made from. Keep those that it was made with" in capsys.readouterr().err
    assert experiment.main([*flags, "--redo=data"]) == 2
    assert "was made from what --redo=data makes again (data translate_parallel_text" in capsys.readouterr().err
    shutil.rmtree(data.output)
    data.marker.unlink()
    assert experiment.main([*flags, "--until=data"]) == 0
    assert [state_of(stage).word for stage in (data, train)] == ["done", "changed"]
    assert experiment.main(flags) == 2
    assert "was made again since, from other text" in capsys.readouterr().err


def test_a_stage_that_fails_names_itself_and_its_log(flags, tmp_path, capsys):
    wrong = [flag.replace("train_source=", "train_source=not_there_") for flag in flags]
    assert experiment.main(wrong) == 2
    message = capsys.readouterr().err
    assert "The stage 'data translate_parallel_text" in message
    assert "not_there_" in message
    assert ".log. Fix what it says, then run the same command again" in message


def test_damaged_marker(flags, tmp_path, capsys):
    assert experiment.main([*flags, "--until=data"]) == 0
    next((tmp_path / "W" / "data").glob("*.stage.json")).write_text("{")
    assert experiment.main([*flags, "--until=data"]) == 2
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.slow
def test_interrupted_killed_and_resumed(flags, tmp_path):
    work = tmp_path / "W" / "toy_row"
    checkpoints = work / "seed1" / "run" / "checkpoints"
    # Ctrl-C during the training of the first seed ends the command cleanly, with its own exit status.
    process = start(flags)
    wait_for(lambda: any(checkpoints.glob("model.ckpt-*")), process)
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=120)[0]
    assert process.returncode == 130, out
    assert "the same command resumes here" in out
    assert json.loads((work / "seed1" / "train.stage.json").read_text())["status"] == "begun"
    # After a SIGKILL during the training of the second seed, the next start ends the processes that were left running.
    process = start(flags)
    wait_for(lambda: any((work / "seed2" / "run" / "checkpoints").glob("model.ckpt-*")), process)
    process.kill()
    out = process.communicate(timeout=120)[0]
    assert "[2/7] train, seed 1: resumes" in out
    assert "data translate_parallel_text" in out
    process = start(flags)
    out = process.communicate(timeout=240)[0]
    assert process.returncode == 0, out
    assert "[2/7] train, seed 1: done already" in out
    assert "[5/7] train, seed 2: resumes" in out
    report = json.loads((work / "report.json").read_text())
    assert (work / "report.txt").read_text() in out
    assert (work / "report.png").read_bytes().startswith(b"\x89PNG")
    figures = {figure["name"]: figure for figure in report["figures"]}
    assert figures["test"]["published"] == 12.5
    assert sorted(figures["test"]["by_seed"]) == ["1", "2"]
    values = list(figures["test"]["by_seed"].values())
    assert figures["test"]["mean"] == pytest.approx(sum(values) / 2)
    assert figures["test"]["deviation"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert "version:" in figures["test"]["signature"]
    # A seed that was interrupted twice has bit for bit the same result as an undisturbed one and as one made longer.
    runs = [work]
    for name, lengths in (("undisturbed", [60]), ("longer", [40, 60])):
        again = [flag.replace(str(tmp_path / "W"), str(tmp_path / name)) for flag in flags]
        for length in lengths:
            process = start([*again, "--seeds=1", "--until=train", f"--train_steps={length}"])
            out = process.communicate(timeout=240)[0]
            assert process.returncode == 0, out
            assert ("train, seed 1: resumes" in out) == (length != lengths[0])
        runs.append(tmp_path / name / "toy_row")
    for run in runs:
        steps = sorted(path.name for path in (run / "seed1" / "run" / "checkpoints").iterdir())
        assert steps == [f"model.ckpt-{step:08d}" for step in (50, 55, 60)]
    ends = [
        (run / "seed1" / "run" / "checkpoints" / "model.ckpt-00000060" / "model.data-00000-of-00001").read_bytes()
        for run in runs
    ]
    assert ends[0] == ends[1] == ends[2]
    # A call with other settings is refused, so nothing is lost silently.
    process = start([*flags, "--hparams=batch_size=300"])
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 2
    assert "was made with other settings or text: --hparams: 'batch_size=256" in out


@pytest.mark.slow
def test_the_pipeline_of_the_offline_corpus(tmp_path):
    """One command trains two teachers and, on their pseudo references, the synchronous model; reranks; and compares."""
    flags = ["--recipe=cldr_synchronous", f"--work_dir={tmp_path}"]
    process = start(flags)
    runs = [tmp_path / f"cldr_synchronous{name}" / "seed1" / "run" for name in ("_l2r", "_r2l", "")]
    # After a kill during the training of the first teacher, finished stages are not repeated.
    wait_for(lambda: any((runs[0] / "checkpoints").glob("model.ckpt-*")), process, seconds=1200)
    process.kill()
    process.communicate(timeout=120)
    process = start(flags)
    out = process.communicate(timeout=3000)[0]
    assert process.returncode == 0, out
    assert "train, seed 1 of cldr_synchronous_l2r: resumes" in out
    assert out.count("t2t_ext-trainer ") == 3
    assert all(any((run / "averaged").iterdir()) for run in runs)
    report = json.loads((tmp_path / "cldr_synchronous" / "report.json").read_text())
    beside = {name.removeprefix("cldr_synchronous"): figures for name, figures in report["beside"].items()}
    figures = {
        name: {figure["name"]: figure["mean"] for figure in each}
        for name, each in {**beside, "": report["figures"]}.items()
    }
    assert set(figures) == {"", "_l2r", "_r2l", "_rerank"}
    assert figures[""]["parameters"] == figures["_l2r"]["parameters"] == figures["_rerank"]["parameters"] / 2
    for name, found in figures.items():
        assert {"test", "first_tokens", "last_tokens"} <= set(found)
        assert f"cldr_synchronous{name}" in out
    compared = json.loads((tmp_path / "cldr_synchronous" / "seed1" / "compare.test.json").read_text())
    (parts,) = compared["by_direction"].values()
    assert sum(part["share"] for part in parts) == pytest.approx(1)
    assert len(compared["scores"][0]["pairs"]) == 6
    again = start(flags)
    assert again.communicate(timeout=120)[0].count("done already") == 13
