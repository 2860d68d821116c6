"""Tests of where talking heads are possible, and that they are refused if no layer has self-attention."""

import pytest

from t2t_ext import registry
from t2t_ext.errors import UserError


@pytest.mark.parametrize(
    ("set_name", "overrides", "message"),
    [
        ("transformer_test", "talking_heads=both,dc_encoder_layers=all", "no effect on the encoder"),
        ("transformer_test", "talking_heads=decoder,dc_decoder_layers=all", "no effect on the decoder"),
        ("dynamic_conv_test", "talking_heads=encoder", "no effect on the encoder"),
        ("dynamic_conv_test", "talking_heads=both,conv_stacks=decoder", "no effect on the decoder"),
        ("synchronous_transformer_test", "talking_heads=both", "a decoder of two directions"),
        ("layer_coordination_test", "talking_heads=encoder", "only a stack of the source's own"),
        ("layer_coordination_test", "talking_heads=both,lwc_share_weights=false", "only a stack of the source's own"),
        ("transformer_test", "talking_heads=encoder,dc_encoder_layers=9", "9 is outside of the"),
    ],
)
def test_refused_where_no_heads_can_talk(set_name, overrides, message):
    with pytest.raises(UserError, match=message):
        registry.resolve_hparams(set_name, overrides)


@pytest.mark.parametrize(
    ("set_name", "overrides", "encoder", "decoder"),
    [
        ("transformer_test", "talking_heads=encoder,dc_encoder_layers=1", "dual_context talking_heads",
         "self_attention"),
        ("dynamic_conv_test", "talking_heads=encoder,conv_stacks=decoder", "talking_heads", "dynamic_convolution"),
        ("layer_coordination_test", "talking_heads=encoder,lwc_share_weights=false", "talking_heads", "self_attention"),
    ],
)  # fmt: skip
def test_mixers_beside_other_variants(set_name, overrides, encoder, decoder):
    hparams = registry.resolve_hparams(set_name, overrides)
    for stack, depth, mixers in (
        ("encoder", hparams.encoder_layers, encoder),
        ("decoder", hparams.decoder_layers, decoder),
    ):
        assert {hparams.mixer(stack, layer) for layer in range(depth)} == set(mixers.split())
