"""Tests of convolution layers: weight dropout, long inputs, kernel sizes, and combinations of settings."""

import numpy as np
import pytest

from t2t_ext import registry
from t2t_ext.config.dynamic_conv import kernel_sizes
from t2t_ext.errors import UserError


def layer_of(taps, *, decoder=False, **changes):
    from t2t_ext.layers.dynamic_convolution import DecoderConvolution, EncoderConvolution

    hparams = registry.hparams("dynamic_conv_test").replace(**changes)
    layer = (DecoderConvolution if decoder else EncoderConvolution)(hparams, taps, name="convolution")
    layer.build(None)
    return layer


@pytest.mark.parametrize("kind", ["dynamic", "lightweight"])
def test_weight_drop(kind):
    """Each normalized weight of each position and head is dropped at the given rate; the others are scaled up."""
    import tensorflow as tf

    from t2t_ext.layers.dropout import seed_scope

    layer = layer_of(4, conv_type=kind, conv_glu=False, weight_dropout=0.25, hidden_size=8, num_heads=4)
    for projection in (layer.input_projection, layer.output_projection):
        projection.kernel.assign(np.eye(8))
    kernels = layer.kernels.kernel if kind == "dynamic" else layer.shared_kernels
    kernels.assign(np.zeros(kernels.shape))  # all taps weigh a quarter
    x, mask = tf.ones([100, 50, 8]), tf.ones([100, 1, 1, 50], tf.bool)
    with seed_scope(np.array([1, 2], np.int32)):
        y = layer(x, mask, training=True).numpy()[:, 2:-1]  # positions all of whose taps are inside
    kept = y * 0.75 * 4
    np.testing.assert_allclose(kept, np.round(kept), rtol=0, atol=1e-5)
    shares = np.bincount(np.round(kept).astype(int).ravel(), minlength=5) / kept.size
    binomial = [0.25**4, 4 * 0.75 * 0.25**3, 6 * 0.75**2 * 0.25**2, 4 * 0.75**3 * 0.25, 0.75**4]
    np.testing.assert_allclose(shares, binomial, rtol=0, atol=0.015)
    assert y.mean() == pytest.approx(1.0, abs=0.01)
    heads = kept.reshape(100, -1, 4, 2)
    np.testing.assert_array_equal(heads[..., 0], heads[..., 1])  # the channels of a head share a kernel
    for axis in (0, 1, 2):  # sentences, positions and heads have different masks
        one, other = np.split(np.take(heads[..., 0], [0, 1], axis=axis), 2, axis=axis)
        assert 0.1 < np.mean(one == other) < 0.6
    np.testing.assert_allclose(layer(x, mask).numpy()[:, 2:-1], 1.0, rtol=0, atol=1e-5)


def test_padding_counts_as_zero():
    import tensorflow as tf

    layer = layer_of(5, projection_bias=True)
    layer.input_projection.bias.assign(np.ones(32))  # otherwise a zero vector would be padding enough
    rng = np.random.default_rng(1)
    x = rng.standard_normal([1, 9, 16]).astype(np.float32)
    short = layer(tf.constant(x[:, :6]), tf.ones([1, 1, 1, 6], tf.bool))
    padded = layer(tf.constant(x), tf.constant(np.arange(9) < 6)[np.newaxis, np.newaxis, np.newaxis])
    np.testing.assert_allclose(padded[:, :6], short, rtol=0, atol=1e-6)


def test_no_square_matrix_of_a_long_input():
    """No tensor of a pass over 4,096 positions and its gradient is much larger than positions times taps."""
    import tensorflow as tf

    layer, length = layer_of(31, decoder=True), 4096

    @tf.function(input_signature=[tf.TensorSpec([1, length, 16], tf.float32)], autograph=False)
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return tape.gradient(y, [x, *(variable.value for variable in layer.trainable_variables)])

    graph = run.get_concrete_function().graph
    sizes = [output.shape.num_elements() or 0 for op in graph.get_operations() for output in op.outputs]
    assert length * 16 < max(sizes) < 5 * length * layer.heads * 31
    assert all(gradient is not None for gradient in run(tf.ones([1, length, 16])))


def test_a_thousand_tokens():
    """A model with kernels of 100 taps has finite gradients on 1,000 tokens, and its decoder stays causal."""
    import tensorflow as tf

    hparams = registry.hparams("dynamic_conv_test").replace(decoder_kernel_sizes="100", encoder_kernel_sizes="100")
    model = registry.model("dynamic_conv")(hparams, source_vocab_size=30, target_vocab_size=30)
    model.build()
    rng = np.random.default_rng(2)
    inputs, targets = (rng.integers(5, 30, [1, 1000]).astype(np.int32) for _ in range(2))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model.features(inputs, targets, training=True)))
    gradients = [g for g in tape.gradient(loss, list(model.named_variables().values())) if g is not None]
    assert gradients
    assert all(np.isfinite(tf.convert_to_tensor(gradient)).all() for gradient in gradients)
    short = model.features(inputs[:, :300], targets[:, :300])
    other = np.concatenate([targets[:, :300], targets[:, :300]], axis=1)
    np.testing.assert_allclose(model.features(inputs[:, :300], other)[:, :300], short, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "layers", "sizes"),
    [("3,7,15,31", 6, (3, 7, 15, 31, 31, 31)), ("3+7", 2, (3, 7)), (" 5 ", 3, (5, 5, 5)), ("3,7,15,31", 2, (3, 7))],
)
def test_kernel_sizes(text, layers, sizes):
    assert kernel_sizes(text, layers) == sizes


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("encoder_kernel_sizes=3+x", "'x' is no kernel size"),
        ("decoder_kernel_sizes=0", "'0' is no kernel size"),
        ("decoder_kernel_sizes=3++7", "write whole numbers from 1"),
        ("conv_heads=3", "hidden_size=16 is not a multiple of conv_heads=3"),
        ("conv_type=dynamical", "dynamic"),
        ("weight_drop=0.1", "weight_dropout"),
    ],
)
def test_mistakes(overrides, said):
    with pytest.raises(UserError, match=said):
        registry.hparams("dynamic_conv_test").override(overrides)


def test_only_heads_that_are_set_are_named():
    with pytest.raises(UserError, match=r"is not a multiple of num_heads=3\.$"):
        registry.hparams("dynamic_conv_test").replace(num_heads=3)


def test_two_directions_need_attention_in_the_decoder():
    hparams = registry.hparams("dynamic_conv_test")
    with pytest.raises(UserError, match="conv_stacks=encoder"):
        hparams.replace(synchronous=True)
    hparams = hparams.replace(synchronous=True, conv_stacks="encoder")
    model = registry.model("dynamic_conv")(hparams, source_vocab_size=30, target_vocab_size=30)
    model.build()
    names = list(model.named_variables())
    assert any("encoder/layer_1/convolution" in name for name in names)
    assert any("decoder/layer_1/self_attention" in name for name in names)
    targets = np.full([2, 2, 4], 9, np.int32)
    assert model(np.full([2, 5], 7, np.int32), targets).shape == (2, 2, 4, 30)
