"""Layer-wise coordination and the context gate equal independent NumPy renderings, at once and step by step."""

import numpy as np
import pytest
import tensorflow as tf
from numpy_layer_coordination import NumpyContextGate, NumpyLayerCoordination, weights_of
from numpy_transformer import weights_of as transformer_weights_of
from random_weights import random_arrays

POST_NORM = "layer_preprocess_sequence=none,layer_postprocess_sequence=dan"
SETTINGS = {
    "pre_norm": "num_hidden_layers=3",
    "post_norm": f"{POST_NORM},pos_encoding=interleaved",
    "no_mixed_attention": "lwc_mixed_attention=false",
    "no_mixed_attention_post_norm": f"lwc_mixed_attention=false,{POST_NORM},projection_bias=true",
    "no_sharing": "lwc_share_weights=false",
    "no_sharing_post_norm": f"lwc_share_weights=false,lwc_mixed_attention=false,{POST_NORM}",
    "no_sharing_input": "lwc_share_weights=false,lwc_source=input,num_hidden_layers=3",
    "no_sharing_input_post_norm": f"lwc_share_weights=false,lwc_source=input,lwc_mixed_attention=false,{POST_NORM}",
    "last": "lwc_source=last,num_hidden_layers=3",
    "last_post_norm": f"lwc_source=last,lwc_mixed_attention=false,{POST_NORM},projection_bias=true",
    "last_no_sharing": "lwc_source=last,lwc_share_weights=false,num_hidden_layers=3",
    "last_dual_context": "lwc_source=last,dc_encoder_layers=all,dc_kernel_size=3",
    "no_side_embedding": "lwc_side_embedding=false",
    "no_positions": "pos=none",
    "no_sos": "use_sos=false",
    "sos_and_biases": "projection_bias=true,ffn_activation=swiglu",
    "dual_context": "dc_encoder_layers=all",
    "dual_context_post_norm": f"num_hidden_layers=3,dc_encoder_layers=1+3,dc_kernel_size=3,{POST_NORM}",
    "dual_context_no_mixed_attention": "lwc_mixed_attention=false,dc_encoder_layers=all,dc_kernel_size=4,"
    "dc_even_kernel=left,projection_bias=true,attention_key_channels=8,attention_value_channels=24",
    "dual_context_no_sharing": "lwc_share_weights=false,dc_encoder_layers=2,dc_decoder_layers=all,dc_kernel_size=5",
    "channels": "attention_key_channels=8,attention_value_channels=24,attention_scale=model",
}
VOCAB = 13
INPUTS = np.array([[5, 9, 7, 12, 1], [11, 6, 1, 0, 0], [1, 0, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 8, 3, 1], [4, 1, 0, 0], [10, 6, 7, 1]], np.int32)
REAL = TARGETS != 0


def make(overrides, kind="layer_coordination"):
    from t2t_ext import registry

    hparams = registry.hparams(f"{kind}_test")
    hparams = hparams.override(overrides) if overrides else hparams
    model = registry.model(kind)(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=3))
    return model, {name: variable.numpy() for name, variable in model.named_variables().items()}


def agree(model, numpy_model):
    """Checks that the logits agree and returns the NumPy model's logits and distributions."""
    expected, maps = numpy_model(INPUTS, TARGETS)
    assert np.ptp(expected[REAL]) > 0.5, "the golden logits hardly differ: the comparison would mean little"
    got = model(INPUTS, TARGETS, training=False).numpy()
    np.testing.assert_allclose(got[REAL], expected[REAL], rtol=0, atol=1e-5)
    return expected, maps


def steps_of(model):
    """Yields logits [B, V] and attention [B, S] of every step of the targets, with one hypothesis per sentence."""
    none = np.zeros([len(INPUTS), 1, 1], np.int32)
    state = model.start(INPUTS)
    for t in range(TARGETS.shape[1]):
        ids = TARGETS[:, t - 1, np.newaxis, np.newaxis] if t else none
        visible = np.ones([len(INPUTS), 1, 1, t + 1], bool)
        logits, attention, state = model.step_with_attention(tf.constant(ids), visible, None, none, state)
        yield logits[:, 0, 0].numpy(), attention[:, 0, 0].numpy()


@pytest.mark.parametrize("setting", SETTINGS)
def test_layer_coordination(setting):
    """Logits and distributions equal the NumPy model's, and so do the logits and the last cross-attention of steps."""
    model, arrays = make(SETTINGS[setting])
    logits, maps = agree(model, NumpyLayerCoordination(weights_of(arrays, model.hparams), model.hparams))
    shown = {name: weights.numpy() for name, weights in model.attention_weights(INPUTS, TARGETS).items()}
    last = f"layer_{model.hparams.num_hidden_layers - 1}/"
    unread = f"{last}source_self_attention" if model.side_by_side else "nothing"
    assert set(shown) == {name for name in maps if not name.startswith(unread)}
    for name, weights in shown.items():
        real = (INPUTS if "source_self" in name else TARGETS) != 0
        for row, rows in enumerate(real):
            np.testing.assert_allclose(weights[row][:, rows], maps[name][row][:, rows], rtol=0, atol=1e-5)
    looking = f"{last}{'mixed_attention' if model.hparams.lwc_mixed_attention else 'source_attention'}"
    on_source = np.concatenate([weights for name, weights in maps.items() if name.startswith(looking)], axis=1).mean(1)
    on_source = on_source[..., : INPUTS.shape[1]] / on_source[..., : INPUTS.shape[1]].sum(axis=-1, keepdims=True)
    for t, (step_logits, attention) in enumerate(steps_of(model)):
        rows = REAL[:, t]
        np.testing.assert_allclose(step_logits[rows], logits[rows, t], rtol=0, atol=1e-5)
        np.testing.assert_allclose(attention[rows], on_source[rows, t], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "overrides", ["", f"context_gate=channel,{POST_NORM},projection_bias=true,num_encoder_layers=1"]
)
def test_context_gate(overrides):
    model, arrays = make(overrides, "context_gate_transformer")
    paths = [f"decoder/layer_{i}/context_gate/projection" for i in range(model.hparams.decoder_layers)]
    gates = [(arrays.pop(f"{path}/kernel"), arrays.pop(f"{path}/bias")) for path in paths]
    weights = transformer_weights_of(arrays, model.hparams)
    logits, maps = agree(model, NumpyContextGate(weights, gates, model.hparams))
    for t, (step_logits, attention) in enumerate(steps_of(model)):
        rows = REAL[:, t]
        np.testing.assert_allclose(step_logits[rows], logits[rows, t], rtol=0, atol=1e-5)
        np.testing.assert_allclose(attention[rows], maps[-1].mean(axis=1)[rows, t], rtol=0, atol=1e-5)


def test_the_source_is_read_once():
    """The state from ``start`` holds each source once, for any number of hypotheses, and no step changes it."""
    model, _ = make("")
    state = model.start(INPUTS)
    none = np.zeros([len(INPUTS), 1, 3], np.int32)
    after = model.step(tf.constant(none), np.ones([len(INPUTS), 1, 3, 3], bool), None, none, state)[1]
    assert len(state["source"]) == model.hparams.num_hidden_layers
    for before, later in zip(state["source"], after["source"], strict=True):
        for one, other in zip(before, later, strict=True):
            assert one is other
            assert one.shape == (len(INPUTS), 1, model.hparams.num_heads, INPUTS.shape[1], 8)
