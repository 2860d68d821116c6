"""Cross-view decoding equals the views and integrations of Liu et al. (2020), written out in NumPy."""

import numpy as np
import pytest
from numpy_cross_view import NumpyCrossView, split_weights
from numpy_transformer import weights_of
from random_weights import random_arrays

VOCAB = 13
PRE_NORM = "layer_preprocess_sequence=n,layer_postprocess_sequence=da"
# Overrides of cross_view_transformer_test (post-norm, gca, soft), and each decoder layer's encoder layer, from 1.
SETTINGS = {
    "gca_soft": ("num_hidden_layers=3", [3, 2, 1]),
    "gca_hard_pre_norm": (f"num_hidden_layers=3,integration=hard,{PRE_NORM}", [3, 2, 1]),
    "gca_shared_norm": (f"num_encoder_layers=4,num_decoder_layers=3,source_view_norm=shared,{PRE_NORM}", [4, 3, 1]),
    "gpa_soft": ("source_view=gpa,num_encoder_layers=2,num_decoder_layers=3", [1, 2, 2]),
    "map": ("num_hidden_layers=3,source_view_map=2+3+1", [2, 3, 1]),
    "fga_soft_pre_norm": (f"source_view=fga,num_encoder_layers=3,{PRE_NORM}", [1, 1]),
    "fma_soft": (f"source_view=fma,num_encoder_layers=3,{PRE_NORM}", []),
    "fma_scalar_hard": ("source_view=fma,fma=scalar,integration=hard", []),
    "ama_soft": (f"source_view=ama,num_encoder_layers=3,{PRE_NORM}", []),
    "ama_one_for_all": ("source_view=ama,ama_share_layers=true,integration=hard", []),
    "ama_by_query": (f"source_view=ama,ama_query=decoder,num_encoder_layers=3,projection_bias=true,{PRE_NORM}", []),
    "ama_by_query_one_for_all_hard": ("source_view=ama,ama_query=decoder,ama_share_layers=true,integration=hard", []),
    "two_attentions": ("integration=soft_two_attention,projection_bias=true", [2, 1]),
    "two_attentions_by_query": (
        "source_view=ama,ama_query=decoder,integration=soft_two_attention,integration_attention=separate,"
        "projection_bias=true,attention_key_channels=8,attention_value_channels=24",
        [],
    ),
}  # fmt: skip
INPUTS = np.array([[5, 9, 7, 12, 1], [11, 6, 1, 0, 0], [1, 0, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 8, 3, 1], [4, 1, 0, 0], [10, 6, 7, 1]], np.int32)


def make(setting):
    from t2t_ext import registry

    overrides, routes = SETTINGS[setting]
    hparams = registry.hparams("cross_view_transformer_test").override(overrides)
    model = registry.model("cross_view_transformer")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    return model, hparams, [route - 1 for route in routes]


@pytest.mark.parametrize("setting", SETTINGS)
def test_logits_and_attention(setting):
    model, hparams, routes = make(setting)
    model.assign(random_arrays(model, seed=3))
    views, rest = split_weights({name: value.numpy() for name, value in model.named_variables().items()})
    numpy_model = NumpyCrossView(weights_of(rest, hparams), hparams, views, routes)
    expected, maps = numpy_model(INPUTS, TARGETS)
    real = TARGETS != 0
    assert np.ptp(expected[real]) > 0.5, "the golden logits hardly differ: the comparison would mean little"
    np.testing.assert_allclose(model(INPUTS, TARGETS).numpy()[real], expected[real], rtol=0, atol=2e-5)
    ours = model.attention_weights(INPUTS, TARGETS)
    for layer, weights in enumerate(maps):
        found = ours[f"decoder/layer_{layer}/source_attention"].numpy()
        for row in range(len(INPUTS)):
            np.testing.assert_allclose(found[row][:, real[row]], weights[row][:, real[row]], rtol=0, atol=1e-5)


@pytest.mark.parametrize("setting", ["fma_soft", "fma_scalar_hard", "ama_soft", "ama_one_for_all"])
def test_matching_attention_begins_as_the_mean_of_the_layers(setting):
    """Before the first training step, R_i is the mean of e_1 to e_N."""
    import dataclasses

    model, hparams, _ = make(setting)
    encoded = model.encode(INPUTS)
    mean = np.mean([layer.numpy() for layer in encoded.layers], axis=0)
    views = model.decoder.source_views.views(dataclasses.replace(encoded, final=np.zeros_like(mean)))
    assert len(views) == hparams.decoder_layers
    for view in views:
        if hparams.integration == "soft":  # LN_i of only R_i, because the last layer is set to zero
            mean = (mean - mean.mean(-1, keepdims=True)) / np.sqrt(mean.var(-1, keepdims=True) + hparams.norm_epsilon)
        np.testing.assert_allclose(view, mean, rtol=0, atol=1e-5)
