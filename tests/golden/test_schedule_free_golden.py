"""Compares Schedule-Free AdamW with the paper's formulas in float64, in the form that stores y and z but not x.

In this form of Defazio et al. (2024), y moves toward z by the share of the new z in the mean. Then z takes Adam's step
and y takes a part of it. The mean x follows from y = (1 - beta1) z + beta1 x.
"""

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.training.optimizers import make_optimizer
from t2t_ext.training.schedules import Schedule

SHAPES = {"layer/kernel": (4, 3), "layer/bias": (3,)}
STEPS = 30
BETAS = (0.9, 0.9955)
EPSILON, PEAK, WARMUP = 1e-4, 0.05, 8


def expected(y, gradients, decay, power):
    """Returns y, z and x after all steps."""
    beta1, beta2 = BETAS
    z, second, largest, total = y.copy(), np.zeros_like(y), 0.0, 0.0
    for count, gradient in enumerate(gradients, start=1):
        rate = PEAK * min(1.0, count / WARMUP) * np.sqrt(1 - beta2**count)
        largest = max(largest, rate)
        total += count**power * largest**2
        share = count**power * largest**2 / total
        second += (1 - beta2) * (gradient**2 - second)
        step = gradient / (np.sqrt(second) + EPSILON) + decay * y
        y = y + share * (z - y) + rate * (beta1 * (1 - share) - 1) * step
        z = z - rate * step
    return y, z, (y - (1 - beta1) * z) / beta1


@pytest.mark.parametrize(("weight_decay", "power"), [(0.0, 0.0), (0.3, 0.0), (0.3, 1.5)])
def test_schedule_free_adam_w(weight_decay, power):
    hparams = registry.hparams("transformer_test").replace(
        optimizer="schedule_free_adam_w", learning_rate_schedule="constant*linear_warmup", weight_decay=weight_decay,
        optimizer_schedule_free_power=power, learning_rate_constant=PEAK, learning_rate_warmup_steps=WARMUP,
        optimizer_adam_beta1=BETAS[0], optimizer_adam_beta2=BETAS[1], optimizer_adam_epsilon=EPSILON,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    initial = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
    gradients = [{name: rng.standard_normal(shape) for name, shape in SHAPES.items()} for _ in range(STEPS)]
    variables = {name: tf.Variable(value, dtype=tf.float32) for name, value in initial.items()}
    optimizer = make_optimizer(hparams, variables)
    schedule = Schedule(hparams, STEPS)

    @tf.function(autograph=False)
    def apply(values, update):
        optimizer.apply(optimizer.regularised(values), schedule(update), update)

    for update, values in enumerate(gradients, start=1):
        apply({name: tf.constant(value, tf.float32) for name, value in values.items()}, tf.constant(update, tf.int64))
    for name, value in initial.items():
        decay = weight_decay if name == "layer/kernel" else 0.0
        y, z, x = expected(value, [each[name] for each in gradients], decay, power)
        np.testing.assert_allclose(variables[name], y, rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(optimizer.slots[f"schedule_free/z/{name}"], z, rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(optimizer.averages[name], x, rtol=1e-5, atol=2e-6)
        assert np.abs(x - y).max() > 1e-2
