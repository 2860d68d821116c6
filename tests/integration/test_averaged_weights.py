"""Tests of runs that keep averages of their weights: evaluation, best checkpoint, translation, averaging, resuming."""

import functools
import json
import shutil

import numpy as np
import pytest

from t2t_ext import Translator
from t2t_ext.bin import avg_all, trainer
from t2t_ext.runs import checkpoints

KINDS = {
    "last": "learning_rate_warmup_steps=20,learning_rate_constant=0.5,average_last=3,average_every=1",
    "schedule_free": "optimizer=schedule_free_adam_w,learning_rate_schedule=constant*linear_warmup,"
    "learning_rate_constant=0.02,learning_rate_warmup_steps=4,weight_decay=0.1,precision=mixed_bfloat16",
}


def train(data, run, hparams, **more):
    given = {
        "problem": "translate_parallel_text", "model": "transformer", "hparams_set": "transformer_test",
        "hparams": f"num_hidden_layers=1,batch_size=400,layer_prepostprocess_dropout=0.1,{hparams}",
        "data_dir": data, "output_dir": run, "train_steps": 8, "local_eval_frequency": 4, "log_step_count_steps": 4,
        "eval_bleu_sentences": -1, "best_checkpoint_metric": "loss", **more,
    }  # fmt: skip
    return trainer.main([f"--{name}={value}" for name, value in given.items()])


def records(run, kinds=("train", "eval")):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timed = ("seconds", "tokens_per_second")
    return [{k: v for k, v in line.items() if k not in timed} for line in lines if line["kind"] in kinds]


def groups(path):
    return {group: checkpoints.load_arrays(path, group) for group in checkpoints.read_info(path).groups}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.fixture(scope="module")
def run_of(toy_data, tmp_path_factory):
    """Returns a function kind -> path of the run of this kind, which is trained only once."""

    @functools.cache
    def trained(kind):
        run = tmp_path_factory.mktemp("runs") / kind
        assert train(toy_data, run, KINDS[kind]) == 0
        return run

    return trained


@pytest.fixture(params=KINDS)
def finished(request, run_of):
    return run_of(request.param)


def test_averages_are_kept_as_best_and_translate(finished):
    for path in (checkpoints.latest(finished), checkpoints.latest(finished / "best")):
        arrays = groups(path)
        assert "ema" in arrays
        assert any((arrays["ema"][name] != value).any() for name, value in arrays["model"].items())
        model = Translator.load(finished, path, decode_hparams="precision=float32").model
        assert_equal({n: np.asarray(v) for n, v in model.named_variables().items()}, arrays["ema"])


@pytest.mark.parametrize(
    ("finished", "words"),
    [
        ("last", "the mean of the last 3 snapshots"),
        ("schedule_free", "the average of all updates"),
    ],
    indirect=["finished"],
)
def test_describe_says_which_weights_users_get(finished, words, capsys):
    assert trainer.main(["--describe", f"--output_dir={finished}"]) == 0
    assert f"weights that are evaluated, kept as the best and translate: {words}" in capsys.readouterr().out


@pytest.mark.parametrize("finished", ["schedule_free"], indirect=True)
def test_the_dev_loss_is_that_of_the_averages(finished, toy_data, tmp_path):
    """A new run that starts from the averages, with a learning rate near zero, has the dev loss of the old run."""
    run = tmp_path / "run"
    still = "learning_rate_schedule=constant,learning_rate_constant=1e-12"
    assert train(toy_data, run, still, warm_start_from=finished, train_steps=1) == 0
    [found], [*_, expected] = records(run, ["eval"]), records(finished, ["eval"])
    assert found["loss"] == pytest.approx(expected["loss"], rel=2e-3)
    averages, weights = checkpoints.load_arrays(checkpoints.latest(finished), "ema"), groups(checkpoints.latest(run))
    for name, value in weights["model"].items():
        np.testing.assert_allclose(value, averages[name], atol=1e-6)


@pytest.mark.parametrize(
    "finished", [pytest.param("last", marks=pytest.mark.slow), "schedule_free"], indirect=["finished"]
)
def test_a_resumed_run_is_the_undisturbed_one(finished, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    shutil.rmtree(checkpoints.latest(run))
    assert trainer.main([f"--output_dir={run}"]) == 0
    assert records(run) == records(finished)
    for folder in ("checkpoints", "best"):
        found, expected = (groups(checkpoints.latest(each / folder)) for each in (run, finished))
        for group, arrays in expected.items():
            assert_equal(found[group], arrays)


@pytest.mark.slow  # test_trainer.py does so without averages
@pytest.mark.parametrize("finished", ["schedule_free"], indirect=True)
def test_a_warm_start_that_keeps_the_optimizer_continues_exactly(finished, toy_data, tmp_path):
    run, middle = tmp_path / "run", finished / "checkpoints" / checkpoints.checkpoint_name(4)
    hparams = KINDS[finished.name]
    assert train(toy_data, run, hparams, warm_start_from=middle, warm_start_optimizer="keep") == 0
    found, expected = (groups(checkpoints.latest(each)) for each in (run, finished))
    for group, arrays in expected.items():
        assert_equal(found[group], arrays)


def test_checkpoints_are_averaged_by_what_users_get(finished):
    assert avg_all.main([f"--output_dir={finished}", "--n=2"]) == 0
    parts = [checkpoints.load_arrays(path, "ema") for path in checkpoints.list_checkpoints(finished)]
    for name, value in checkpoints.load_arrays(checkpoints.latest(finished / "averaged")).items():
        np.testing.assert_allclose(value, (parts[0][name] + parts[1][name]) / 2, atol=1e-7)
