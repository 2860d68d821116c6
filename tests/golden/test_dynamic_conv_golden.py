"""The convolutional models and their layer equal independent NumPy renderings of Wu et al. (2019)."""

import numpy as np
import pytest
from numpy_dynamic_conv import NumpyDynamicConv, convolve
from random_weights import random_arrays

VOCAB = 13
INPUTS = np.array([[5, 9, 7, 12, 8, 6, 1], [11, 6, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 8, 3, 9, 1], [4, 1, 0, 0, 0], [10, 6, 7, 1, 0]], np.int32)
# Overrides, kernel sizes of the encoder's layers, kernel sizes of the decoder's layers.
SETTINGS = {
    "dynamic": ("", [3, 7], [3, 7]),
    "lightweight": ("conv_type=lightweight", [3, 7], [3, 7]),
    "growing": (
        "encoder_kernel_sizes=3+5,decoder_kernel_sizes=1+2,num_encoder_layers=4,num_decoder_layers=3",
        [3, 5, 5, 5],
        [1, 2, 2],
    ),
    "even_and_long": ("encoder_kernel_sizes=4+31,decoder_kernel_sizes=31+4,conv_heads=1", [4, 31], [31, 4]),
    "even_to_the_right": ("encoder_kernel_sizes=2+4,conv_even_kernel=right", [2, 4], [3, 7]),
    "many_heads": ("conv_heads=16", [3, 7], [3, 7]),
    "lightweight_heads": ("conv_heads=4,conv_type=lightweight,num_heads=1", [3, 7], [3, 7]),
    "no_gate": ("conv_glu=false", [3, 7], [3, 7]),
    "not_normalized": ("weight_softmax=false", [3, 7], [3, 7]),
    "post_norm_biases": (
        "layer_preprocess_sequence=none,layer_postprocess_sequence=dan,projection_bias=true",
        [3, 7],
        [3, 7],
    ),
    "encoder_alone": ("conv_stacks=encoder", [3, 7], []),
    "decoder_alone": ("conv_stacks=decoder,pos=none", [], [3, 7]),
}


def make(overrides, encoder_kernels, decoder_kernels):
    from t2t_ext import registry

    hparams = registry.hparams("dynamic_conv_test")
    hparams = hparams.override(overrides) if overrides else hparams
    model = registry.model("dynamic_conv")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=3))
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    return model, NumpyDynamicConv(arrays, hparams, encoder_kernels, decoder_kernels)


@pytest.mark.parametrize("setting", SETTINGS)
def test_logits(setting):
    model, numpy_model = make(*SETTINGS[setting])
    expected, _ = numpy_model(INPUTS, TARGETS)
    got = model(INPUTS, TARGETS, training=False).numpy()
    real = TARGETS != 0
    assert np.ptp(expected[real]) > 0.5, "the golden logits hardly differ: the comparison would mean little"
    np.testing.assert_allclose(got[real], expected[real], rtol=0, atol=1e-5)


# Length, taps, positions that the first tap is back. 64 positions are one stretch, 65 are two, and a kernel of size 100
# makes longer stretches.
SHAPES = [(1, 5, 4), (6, 31, 15), (9, 4, 1), (64, 31, 30), (65, 31, 15), (130, 3, 1), (131, 7, 0), (230, 100, 49)]


@pytest.mark.parametrize("known", [True, False], ids=["known_length", "unknown_length"])
@pytest.mark.parametrize(("length", "taps", "left"), SHAPES)
def test_convolve_and_its_gradient(length, taps, left, known):
    import tensorflow as tf

    from t2t_ext.layers import dynamic_convolution

    rng = np.random.default_rng(length)
    x, dy = rng.standard_normal([2, 2, length, 4])
    weights = rng.standard_normal([2, length, 2, taps])
    expected = np.stack([convolve(x[i], weights[i], left) for i in range(2)])
    shapes = [[None, length if known else None, 4], [None, length if known else None, 2, taps]]

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float64) for shape in [*shapes, shapes[0]]], autograph=False)
    def run(x, weights, dy):
        with tf.GradientTape() as tape:
            tape.watch([x, weights])
            y = dynamic_convolution.convolve(x, weights, left)
        return y, *tape.gradient(y, [x, weights], dy)

    y, dx, d_weights = run(x, weights, dy)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-10)
    # y is linear in x and in the weights: <dy, y(other x)> = <dx, other x>, and the same holds for the weights.
    other, other_weights = rng.standard_normal(x.shape), rng.standard_normal(weights.shape)
    by_x = np.stack([convolve(other[i], weights[i], left) for i in range(2)])
    by_weights = np.stack([convolve(x[i], other_weights[i], left) for i in range(2)])
    np.testing.assert_allclose((dx.numpy() * other).sum(), (dy * by_x).sum(), rtol=1e-9)
    np.testing.assert_allclose((d_weights.numpy() * other_weights).sum(), (dy * by_weights).sum(), rtol=1e-9)


def test_gated_linear_unit_and_its_gradient():
    import tensorflow as tf

    from t2t_ext.layers.dynamic_convolution import gated_linear_unit

    x = tf.constant(np.random.default_rng(1).standard_normal([5, 8]), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        ours = gated_linear_unit(x)
        plain = x[:, :4] * tf.sigmoid(x[:, 4:])
    np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-6)
    dy = tf.constant(np.random.default_rng(2).standard_normal([5, 4]), tf.float32)
    np.testing.assert_allclose(tape.gradient(ours, x, dy), tape.gradient(plain, x, dy), rtol=0, atol=1e-6)
