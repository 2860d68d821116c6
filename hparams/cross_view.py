"""Settings of layer-wise cross-view decoding: Liu et al. (2020).

Each set is the paper's baseline of the same size with granularity consistent attention (gca) and soft integration.
Training continues from a run of that baseline (``--warm_start_from``). The models are post-norm like those of fairseq,
with which the paper trained. The paper's DynamicConv has six blocks in both stacks, one fewer in the encoder than its
authors' own model; the baseline to continue from needs six as well (``num_encoder_layers=6``).
"""

from t2t_ext.config.dynamic_conv import DynamicConvHParams
from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.hparams.dynamic_conv import dynamic_conv_big, dynamic_conv_iwslt, dynamic_conv_test
from t2t_ext.hparams.transformer import transformer_test
from t2t_ext.hparams.transformer_papers import transformer_base_liu2020, transformer_big_liu2020
from t2t_ext.registry import register_hparams

_VIEWS = {"source_view": "gca", "integration": "soft"}


@register_hparams
def cross_view_transformer_base() -> TransformerHParams:
    """IWSLT14 De-En: transformer_base_liu2020 with gca and soft integration."""
    return transformer_base_liu2020().replace(**_VIEWS)


@register_hparams
def cross_view_transformer_big() -> TransformerHParams:
    """WMT14: transformer_big_liu2020 with gca and soft integration; for En-De see transformer_big_ende_liu2020."""
    return transformer_big_liu2020().replace(**_VIEWS)


@register_hparams
def cross_view_transformer_small() -> TransformerHParams:
    """6+6 layers of 256/1024, 4 heads, for corpora of 30,000 to 250,000 pairs.

    Otherwise like cross_view_transformer_base. Its baseline is the same set with source_view=last,integration=hard.
    """
    return cross_view_transformer_base().replace(hidden_size=256, filter_size=1024, num_heads=4)


@register_hparams
def cross_view_transformer_test() -> TransformerHParams:
    """2+2 layers of width 16, like transformer_test but post-norm; for tests."""
    return transformer_test().replace(**_VIEWS, layer_preprocess_sequence="none", layer_postprocess_sequence="dan")


@register_hparams
def cross_view_dynamic_conv_iwslt() -> DynamicConvHParams:
    """IWSLT14 De-En: dynamic_conv_iwslt with 6+6 layers, gca and soft integration."""
    return dynamic_conv_iwslt().replace(**_VIEWS, num_encoder_layers=6)


@register_hparams
def cross_view_dynamic_conv_big() -> DynamicConvHParams:
    """WMT14: dynamic_conv_big with 6+6 layers, gca and soft integration."""
    return dynamic_conv_big().replace(**_VIEWS, num_encoder_layers=6)


@register_hparams
def cross_view_dynamic_conv_test() -> DynamicConvHParams:
    """2+2 layers of width 16, like dynamic_conv_test, for tests."""
    return dynamic_conv_test().replace(**_VIEWS)
