"""A dual contextual module adds as many parameters as its equations say (Ampomah et al. 2021)."""

import pytest
from test_parameter_counts import counted, formula

MODEL = "dual_context_transformer"
PAPERS_VOCABULARY = (
    33_400  # "32k" merges and the characters: with this many rows table 1's baseline has 61.2M parameters
)


def module(d, f, *, projection_bias, keys=None, values=None):
    """Returns how many more parameters a module has than self-attention."""
    k, v = keys or d, values or d
    convolution = f * d * 2 * d + 2 * d  # W^r, b^r
    norm = 2 * d
    projections = 2 * d * (2 * k + v) + (2 * (2 * k + v) if projection_bias else 0)  # of both attentions
    aggregation = 2 * v * d + d  # W_z, b_z
    self_attention = d * (2 * k + v) + v * d + (2 * k + v + d if projection_bias else 0)
    return convolution + norm + projections + aggregation - self_attention


def grown(**changes):
    """Returns how many more parameters an encoder's and a decoder's module have than self-attention."""
    import tensorflow as tf

    from t2t_ext import registry
    from t2t_ext.layers.attention import SelfAttention
    from t2t_ext.layers.base import parameter_count
    from t2t_ext.layers.dual_context import DecoderDualContext, EncoderDualContext

    hparams = registry.hparams("dual_context_test").replace(**changes)
    counts = []
    with tf.Graph().as_default():
        for kind in (SelfAttention, EncoderDualContext, DecoderDualContext):
            layer = kind(hparams, name="mixer")
            layer.build(None)
            counts.append(parameter_count(layer))
    return [count - counts[0] for count in counts[1:]]


@pytest.mark.parametrize("projection_bias", [False, True])
@pytest.mark.parametrize("f", range(2, 9))
def test_growth_of_a_module(f, projection_bias):
    d = 16
    expected = module(d, f, projection_bias=projection_bias)
    # (2 f + 4) d^2 and the vectors b^r (2 d), norm (2 d), b_z (d). With projection biases, another 2 d: two attentions
    # have 6 d, self-attention has 4 d including its output's bias.
    assert expected == (2 * f + 4) * d * d + 5 * d + (2 * d if projection_bias else 0)
    assert grown(dc_kernel_size=f, projection_bias=projection_bias) == [expected, expected]


def test_growth_with_other_widths_of_keys_and_values():
    expected = module(16, 2, projection_bias=False, keys=8, values=24)
    assert grown(attention_key_channels=8, attention_value_channels=24) == [expected, expected]


def test_growth_of_a_model_with_modules_in_some_layers():
    from t2t_ext import registry

    hparams = registry.hparams("dual_context_test").replace(
        num_encoder_layers=3, dc_encoder_layers="1,3", dc_decoder_layers="2", dc_kernel_size=5
    )
    plain = formula(hparams.replace(dc_encoder_layers="none", dc_decoder_layers="none", dc_kernel_size=2), 50, 50, True)
    assert counted(hparams, 50, 50, True, MODEL) - plain == 3 * module(16, 5, projection_bias=False)


def test_growth_of_the_papers_model():
    """The growth fits the paper: "12.7M" for Enc-DC and Dec-DC each, "about a 25M increase" for Full-DC."""
    d = 512
    enc = 6 * module(d, 2, projection_bias=False)
    assert enc == 6 * (8 * d**2 + 5 * d) == 12_598_272
    assert f"{2 * enc / 1e6:.1f}" == "25.2"


def test_published_totals():
    from t2t_ext import registry

    full, baseline = registry.hparams("dual_context_base_full"), registry.hparams("transformer_base_ampomah2021")
    transformer = formula(baseline, PAPERS_VOCABULARY, PAPERS_VOCABULARY, True)
    growth = 6 * module(512, 2, projection_bias=False)
    found = counted(full, PAPERS_VOCABULARY, PAPERS_VOCABULARY, True, MODEL)
    assert found == transformer + 2 * growth
    for count, published in ((transformer, 61.2e6), (transformer + growth, 73.86e6), (found, 86.5e6)):
        assert count == pytest.approx(published, rel=0.0015)
