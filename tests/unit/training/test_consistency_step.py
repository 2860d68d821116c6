"""Tests of training steps with SimCut and R-Drop: logged values, slices, and resumed runs."""

import numpy as np
import pytest
import tensorflow as tf
from random_weights import random_arrays
from small_step import batch

from t2t_ext import registry
from t2t_ext.errors import UserError
from t2t_ext.training.optimizers import make_optimizer
from t2t_ext.training.progress import describe_training
from t2t_ext.training.schedules import Schedule
from t2t_ext.training.state import WINDOW_FIELDS, TrainingState
from t2t_ext.training.step import TrainStep

VOCAB = 12
NO_DROPOUT = {"layer_prepostprocess_dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0}
# All words are hidden, so that the masks do not differ between slices.
ALL_HIDDEN = {**NO_DROPOUT, "simcut_alpha": 3.0, "simcut_probability": 0.9999999}


def make(**changes):
    hparams = registry.hparams("transformer_test").replace(
        num_hidden_layers=1, learning_rate_schedule="constant", learning_rate_constant=0.01, **changes
    )
    model = registry.model("transformer")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=2))
    optimizer = make_optimizer(hparams, model.named_variables())
    state = TrainingState(hparams, model.named_variables(), optimizer)
    step = TrainStep(
        model, optimizer=optimizer, schedule=Schedule(hparams, 100), state=state, hparams=hparams,
        strategy=tf.distribute.get_strategy(), random_seed=1,
    )  # fmt: skip
    return model, state, step


def window(state):
    return dict(zip(WINDOW_FIELDS, state.window.numpy(), strict=True))


@pytest.fixture(scope="module")
def hidden():
    """Returns the state and the model after one step with all words hidden, and the result of the step."""
    model, state, step = make(**ALL_HIDDEN)
    return state, model, step.run(batch())


# Each slice and each pass draws its own masks. Slices are tested with SimCut, whose passes differ anyway.
@pytest.mark.parametrize(
    "changes",
    [{"simcut_alpha": 3.0, "parallel_slices": 2}, pytest.param({"r_drop_alpha": 5.0}, marks=pytest.mark.slow)],
    ids=["simcut", "r_drop"],
)
def test_a_resumed_run_computes_the_same_bits(changes):
    model, state, step = make(**changes)
    step.run(batch(0))
    kept = {name: value.numpy() for group in (model, state) for name, value in group.named_variables().items()}
    expected = step.run(batch(1))
    other, resumed, again = make(**changes)
    for group in (other, resumed):
        for name, variable in group.named_variables().items():
            variable.assign(kept[name])
    result = again.run(batch(1))
    assert result["loss"].numpy() == expected["loss"].numpy()
    for name, variable in other.named_variables().items():
        np.testing.assert_array_equal(variable, model.named_variables()[name])
    np.testing.assert_array_equal(state.window, resumed.window)
    assert window(state)["regularizer"] > 0


def test_the_regularizer_is_logged_apart_and_tokens_count_once(hidden):
    _, plain_state, plain = make(**NO_DROPOUT)
    state, _, result = hidden
    expected = plain.run(batch())
    assert float(result["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-5)
    before, sums = window(plain_state), window(state)
    for name in ("loss", "nll", "correct", "target_tokens", "source_tokens", "positions", "examples", "labels"):
        assert sums[name] == pytest.approx(before[name], rel=1e-5)
    assert before["regularizer"] == 0
    assert sums["regularizer"] > 1
    assert sums["gradient_norm"] != pytest.approx(before["gradient_norm"], rel=1e-3)


def test_slices_of_a_batch_are_the_batch(hidden):
    whole_state, whole_model, expected = hidden
    model, state, sliced = make(gradient_accumulation_steps=2, parallel_slices=2, **ALL_HIDDEN)
    result = sliced.run(batch())
    np.testing.assert_allclose(result["gradient_norm"], expected["gradient_norm"], rtol=1e-5)
    np.testing.assert_allclose(state.window, whole_state.window, rtol=1e-5)
    for name, variable in model.named_variables().items():
        np.testing.assert_allclose(variable, whole_model.named_variables()[name], atol=1e-3)


def test_float16_scales_both_parts(hidden):
    _, state, step = make(**ALL_HIDDEN, precision="mixed_float16")
    exact_state, _, expected = hidden
    result = step.run(batch())
    assert float(result["gradient_norm"]) == pytest.approx(float(expected["gradient_norm"]), rel=0.02)
    assert window(state)["regularizer"] == pytest.approx(window(exact_state)["regularizer"], rel=0.02)


def test_only_one_of_them_can_be_on():
    with pytest.raises(UserError, match=r"simcut_alpha=3 and r_drop_alpha=5 are both on: choose one"):
        registry.hparams("transformer_test").replace(simcut_alpha=3.0, r_drop_alpha=5.0)


def test_the_log_shows_it_where_there_is_one():
    record = {
        "step": 1, "loss": 1.0, "perplexity": 2.0, "tokens_per_second": 3.0, "learning_rate": 4.0, "gradient_norm": 5.0,
        "skipped_steps": 0,
    }  # fmt: skip
    assert "regularizer" not in describe_training(record)
    assert describe_training({**record, "regularizer": 0.25}).endswith(", regularizer 0.250")
