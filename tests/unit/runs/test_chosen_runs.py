"""Tests which runs and checkpoints a command line selects, and whether they can translate together."""

import dataclasses
import math

import numpy as np
import pytest

from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints
from t2t_ext.runs.chosen_runs import choose_runs, normalized_weights
from t2t_ext.runs.run_directory import RunConfig, RunDirectory


@dataclasses.dataclass(frozen=True)
class FakeEncoder:
    model_bytes: bytes


@pytest.fixture
def make_run(tmp_path):
    """Returns a function that makes a run with the checkpoints 10 and 20 and the given properties, returns its path."""

    def make(name, *, source=b"s", target=b"t", problem="translate_x", averaged=False, **hparams):
        config = RunConfig(
            problem=problem, model="m", hparams_set="h", hparams_class="c", hparams=hparams, data_dir="d",
            data_digest="0", random_seed=1,
        )  # fmt: skip
        run = RunDirectory.create(tmp_path / name, config, FakeEncoder(source), FakeEncoder(target))
        for step in (10, 20):
            checkpoints.save_checkpoint(run.checkpoints_dir, step, model={"w": np.zeros(2)})
        if averaged:
            checkpoints.save_checkpoint(run.averaged_dir, 15, model={"w": np.zeros(2)})
        return run.path

    return make


def names(chosen):
    return [(each.run.path.name, checkpoints.checkpoint_step(each.checkpoint)) for each in chosen]


def test_one_or_several(make_run):
    a, b = make_run("a", averaged=True), make_run("b", averaged=True)
    assert names(choose_runs(str(a))) == names(choose_runs(a)) == names(choose_runs([a])) == [("a", 20)]
    assert names(choose_runs(f"{a},{b}")) == names(choose_runs([a, b])) == [("a", 20), ("b", 20)]
    assert names(choose_runs(f"{a}, {b}", "averaged")) == [("a", 15), ("b", 15)]
    assert names(choose_runs(f"{a},{b}", "10,averaged")) == [("a", 10), ("b", 15)]
    assert names(choose_runs(a, "10,20")) == names(choose_runs(a, ["10", "20"])) == [("a", 10), ("a", 20)]
    assert names(choose_runs([a, b], [a / "averaged", b / "averaged"])) == [("a", 15), ("b", 15)]
    with pytest.raises(UserError, match=r"averaged is a checkpoint of the run .*/a, not .*/b"):
        choose_runs([a, b], a / "averaged")
    assert names(choose_runs([a, a])) == [("a", 20), ("a", 20)]


def test_a_comma_in_a_name(make_run):
    run = make_run("a,b")
    assert names(choose_runs(str(run))) == [("a,b", 20)]
    assert names(choose_runs(str(run), str(run / "checkpoints" / "model.ckpt-00000010"))) == [("a,b", 10)]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"target": b"x"}, "different target vocabularies.*--vocab_from=.*/first"),
        ({"source": b"x"}, "different source vocabularies"),
        ({"target_direction": "r2l"}, "generates l2r, .*other generates r2l"),
    ],
)
def test_runs_that_do_not_fit(make_run, other, message):
    first = make_run("first")
    assert len(choose_runs([first, make_run("fits", hidden_size=7)])) == 2
    with pytest.raises(UserError, match=message):
        choose_runs([first, make_run("other", **other)])


def test_other_mistakes(make_run, tmp_path):
    a, b = make_run("a"), make_run("b", problem="translate_x_rev")
    warnings = []
    choose_runs([a, b], warn=warnings.append)
    assert len(warnings) == 1
    assert "different problems" in warnings[0]
    choose_runs([b, make_run("d", problem="translate_x_rev_synchronous")], warn=warnings.append)
    assert len(warnings) == 1, "the same text"
    with pytest.raises(UserError, match=r"2 runs .* 3 checkpoints"):
        choose_runs([a, b], "10,20,10")
    with pytest.raises(UserError, match="no checkpoint '30'"):
        choose_runs([a, b], "10,30")
    with pytest.raises(UserError, match=r"There is no run directory .*/c\."):
        choose_runs(f"{a},{tmp_path / 'c'}")
    with pytest.raises(UserError, match="No run directory was given"):
        choose_runs("")


def test_weights():
    assert normalized_weights(None, 4) == (0.25,) * 4
    assert normalized_weights((1, 3), 2) == (0.25, 0.75)
    for wrong in ((1,), (1, 0), (1, -1), (1, math.inf), (1, math.nan)):
        with pytest.raises(UserError, match="--ensemble_weights"):
            normalized_weights(wrong, 2)
