"""Compares SimCut's and R-Drop's losses and gradients with the papers' formulas in NumPy (float64)."""

import types

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext.training import losses

VOCAB, DEPTH, SMOOTHING = 23, 5, 0.1


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def numpy_sums(arrays, labels, weights, simcut_alpha, r_drop_alpha):
    """Returns (loss, regularizer) for features [2, N, D]; for R-Drop both are half of the published sums."""
    features, kernel, bias = arrays
    first, second = (log_softmax(rows @ kernel.T + bias) for rows in features)
    low = SMOOTHING / (VOCAB - 1)
    smoothed = np.full([len(labels), VOCAB], low)
    smoothed[np.arange(len(labels)), labels] = 1 - SMOOTHING
    weights = weights * (labels != 0)
    entropy = -(smoothed * np.log(smoothed)).sum(-1)

    def cross_entropy(log_probs):
        return (weights * (-(smoothed * log_probs).sum(-1) - entropy)).sum()

    def divergence(log_p, log_q):
        return (weights * (np.exp(log_p) * (log_p - log_q)).sum(-1)).sum()

    if simcut_alpha:
        return cross_entropy(first), simcut_alpha * divergence(first, second)
    published = r_drop_alpha / 2 * (divergence(first, second) + divergence(second, first))
    return (cross_entropy(first) + cross_entropy(second)) / 2, published / 2


def problem(count, seed=0):
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(shape) for shape in ([2, count, DEPTH], [VOCAB, DEPTH], [VOCAB])]
    labels = rng.integers(1, VOCAB, count).astype(np.int32)
    labels[rng.random(count) < 0.3] = 0
    return arrays, labels, rng.uniform(0.5, 1.5, count)


def consistency(simcut_alpha, r_drop_alpha):
    return losses.Consistency.of(types.SimpleNamespace(simcut_alpha=simcut_alpha, r_drop_alpha=r_drop_alpha))


ALPHAS = [(3.0, 0.0), (0.0, 5.0)]


@pytest.mark.parametrize("count", [1, 130, 300])
@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("alphas", ALPHAS, ids=["simcut", "r_drop"])
def test_loss_and_gradients_are_those_of_the_formula(alphas, compact, count):
    arrays, labels, weights = problem(count)
    tensors = [tf.constant(array, tf.float32) for array in arrays]

    signature = [tf.TensorSpec([2, None, DEPTH]), *(tf.TensorSpec(a.shape) for a in arrays[1:])]

    @tf.function(input_signature=signature, autograph=False)
    def computed(features, kernel, bias):
        with tf.GradientTape() as tape:
            tape.watch([features, kernel, bias])
            sums = losses.softmax_cross_entropy(
                features, kernel, bias, tf.constant(labels), SMOOTHING, weights=tf.constant(weights, tf.float32),
                consistency=consistency(*alphas), compact=compact,
            )  # fmt: skip
        return sums, tape.gradient(sums.objective, [features, kernel, bias])

    sums, gradients = computed(*tensors)
    loss, regularizer = numpy_sums(arrays, labels, weights, *alphas)
    np.testing.assert_allclose([sums.loss, sums.regularizer], [loss, regularizer], rtol=2e-5, atol=1e-4)
    np.testing.assert_allclose(sums.objective, loss + regularizer, rtol=2e-5, atol=1e-4)
    rng = np.random.default_rng(1)
    for place, gradient in enumerate(gradients):
        for _ in range(3):  # central differences along random directions
            direction = rng.standard_normal(arrays[place].shape)
            ends = []
            for sign in (1, -1):
                moved = [a + sign * 1e-5 * direction if i == place else a for i, a in enumerate(arrays)]
                ends.append(sum(numpy_sums(moved, labels, weights, *alphas)))
            slope = (ends[0] - ends[1]) / 2e-5
            size = float(np.linalg.norm(gradient)) + 1e-3
            assert np.vdot(gradient, direction) == pytest.approx(slope, abs=2e-4 * size)


@pytest.mark.parametrize("alphas", ALPHAS, ids=["simcut", "r_drop"])
def test_equal_passes_cost_nothing_and_are_the_usual_loss(alphas):
    (features, kernel, bias), labels, _ = problem(40)
    features[1] = features[0]
    features, kernel, bias = (tf.constant(array, tf.float32) for array in (features, kernel, bias))
    sums = losses.softmax_cross_entropy(features, kernel, bias, labels, SMOOTHING, consistency=consistency(*alphas))
    usual = losses.softmax_cross_entropy(features[0], kernel, bias, labels, SMOOTHING)
    np.testing.assert_allclose(sums, usual, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("alphas", ALPHAS, ids=["simcut", "r_drop"])
def test_low_precision_keeps_the_gradients(alphas, dtype):
    arrays, labels, _ = problem(200)
    features, kernel, bias = (
        tf.cast(tf.cast(tf.constant(a), dtype), tf.float32) for a in (arrays[0], arrays[1] * 0.5, arrays[2])
    )

    def gradients(features):
        with tf.GradientTape() as tape:
            tape.watch([features, kernel])
            sums = losses.softmax_cross_entropy(
                features, kernel, bias, labels, SMOOTHING, consistency=consistency(*alphas)
            )
        return [tf.cast(gradient, tf.float32) for gradient in tape.gradient(sums.objective, [features, kernel])]

    for exact, low in zip(gradients(features), gradients(tf.cast(features, dtype)), strict=True):
        assert np.linalg.norm(low - exact) < 0.02 * np.linalg.norm(exact)


def test_no_regularizer_without_alpha():
    assert consistency(0.0, 0.0) is None
