"""The trainer with two worker processes gives the same run after a signal or a kill and stops all workers together."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from t2t_ext.runs import checkpoints

STEPS, EVALUATED = 240, 120
PATIENCE = 240  # seconds for a start on a busy machine


class Job:
    """Two trainer processes that train one run together."""

    def __init__(self, data, run, *changes):
        ports = []
        for _ in range(2):
            with socket.socket() as free:
                free.bind(("localhost", 0))
                ports.append(f"localhost:{free.getsockname()[1]}")
        self.addresses = ports
        self.logs = [run.with_name(f"{run.name}.{time.monotonic_ns()}.{index}") for index in range(2)]
        flags = {
            "problem": "translate_parallel_text",
            "model": "transformer",
            "hparams_set": "transformer_test",
            "hparams": "num_hidden_layers=1,batch_size=200,learning_rate_warmup_steps=20,learning_rate_constant=0.5",
            "data_dir": data,
            "output_dir": run,
            "train_steps": STEPS,
            "local_eval_frequency": EVALUATED,
            "log_step_count_steps": 20,
            "decode_hparams": "beam_size=1",
            "eval_bleu_sentences": 4,
            "worker_timeout": 10,
        }
        command = [sys.executable, "-m", "t2t_ext.bin.trainer", *(f"--{n}={v}" for n, v in flags.items()), *changes]
        self.processes = []
        for index in range(2):
            task = {"cluster": {"worker": ports}, "task": {"type": "worker", "index": index}}
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_CONFIG": json.dumps(task)}
            with open(self.logs[index], "w", encoding="utf-8") as log:
                self.processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    def log(self, index=0):
        return self.logs[index].read_text(encoding="utf-8")

    def wait_for(self, text):
        deadline = time.monotonic() + PATIENCE
        while text not in self.log():
            assert time.monotonic() < deadline, self.log()
            assert self.processes[0].poll() is None, self.log()
            time.sleep(0.005)

    def ends(self, seconds=PATIENCE):
        """Returns the exit statuses of both processes, which must end within the given seconds."""
        deadline = time.monotonic() + seconds
        return [process.wait(timeout=max(deadline - time.monotonic(), 0.01)) for process in self.processes]


@pytest.fixture
def start(toy_data):
    """Gives a function (run, flags) -> Job; processes that still run at the end of the test are killed."""
    with contextlib.ExitStack() as stack:

        def call(run, *changes):
            job = Job(toy_data, run, *changes)
            for process in job.processes:
                stack.callback(process.wait)
                stack.callback(process.kill)
            return job

        yield call


def state(run):
    path = checkpoints.latest(run)
    return {f"{g}/{n}": v for g in ("model", "training") for n, v in checkpoints.load_arrays(path, g).items()}


def records(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")} for line in lines]


@pytest.mark.slow
def test_a_signal_and_a_kill_change_nothing(start, tmp_path):
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    job = start(undisturbed)
    assert job.ends() == [0, 0], job.log() + job.log(1)

    job = start(run)
    job.wait_for(f"saved {run}/checkpoints/model.ckpt-{EVALUATED:08d}")
    job.processes[0].send_signal(signal.SIGTERM)  # while the chief evaluates alone and the other waits
    assert job.ends(60) == [143, 143], job.log() + job.log(1)
    assert not any(record["kind"] == "eval" for record in records(run))
    assert checkpoints.checkpoint_step(checkpoints.latest(run)) == EVALUATED

    job = start(run)
    job.wait_for(f"step {EVALUATED + 40}:")
    assert f"dev set at step {EVALUATED}:" in job.log()  # the chief decided to make up for this evaluation
    job.processes[1].kill()
    assert job.ends(60) == [75, -signal.SIGKILL], job.log()
    message = job.log().strip().splitlines()[-1]
    # Either the aborted collective operation or the heartbeat thread notices first.
    found = re.match(r"error: Worker 1 \((.+?)\) (is gone|has sent no heartbeat for 10 s) \(", message)
    assert found, message
    assert found[1] == job.addresses[1]
    assert f"Start all 2 workers again with the same commands: training resumes from {run}" in message
    assert f"model.ckpt-{EVALUATED:08d}" in message

    job = start(run)
    assert job.ends() == [0, 0], job.log() + job.log(1)
    expected, found = state(undisturbed), state(run)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert records(undisturbed) == records(run)


@pytest.mark.slow
def test_a_chief_that_is_killed_and_a_worker_that_stands_still_are_noticed(start, tmp_path):
    job = start(tmp_path / "one")
    job.wait_for("step 40:")
    job.processes[0].kill()
    assert job.ends(60) == [-signal.SIGKILL, 75], job.log(1)
    assert "Worker 0" in job.log(1)
    assert "the chief" in job.log(1)

    job = start(tmp_path / "two")
    job.wait_for("step 40:")
    job.processes[1].send_signal(signal.SIGSTOP)
    assert job.processes[0].wait(60) == 75
    assert "Worker 1" in job.log()

    # While the chief evaluates alone, no collective operation can tell it that the worker is gone.
    job = start(tmp_path / "three", "--local_eval_frequency=20", "--worker_timeout=2", "--eval_bleu_sentences=0")
    job.wait_for("saved ")
    job.processes[1].kill()
    assert job.ends(60)[0] == 75
    assert "Worker 1" in job.log()


@pytest.mark.slow
def test_a_signal_to_any_worker_stops_all(start, tmp_path):
    job = start(tmp_path / "one", "--train_steps=100000", "--log_step_count_steps=10000")
    job.wait_for("first step after")
    job.processes[1].send_signal(signal.SIGTERM)
    assert job.ends(60) == [143, 143], job.log() + job.log(1)
    reached = checkpoints.checkpoint_step(checkpoints.latest(tmp_path / "one"))
    assert f"stopped by SIGTERM after step {reached}" in job.log()
