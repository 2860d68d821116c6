"""Settings of a Transformer that combines the ideas of three papers.

Each set is a Transformer with dual contextual modules in all encoder layers (Ampomah et al. 2021, Enc-DC),
granularity consistent views of the source with soft integration (Liu et al. 2020), and decoding in both directions
(Zhou et al. 2019).
"""

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.hparams._families import as_family
from t2t_ext.hparams.synchronous import (
    synchronous_transformer_base,
    synchronous_transformer_big,
    synchronous_transformer_small,
    synchronous_transformer_test,
    synchronous_transformer_tiny,
)
from t2t_ext.hparams.transformer import transformer_iwslt_4layer
from t2t_ext.registry import register_hparams


def _with_all_three(hparams: TransformerHParams) -> TransformerHParams:
    """Returns a Transformer's settings with all three ideas switched on."""
    return as_family(
        hparams, TransformerHParams, dc_encoder_layers="all", source_view="gca", integration="soft", synchronous=True
    )


@register_hparams
def composed_transformer_base() -> TransformerHParams:
    """6+6 layers of 512/2048, 8 heads, trained like synchronous_transformer_base."""
    return _with_all_three(synchronous_transformer_base())


@register_hparams
def composed_transformer_big() -> TransformerHParams:
    """6+6 layers of 1024/4096, 16 heads, trained like synchronous_transformer_big."""
    return _with_all_three(synchronous_transformer_big())


@register_hparams
def composed_transformer_small() -> TransformerHParams:
    """6+6 layers of 256/1024, 4 heads, trained like synchronous_transformer_small."""
    return _with_all_three(synchronous_transformer_small())


@register_hparams
def composed_transformer_tiny() -> TransformerHParams:
    """2+2 layers of width 128, like synchronous_transformer_tiny."""
    return _with_all_three(synchronous_transformer_tiny())


@register_hparams
def composed_transformer_iwslt_4layer() -> TransformerHParams:
    """4+4 layers of 256/1024, 4 heads, trained like transformer_iwslt_4layer, for corpora of the size of IWSLT."""
    return _with_all_three(transformer_iwslt_4layer())


@register_hparams
def composed_transformer_test() -> TransformerHParams:
    """2+2 layers of width 16, like synchronous_transformer_test, for tests."""
    return _with_all_three(synchronous_transformer_test())
