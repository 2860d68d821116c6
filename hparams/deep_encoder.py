"""Settings with deep encoders and shallow decoders, each derived from a balanced set.

Kasai et al., "Deep Encoder, Shallow Decoder" (2021, arXiv 2006.10369): the encoder reads a sentence once, but the
decoder runs once per token, so layers are cheaper in the encoder. A decoder layer has 4/3 of an encoder layer's weights
(if the filter is four times as wide as the model). The numbers of layers keep the parameters within a few percent.
"""

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.hparams.transformer import (
    transformer_base,
    transformer_iwslt_4layer,
    transformer_iwslt_small,
    transformer_small_data,
)
from t2t_ext.registry import register_hparams


@register_hparams
def transformer_small_data_4_2() -> TransformerHParams:
    """transformer_small_data with 4+2 layers in place of 3+3."""
    return transformer_small_data().replace(num_encoder_layers=4, num_decoder_layers=2)


@register_hparams
def transformer_small_data_6_1() -> TransformerHParams:
    """transformer_small_data with 6+1 layers in place of 3+3."""
    return transformer_small_data().replace(num_encoder_layers=6, num_decoder_layers=1)


@register_hparams
def transformer_iwslt_6_2() -> TransformerHParams:
    """transformer_iwslt_4layer with 6+2 layers in place of 4+4."""
    return transformer_iwslt_4layer().replace(num_encoder_layers=6, num_decoder_layers=2)


@register_hparams
def transformer_iwslt_8_1() -> TransformerHParams:
    """transformer_iwslt_4layer with 8+1 layers in place of 4+4; both have equally many weights."""
    return transformer_iwslt_4layer().replace(num_encoder_layers=8, num_decoder_layers=1)


@register_hparams
def transformer_iwslt_10_3() -> TransformerHParams:
    """transformer_iwslt_small with 10+3 layers in place of 6+6; both have equally many weights."""
    return transformer_iwslt_small().replace(num_encoder_layers=10, num_decoder_layers=3)


@register_hparams
def transformer_iwslt_12_1() -> TransformerHParams:
    """transformer_iwslt_small with 12+1 layers in place of 6+6, like the paper's models."""
    return transformer_iwslt_small().replace(num_encoder_layers=12, num_decoder_layers=1)


@register_hparams
def transformer_base_12_1() -> TransformerHParams:
    """transformer_base with 12+1 layers in place of 6+6, like the paper's models."""
    return transformer_base().replace(num_encoder_layers=12, num_decoder_layers=1)
