"""End-to-end tests of t2t_ext-trainer on a small parallel corpus: train, interrupt, resume, stop, wrong flags."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from t2t_ext.bin import avg_all, trainer
from t2t_ext.config.training import TrainConfig
from t2t_ext.errors import UserError
from t2t_ext.io import locks
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory

HPARAMS = "num_hidden_layers=1,batch_size=400,learning_rate_warmup_steps=20,learning_rate_constant=0.5"


def flags(data, run, **more):
    given = {
        "problem": "translate_parallel_text",
        "model": "transformer",
        "hparams_set": "transformer_test",
        "hparams": HPARAMS,
        "data_dir": data,
        "output_dir": run,
        "train_steps": 24,
        "local_eval_frequency": 12,
        "log_step_count_steps": 6,
        "decode_hparams": "beam_size=1",
        "eval_bleu_sentences": 8,
        **more,
    }
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def in_process(data, run, **more):
    """Does what the command does, but in this process, so that TensorFlow is imported only once."""
    return trainer.main(flags(data, run, **more))


def records(run):
    """Returns the records of metrics.jsonl without the values that depend on time."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")} for line in lines]


def state(run):
    path = checkpoints.latest(run)
    return {
        f"{group}/{name}": value
        for group in ("model", "training")
        for name, value in checkpoints.load_arrays(path, group).items()
    }


def assert_equal_runs(one, other):
    assert records(one) == records(other)  # compared first: this shows the first step that differs
    expected, found = state(one), state(other)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.fixture(scope="module")
def finished(toy_data, tmp_path_factory):
    """Returns the path of a finished run of 24 steps."""
    run = tmp_path_factory.mktemp("runs") / "finished"
    assert in_process(toy_data, run) == 0
    return run


def test_a_run_holds_what_it_should(finished, capsys):
    run = RunDirectory.open(finished)
    assert run.config.training["train_steps"] == 24
    assert run.config.random_seed == 1
    assert [path.name for path in checkpoints.list_checkpoints(finished)] == [
        "model.ckpt-00000012",
        "model.ckpt-00000024",
    ]
    logged = records(finished)
    assert [(r["kind"], r["step"]) for r in logged] == [
        ("train", 6), ("train", 12), ("eval", 12), ("train", 18), ("train", 24), ("eval", 24)
    ]  # fmt: skip
    assert logged[4]["loss"] < logged[0]["loss"]
    assert logged[0]["learning_rate"] == pytest.approx(0.5 * 6 / 20 * 20**-0.5 * 16**-0.5, rel=1e-5)
    assert 0.5 < logged[0]["fill_rate"] <= 1
    for record in logged:
        if record["kind"] == "eval":
            assert record["bleu_signature"].startswith("nrefs:1|case:mixed")
            assert record["search"] == "beam_size=1,alpha=0.6,min_length=1"
            assert record["perplexity"] == pytest.approx(np.exp(record["nll"]))
    best = max((r for r in logged if r["kind"] == "eval"), key=lambda r: (r["bleu"], -r["loss"], r["step"]))
    kept = checkpoints.list_checkpoints(finished / "best")
    assert [checkpoints.checkpoint_step(path) for path in kept] == [best["step"]]
    assert checkpoints.read_info(kept[0]).metadata["bleu"] == best["bleu"]
    assert all(any((finished / folder).glob("events*")) for folder in ("", "train", "eval"))


def test_a_finished_run_has_nothing_left_to_do(finished):
    before = records(finished)
    assert trainer.main([f"--output_dir={finished}"]) == 0
    assert records(finished) == before


def test_a_second_trainer_is_refused(finished, capsys):
    before = records(finished)
    with locks.in_directory(finished, "trains"):
        assert trainer.main([f"--output_dir={finished}", "--train_steps=30"]) == 2
    error = capsys.readouterr().err
    assert f"Another process trains {finished} (process {os.getpid()} on this machine, since " in error
    assert records(finished) == before
    assert RunDirectory.open(finished).config.training["train_steps"] == 24
    assert not (finished / ".lock").exists()


def test_a_damaged_checkpoint_is_passed_over_and_done_again(finished, tmp_path, capsys):
    """The steps after the previous checkpoint are computed again, with the same arrays and logged numbers."""
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    data = checkpoints.latest(run) / "model.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1] + b"?")
    assert trainer.main([f"--output_dir={run}"]) == 0
    output = capsys.readouterr().err
    assert "damaged" in output
    assert "resuming after step 12" in output
    assert_equal_runs(finished, run)


def test_an_evaluation_that_was_cut_off_is_made_up_for(finished, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    log = run / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    shutil.rmtree(run / "best")
    assert trainer.main([f"--output_dir={run}"]) == 0
    assert_equal_runs(finished, run)
    kept, expected = (checkpoints.list_checkpoints(path / "best") for path in (run, finished))
    assert [path.name for path in kept] == [path.name for path in expected]


def test_another_number_of_replicas_must_keep_the_global_batches(finished, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    shutil.rmtree(checkpoints.latest(run))
    file = checkpoints.latest(run) / "checkpoint.json"
    config = (run / "config.json").read_bytes()
    assert '"replicas": 1' in file.read_text()
    # As if the run had used two replicas with half of its batch_size each.
    text = file.read_text().replace('"replicas": 1', '"replicas": 2')
    file.write_text(text.replace('"batch_size": 400', '"batch_size": 200'))
    assert trainer.main([f"--output_dir={run}", "--hparams=batch_size=200"]) == 2
    error = capsys.readouterr().err
    assert "400 tokens (2 replicas x batch_size 200 x 1 accumulated); now they would have 200 tokens" in error
    assert '--hparams="batch_size=200,gradient_accumulation_steps=2"' in error
    assert (run / "config.json").read_bytes() == config
    assert trainer.main([f"--output_dir={run}", "--hparams=batch_size=200,gradient_accumulation_steps=2"]) == 0
    assert "had 2 replicas, now 1: the global batches are the same" in capsys.readouterr().err
    for expected, found in zip(records(finished), records(run), strict=True):
        assert found["target_tokens_per_step" if found["kind"] == "train" else "step"] == pytest.approx(
            expected["target_tokens_per_step" if found["kind"] == "train" else "step"]
        )


def test_too_many_skipped_steps_stop_with_a_report(toy_data, toy_corpus, tmp_path, capsys):
    """Training stops at once, not at the next log line, and reports the contents of the batches."""
    run = tmp_path / "run"
    wild = HPARAMS.replace("learning_rate_constant=0.5", "learning_rate_constant=1e9")
    wild += ",learning_rate_schedule=" + "*".join(["constant"] * 4 + ["linear_warmup"])
    more = {"hparams": wild, "max_skipped_steps": 4, "log_step_count_steps": 500, "local_eval_frequency": 500,
            "train_steps": 500}  # fmt: skip
    assert in_process(toy_data, run, **more) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    report = json.loads((run / "skipped_steps.json").read_text())
    first, last = report["first_step"], report["last_step"]
    assert 4 <= last - first + 1 < 8
    assert last <= 12
    assert f"steps in a row, {first} to {last}, were not finite" in error
    batch = report["batches"][1]
    assert [b["step"] for b in report["batches"]] == [first, last]
    assert len(batch["examples"]) == len(batch["source_lengths"]) == len(batch["target_lengths"])
    train = dict(toy_corpus.train)
    for pair in batch["pairs"]:
        assert train[pair["source"]] == pair["target"]
    assert f"{len(batch['examples'])} pairs (examples {batch['examples'][0]}" in error
    again = report["last_step_computed_again"]
    assert again["gradients_not_finite"]
    assert next(iter(again["gradients_not_finite"])) in error
    assert checkpoints.list_checkpoints(run) == []


def test_sigterm_saves_and_the_next_call_goes_on(toy_data, finished, tmp_path):
    run = tmp_path / "run"
    command = [sys.executable, "-m", "t2t_ext.bin.trainer", *flags(toy_data, run, train_steps=100000)]
    log = tmp_path / "log"
    with open(log, "w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command, stderr=stream, stdout=stream, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
        )
    deadline = time.monotonic() + 120
    while "step 6:" not in log.read_text() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 143, log.read_text()
    assert "stopped by SIGTERM" in log.read_text()
    reached = checkpoints.checkpoint_step(checkpoints.latest(run))
    assert reached > 5
    if reached > 24:
        pytest.skip("the machine was too slow to interrupt the run early")
    assert trainer.main([f"--output_dir={run}", "--train_steps=24"]) == 0
    assert_equal_runs(finished, run)


def test_early_stopping(toy_data, tmp_path, capsys):
    run = tmp_path / "run"
    more = {"train_steps": 1000, "eval_early_stopping_steps": 12, "eval_early_stopping_metric_delta": 100.0,
            "eval_bleu_sentences": -1, "best_checkpoint_metric": "loss", "keep_checkpoint_max": 1}  # fmt: skip
    assert in_process(toy_data, run, **more) == 0
    assert "early stopping: loss has not improved" in capsys.readouterr().err
    assert [checkpoints.checkpoint_step(path) for path in checkpoints.list_checkpoints(run)] == [24]
    assert trainer.main([f"--output_dir={run}"]) == 0
    assert checkpoints.checkpoint_step(checkpoints.latest(run)) == 24


def test_warm_start_begins_with_the_weights(toy_data, finished, tmp_path, capsys):
    run = tmp_path / "run"
    tiny = HPARAMS.replace("learning_rate_constant=0.5", "learning_rate_constant=1e-12")
    assert in_process(toy_data, run, warm_start_from=finished, train_steps=1, hparams=tiny) == 0
    assert "variables loaded as they are" in capsys.readouterr().err
    expected = checkpoints.load_arrays(checkpoints.latest(finished))
    for name, value in checkpoints.load_arrays(checkpoints.latest(run)).items():
        np.testing.assert_allclose(value, expected[name], atol=1e-6)
    # The same command again resumes the run.
    assert in_process(toy_data, run, warm_start_from=finished, train_steps=1, hparams=tiny) == 0
    assert "variables loaded" not in capsys.readouterr().err


def test_a_warm_start_that_keeps_the_optimizer_goes_on_exactly(toy_data, finished, tmp_path, capsys):
    """A warm start from the middle of a run of the same model gives the result of the undisturbed run."""
    run, middle = tmp_path / "run", finished / "checkpoints" / "model.ckpt-00000012"
    assert in_process(toy_data, run, warm_start_from=middle, warm_start_optimizer="keep", eval_bleu_sentences=-1,
                      best_checkpoint_metric="loss") == 0  # fmt: skip
    told = capsys.readouterr().err
    assert "steps and learning rate continue after step 12" in told
    assert "that of the other 0 begins as zeros" in told
    expected, found = state(finished), state(run)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    training = [[record for record in records(path) if record["kind"] == "train"] for path in (finished, run)]
    assert training[1] == training[0][2:]
    assert [path.name for path in checkpoints.list_checkpoints(run)] == ["model.ckpt-00000024"]
    assert trainer.main([f"--output_dir={run}", "--warm_start_optimizer=reset"]) == 2
    assert "has checkpoints already; it began with keep" in capsys.readouterr().err


def test_averages_are_means(finished, capsys):
    assert avg_all.main([f"--output_dir={finished}", "--n=2", "--rolling"]) == 0
    assert "steps 12, 24" in capsys.readouterr().out
    parts = [checkpoints.load_arrays(path) for path in checkpoints.list_checkpoints(finished)]
    average = checkpoints.load_arrays(finished / "averaged" / "model.ckpt-00000024")
    for name, value in average.items():
        np.testing.assert_allclose(value, (parts[0][name] + parts[1][name]) / 2, atol=1e-7)
    assert len(checkpoints.list_checkpoints(finished / "averaged")) == 2


def test_from_python(toy_data, tmp_path):
    import t2t_ext

    config = TrainConfig(
        output_dir=str(tmp_path / "run"),
        problem="translate_parallel_text_rev",
        model="transformer",
        hparams_set="transformer_test",
        hparams="num_hidden_layers=1,batch_size=400,ema_decay=0.9,parallel_slices=2,target_direction=r2l,precision=mixed_bfloat16",
        data_dir=str(toy_data),
        train_steps=2,
        eval_bleu_sentences=4,
    )
    result = t2t_ext.train(config, quiet=True)
    assert (result.step, result.stop_reason, result.finished) == (2, "train_steps", True)
    assert result.evaluation["bleu"] == result.best.value
    assert set(checkpoints.read_info(checkpoints.latest(tmp_path / "run")).groups) == {"model", "ema", "training"}
    translations = t2t_ext.Translator.load(tmp_path / "run", decode_hparams="beam_size=1")(["die Katze ."])
    assert len(translations) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": None}, "--problem"),
        ({"problem": "translate_parallel_txt"}, "translate_parallel_text"),
        ({"model": "transfromer"}, "'transformer'"),
        ({"hparams_set": "transformer_tset"}, "transformer_test"),
        ({"hparams": "batchsize=3"}, "batch_size"),
        ({"data_dir": "/nowhere"}, "t2t_ext-datagen"),
        ({"eval_early_stopping_metric": "blue"}, "bleu"),
        ({"distribution": "multi_worker_mirrored"}, "TF_CONFIG"),
        ({"xla_compile": True}, "batch_shapes=static, or length_groups=4"),
        ({"warm_start_from": "/nowhere/at/all"}, "warm_start_from"),
        ({"decode_hparams": "beam=3"}, "beam_size"),
        ({"schedule": "train"}, "--schedule"),
    ],
)
def test_wrong_flags_are_one_line_and_leave_nothing(toy_data, tmp_path, capsys, changes, message):
    run = tmp_path / "run"
    assert in_process(toy_data, run, **changes) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
    assert not run.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"random_seed": 5}, "random_seed: 1 is stored, 5 is given"),
        ({"hparams": "hidden_size=32"}, "hparams.hidden_size: 16 is stored, 32 is given"),
        ({"hparams_set": "transformer_tiny"}, "hparams_set: 'transformer_test' is stored, 'transformer_tiny' is given"),
        ({"problem": "translate_parallel_text_rev"}, "problem: "),
        ({"source_language": "fr"}, "problem_options.source_language: None is stored, 'fr' is given"),
        ({"warm_start_from": "other"}, "--warm_start_from=other: the run"),
        ({"vocab_size": 400}, "--vocab_size: only for generating data"),
    ],
)
def test_another_value_than_the_stored_is_shown(toy_data, finished, capsys, changes, message):
    assert trainer.main([f"--output_dir={finished}", *(f"--{n}={v}" for n, v in changes.items())]) == 2
    assert message in capsys.readouterr().err


def test_single_cycle_is_checked_before_anything_is_written(toy_data, tmp_path):
    config = TrainConfig(
        output_dir=str(tmp_path / "run"),
        problem="translate_parallel_text",
        model="transformer",
        hparams_set="transformer_test",
        hparams="learning_rate_schedule=constant*single_cycle_cos_decay",
        data_dir=str(toy_data),
        train_steps=10,
    )
    from t2t_ext.training import train

    with pytest.raises(UserError, match="single_cycle_cos_decay"):
        train(config, quiet=True)
    assert not (tmp_path / "run").exists()


def test_explain_and_describe(finished, capsys):
    assert trainer.main(["--explain", "--hparams_set=transformer_test", "--hparams=batch_size=7"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("batch_size "))
    assert line.split()[1:3] == ["7", "flag"]
    assert trainer.main(["--describe", f"--output_dir={finished}"]) == 0
    text = capsys.readouterr().out
    weights = checkpoints.load_arrays(checkpoints.latest(finished))
    assert f"{sum(value.size for value in weights.values()):,}" in text
    assert all(name in text for name in weights)
    assert trainer.main(["--describe", "--model=transformer", "--hparams_set=transformer_test",
                         "--problem=translate_parallel_text"]) == 0  # fmt: skip
    assert "8,192" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_goes_on_with_xla_and_without(toy_data, tmp_path):
    more = {
        "hparams": f"{HPARAMS},length_groups=4,layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0",
        "local_eval_frequency": 4,
        "eval_bleu_sentences": -1,
    }
    assert in_process(toy_data, tmp_path / "plain", train_steps=8, **more) == 0
    assert in_process(toy_data, tmp_path / "run", train_steps=4, xla_compile="true", **more) == 0
    assert in_process(toy_data, tmp_path / "run", train_steps=6, xla_compile="false", **more) == 0
    assert in_process(toy_data, tmp_path / "run", train_steps=8, xla_compile="true", **more) == 0
    expected, found = state(tmp_path / "plain"), state(tmp_path / "run")
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-5, err_msg=name)
