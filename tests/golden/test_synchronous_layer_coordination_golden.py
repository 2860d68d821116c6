"""Layer-wise coordination in both directions equals an independent NumPy rendering, at once and step by step."""

import functools

import numpy as np
import pytest
from numpy_layer_coordination import weights_of
from numpy_synchronous_layer_coordination import NumpySynchronousLayerCoordination, extra_weights
from random_weights import random_arrays

POST_NORM = "layer_preprocess_sequence=none,layer_postprocess_sequence=dan"
SETTINGS = {
    "tanh": "sb_lambda=0.7,sb_lambda_trainable=vector",
    "gate_post_norm": f"sb_fusion=gate,sb_layers=2,predict_tag=true,{POST_NORM},projection_bias=true",
    "no_mixed_attention": "lwc_mixed_attention=false,sb_fusion=relu,sb_lambda=0.9,attention_key_channels=8,"
    "attention_value_channels=24",
    "no_sharing": "lwc_share_weights=false,dc_encoder_layers=1,sb_fusion=linear,sb_lambda=0.5,lwc_side_embedding=false",
}
VOCAB = 13
# Side 0 longer, side 1 longer (side 0 is only EOS), equal.
INPUTS = np.array([[5, 9, 7, 12, 1], [11, 6, 1, 0, 0], [1, 0, 0, 0, 0]], np.int32)
TARGETS = np.array(
    [[[8, 8, 5, 1], [6, 1, 0, 0]], [[1, 0, 0, 0], [10, 6, 7, 1]], [[10, 6, 1, 0], [7, 6, 1, 0]]], np.int32
)
REAL = TARGETS != 0


@functools.cache
def make(setting):
    from t2t_ext import registry

    hparams = registry.hparams("synchronous_layer_coordination_test").override(SETTINGS[setting])
    model = registry.model("synchronous_layer_coordination")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=3))
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    gates, lambdas, rest = extra_weights(arrays)
    assert len(gates) + len(lambdas) == {"tanh": 2, "gate_post_norm": 1}.get(setting, 0)
    layers = {1} if hparams.sb_layers == "2" else {0, 1}
    return model, NumpySynchronousLayerCoordination(weights_of(rest, hparams), hparams, gates, lambdas, layers)


@pytest.mark.parametrize("setting", SETTINGS)
def test_logits_and_distributions_of_both_directions(setting):
    model, numpy_model = make(setting)
    expected = numpy_model(INPUTS, TARGETS)
    assert np.ptp(expected[REAL]) > 0.5, "the golden logits hardly differ: the comparison would mean little"
    np.testing.assert_allclose(model(INPUTS, TARGETS).numpy()[REAL], expected[REAL], rtol=0, atol=1e-5)
    # The logits depend on the words of the other direction.
    alone = numpy_model(INPUTS, np.where(np.arange(2)[:, np.newaxis] == 0, TARGETS, TARGETS[:, :, ::-1]))
    assert np.abs(alone[0, 0, 1:] - expected[0, 0, 1:]).max() > 1e-3
    numpy_model(INPUTS[2:], TARGETS[2:])  # both directions of the same length
    shown = model.attention_weights(INPUTS[2:], TARGETS[2:, :, :3])
    unread = "layer_1/source_self_attention" if model.hparams.lwc_share_weights else "nothing"
    assert set(shown) == {name for name in numpy_model.maps if not name.startswith(unread)}
    for name, weights in shown.items():
        rows = 1 if "source_self" in name else weights.shape[2]
        np.testing.assert_allclose(
            weights[0, :, :rows], numpy_model.maps[name][:, :rows], rtol=0, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_hypothesis_sees_the_partner_that_it_is_given(setting):
    """With two different hypotheses per direction and crossed partners, logits and cross-attention are as expected."""
    model, numpy_model = make(setting)
    source, none = INPUTS[:1], np.zeros([1, 2, 2], np.int32)
    words = np.array([[[5, 9], [7, 11]]], np.int32)  # [direction, rank]
    state = model.start(source)
    alone = np.tile(np.eye(2, dtype=bool), [1, 2, 1, 1])
    _, state = model.step(none, alone, alone, none, state)
    first = np.tile([True, False], [1, 2, 2, 1])  # all descend from rank 0
    crossed = np.concatenate([first, alone[..., ::-1]], axis=3)
    logits, attention, _ = model.step_with_attention(
        words, np.concatenate([first, alone], axis=3), crossed, none, state
    )
    for direction in (0, 1):
        for rank in (0, 1):
            sides = [[0, 1], [0, 1]]
            sides[direction][0] = words[0, direction, rank]
            sides[1 - direction][0] = words[0, 1 - direction, 1 - rank]
            expected = numpy_model.sides(list(source[0]), sides)[direction][1]
            np.testing.assert_allclose(logits[0, direction, rank], expected, rtol=0, atol=1e-5)
            looking = f"layer_1/source_attention/{('l2r', 'r2l')[direction]}"
            if model.hparams.lwc_mixed_attention:
                looking = looking.replace("source", "mixed") + "/history"
            on_source = numpy_model.maps[looking][:, -1, : source.shape[1]].mean(axis=0)
            np.testing.assert_allclose(attention[0, direction, rank], on_source / on_source.sum(), rtol=0, atol=1e-5)


def test_without_a_weight_of_the_other_direction_it_is_layer_coordination():
    """With lambda = 0 each direction equals the one-directional model with the same weights and the tag as input 0."""
    from t2t_ext import registry

    settings = registry.hparams("layer_coordination_test").replace(use_sos=False)
    both = registry.hparams("synchronous_layer_coordination_test").replace(sb_lambda=0.0)
    one_way, two_way = (
        registry.model(name)(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
        for name, hparams in (("layer_coordination", settings), ("synchronous_layer_coordination", both))
    )
    for model in (one_way, two_way):
        model.build()
        model.assign(random_arrays(one_way, seed=3))
    found = two_way(INPUTS, TARGETS).numpy()
    other = two_way(INPUTS, np.stack([TARGETS[:, 0], TARGETS[:, 0]], axis=1)).numpy()
    np.testing.assert_allclose(other[:, 0][REAL[:, 0]], found[:, 0][REAL[:, 0]], rtol=0, atol=1e-5)
    # The first step by hand: fed by the search, position 0 is a zero vector.
    state, none = one_way.start(INPUTS), np.zeros([len(INPUTS), 1, 1], np.int32)
    context = one_way.reading.step_context(state["position"], np.ones([len(INPUTS), 1, 1, 1], bool), None, none)
    x, state = one_way._step_decoder(one_way.softmax(none + 3), context, state)
    np.testing.assert_allclose(one_way.logits(x), found[:, 0, 0], rtol=0, atol=1e-5)
    for t in range(1, TARGETS.shape[2]):
        visible = np.ones([len(INPUTS), 1, 1, t + 1], bool)
        logits, state = one_way.step(TARGETS[:, 0, t - 1, np.newaxis, np.newaxis], visible, None, none, state)
        rows = REAL[:, 0, t]
        np.testing.assert_allclose(logits.numpy()[rows, 0, 0], found[rows, 0, t], rtol=0, atol=1e-5)
