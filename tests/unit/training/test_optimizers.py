"""Tests that the optimizers equal the papers' formulas in NumPy float64."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.training.optimizers import make_optimizer

SHAPES = {"layer/kernel": (4, 3), "layer/bias": (3,)}
STEPS = 5


def run(**changes):
    """Returns the final values of the variables, the gradients of each step, the initial values and the optimizer."""
    hparams = registry.hparams("transformer_test").replace(**changes)
    rng = np.random.default_rng(0)
    initial = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
    gradients = [{n: rng.standard_normal(shape) for n, shape in SHAPES.items()} for _ in range(STEPS)]
    variables = {name: tf.Variable(value, dtype=tf.float32) for name, value in initial.items()}
    optimizer = make_optimizer(hparams, variables)

    @tf.function(autograph=False)
    def apply(values, update):
        optimizer.apply(values, tf.constant(0.1), update)

    for update, values in enumerate(gradients, start=1):
        apply({n: tf.constant(v, tf.float32) for n, v in values.items()}, tf.constant(update, tf.int64))
    return {n: v.numpy() for n, v in variables.items()}, gradients, initial, optimizer


def adam(initial, gradients, beta1, beta2, epsilon, decay=0.0):
    value, m, v = initial.copy(), 0.0, 0.0
    for t, g in enumerate(gradients, start=1):
        value -= 0.1 * decay * value
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        rate = 0.1 * np.sqrt(1 - beta2**t) / (1 - beta1**t)
        value -= rate * m / (np.sqrt(v) + epsilon)
    return value


def test_adam():
    final, gradients, initial, optimizer = run(
        optimizer="adam", optimizer_adam_beta1=0.8, optimizer_adam_beta2=0.95, optimizer_adam_epsilon=1e-3
    )
    assert set(optimizer.slots) == {f"adam/{slot}/{name}" for slot in "mv" for name in SHAPES}
    for name, value in final.items():
        expected = adam(initial[name], [g[name] for g in gradients], 0.8, 0.95, 1e-3)
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


def test_adam_w_decays_matrices_only():
    final, gradients, initial, _ = run(
        optimizer="adam_w", weight_decay=0.3, optimizer_adam_beta1=0.9, optimizer_adam_beta2=0.98
    )
    for name, value in final.items():
        decay = 0.3 if name.endswith("kernel") else 0.0
        expected = adam(initial[name], [g[name] for g in gradients], 0.9, 0.98, 1e-9, decay)
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("optimizer", "added"), [("adam", 0.3), ("adafactor", 0.3), ("adam_w", 0.0), ("schedule_free_adam_w", 0.0)]
)
def test_weight_decay_is_an_l2_loss_of_matrices_but_for_adam_w(optimizer, added):
    variables = {name: tf.Variable(tf.random.normal(shape)) for name, shape in SHAPES.items()}
    hparams = registry.hparams("transformer_test").replace(
        optimizer=optimizer, weight_decay=0.3, learning_rate_schedule="constant"
    )
    made = make_optimizer(hparams, variables)
    gradients = {name: tf.random.normal(shape) for name, shape in SHAPES.items()}
    for name, gradient in made.regularised(gradients).items():
        share = added if len(SHAPES[name]) >= 2 else 0.0
        np.testing.assert_allclose(gradient, gradients[name] + share * variables[name], rtol=1e-6)


def adafactor(initial, gradients, beta1, decay_of, scaled):
    rms = lambda x: np.sqrt(np.mean(x * x))  # noqa: E731
    value, m = initial.copy(), np.zeros_like(initial)
    rows = np.zeros(initial.shape[:1]) if initial.ndim == 2 else None
    columns = np.zeros(initial.shape[1:]) if initial.ndim == 2 else None
    full = np.zeros_like(initial)
    for t, g in enumerate(gradients, start=1):
        decay, squared = decay_of(t), g * g + 1e-30
        if initial.ndim == 2:
            rows = decay * rows + (1 - decay) * squared.mean(1)
            columns = decay * columns + (1 - decay) * squared.mean(0)
            second = np.outer(rows, columns) / rows.mean()
        else:
            full = decay * full + (1 - decay) * squared
            second = full
        update = g / np.sqrt(second)
        update /= max(1.0, rms(update) / 1.0)
        update *= 0.1 * (max(rms(value), 1e-3) if scaled else 1.0)
        if beta1:
            m = beta1 * m + (1 - beta1) * update
            update = m
        value -= update
    return value


@pytest.mark.parametrize("beta1", [0.0, 0.9])
@pytest.mark.parametrize("scaled", [True, False])
def test_adafactor(beta1, scaled):
    final, gradients, initial, optimizer = run(
        optimizer="adafactor",
        optimizer_adafactor_beta1=beta1,
        optimizer_adafactor_multiply_by_parameter_scale=scaled,
    )
    assert optimizer.slots["adafactor/vr/layer/kernel"].shape == (4,)
    assert optimizer.slots["adafactor/vc/layer/kernel"].shape == (3,)
    for name, value in final.items():
        expected = adafactor(initial[name], [g[name] for g in gradients], beta1, lambda t: 1 - t**-0.8, scaled)
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


def test_adafactor_with_adams_decay():
    final, gradients, initial, _ = run(optimizer="adafactor", optimizer_adafactor_decay_type="adam")
    decay = lambda t: 0.999 * (1 - 0.999 ** (t - 1)) / (1 - 0.999**t)  # noqa: E731
    for name, value in final.items():
        expected = adafactor(initial[name], [g[name] for g in gradients], 0.0, decay, True)
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4)


def schedule_free(updates, power):
    """Returns the weight of the last update in the average, after updates at a constant rate."""
    hparams = registry.hparams("transformer_test").replace(
        optimizer="schedule_free_adam_w", optimizer_schedule_free_power=power, learning_rate_schedule="constant",
        optimizer_adam_beta2=0.0,
    )  # fmt: skip
    variables = {"bias": tf.Variable([0.0])}
    optimizer = make_optimizer(hparams, variables)
    before = 0.0
    for update in updates:
        before = float(optimizer.averages["bias"][0])
        optimizer.apply({"bias": tf.constant([1.0])}, tf.constant(1.0), tf.constant(update, tf.int64))
    z = float(optimizer.slots["schedule_free/z/bias"][0])
    return (float(optimizer.averages["bias"][0]) - before) / (z - before)


@pytest.mark.parametrize(("power", "updates"), [(0.0, 12), (2.0, 12), (100.0, 12)])
def test_schedule_free_weights_are_powers_of_the_updates_number(power, updates):
    """The averaging weights are powers of the update number, even if these exceed float32: 3^100 is 5e47."""
    shares = np.arange(1, updates + 1, dtype=np.float64) ** power
    assert schedule_free(range(1, updates + 1), power) == pytest.approx(shares[-1] / shares.sum(), rel=2e-3)
