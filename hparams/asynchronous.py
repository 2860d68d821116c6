"""Settings of the asynchronous Transformer (ABD-NMT; Zhang et al. 2018) as the baseline of Zhou et al. (TACL 2019).

Sizes, dropout and training are those of the synchronous model that it is compared with.
``t2t_ext/models/asynchronous.py`` explains what the paper leaves open about this baseline.
"""

from t2t_ext.config.asynchronous import AsynchronousHParams
from t2t_ext.hparams.synchronous import PUBLISHED
from t2t_ext.registry import register_hparams


@register_hparams
def asynchronous_transformer_base() -> AsynchronousHParams:
    """6+6+6 layers of 512/2048, 8 heads, trained like synchronous_transformer_base."""
    return AsynchronousHParams().replace(**PUBLISHED)


@register_hparams
def asynchronous_transformer_big() -> AsynchronousHParams:
    """The paper's size, 1024/4096, 16 heads: 333.8M parameters with projection_bias and one matrix of 30,720 rows."""
    return asynchronous_transformer_base().replace(batch_size=2048, hidden_size=1024, filter_size=4096, num_heads=16)


@register_hparams
def asynchronous_transformer_small() -> AsynchronousHParams:
    """6+6+6 layers of 256/1024, 4 heads, for corpora of 30,000 to 250,000 pairs."""
    return asynchronous_transformer_base().replace(hidden_size=256, filter_size=1024, num_heads=4)


@register_hparams
def asynchronous_transformer_tiny() -> AsynchronousHParams:
    """2+2+2 layers of width 128, like transformer_tiny."""
    return asynchronous_transformer_small().replace(num_hidden_layers=2, hidden_size=128, filter_size=512)


@register_hparams
def asynchronous_transformer_test() -> AsynchronousHParams:
    """2+2+2 layers of width 16, like transformer_test, for tests."""
    return asynchronous_transformer_tiny().replace(
        hidden_size=16, filter_size=8, num_heads=2, attention_dropout=0.1, relu_dropout=0.1
    )
