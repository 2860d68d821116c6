"""The two-stage top-k is a top-k."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext.search.top_k import log_normalizer, top_k_tokens


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
    """As from the plain top-k: bfloat16 products give many equal logits."""
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
