"""Tests of what the training loop logs, keeps and deletes, without training."""

import types

import numpy as np
import pytest

from t2t_ext import registry
from t2t_ext.config.training import TrainingSettings
from t2t_ext.io.interruption import SignalWatch
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory
from t2t_ext.training import best_checkpoint, loop, progress
from t2t_ext.training.records import Best
from t2t_ext.training.state import WINDOW_FIELDS


def save(folder, *steps):
    return [checkpoints.save_checkpoint(folder, step, {"w": np.full(2, step, np.float32)}) for step in steps]


def best_of(run):
    return [checkpoints.checkpoint_step(path) for path in checkpoints.list_checkpoints(run.best_dir)]


@pytest.fixture
def run(tmp_path):
    """Returns a run with two checkpoints; by BLEU the second is the best, by loss the first."""
    found = RunDirectory(tmp_path, None)
    save(found.checkpoints_dir, 10, 20)
    return found


EVALUATIONS = [
    {"kind": "eval", "step": 10, "loss": 1.0, "bleu": 3.0},
    {"kind": "eval", "step": 20, "loss": 2.0, "bleu": 4.0},
]


def test_the_best_by_another_metric_takes_the_place_of_a_newer_one(run):
    for metric, step in (("bleu", 20), ("loss", 10), ("bleu", 20)):
        best = best_checkpoint.find(run, EVALUATIONS, metric)
        best_checkpoint.keep(run, best, metric)
        assert best_of(run) == [best.step] == [step]
        assert checkpoints.read_info(checkpoints.resolve_checkpoint(run.path, "best")).metadata["metric"] == metric


def test_a_metric_that_was_never_computed_is_said(run):
    save(run.best_dir, 20)
    assert best_checkpoint.without_a_best(run, EVALUATIONS, "loss") == ""
    assert best_checkpoint.without_a_best(run, [], "ROUGE-L") == ""
    told = best_checkpoint.without_a_best(run, EVALUATIONS, "ROUGE-L")
    assert told.startswith("best_checkpoint_metric=ROUGE-L: no evaluation")
    assert f"{run.best_dir} keeps step 20 until the next evaluation" in told


def test_a_run_that_resumes_before_its_best_checkpoint_has_another(run):
    save(run.best_dir, 20)
    best_checkpoint.keep(run, best_checkpoint.find(run, EVALUATIONS[:1], "bleu"), "bleu")
    assert best_of(run) == [10]


def test_a_step_that_is_made_again_takes_the_place_of_the_former(run):
    checkpoints.save_checkpoint(run.best_dir, 20, {"w": np.zeros(2, np.float32)})
    best_checkpoint.forget(run, 20)
    best_checkpoint.forget(run, 10)  # does not exist
    best_checkpoint.keep(run, best_checkpoint.find(run, EVALUATIONS, "bleu"), "bleu")
    np.testing.assert_array_equal(checkpoints.load_arrays(checkpoints.latest(run.best_dir))["w"], [20, 20])


def test_what_is_best_is_chosen_among_what_is_there(run):
    best_checkpoint.keep(run, best_checkpoint.find(run, EVALUATIONS, "bleu"), "bleu")
    checkpoints.prune(run.path, 1)
    assert best_checkpoint.find(run, EVALUATIONS, "loss") == Best(20, 2.0)
    assert best_checkpoint.find(run, [], "loss") is None


def test_the_last_good_checkpoint_stays_before_damaged_ones(run):
    """Pruning keeps step 15, made after the run fell back to step 10, although a damaged step 20 is newer."""
    save(run.checkpoints_dir, 15)
    (run.checkpoints_dir / "model.ckpt-00000020" / "checkpoint.json").unlink()
    steps_after_pruning(run, 1, now=15)
    assert checkpoints.checkpoint_step(checkpoints.latest(run.path)) == 15


@pytest.mark.parametrize(("keep", "kept"), [(3, [20, 30, 40]), (0, [10, 20, 3, 33, 30, 40])])
def test_checkpoints_of_interrupts_do_not_count_among_those_that_are_kept(run, keep, kept):
    save(run.checkpoints_dir, 30, 40)
    for step in (3, 33):
        checkpoints.save_checkpoint(run.checkpoints_dir, step, {"w": np.zeros(2)}, metadata={"at_interrupt": True})
    assert steps_after_pruning(run, keep, now=40) == sorted(kept)


def test_the_checkpoint_that_a_run_resumes_from_stays_until_there_is_a_newer_one(run):
    checkpoints.save_checkpoint(run.checkpoints_dir, 27, {"w": np.zeros(2)}, metadata={"at_interrupt": True})
    assert steps_after_pruning(run, 3, now=27) == [10, 20, 27]


def test_a_damaged_checkpoint_is_not_taken_for_one_of_an_interrupt(run):
    (run.checkpoints_dir / "model.ckpt-00000010" / "checkpoint.json").write_text("{")
    assert steps_after_pruning(run, 3, now=20) == [10, 20]


def steps_after_pruning(run, keep, now):
    settings, session = TrainingSettings(keep_checkpoint_max=keep), types.SimpleNamespace(step=now)
    loop._Loop._prune(types.SimpleNamespace(_run=run, _settings=settings, _session=session))
    return [checkpoints.checkpoint_step(path) for path in checkpoints.list_checkpoints(run.path)]


@pytest.mark.parametrize("skipped", [0, 2, 3])
def test_steps_that_were_skipped_have_no_loss(skipped):
    window = dict.fromkeys(WINDOW_FIELDS, 0.0) | {"steps": 3, "skipped": skipped}
    window |= {"loss": 8.0, "nll": 4.0, "labels": 4.0, "gradient_norm": 3.0} if skipped < 3 else {}
    session = types.SimpleNamespace(
        step=3,
        hparams=registry.hparams("transformer_test"),
        schedule=lambda step: 0.5,
        read_window=lambda: window,
        read_gradient_norms=lambda: ({}, 0),
        clear_window=lambda: None,
        counter=lambda name: skipped,
        loss_scale=lambda: 1.0,
    )
    records, lines = [], []
    kept = types.SimpleNamespace(append=records.append, record=lambda record: None, note=lines.append)
    loop._Loop._log(
        types.SimpleNamespace(
            _session=session, _clock=loop._Clock(window), _records=kept, _board=kept, _progress=kept, _say=lines.append,
            _check_skipped=lambda: None, _settings=types.SimpleNamespace(train_steps=5), _seconds_left=lambda: 0.0,
        )
    )  # fmt: skip
    [record], [note, line] = records, lines
    if skipped == 3:
        assert not {"loss", "nll", "perplexity", "accuracy", "gradient_norm"} & record.keys()
        assert note.startswith("steps skipped, ")
        assert line == "step 3: learning rate 5.00e-01, no update, 3 steps skipped so far"
    else:
        assert (record["loss"], record["gradient_norm"]) == (2.0, 3.0 / (3 - skipped))
        assert line.startswith("step 3: loss 2.000 (label-smoothed; 1.000 without), perplexity 2.72, learning rate")


@pytest.mark.parametrize(("precision", "named"), [("float32", 0), ("mixed_bfloat16", 0), ("mixed_float16", 1)])
def test_another_precision_is_advised_where_it_has_a_larger_range(precision, named):
    told = loop._against_skips(precision)
    assert told.count("precision=") == named
    assert "clip_grad_norm" in told


def test_source_and_reference_are_beside_the_first_translation_alone(run):
    """The log shows source and reference of the sample only once, since it is the same sentence at every evaluation."""
    said, kept = [], []
    signals = SignalWatch()
    evaluator = types.SimpleNamespace(
        evaluate=lambda weights, note: ({"loss": 1.0, "perplexity": 2.0, "accuracy": 0.5}, ["ein Haus"]),
        show=lambda board, step, hypotheses: None,
        first_sentence=lambda: ("a house", "ein " + "Haus" * 100),
    )
    stub = types.SimpleNamespace(
        _settings=TrainingSettings(),
        _session=types.SimpleNamespace(step=20, weights_for_users=dict, hparams=registry.hparams("transformer_test")),
        _signals=signals,
        _evaluator=evaluator,
        _progress=types.SimpleNamespace(note=None),
        _run=run,
        _board=types.SimpleNamespace(record=lambda record: None, flush=lambda: None),
        _records=types.SimpleNamespace(append=kept.append, evaluations=lambda: kept),
        _say=said.append,
        _keep_best=lambda: None,
        _prune=lambda: None,
    )
    for _ in range(2):
        loop._Loop._evaluate_here(stub)
    first, again = said[1], said[3]
    assert first.startswith("  first dev sentence: ein Haus\n    its source: a house\n    its reference: ein HausHaus")
    assert len(first) < 450
    assert again == "  first dev sentence: ein Haus"


@pytest.mark.parametrize(
    ("step", "seconds", "left"),
    [
        (80, 17.5, ", 70 of 150 steps left (18 s)"),
        (80, 210, ", 70 of 150 steps left (4 min)"),
        (80, 8400, ", 70 of 150 steps left (2 h 20 min)"),
        (80, 6048000, ", 70 of 150 steps left (70.0 days)"),
        (80, 0, ""),  # the time is not known yet
        (150, 210, ""),
    ],
)
def test_a_training_line_says_what_is_left(step, seconds, left):
    record = {"step": step, "tokens_per_second": 0, "learning_rate": 0.1, "skipped_steps": 0}
    line = progress.describe_training(record, 150, seconds)
    assert line == f"step {step}: learning rate 1.00e-01, no update{left}"


def test_the_time_of_a_step_is_without_the_first_and_without_evaluations(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    window = dict.fromkeys(("source_tokens", "target_tokens"), 0.0)
    clock = loop._Clock(window)
    now[0] = 17.0  # the evaluation that the previous process did not finish
    clock.start()
    now[0] += 30.0  # the graph
    assert clock.seconds_a_step(41) == 0
    assert clock.after_first_step(window, 41) == 30.0
    assert clock.seconds_a_step(41) == 0
    for step in (51, 61):
        clock.start()
        now[0] += 20
        assert clock.stop(window)[0] == 20
        now[0] += 10  # an evaluation
        assert clock.seconds_a_step(step) == 2.0


@pytest.mark.parametrize("resumed_after", [0, 990, 998])
@pytest.mark.parametrize("evaluated", [False, True])
def test_the_time_left_is_that_of_steps_and_evaluations_wherever_the_run_was_resumed(resumed_after, evaluated):
    """Steps take half a second, evaluations ten minutes, and the 5,500 steps have six of them."""
    records = [{"step": 1000, "seconds": 700.0}, {"step": 1000, "seconds": 600.0}] if evaluated else []

    def left(step):
        return loop._Loop._seconds_left(
            types.SimpleNamespace(
                _session=types.SimpleNamespace(step=step),
                _settings=types.SimpleNamespace(train_steps=5500, local_eval_frequency=1000),
                _clock=types.SimpleNamespace(seconds_a_step=lambda step: 0.5 if step > resumed_after + 1 else 0.0),
                _records=types.SimpleNamespace(evaluations=lambda: records),
            )
        )

    assert left(resumed_after + 1) == 0
    expected = {1000: 6, 1001: 5, 2000: 5, 2001: 4, 5499: 1}  # the evaluation of a step comes after its line in the log
    for step, evaluations in expected.items():
        assert left(step) == (5500 - step) / 2 + 600 * evaluations * evaluated


def test_the_clock_runs_until_the_device_has_finished():
    """The clock is paused after reading the counters, which waits for the GPU to finish its queued work."""
    order = []
    stub = types.SimpleNamespace(
        _check_skipped=lambda: order.append("waited"),
        _clock=types.SimpleNamespace(pause=lambda: order.append("paused")),
        _is_chief=False,
    )
    loop._Loop._save(stub)
    assert order == ["waited", "paused"]
