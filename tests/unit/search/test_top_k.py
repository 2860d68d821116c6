"""Tests that the two-stage top-k equals a plain top-k."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext.search.top_k import log_normalizer, top_k_continuations, top_k_tokens


@pytest.mark.parametrize(
    ("vocab_size", "k", "banned"),
    [
        (8192, 8, (0, 2, 3, 4)),
        (5, 3, (0,)),
        (1000, 2, (0, 3)),
        (8193, 8, (0, 3, 200)),
        (4096, 8, (0, 4095)),
        (512, 1, ()),
    ],
)
def test_top_k_tokens(vocab_size, k, banned):
    logits = np.random.default_rng(vocab_size).normal(size=[16, vocab_size]).astype(np.float32)
    # The banned ids would otherwise win everywhere.
    logits[:, list(banned)] += 20
    allowed = logits.copy()
    allowed[:, list(banned)] = -np.inf
    values, ids = top_k_tokens(tf.constant(logits), k, banned)
    np.testing.assert_array_equal(ids, np.argsort(-allowed, axis=1)[:, :k])
    np.testing.assert_array_equal(values, np.take_along_axis(allowed, ids.numpy(), axis=1))


def test_equal_logits_come_in_the_order_of_their_ids():
    """Equal logits, which bfloat16 products often give, come in the order of their ids, as with the plain top-k."""
    logits = np.random.default_rng(0).integers(0, 4, size=[64, 8192]).astype(np.float32)
    logits[:, ::700] = 5
    values, ids = top_k_tokens(tf.constant(logits), 8, (0, 2))
    logits[:, [0, 2]] = -1e9
    expected_values, expected = tf.math.top_k(logits, 8)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(values, expected_values)


@pytest.mark.parametrize("scale", [0.1, 3.0, 60.0])
def test_log_normalizer(scale):
    logits = scale * np.random.default_rng(1).normal(size=[5, 3, 1000]).astype(np.float32)
    expected = np.log(np.exp(logits - logits.max(-1, keepdims=True), dtype=np.float64).sum(-1, keepdims=True))
    np.testing.assert_allclose(
        log_normalizer(tf.constant(logits)), expected + logits.max(-1, keepdims=True), rtol=2e-6, atol=2e-6
    )


def test_fewer_allowed_than_asked_for():
    values, _ = top_k_tokens(tf.zeros([1, 4]), 4, banned=(0, 1))
    assert (values.numpy()[0, 2:] < -1e8).all()


@pytest.mark.parametrize(("vocab_size", "hypotheses"), [(4000, 4), (8193, 4), (30, 2), (1000, 8)])
def test_continuations_are_those_of_a_plain_top_k(vocab_size, hypotheses):
    """Equal sums come in the order of hypothesis, then id; a hypothesis with log-probability -1e9 does not exist."""
    random, k, banned = np.random.default_rng(vocab_size), 2 * hypotheses, (0, 2, 3)
    logits = random.integers(0, 12, size=[6, hypotheses, vocab_size]).astype(np.float32) / 4
    normalizers = random.integers(8, 12, size=[6, hypotheses]).astype(np.float32)
    log_probs = -random.integers(1, 4, size=[6, hypotheses]).astype(np.float32)
    log_probs[0, 1:] = -1e9
    allowed = logits.copy()
    allowed[..., list(banned)] = -1e9
    sums = (allowed - normalizers[..., np.newaxis] + log_probs[..., np.newaxis]).reshape(6, -1)
    values, parents, ids = top_k_continuations(*map(tf.constant, (logits, normalizers, log_probs)), k, banned)
    expected = np.argsort(-sums, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(parents * vocab_size + ids, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(sums, expected, axis=1))


@pytest.mark.parametrize("vocab_size", [4000, 4096, 32000])
def test_the_normalizer_of_blocks_is_that_of_whole_rows(vocab_size):
    logits = tf.constant(np.random.default_rng(2).normal(size=[3, 2, vocab_size]).astype(np.float32))
    rows = tf.function(log_normalizer, input_signature=[tf.TensorSpec([None, None, None])], autograph=False)
    np.testing.assert_array_equal(log_normalizer(logits), rows(logits))
