"""Settings of the dual contextual module: Ampomah et al. (2021).

Each set is the paper's baseline of the same size with modules in all encoder layers (Enc-DC, the paper's best), in all
decoder layers (``_dec``) or in both (``_full``). The modules have f = 2.
"""

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.hparams.transformer import transformer_test
from t2t_ext.hparams.transformer_papers import transformer_base_ampomah2021, transformer_iwslt_ampomah2021
from t2t_ext.registry import register_hparams

_ENCODER = {"dc_encoder_layers": "all"}
_DECODER = {"dc_decoder_layers": "all"}


@register_hparams
def dual_context_base() -> TransformerHParams:
    """WMT14 En-De, Enc-DC: transformer_base_ampomah2021 with modules in the encoder; 73.86M parameters published."""
    return transformer_base_ampomah2021().replace(**_ENCODER)


@register_hparams
def dual_context_base_dec() -> TransformerHParams:
    """WMT14 En-De, Dec-DC: transformer_base_ampomah2021 with modules in the decoder."""
    return transformer_base_ampomah2021().replace(**_DECODER)


@register_hparams
def dual_context_base_full() -> TransformerHParams:
    """WMT14 En-De, Full-DC: transformer_base_ampomah2021 with modules in both stacks."""
    return transformer_base_ampomah2021().replace(**_ENCODER, **_DECODER)


@register_hparams
def dual_context_iwslt() -> TransformerHParams:
    """IWSLT, Enc-DC: transformer_iwslt_ampomah2021 with modules in the encoder."""
    return transformer_iwslt_ampomah2021().replace(**_ENCODER)


@register_hparams
def dual_context_iwslt_dec() -> TransformerHParams:
    """IWSLT, Dec-DC: transformer_iwslt_ampomah2021 with modules in the decoder."""
    return transformer_iwslt_ampomah2021().replace(**_DECODER)


@register_hparams
def dual_context_iwslt_full() -> TransformerHParams:
    """IWSLT, Full-DC: transformer_iwslt_ampomah2021 with modules in both stacks."""
    return transformer_iwslt_ampomah2021().replace(**_ENCODER, **_DECODER)


@register_hparams
def dual_context_test() -> TransformerHParams:
    """2+2 layers of width 16 with modules in both stacks, like transformer_test but post-norm, for tests."""
    return transformer_test().replace(
        **_ENCODER, **_DECODER, layer_preprocess_sequence="none", layer_postprocess_sequence="dan"
    )
