"""Tests of the layers: dropout, gradients, masks, positions, attention, frames."""

import concurrent.futures

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.layers import attention, masks
from t2t_ext.layers.base import LayerNormalization, Projection, add_bias, make_initializer
from t2t_ext.layers.dropout import dropout, relu_dropout, seed_scope
from t2t_ext.layers.embeddings import TokenEmbedding, sinusoids
from t2t_ext.layers.gradients import custom_gradient, forward_only
from t2t_ext.layers.sublayer import Frame, final_normalization

HPARAMS = TransformerHParams(hidden_size=8, filter_size=16, num_heads=2, num_hidden_layers=1)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_dropout_rate_and_expectation(rate):
    x = tf.ones([997, 101])  # the number of elements is not a multiple of four
    with seed_scope(tf.constant([3, 4])):
        y = dropout(x, rate, training=True).numpy()
    rounded = round(rate * 256) / 256
    assert (y == 0).mean() == pytest.approx(rounded, abs=0.01)
    assert np.unique(y[y != 0]) == pytest.approx([1 / (1 - rounded)], rel=1e-6)
    assert y.mean() == pytest.approx(1, abs=0.01)


def test_dropout_is_a_function_of_seed_and_call():
    x = tf.ones([64, 64])

    def masks_of(seed):
        with seed_scope(tf.constant(seed)):
            return [dropout(x, 0.5, training=True).numpy() for _ in range(2)]

    first, again, other_step, other_replica = masks_of([1, 0]), masks_of([1, 0]), masks_of([2, 0]), masks_of([1, 1])
    np.testing.assert_array_equal(first, again)
    different = [first[0], first[1], other_step[0], other_replica[0]]
    for i, a in enumerate(different):
        for b in different[:i]:
            assert 0.4 < (a == b).mean() < 0.6


def test_dropout_gradient_goes_through_kept_units_only():
    x = tf.ones([32, 32])
    with tf.GradientTape() as tape, seed_scope(tf.constant([1, 2])):
        tape.watch(x)
        y = dropout(x, 0.25, training=True)
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_gradients_are_left_out_where_nobody_asks_for_them():
    @custom_gradient
    def twice(x):
        return 2 * x, lambda dy: 3 * dy

    def nodes_and_gradient():
        with tf.Graph().as_default() as graph:
            x = tf.constant([1.0, 2.0])
            y = twice(x)
            kinds = [node.type for node in graph.get_operations()]
            (gradient,) = tf.gradients(y, x)
            with tf.compat.v1.Session() as session:
                return "IdentityN" in kinds, *session.run([y, gradient])

    def check(found, has_node, factor):
        assert found[0] == has_node
        np.testing.assert_array_equal(found[1:], [[2, 4], [factor, factor]])

    check(nodes_and_gradient(), True, 3)
    with forward_only():
        with forward_only():
            check(nodes_and_gradient(), False, 2)
        check(nodes_and_gradient(), False, 2)
        with concurrent.futures.ThreadPoolExecutor(1) as other_thread:
            check(other_thread.submit(nodes_and_gradient).result(), True, 3)
    with pytest.raises(ZeroDivisionError), forward_only():
        raise ZeroDivisionError
    check(nodes_and_gradient(), True, 3)


@pytest.mark.parametrize("layer", [dropout, lambda *args: relu_dropout(*args)[0]])
def test_some_units_stay_whatever_the_rate(layer):
    kept = layer(tf.ones([256, 256]), 0.9999, True).numpy()
    assert 100 < np.count_nonzero(kept) < 500


def test_dropout_without_training_is_the_identity():
    x = tf.random.normal([3, 4])
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x


def test_causal_mask():
    np.testing.assert_array_equal(masks.causal_mask(4)[0, 0], np.tril(np.ones([4, 4], bool)))


@pytest.mark.parametrize(("layout", "width"), [("concat", 8), ("interleaved", 8), ("concat", 7)])
def test_sinusoids(layout, width):
    got = sinusoids(tf.range(5), width, layout).numpy()
    assert got.shape == (5, width)
    pairs = width // 2
    for position in range(5):
        for pair in range(pairs):
            exponent = pair / (pairs - 1) if layout == "concat" else 2 * pair / width
            angle = position / 10000**exponent
            sine, cosine = (pair, pair + pairs) if layout == "concat" else (2 * pair, 2 * pair + 1)
            assert got[position, sine] == pytest.approx(np.sin(angle), abs=1e-6)
            assert got[position, cosine] == pytest.approx(np.cos(angle), abs=1e-6)


def test_heads_split_and_merge():
    x = tf.random.normal([2, 3, 5, 8])
    split = attention.split_heads(x, 4)
    assert split.shape == [2, 3, 4, 5, 2]
    np.testing.assert_array_equal(split[1, 2, 3, 4], x[1, 2, 4, 6:8])
    np.testing.assert_array_equal(attention.merge_heads(split), x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_masked_keys_get_exactly_nothing(dtype):
    query, keys = tf.cast(tf.random.normal([2, 3, 4]), dtype), tf.cast(tf.random.normal([2, 5, 4]), dtype)
    mask = tf.constant([True, False, True, False, True])
    weights = tf.cast(attention.attention_weights(query, keys, attention.mask_bias(mask), 0.5), tf.float32).numpy()
    assert (weights[..., [1, 3]] == 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=2e-2 if dtype != "float32" else 1e-6)
    nothing = attention.attention_weights(query, keys, attention.mask_bias(tf.zeros([5], tf.bool)), 0.5)
    assert np.isfinite(tf.cast(nothing, tf.float32)).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", ["uniform_unit_scaling", "normal_unit_scaling", "orthogonal"])
def test_initializers_draw_in_every_precision(name, dtype):
    layer = Projection([64, 64], use_bias=False, initializer=make_initializer(name, 1.0), dtype=dtype)
    layer.build((None, 64))
    kernel = tf.cast(layer.kernel.value, tf.float32).numpy()
    assert layer.kernel.dtype == layer.dtype_policy.variable_dtype
    assert kernel.std() == pytest.approx(64**-0.5, rel=0.05)
    assert not np.array_equal(kernel[:, :64], kernel[:, 64:])
    if name == "orthogonal":
        np.testing.assert_allclose(kernel[:, :64].T @ kernel[:, :64], np.eye(64), atol=0.02)


def test_fused_projection_is_initialized_part_by_part():
    layer = Projection([64, 64], use_bias=False, initializer=make_initializer("uniform_unit_scaling", 1.0), name="p")
    layer.build((None, 64))
    kernel = layer.kernel.numpy()
    limit = np.sqrt(3 * 2 / (64 + 64))
    assert 0.95 * limit < np.abs(kernel).max() <= limit
    assert not np.allclose(kernel[:, :64], kernel[:, 64:])


def test_layer_normalization():
    layer = LayerNormalization(1e-6, name="n")
    layer.build((None, 6))
    layer.scale.assign(np.arange(6.0))
    layer.bias.assign(np.ones(6))
    x = np.random.default_rng(0).normal(3, 5, [4, 6])
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * np.arange(6) + 1
    np.testing.assert_allclose(layer(tf.constant(x, tf.float32)), expected, atol=1e-5)


def test_padding_embeds_as_zeros():
    layer = TokenEmbedding(5, 4, name="e")
    layer.build()
    got = layer(tf.constant([[2, 0]])).numpy()
    np.testing.assert_allclose(got[0, 0], layer.matrix.numpy()[2] * 2, rtol=1e-6)
    assert (got[0, 1] == 0).all()


def test_frames_pre_and_post_norm():
    pre = Frame(HPARAMS, name="pre")
    post_hparams = HPARAMS.replace(layer_preprocess_sequence="none", layer_postprocess_sequence="dan")
    post = Frame(post_hparams, name="post")
    for frame in (pre, post):
        frame.build()
    x, y = tf.random.normal([3, 8]), tf.random.normal([3, 8])
    np.testing.assert_allclose(pre.preprocess(x).numpy().mean(-1), 0, atol=1e-6)
    np.testing.assert_allclose(pre.postprocess(x, y), x + y)
    np.testing.assert_array_equal(post.preprocess(x), x)
    np.testing.assert_allclose(post.postprocess(x, y).numpy().mean(-1), 0, atol=1e-6)
    assert final_normalization(HPARAMS) is not None
    assert final_normalization(post_hparams) is None


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 5e-3), ("float16", 1e-3)])
def test_the_gradient_of_a_bias_adds_up_in_float32(dtype, tolerance):
    rows, bias = tf.zeros([4000, 16], dtype), tf.zeros([16], dtype)
    upstream = tf.random.stateless_normal([4000, 16], [1, 2], mean=0.1, dtype=tf.float32)
    upstream = tf.cast(upstream, dtype)
    with tf.GradientTape() as tape:
        tape.watch([rows, bias])
        y = add_bias(rows, bias)
    of_rows, of_bias = tape.gradient(y, [rows, bias], output_gradients=upstream)
    np.testing.assert_array_equal(of_rows, upstream)
    assert of_bias.dtype == dtype
    np.testing.assert_allclose(of_bias.numpy().astype(float), upstream.numpy().astype(float).sum(0), rtol=tolerance)
