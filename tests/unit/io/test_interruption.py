"""Tests of signals: all workers stop after the same step, and they rarely need to communicate about it."""

import json
import os
import signal
import time

import pytest

from t2t_ext.errors import UserError
from t2t_ext.io import interruption
from t2t_ext.io.interruption import Agreement, SignalWatch
from t2t_ext.training import strategies


class Cluster:
    """Simulates workers in lockstep: the values that they contribute to a round are summed once all have done so."""

    def __init__(self, count):
        self.count, self.rounds = count, []

    def agree(self, agreements, step):
        due = [step >= agreement._next for agreement in agreements]
        assert len(set(due)) == 1, "the workers disagree about when to ask each other"
        if not due[0]:
            return [agreement.stop_reason(step) for agreement in agreements]
        said = []
        for agreement in agreements:
            agreement._workers.sum = lambda values: said.append(values) or [0, 1]
            state = agreement._last, agreement._next, agreement._time
            agreement.stop_reason(step)
            agreement._last, agreement._next, agreement._time = state
        total = [sum(column) for column in zip(*said, strict=True)]
        self.rounds.append(step)
        for agreement in agreements:
            agreement._workers.sum = lambda values: total
        return [agreement.stop_reason(step) for agreement in agreements]


class Worker:
    def __init__(self, count, index):
        self.count, self.is_chief = count, index == 0


@pytest.mark.parametrize("hit", [0, 1])
def test_all_workers_stop_after_the_same_step(hit, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(interruption.time, "monotonic", lambda: clock[0])
    watches = [SignalWatch(), SignalWatch()]
    agreements = [Agreement(Worker(2, i), watches[i], 1000, 0) for i in range(2)]
    cluster = Cluster(2)
    stopped = None
    for step in range(1, 1000):
        clock[0] += 0.1
        if step == 200:
            watches[hit].received = "SIGINT"
        reasons = cluster.agree(agreements, step)
        if any(reasons):
            stopped = step
            break
    assert 200 <= stopped <= 212
    assert reasons[hit] == "SIGINT"
    assert reasons[1 - hit] == "SIGTERM"
    assert len(cluster.rounds) < 30  # the workers do not communicate at every step


def test_the_first_signal_is_answered_while_no_handler_can_run(capfd):
    """The first signal is acknowledged at once, even while TensorFlow builds a graph and Python calls no handler."""
    watch = SignalWatch("stopping soon")
    answered: list[str] = []
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    with watch.watching():
        note = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(note)
        os.write(note, bytes([signal.SIGINT, signal.SIGINT]))
        deadline = time.monotonic() + 30
        while not "".join(answered) and time.monotonic() < deadline:
            answered.append(capfd.readouterr().err)
            time.sleep(0.01)
        assert watch.received == ""  # no Python handler has run yet
        signal.raise_signal(signal.SIGINT)
        assert watch.received == "SIGINT"
    assert "".join(answered) + capfd.readouterr().err == "SIGINT: stopping soon\n"
    assert signal.set_wakeup_fd(before) == before


def test_one_process_asks_nobody():
    watch = SignalWatch()
    agreement = Agreement(Worker(1, 0), watch, 10, 0)
    assert agreement.stop_reason(1) == ""
    watch.received = "SIGTERM"
    assert agreement.stop_reason(2) == "SIGTERM"


def test_sigterm_before_training_ends_with_the_same_status():
    before = signal.getsignal(signal.SIGTERM)
    with interruption.exiting_at_sigterm(99):
        watch = SignalWatch()
        with watch.watching():
            signal.raise_signal(signal.SIGTERM)
        assert watch.received == "SIGTERM"  # the training loop's own handler takes precedence
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 99
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_sigterm_means_after_joining_the_workers_what_it_meant_before(handler, monkeypatch):
    put_back = []
    monkeypatch.setattr(strategies, "_tf_config", lambda: {"cluster": {"worker": ["a:1"]}})
    monkeypatch.setattr(strategies.compat, "configure_workers", lambda spec, **times: None)
    monkeypatch.setattr(strategies.tf.distribute, "MultiWorkerMirroredStrategy", lambda: "strategy")
    monkeypatch.setattr(strategies.signal, "getsignal", lambda number: handler)
    monkeypatch.setattr(strategies.signal, "signal", lambda *given: put_back.append(given))
    assert strategies.make_strategy("multi_worker_mirrored") == "strategy"
    assert put_back == [(signal.SIGTERM, handler)]


@pytest.mark.parametrize("name", ["auto", "multi_worker_mirrored"])
@pytest.mark.parametrize("other", ["ps", "master", "evaluator"])
def test_tasks_that_do_not_train_are_refused(name, other, monkeypatch):
    cluster = {"worker": ["a:1"], other: ["b:1"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(UserError, match=f"tasks of the type {other}.*name them chief and worker"):
        strategies.make_strategy(name)


def test_a_cluster_of_one_process_is_no_cluster(monkeypatch):
    config = {"cluster": {"master": ["a:1"], "worker": []}, "task": {"type": "master", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    monkeypatch.setattr(strategies.tf.config, "list_logical_devices", lambda kind: [])
    assert strategies.make_strategy("auto") == strategies.tf.distribute.get_strategy()
