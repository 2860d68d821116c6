"""Tests that learning-rate schedules have the values computed by hand."""

import math

import pytest
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config import hyperparameters
from t2t_ext.errors import UserError
from t2t_ext.training import schedules

BASE = registry.hparams("transformer_base")


def rate(step, train_steps=100000, **changes):
    return float(schedules.Schedule(BASE.replace(**changes), train_steps)(tf.constant(step, tf.int64)))


def test_base_rises_to_its_peak_at_the_end_of_the_warm_up():
    peak = 2.0 * 512**-0.5 / math.sqrt(8000)
    assert peak == pytest.approx(9.88e-4, rel=1e-3)
    assert rate(8000) == pytest.approx(peak, rel=1e-6)
    assert rate(1) == pytest.approx(peak / 8000, rel=1e-6)
    assert rate(4000) == pytest.approx(peak / 2, rel=1e-6)
    assert rate(32000) == pytest.approx(peak / 2, rel=1e-6)


def test_legacy_is_noam():
    v2 = registry.hparams("transformer_base_v2")
    legacy = schedules.Schedule(v2, 1)
    for step in (1, 4000, 8000, 20000):
        expected = 5000 * 512**-0.5 * min(step * 8000**-1.5, step**-0.5) * 0.002 * 0.2
        assert float(legacy(tf.constant(step, tf.int64))) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("schedule", "step", "expected"),
    [
        ("constant", 7, 2.0),
        ("rsqrt_hidden_size", 7, 512**-0.5),
        ("linear_warmup", 50, 0.5),
        ("linear_warmup", 500, 1.0),
        ("rsqrt_decay", 50, 0.1),
        ("rsqrt_decay", 400, 0.05),
        ("single_cycle_cos_decay", 50, 1.0),
        ("single_cycle_cos_decay", 550, 0.5),
        ("single_cycle_cos_decay", 1000, 0.0),
        ("cosdecay", 100, 1.0),
        ("cosdecay", 200, 0.5),
        ("cosdecay", 400, 0.0),
        ("linear_decay", 900, 0.25),
        ("linear_decay", 100, 1.0),
        ("linear_decay", 1000, 0.0),
        ("exp_decay", 100, 1.0),
        ("exp_decay", 500, 0.25),
        ("constant * exp_decay", 900, 0.125),
    ],
)
def test_factors(schedule, step, expected):
    value = rate(
        step,
        train_steps=1000,
        learning_rate_schedule=schedule,
        learning_rate_warmup_steps=100,
        learning_rate_decay_steps=400,
        learning_rate_decay_rate=0.25,
    )
    assert value == pytest.approx(expected, abs=1e-6)


def test_no_warm_up_is_no_division_by_zero():
    assert rate(1, learning_rate_warmup_steps=0) == pytest.approx(2.0 * 512**-0.5, rel=1e-6)


def test_single_cycle_needs_steps_after_the_warm_up():
    with pytest.raises(UserError, match=r"train_steps \(100\)"):
        rate(1, train_steps=100, learning_rate_schedule="single_cycle_cos_decay", learning_rate_warmup_steps=100)


def test_every_factor_that_hparams_allow_exists():
    assert set(schedules.FACTORS) == set(hyperparameters.LEARNING_RATE_FACTORS)


def test_unknown_factor_is_explained():
    class Unchecked:
        learning_rate_schedule = "constant*linear_warmpu"

    with pytest.raises(UserError, match="linear_warmup"):
        schedules.Schedule(Unchecked(), 1)


def described(name, train_steps, **changes):
    return schedules.Schedule(registry.hparams(name).replace(**changes), train_steps).describe()


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (
            "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
            f"at most {2 / math.sqrt(100 * 512):.2e}, at step 100",
        ),
        ("constant*linear_warmup*rsqrt_decay", "at most 2.00e-01, at step 100"),
        ("constant*linear_warmup", "at most 2.00e+00, at step 100"),
        ("constant*linear_warmup*single_cycle_cos_decay", "at most 2.00e+00, at step 100"),
        ("constant*linear_decay", "at most 2.00e+00, at step 1"),
        ("constant*exp_decay", "at most 2.00e+00, at step 1"),
        ("constant*linear_warmup*cosdecay", "at most 2.00e+00, at step 100"),
        ("constant", "at most 2.00e+00, at step 1"),
    ],
)
def test_the_peak_is_told(schedule, told):
    changes = {"learning_rate_schedule": schedule, "learning_rate_warmup_steps": 100}
    for steps in (10000, 3_000_000):  # with 3,000,000 steps, not every step is evaluated
        assert described("transformer_base", steps, **changes) == f"learning rate: {told}"


def test_the_peak_of_legacy_is_the_formula_of_the_docs():
    """The peak of legacy follows the documented formula; the line says that learning_rate is only a factor of it."""
    hparams = {"learning_rate": 0.0001, "hidden_size": 256, "num_heads": 4, "learning_rate_warmup_steps": 16000}
    peak = 10 * 0.0001 / math.sqrt(16000 * 256)
    assert described("cross_view_transformer_small", 100000, **hparams) == (
        f"learning rate: at most {peak:.2e}, at step 16,000 (a product of the schedule legacy; learning_rate=0.0001 is "
        "one factor of it)"
    )


@pytest.mark.parametrize("schedule", ["constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size", "legacy"])
def test_a_warm_up_that_training_ends_in_is_a_warning(schedule):
    line = described("transformer_base", 150, learning_rate_schedule=schedule, learning_rate_warmup_steps=4000)
    reached = rate(150, learning_rate_schedule=schedule, learning_rate_warmup_steps=4000)
    assert line.startswith(
        "warning: learning rate: the warm-up of 4,000 steps is longer than --train_steps=150: the rate reaches "
        f"{reached:.2e} only, at step 150"
    )
    # Training that ends with the warm-up reaches the peak; without warm-up, training cannot end during it.
    for steps, changes in ((4000, {}), (150, {"learning_rate_schedule": "constant*rsqrt_decay"})):
        changes = {"learning_rate_schedule": schedule, "learning_rate_warmup_steps": 4000, **changes}
        assert described("transformer_base", steps, **changes).startswith("learning rate: at most ")
