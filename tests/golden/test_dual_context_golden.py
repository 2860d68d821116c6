"""The dual contextual module equals the equations of Ampomah et al. (2021), written out in NumPy."""

import numpy as np
import pytest
from numpy_dual_context import NumpyDualContext, module, part_of
from numpy_transformer import Norm, layer_norm
from random_weights import random_arrays

VOCAB, WIDTH, HEADS = 13, 16, 2
PRE_NORM = "layer_preprocess_sequence=n,layer_postprocess_sequence=da"
INPUTS = np.array([[5, 9, 7, 12, 8, 6, 1], [11, 6, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 8, 3, 9, 1], [4, 1, 0, 0, 0], [10, 6, 7, 1, 0]], np.int32)
# Overrides of dual_context_test (post-norm, both stacks, f = 2), and the layers that have modules.
SETTINGS = {
    "post_norm": ("", ["decoder/0", "decoder/1", "encoder/0", "encoder/1"]),
    "four_to_the_left": ("dc_kernel_size=4,dc_even_kernel=left", ["decoder/0", "decoder/1", "encoder/0", "encoder/1"]),
    "eight_in_one_layer": (
        "dc_kernel_size=8,dc_encoder_layers=1+3,num_encoder_layers=3,dc_decoder_layers=2",
        ["decoder/1", "encoder/0", "encoder/2"],
    ),
    "pre_norm_decoder_alone": (f"dc_kernel_size=3,dc_encoder_layers=1-1,dc_decoder_layers=1,{PRE_NORM}",
                               ["decoder/0", "encoder/0"]),
    "pre_norm_with_biases_and_widths": (
        f"projection_bias=true,attention_key_channels=8,attention_value_channels=24,attention_scale=model,{PRE_NORM}",
        ["decoder/0", "decoder/1", "encoder/0", "encoder/1"],
    ),
}  # fmt: skip


def hparams_of(**changes):
    from t2t_ext import registry

    return registry.hparams("dual_context_test").replace(**changes)


def layer_of(hparams, *, decoder, seed=1):
    """Returns a module with random weights, and the same module in NumPy as a function of r, `allowed` and `exists`."""
    from t2t_ext.layers.dual_context import DecoderDualContext, EncoderDualContext

    layer = (DecoderDualContext if decoder else EncoderDualContext)(hparams, name="dual_context")
    layer.build(None)
    rng = np.random.default_rng(seed)
    variables = {}
    for variable in layer.trainable_variables:
        noise = rng.standard_normal(variable.shape) / (variable.shape[0] ** 0.5 if len(variable.shape) > 1 else 2)
        variable.assign(1 + noise if variable.name == "scale" else noise)
        variables[variable.path.removeprefix("dual_context/")] = variable.numpy()
    part = part_of(variables, hparams, decoder=decoder)
    scale = ((hparams.attention_key_channels or WIDTH) // HEADS) ** -0.5

    def expected(r, allowed, exists=lambda s: True):
        args = {"heads": HEADS, "scale": scale, "epsilon": hparams.norm_epsilon}
        return module(np.asarray(r, np.float64), part, allowed=allowed, exists=exists, **args)

    return layer, expected


def states(*shape, seed=7):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def is_past(t, s):
    return s <= t


@pytest.mark.parametrize(
    ("f", "even"), [(1, "right"), (2, "right"), (2, "left"), (3, "right"), (4, "right"), (4, "left")]
)
def test_module_of_the_encoder(f, even):
    import tensorflow as tf

    layer, expected = layer_of(hparams_of(dc_kernel_size=f, dc_even_kernel=even), decoder=False)
    lengths, r = [7, 4, 1], states(3, 7, WIDTH)  # the states after a sentence's end are not zero
    mask = tf.constant(np.arange(7) < np.array(lengths)[:, np.newaxis])[:, np.newaxis, np.newaxis]
    found, weights = layer(r, mask).numpy(), layer.distributions(r, mask).numpy()
    for row, length in enumerate(lengths):
        z, maps = expected(r[row], lambda t, s, n=length: s < n, lambda s, n=length: s < n)
        np.testing.assert_allclose(found[row, :length], z[:length], rtol=0, atol=2e-5)
        np.testing.assert_allclose(weights[row, :, :length], maps[:, :length], rtol=0, atol=1e-5)


@pytest.mark.parametrize("f", [1, 2, 3, 4])
def test_module_of_the_decoder(f):
    from t2t_ext.layers.masks import causal_mask

    layer, expected = layer_of(hparams_of(dc_kernel_size=f, projection_bias=True), decoder=True)
    r = states(2, 6, WIDTH)
    found, weights = layer(r, causal_mask(6)).numpy(), layer.distributions(r, causal_mask(6)).numpy()
    for row in range(2):
        z, maps = expected(r[row], is_past)
        np.testing.assert_allclose(found[row], z, rtol=0, atol=2e-5)
        np.testing.assert_allclose(weights[row], maps, rtol=0, atol=1e-5)


@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize("blind", [None, "local", "global"])
def test_attention_dropout_is_of_the_weights_of_both_attentions(decoder, blind):
    """Attention dropout applies to the weights of both attentions and so keeps the output's mean.

    The output is linear in these weights. Dropout of l_c or of r would not keep the mean.
    """
    import tensorflow as tf

    from t2t_ext.layers.dropout import seed_scope

    hparams = hparams_of(attention_dropout=0.5)
    layer, _ = layer_of(hparams, decoder=decoder)
    kernel = layer.aggregation.kernel.numpy()
    if blind:
        half = slice(None, WIDTH) if blind == "local" else slice(WIDTH, None)
        kernel[half] = 0
        layer.aggregation.kernel.assign(kernel)
    r = tf.constant(states(1, 6, WIDTH))
    mask = tf.ones([1, 1, 6, 6], tf.bool) if decoder else tf.ones([1, 1, 1, 6], tf.bool)

    @tf.function(autograph=False)
    def trained(seed):
        with seed_scope(seed):
            return layer(r, mask, training=True)

    still = layer(r, mask).numpy()
    runs = np.stack([trained(tf.constant([seed, 1], tf.int32)).numpy() for seed in range(600)])
    np.testing.assert_array_equal(runs[3], trained(tf.constant([3, 1], tf.int32)))
    error = runs.std(axis=0) / len(runs) ** 0.5
    assert np.median(runs.std(axis=0)) > 0.1 * still.std()
    assert np.abs((runs.mean(axis=0) - still) / error).max() < 4.5


def test_post_norm_layer_ends_with_equation_9():
    """A post-norm layer ends with z_f = LayerNorm(z_hat + r) and normalizes nothing else of the module."""
    from t2t_ext.layers.masks import causal_mask
    from t2t_ext.layers.sublayer import Frame

    hparams = hparams_of()
    layer, expected = layer_of(hparams, decoder=True)
    frame = Frame(hparams, name="frame")
    frame.build(None)
    norm = Norm(np.linspace(0.5, 1.5, WIDTH), np.linspace(-1, 1, WIDTH))
    frame.post_norm.scale.assign(norm.scale)
    frame.post_norm.bias.assign(norm.bias)
    r = states(1, 5, WIDTH)
    found = frame.postprocess(r, layer(frame.preprocess(r), causal_mask(5)))
    z = expected(r[0], is_past)[0]
    np.testing.assert_allclose(found[0], layer_norm(z + r[0], norm, hparams.norm_epsilon), rtol=0, atol=2e-5)


@pytest.mark.parametrize("f", [2, 3, 8])
def test_padding_counts_as_zero(f):
    """Padding counts as zero, for any values at the padding and any amount of it."""
    import tensorflow as tf

    for even in ("right", "left") if f % 2 == 0 else ("right",):
        layer, _ = layer_of(hparams_of(dc_kernel_size=f, dc_even_kernel=even), decoder=False)
        r = states(2, 9, WIDTH)
        mask = tf.constant(np.arange(9) < 6)[np.newaxis, np.newaxis, np.newaxis]
        found = layer(r, tf.repeat(mask, 2, axis=0)).numpy()[:, :6]
        other = np.concatenate([r[:, :6], 100 * r[:, 6:]], axis=1)
        np.testing.assert_array_equal(layer(other, tf.repeat(mask, 2, axis=0)).numpy()[:, :6], found)
        np.testing.assert_allclose(layer(r[:, :6], tf.ones([2, 1, 1, 6], tf.bool)), found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("f", range(1, 9))
def test_no_module_of_the_decoder_sees_the_future(f):
    """Changing the inputs from t on leaves the outputs before t the same bit for bit and changes the output at t."""
    from t2t_ext.layers.masks import causal_mask

    layer, _ = layer_of(hparams_of(dc_kernel_size=f), decoder=True)
    r = states(2, 10, WIDTH)
    before = layer(r, causal_mask(10)).numpy()
    for t in (1, 4, 9):
        changed = r.copy()
        changed[:, t:] = states(2, 10 - t, WIDTH, seed=t)
        after = layer(changed, causal_mask(10)).numpy()
        np.testing.assert_array_equal(after[:, :t], before[:, :t])
        assert np.abs(after[:, t] - before[:, t]).max() > 1e-2


@pytest.mark.parametrize("f", [1, 2, 3, 4, 8])
def test_search_whose_hypotheses_change_places(f):
    """Each step equals the module on a hypothesis's whole past, while ranks are swapped, dropped or extended twice."""
    import tensorflow as tf

    from t2t_ext.layers.attention import StepContext, mask_bias

    layer, expected = layer_of(hparams_of(dc_kernel_size=f, attention_value_channels=24), decoder=True)
    batch, beams, steps = 2, 3, 7
    # For every step, the previous ranks of the hypotheses: swapped, rotated, one of them dropped.
    parents = [[0, 1, 2], [1, 0, 2], [2, 0, 1], [0, 0, 1], [1, 2, 0], [1, 0, 1], [2, 1, 0]]
    inputs = states(steps, batch, beams, WIDTH)
    pasts, columns = [np.zeros([batch, 0, WIDTH], np.float32)] * beams, [[] for _ in range(beams)]
    state = layer.start(tf.constant(batch), 1)
    for t in range(steps):
        pasts = [np.concatenate([pasts[parents[t][k]], inputs[t][:, k : k + 1]], axis=1) for k in range(beams)]
        columns = [[*columns[parents[t][k]], t * beams + k] for k in range(beams)]
        visible = np.zeros([batch, 1, beams, (t + 1) * beams], bool)
        for k in range(beams):
            visible[:, 0, k, columns[k]] = True
        ranks = tf.constant(np.broadcast_to(parents[t], [batch, 1, beams]).astype(np.int32))
        bias = mask_bias(tf.constant(visible))[:, :, tf.newaxis]
        context = StepContext(tf.constant(t), tf.constant(visible), None, ranks, bias)
        found, state = layer.step(tf.reshape(inputs[t], [batch * beams, WIDTH]), context, state)
        found = tf.reshape(found, [batch, beams, WIDTH]).numpy()
        for sentence in range(batch):
            for k in range(beams):
                z = expected(pasts[k][sentence], is_past)[0][-1]
                np.testing.assert_allclose(found[sentence, k], z, rtol=0, atol=3e-5, err_msg=f"step {t}")
        assert state["memories"]["inputs"].shape[3] == min(t + 1, f - 1) * beams


@pytest.mark.parametrize("setting", SETTINGS)
def test_logits_and_attention(setting):
    from t2t_ext import registry

    overrides, layers = SETTINGS[setting]
    hparams = registry.hparams("dual_context_test")
    hparams = hparams.override(overrides) if overrides else hparams
    model = registry.model("dual_context_transformer")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=3))
    numpy_model = NumpyDualContext({name: v.numpy() for name, v in model.named_variables().items()}, hparams)
    assert numpy_model.layers == [layer.replace("/", "/layer_") for layer in layers]
    expected, maps = numpy_model(INPUTS, TARGETS)
    real = TARGETS != 0
    assert np.ptp(expected[real]) > 0.5, "the golden logits hardly differ: the comparison would mean little"
    np.testing.assert_allclose(model(INPUTS, TARGETS).numpy()[real], expected[real], rtol=0, atol=2e-5)
    ours = model.attention_weights(INPUTS, TARGETS)
    for layer, weights in enumerate(maps):
        found = ours[f"decoder/layer_{layer}/source_attention"].numpy()
        for row in range(len(INPUTS)):
            np.testing.assert_allclose(found[row][:, real[row]], weights[row][:, real[row]], rtol=0, atol=1e-5)
