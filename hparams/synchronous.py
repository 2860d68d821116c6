"""Settings of the synchronous Transformer: Zhou, Zhang & Zong (TACL 2019).

Section 4.2 states 6+6 layers of 1024/4096 with 16 heads, dropout 0.1, label smoothing 0.1, Adam .9/.998 and the
schedule of Vaswani et al. (2017) with 16,000 steps of warm-up. Section 4.4 chooses tanh with lambda = 0.1.

* Sets without a suffix apply this to a Transformer as tensor2tensor builds it today (pre-norm, no projection biases).
* ``_printed`` sets follow the paper as printed: post-norm (equations 11 and 12), no weights that the Transformer does
  not have (section 4.7), and projection biases. With these and one matrix of 30,720 rows, the model has table 6's
  207.8M parameters.
* ``_original`` sets add what the authors' program does but the paper does not mention.
"""

from t2t_ext.config.synchronous import SynchronousHParams
from t2t_ext.registry import register_hparams

# The paper's training settings with base sizes; every set of the paper's models begins with these.
PUBLISHED = {
    "batch_size": 4096,
    "max_length": 256,
    "hidden_size": 512,
    "filter_size": 2048,
    "num_heads": 8,
    "num_hidden_layers": 6,
    "label_smoothing": 0.1,
    "optimizer": "adam",
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_beta2": 0.998,
    "optimizer_adam_epsilon": 1e-9,
    "learning_rate_schedule": "legacy",
    "learning_rate": 0.1,
    "learning_rate_warmup_steps": 16000,
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "shared_embedding_and_softmax_weights": True,
}


@register_hparams
def synchronous_transformer_base() -> SynchronousHParams:
    """6+6 layers of 512/2048, 8 heads; the peak of the learning rate is 512^-0.5 * 16000^-0.5 = 3.5e-4."""
    return SynchronousHParams().replace(**PUBLISHED, sb_fusion="tanh", sb_lambda=0.1)


@register_hparams
def synchronous_transformer_big() -> SynchronousHParams:
    """The paper's model, 1024/4096, 16 heads, with batches of 2,048 tokens as in the authors' script."""
    return synchronous_transformer_base().replace(batch_size=2048, hidden_size=1024, filter_size=4096, num_heads=16)


@register_hparams
def synchronous_transformer_small() -> SynchronousHParams:
    """6+6 layers of 256/1024, 4 heads, for corpora of 30,000 to 250,000 pairs; the authors' program's default."""
    return synchronous_transformer_base().replace(hidden_size=256, filter_size=1024, num_heads=4)


@register_hparams
def synchronous_transformer_tiny() -> SynchronousHParams:
    """2+2 layers of width 128, like transformer_tiny."""
    return synchronous_transformer_small().replace(num_hidden_layers=2, hidden_size=128, filter_size=512)


@register_hparams
def synchronous_transformer_test() -> SynchronousHParams:
    """2+2 layers of width 16, like transformer_test, for tests."""
    return synchronous_transformer_tiny().replace(
        hidden_size=16, filter_size=8, num_heads=2, attention_dropout=0.1, relu_dropout=0.1
    )


def _printed(hparams: SynchronousHParams) -> SynchronousHParams:
    """Returns hparams that follow the paper: no more parameters than the Transformer's 207.8M in table 6."""
    return hparams.replace(layer_preprocess_sequence="none", layer_postprocess_sequence="dan", projection_bias=True)


@register_hparams
def synchronous_transformer_base_printed() -> SynchronousHParams:
    """synchronous_transformer_base as the paper is printed."""
    return _printed(synchronous_transformer_base())


@register_hparams
def synchronous_transformer_big_printed() -> SynchronousHParams:
    """synchronous_transformer_big as printed: 207.81M parameters for 30,720 rows, like transformer_big_zhou2019."""
    return _printed(synchronous_transformer_big())


@register_hparams
def synchronous_transformer_small_printed() -> SynchronousHParams:
    """synchronous_transformer_small as the paper is printed."""
    return _printed(synchronous_transformer_small())


@register_hparams
def synchronous_transformer_tiny_printed() -> SynchronousHParams:
    """synchronous_transformer_tiny as the paper is printed."""
    return _printed(synchronous_transformer_tiny())


def _original(hparams: SynchronousHParams) -> SynchronousHParams:
    """Returns hparams of the authors' program: as printed, plus target space, dropout on the future and a tag target.

    The tag of the direction is the first target token.
    """
    return _printed(hparams).replace(
        use_target_space_embedding=True,
        target_space_id=9,
        sb_future_dropout=0.3,
        predict_tag=True,
    )


@register_hparams
def synchronous_transformer_base_original() -> SynchronousHParams:
    """synchronous_transformer_base as in the authors' program."""
    return _original(synchronous_transformer_base())


@register_hparams
def synchronous_transformer_big_original() -> SynchronousHParams:
    """synchronous_transformer_big as in the authors' program: 207.85M parameters with a matrix of 30,720 rows."""
    return _original(synchronous_transformer_big())


@register_hparams
def synchronous_transformer_small_original() -> SynchronousHParams:
    """synchronous_transformer_small as in the authors' program."""
    return _original(synchronous_transformer_small())


@register_hparams
def synchronous_transformer_tiny_original() -> SynchronousHParams:
    """synchronous_transformer_tiny as in the authors' program."""
    return _original(synchronous_transformer_tiny())
