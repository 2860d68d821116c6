"""Synchronous bidirectional decoding equals the equations of Zhou et al. (2019), at once and step by step."""

import numpy as np
import pytest
from numpy_synchronous import NumpyStepper, NumpySynchronous, extra_weights
from numpy_transformer import weights_of
from random_weights import random_arrays

VOCAB = 13
POST_NORM = "layer_preprocess_sequence=none,layer_postprocess_sequence=dan"
SETTINGS = {
    "tanh": "sb_lambda=0.7",
    "linear": "sb_fusion=linear,sb_lambda=0.5",
    "relu_post_norm": f"sb_fusion=relu,sb_lambda=1.0,{POST_NORM}",
    "gate": "sb_fusion=gate",
    "gate_of_model": "sb_fusion=gate,sb_gate=model,attention_key_channels=8,attention_value_channels=24",
    "trained_scalar": "sb_fusion=linear,sb_lambda_trainable=scalar",
    "trained_vector": "sb_lambda_trainable=vector",
    "one_layer": "sb_layers=2,num_decoder_layers=3,sb_lambda=0.9",
    "tag_predicted": "predict_tag=true,sb_lambda=0.8",
    "original": f"{POST_NORM},projection_bias=true,use_target_space_embedding=true,target_space_id=9,predict_tag=true,"
    "sb_future_dropout=0.3,sb_layers=1",
}
# Targets of both directions in every relation of lengths: side 0 longer, side 1 longer, equal, a side of only EOS.
INPUTS = np.array([[5, 9, 7, 12, 1], [11, 6, 1, 0, 0], [1, 0, 0, 0, 0], [7, 1, 0, 0, 0]], np.int32)
TARGETS = np.array(
    [
        [[8, 8, 5, 11, 1], [6, 1, 0, 0, 0]],
        [[5, 1, 0, 0, 0], [10, 6, 7, 1, 0]],
        [[10, 6, 7, 1, 0], [7, 6, 10, 1, 0]],
        [[1, 0, 0, 0, 0], [9, 12, 8, 6, 1]],
    ],
    np.int32,
)


def make(overrides):
    from t2t_ext import registry

    hparams = registry.hparams("synchronous_transformer_test").override(overrides)
    model = registry.model("synchronous_transformer")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=3))
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    gates, lambdas, rest = extra_weights(arrays)
    layers = {"2": {1}, "1": {0}}.get(hparams.sb_layers, set(range(hparams.decoder_layers)))
    numpy_model = NumpySynchronous(weights_of(rest, hparams), hparams, gates, lambdas, layers)
    if hparams.sb_fusion == "gate":
        assert len(gates) == hparams.decoder_layers
    if hparams.sb_lambda_trainable != "none":
        assert len(lambdas) == hparams.decoder_layers
    return model, numpy_model


@pytest.mark.parametrize("setting", SETTINGS)
def test_logits_of_both_directions(setting):
    model, numpy_model = make(SETTINGS[setting])
    expected = numpy_model(INPUTS, TARGETS)
    got = model(INPUTS, TARGETS).numpy()
    real = TARGETS != 0
    assert np.ptp(expected[real]) > 0.5, "the golden logits hardly differ: the comparison would mean little"
    np.testing.assert_allclose(got[real], expected[real], rtol=0, atol=1e-5)
    # The directions give different logits, and each depends on the words of the other.
    assert np.abs(expected[2, 0] - expected[2, 1]).max() > 0.1
    alone = numpy_model(INPUTS, np.where(np.arange(2)[:, np.newaxis] == 0, TARGETS, TARGETS[:, :, ::-1]))
    assert np.abs(alone[0, 0, 1:] - expected[0, 0, 1:]).max() > 1e-3


@pytest.mark.parametrize("setting", ["tanh", "tag_predicted", "original"])
def test_features_of_training(setting):
    """Training features give the golden logits; predict_tag adds a position that predicts the tag from zeros."""
    model, numpy_model = make(SETTINGS[setting])
    labels = model.training_labels(TARGETS)
    logits = model.logits(model.training_features(INPUTS, TARGETS)).numpy()
    assert logits.shape[:3] == tuple(labels.shape)
    if not model.hparams.predict_tag:
        np.testing.assert_array_equal(labels, TARGETS)
        return
    np.testing.assert_array_equal(labels[:, :, 1:], TARGETS)
    np.testing.assert_array_equal(labels[:, :, 0], [[3, 4]] * 4)
    np.testing.assert_allclose(logits[:, :, 1:], model(INPUTS, TARGETS), rtol=0, atol=1e-6)
    # Both directions have the same input at this position, so both give the same distribution.
    np.testing.assert_allclose(logits[:, 0, 0], logits[:, 1, 0], rtol=0, atol=1e-5)
    stepper = NumpyStepper(numpy_model, INPUTS[0])
    (expected, other), _ = stepper.step([None, None], [stepper.empty] * 2, _partners_of(stepper))
    np.testing.assert_allclose(logits[0, 0, 0], expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(other, expected, rtol=0, atol=1e-12)
    no_loss = np.where(np.arange(2)[:, np.newaxis] == 0, TARGETS, 0)
    np.testing.assert_array_equal(model.training_labels(no_loss)[:, 1], 0)


def _partners_of(stepper):
    """Returns `seen` functions for two hypotheses, one per side, that each see the whole past of the other."""
    return [lambda layer, other=other: stepper.now[other][layer] for other in (1, 0)]


@pytest.mark.parametrize("setting", SETTINGS)
def test_step_by_step(setting):
    """Steps equal the equations for three hypotheses per side while parents and partners change from step to step.

    Keys and values that earlier steps have computed stay as they are.
    """
    model, numpy_model = make(SETTINGS[setting])
    rng = np.random.default_rng(11)
    source, k, steps = INPUTS[:1], 3, 5
    stepper = NumpyStepper(numpy_model, source[0])
    pasts = [stepper.empty] * (2 * k)
    if model.hparams.predict_tag:
        _, two = stepper.step([None, None], [stepper.empty] * 2, _partners_of(stepper))
        pasts = [two[row // k] for row in range(2 * k)]
    state = model.start(source)
    columns = np.zeros([2, k, 0], int)
    parents = np.tile(np.arange(k), [2, 1])
    words = np.zeros([2, k], int)
    prefix = len(pasts[0][0][0])
    for t in range(steps):
        if t:
            parents, words = rng.integers(0, k, [2, k]), rng.integers(5, VOCAB, [2, k])
            columns = np.stack([columns[r][parents[r]] for r in range(2)])
            pasts = [pasts[r * k + parents[r][i]] for r in range(2) for i in range(k)]
        columns = np.concatenate([columns, np.tile(t * k + np.arange(k), [2, 1])[:, :, np.newaxis]], axis=2)
        partners = rng.integers(0, k, [2, k])
        kept = rng.integers(1, t + 2, [2, k])  # a finished partner is seen as it was when it ended
        visible, partner_visible = (np.zeros([1, 2, k, (t + 1) * k], bool) for _ in range(2))
        seen = []
        for r in range(2):
            for i in range(k):
                visible[0, r, i, columns[r, i]] = True
                partner_visible[0, r, i, columns[1 - r, partners[r, i]][: kept[r, i]]] = True

                def look(layer, row=(1 - r) * k + partners[r, i], upto=prefix + kept[r, i]):
                    keys, values = stepper.now[row][layer]
                    return keys[:upto], values[:upto]

                seen.append(look)
        fed = [(3, 4)[r] if t == 0 else words[r, i] for r in range(2) for i in range(k)]
        expected, pasts = stepper.step(fed, pasts, seen)
        logits, state = model.step(
            words[np.newaxis].astype(np.int32), visible, partner_visible, parents[np.newaxis].astype(np.int32), state
        )
        got = logits.numpy().reshape(2 * k, VOCAB)
        np.testing.assert_allclose(got, np.stack(expected), rtol=0, atol=1e-5, err_msg=f"step {t}")
        assert np.abs(got[0] - got[-1]).max() > 1e-2
