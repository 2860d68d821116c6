"""N replicas (logical CPU devices in one process, or two worker processes) compute the same as one replica."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
import replica_program

PROGRAM = pathlib.Path(__file__).with_name("replica_program.py")
CLIPPED = "clip_grad_norm=0.3,ema_decay=0.9"
# The sides have different lengths, so that replicas have different numbers of tokens; the tag is also a label.
TWO_SIDED = {"model": "synchronous_transformer", "hparams": "predict_tag=true,sb_lambda=0.8", "steps": 3}
SCHEDULE_FREE = {
    "schedule": "learning_rate_schedule=constant*linear_warmup",
    "hparams": "optimizer=schedule_free_adam_w",
    "steps": 3,
}
# The second pass hides every word, because random masks would depend on replica and slice.
SIMCUT = "simcut_alpha=3,simcut_probability=0.9999999,average_last=2,average_every=1"
CASES = {
    "one": {"replicas": 1, "hparams": CLIPPED, "steps": 20},
    "two": {"replicas": 2, "hparams": CLIPPED, "steps": 20},
    "sliced": {
        "replicas": 2,
        "hparams": f"{CLIPPED},gradient_accumulation_steps=2,parallel_slices=2",
        "steps": 20,
    },
    "synchronous_one": {"replicas": 1, **TWO_SIDED},
    "synchronous_two": {
        "replicas": 2,
        **TWO_SIDED,
        "hparams": f"{TWO_SIDED['hparams']},gradient_accumulation_steps=2",
    },
    "inf_on_two": {"replicas": 2, "hparams": "precision=mixed_float16", "steps": 4, "inf_at": [2, 1]},
}
SLOW_CASES = {
    "one": CASES["one"],
    "grouped": {"replicas": 2, "hparams": f"{CLIPPED},length_groups=2,parallel_slices=2", "steps": 20},
    "schedule_free_one": {"replicas": 1, **SCHEDULE_FREE},
    "schedule_free_two": {
        "replicas": 2,
        **SCHEDULE_FREE,
        "hparams": f"{SCHEDULE_FREE['hparams']},gradient_accumulation_steps=2",
    },
    "penalties_one": {"replicas": 1, "penalties": True, "steps": 3},
    "penalties_two": {"replicas": 2, "penalties": True, "hparams": "gradient_accumulation_steps=2", "steps": 3},
    "simcut_one": {"replicas": 1, "hparams": SIMCUT, "steps": 3},
    "simcut_two": {"replicas": 2, "hparams": f"{SIMCUT},gradient_accumulation_steps=2", "steps": 3},
}


def start(directory, cases, **environment):
    return subprocess.Popen(
        [sys.executable, PROGRAM, str(directory), json.dumps(cases)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output[-3000:]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Gives the results of the usual cases: case -> arrays by name."""
    return computed(CASES, tmp_path_factory.mktemp("replicas"))


@pytest.fixture(scope="module")
def more_results(tmp_path_factory):
    """Gives the results of the slow cases: case -> arrays by name."""
    return computed(SLOW_CASES, tmp_path_factory.mktemp("replicas"))


def computed(cases, directory):
    """Returns case -> arrays by name; another process computes all cases with several replicas, this one the rest."""
    process = start(directory, {name: case for name, case in cases.items() if case["replicas"] > 1})
    for name, case in cases.items():
        if case["replicas"] == 1:
            replica_program.train(replica_program.make_strategy(1), directory / f"{name}.npz", case)
    finish(process)
    return {name: dict(np.load(directory / f"{name}.npz")) for name in cases}


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """Gives the arrays by name that four replicas compute."""
    directory = tmp_path_factory.mktemp("four")
    finish(start(directory, {"four": {"replicas": 4, "hparams": CLIPPED, "steps": 20}}))
    return dict(np.load(directory / "four.npz"))


def assert_same(one, many):
    scale = max(np.abs(value).max() for name, value in one.items() if name.startswith("gradient/"))
    assert scale > 1e-4
    for name, value in one.items():
        if name.startswith("gradient/"):
            np.testing.assert_allclose(many[name], value, rtol=0, atol=1e-6 * scale, err_msg=name)
    np.testing.assert_allclose(many["losses"], one["losses"], rtol=1e-5)
    np.testing.assert_allclose(many["norms"], one["norms"], rtol=1e-3)
    np.testing.assert_allclose(many["state/metrics/window"], one["state/metrics/window"], rtol=1e-3)
    # The norms of layers are also those of the whole gradient of all replicas before clipping.
    np.testing.assert_allclose(many["state/metrics/gradient_norms"], one["state/metrics/gradient_norms"], rtol=1e-3)


def test_replicas_with_clipping_are_one(results):
    one = results["one"]
    assert one["losses"][-1] < one["losses"][0]
    assert one["norms"].max() > 0.3  # so clipping has an effect
    assert_same(one, results["two"])


@pytest.mark.slow
def test_four_replicas_with_clipping_are_one(results, four):
    assert_same(results["one"], four)


def test_slices_on_two_replicas_are_one_batch(results):
    assert_one_batch(results["one"], results["sliced"])


@pytest.mark.slow
def test_length_groups_on_two_replicas_are_one_batch(more_results):
    assert_one_batch(more_results["one"], more_results["grouped"])


def assert_one_batch(one, sliced):
    assert_same(one, sliced)
    averages = [name for name in one if name.startswith("ema/")]
    assert averages
    for name in averages:
        np.testing.assert_allclose(sliced[name], one[name], atol=1e-3)
        assert not np.array_equal(one[name], one[name.replace("ema/", "weight/")])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["schedule_free", "simcut"])  # the second averages the last weights
def test_averages_are_one_on_two_replicas(more_results, kind):
    one, two = more_results[f"{kind}_one"], more_results[f"{kind}_two"]
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=1e-5)
    for name in (name for name in one if name.startswith(("ema/", "state/schedule_free/z/", "state/snapshots/"))):
        np.testing.assert_allclose(two[name], one[name], atol=2e-4, err_msg=name)
    kernel = next(name for name in one if name.startswith("ema/") and "kernel" in name)
    assert not np.array_equal(one[kernel], one[kernel.replace("ema/", "weight/")])


def test_two_replicas_of_a_model_with_two_target_sides_are_one(results):
    assert_same(results["synchronous_one"], results["synchronous_two"])


@pytest.mark.slow
def test_two_replicas_with_simcut_are_one(more_results):
    assert_same(more_results["simcut_one"], more_results["simcut_two"])
    assert more_results["simcut_one"]["state/metrics/window"][-1] > 0  # the regularizer


@pytest.mark.slow
def test_what_layers_add_to_the_loss_is_that_of_one_batch(more_results):
    assert_same(more_results["penalties_one"], more_results["penalties_two"])
    assert more_results["penalties_one"]["state/metrics/window"][-1] > 1  # the regularizer


def test_an_inf_on_one_replica_is_skipped_by_all_and_lowers_the_loss_scale(results):
    poisoned = results["inf_on_two"]
    assert [*np.isfinite(poisoned["norms"])] == [True, True, False, True]
    counters = ("step", "skipped/total", "skipped/in_a_row", "loss_scale/scale", "loss_scale/finite_in_a_row")
    assert [poisoned[f"after/state/{name}"] for name in counters] == [3, 1, 1, 2.0**14, 0]
    assert [poisoned[f"state/{name}"] for name in counters] == [4, 1, 0, 2.0**14, 1]
    assert np.isfinite(poisoned["losses"][3])
    assert np.isfinite(poisoned["state/metrics/window"]).all()
    kept = [name for name in poisoned if name.startswith(("before/weight/", "before/state/adam"))]
    assert kept
    for name in kept:
        np.testing.assert_array_equal(poisoned[name.replace("before/", "after/")], poisoned[name], err_msg=name)
    assert any(not np.array_equal(poisoned[name], poisoned[name.removeprefix("before/")]) for name in kept)


def test_two_worker_processes_are_one(results, tmp_path):
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            ports.append(f"localhost:{free.getsockname()[1]}")
    workers = []
    for index in range(2):
        directory = tmp_path / str(index)
        directory.mkdir()
        task = {"cluster": {"worker": ports}, "task": {"type": "worker", "index": index}}
        workers.append(start(directory, {"one": {**CASES["one"], "replicas": 2}}, TF_CONFIG=json.dumps(task)))
    try:
        for worker in workers:
            finish(worker)
    finally:
        for worker in workers:
            worker.kill()
    for index in range(2):
        assert_same(results["one"], dict(np.load(tmp_path / str(index) / "one.npz")))
