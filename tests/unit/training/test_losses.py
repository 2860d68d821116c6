"""Tests that the fused output head equals the plain formula of the loss."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext.training import losses


def naive(features, kernel, bias, targets, label_smoothing):
    """Returns T2T's normalized label-smoothed cross-entropy, nll and correct tokens, summed without padding."""
    vocab_size = kernel.shape[0]
    logits = tf.matmul(features, kernel, transpose_b=True) + bias
    low = label_smoothing / (vocab_size - 1)
    smoothed = tf.one_hot(targets, vocab_size, on_value=1.0 - label_smoothing, off_value=low)
    entropy = -tf.reduce_sum(tf.where(smoothed > 0, smoothed * tf.math.log(smoothed + 1e-30), 0.0), -1)
    weights = tf.cast(targets != 0, tf.float32)
    log_probs = tf.nn.log_softmax(logits)
    loss = tf.reduce_sum(weights * (-tf.reduce_sum(smoothed * log_probs, -1) - entropy))
    nll = -tf.reduce_sum(weights * tf.gather(log_probs, targets, batch_dims=1))
    correct = tf.reduce_sum(weights * tf.cast(tf.argmax(logits, -1, tf.int32) == targets, tf.float32))
    return loss, nll, correct


def random_problem(rows, depth=16, vocab_size=50, seed=0, padding=0.3):
    rng = np.random.default_rng(seed)
    targets = rng.integers(1, vocab_size, rows).astype(np.int32)
    targets[rng.random(rows) < padding] = 0
    return (
        tf.constant(rng.standard_normal((rows, depth)), tf.float32),
        tf.constant(rng.standard_normal((vocab_size, depth)), tf.float32),
        tf.constant(rng.standard_normal(vocab_size), tf.float32),
        tf.constant(targets),
    )


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_sums_and_gradients_are_those_of_the_formula(compact, label_smoothing):
    @tf.function(reduce_retracing=True, autograph=False)
    def fused(features, kernel, bias, targets):
        with tf.GradientTape() as tape:
            tape.watch([features, kernel, bias])
            sums = losses.softmax_cross_entropy(features, kernel, bias, targets, label_smoothing, compact=compact)
            scaled = 0.5 * sums.loss
        return sums, tape.gradient(scaled, [features, kernel, bias])

    for rows in (7, 1, 256, 257, 700):
        features, kernel, bias, targets = random_problem(rows)
        with tf.GradientTape() as tape:
            tape.watch([features, kernel, bias])
            expected = naive(features, kernel, bias, targets, label_smoothing)
            scaled = 0.5 * expected[0]
        expected_gradients = tape.gradient(scaled, [features, kernel, bias])
        sums, gradients = fused(features, kernel, bias, targets)
        np.testing.assert_allclose(sums[:3], expected, rtol=2e-5, atol=1e-4, err_msg=f"{rows} rows")
        assert sums.tokens == np.count_nonzero(targets)
        for ours, theirs in zip(gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-5, err_msg=f"{rows} rows")
    assert fused.experimental_get_tracing_count() == 2, "the first rows, then any number of them"


def test_smoothed_loss_is_zero_at_its_optimum():
    confidence, low, _ = losses.smoothing_terms(0.1, 4)
    # One-hot features pick rows of log-probabilities, so the model predicts exactly the smoothed distribution.
    rows = np.full((4, 4), np.log(low), np.float32)
    np.fill_diagonal(rows, np.log(confidence))
    targets = tf.constant([1, 2, 3], tf.int32)
    sums = losses.softmax_cross_entropy(tf.eye(4)[1:], tf.constant(rows.T), None, targets, 0.1)
    assert abs(float(sums.loss)) < 1e-5
    assert float(sums.nll) == pytest.approx(-3 * np.log(confidence), rel=1e-5)
    assert float(sums.correct) == 3


@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.bfloat16, 2e-2), (tf.float16, 4e-3)])
def test_low_precision_products_keep_a_float32_softmax(dtype, tolerance):
    features, kernel, _, targets = random_problem(300)
    bias = tf.zeros([50])
    kernel *= 0.3

    def gradients_of(function):
        with tf.GradientTape() as tape:
            tape.watch([features, kernel])
            loss = function()
        return loss, tape.gradient(loss, [features, kernel])

    ours, our_gradients = gradients_of(
        lambda: losses.softmax_cross_entropy(tf.cast(features, dtype), kernel, None, targets, 0.1).loss
    )
    exact, exact_gradients = gradients_of(lambda: naive(features, kernel, bias, targets, 0.1)[0])
    assert ours.dtype == tf.float32
    assert float(ours) == pytest.approx(float(exact), rel=tolerance)
    for low, high in zip(our_gradients, exact_gradients, strict=True):
        assert low.dtype == tf.float32
        assert np.linalg.norm(low - high) < tolerance * np.linalg.norm(high)


def test_padding_alone_costs_nothing_and_is_no_division_by_zero():
    features, kernel, bias, _ = random_problem(5)
    with tf.GradientTape() as tape:
        tape.watch(kernel)
        sums = losses.softmax_cross_entropy(features, kernel, bias, tf.zeros([5], tf.int32), 0.1)
    assert [float(value) for value in sums] == [0] * 6
    assert not np.any(tape.gradient(sums.loss, kernel))


def test_sums_without_gradients_are_the_same():
    features, kernel, bias, targets = random_problem(300)
    with_gradients = losses.softmax_cross_entropy(features, kernel, bias, targets, 0.1)
    without = losses.softmax_cross_entropy(features, kernel, bias, targets, 0.1, differentiable=False)
    np.testing.assert_array_equal(with_gradients, without)


def test_compiles_with_xla_where_shapes_are_static():
    features, kernel, bias, targets = random_problem(300)

    @tf.function(jit_compile=True, autograph=False)
    def compiled(features, kernel, targets):
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            loss = losses.softmax_cross_entropy(features, kernel, bias, targets, 0.1, compact=False).loss
        return loss, tape.gradient(loss, kernel)

    loss, gradient = compiled(features, kernel, targets)
    with tf.GradientTape() as tape:
        tape.watch(kernel)
        exact = naive(features, kernel, bias, targets, 0.1)[0]
    assert float(loss) == pytest.approx(float(exact), rel=1e-5)
    np.testing.assert_allclose(gradient, tape.gradient(exact, kernel), atol=2e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_of_well_predicted_tokens_survive_low_precision(dtype):
    """If probability and target nearly cancel, the rounding of 16-bit products must not swamp the difference."""
    rng = np.random.default_rng(1)
    kernel = rng.standard_normal((64, 32)).astype(np.float32)
    targets = rng.integers(1, 64, 40).astype(np.int32)
    features = (0.35 * kernel[targets] + 0.05 * rng.standard_normal((40, 32))).astype(np.float32)
    kernel, features = (tf.cast(tf.cast(x, dtype), tf.float32) for x in (kernel, features))  # exact in 16 bits

    def gradients(features):
        with tf.GradientTape() as tape:
            tape.watch([features, kernel])
            loss = losses.softmax_cross_entropy(features, kernel, None, tf.constant(targets), 0.1).loss
        return [tf.cast(gradient, tf.float32) for gradient in tape.gradient(loss, [features, kernel])]

    for exact, low in zip(gradients(features), gradients(tf.cast(features, dtype)), strict=True):
        assert np.linalg.norm(low - exact) < 0.01 * np.linalg.norm(exact)


def test_large_vocabularies_in_half_precision():
    """Rows of weight zero do not affect the gradient, although their unnormalized probabilities overflow float16."""
    vocab_size = 80_000
    features, targets = np.zeros([16, 2], np.float16), np.zeros([16], np.int32)
    features[:5], targets[:5] = 1, 7
    kernel = tf.Variable(tf.zeros([vocab_size, 2]))
    with tf.GradientTape() as tape:
        loss = losses.softmax_cross_entropy(tf.constant(features), kernel, None, tf.constant(targets), 0.1).loss
    gradient = tape.gradient(loss, kernel).numpy()
    assert np.isfinite(gradient).all()
    assert gradient[7, 0] == pytest.approx(-0.9 * 5, rel=1e-3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_kernel_of_low_precision_too(dtype):
    """The kernel may have low precision, as in evaluation, where the weights have the inference precision."""
    features, kernel, _, targets = random_problem(60)
    expected = losses.softmax_cross_entropy(features, kernel, None, targets, 0.1, differentiable=False)
    low = losses.softmax_cross_entropy(
        tf.cast(features, dtype), tf.cast(kernel, dtype), None, targets, 0.1, differentiable=False
    )
    np.testing.assert_allclose(low.loss, expected.loss, rtol=0.02)
