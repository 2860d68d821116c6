"""Settings of lightweight and dynamic convolutions: Wu, Fan, Baevski, Dauphin & Auli (ICLR 2019).

Sizes and training are those of the authors' program, fairseq (its architectures ``lightconv_*`` and the commands on its
page about the paper): post-norm, biases in all projections except the kernels', 7 encoder and 6 decoder layers, kernels
of 3, 7 and 15 taps in the first three layers and 31 taps from the fourth layer on. Liu et al. (2020) used 6 encoder
layers: ``num_encoder_layers=6``. If the vocabulary is joint, embeddings and softmax share one matrix.
"""

from t2t_ext.config.dynamic_conv import DynamicConvHParams
from t2t_ext.hparams.transformer import SMALL_DATA
from t2t_ext.registry import register_hparams

# Common to all of the authors' models.
PUBLISHED = {
    "max_length": 256,
    "num_encoder_layers": 7,
    "num_decoder_layers": 6,
    "encoder_kernel_sizes": "3,7,15,31",
    "conv_even_kernel": "left",
    "decoder_kernel_sizes": "3,7,15,31",
    "weight_softmax": True,
    "layer_preprocess_sequence": "none",
    "layer_postprocess_sequence": "dan",
    "projection_bias": True,
    "label_smoothing": 0.1,
    "optimizer": "adam",
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_beta2": 0.98,
    "optimizer_adam_epsilon": 1e-8,
    "clip_grad_norm": 0.0,
    "relu_dropout": 0.0,
    "shared_embedding_and_softmax_weights": True,
}
_RSQRT = "constant*linear_warmup*rsqrt_decay"
_COSINE = "constant*linear_warmup*single_cycle_cos_decay"


@register_hparams
def dynamic_conv_base() -> DynamicConvHParams:
    """7+6 layers of 512/2048, 8 heads, dropout 0.1: fairseq's ``lightconv_wmt_en_de``.

    There is no published command for this size. Batches, Adam .9/.98 and the peak of 512^-0.5 * 4000^-0.5 = 7.0e-4
    after 4,000 steps are those of transformer_base_liu2020.
    """
    return DynamicConvHParams().replace(
        **PUBLISHED,
        batch_size=4096,
        hidden_size=512,
        filter_size=2048,
        num_heads=8,
        learning_rate_schedule=_RSQRT,
        learning_rate_constant=512**-0.5,
        learning_rate_warmup_steps=4000,
        layer_prepostprocess_dropout=0.1,
        attention_dropout=0.0,
        weight_dropout=0.0,
        conv_input_dropout=0.1,
    )


@register_hparams
def dynamic_conv_iwslt() -> DynamicConvHParams:
    """IWSLT14 De-En: 512/1024, 4 heads, dropout 0.3, without GLU: fairseq's ``lightconv_iwslt_de_en``.

    Batches of 4,000 tokens on one GPU; a peak learning rate of 5e-4 after 4,000 steps, then inverse square root decay;
    decoupled weight decay of 1e-4; 50,000 steps. Decoded with a beam of 4 and an average of 10 checkpoints.
    """
    return dynamic_conv_base().replace(
        batch_size=4000,
        filter_size=1024,
        num_heads=4,
        conv_glu=False,
        optimizer="adam_w",
        weight_decay=1e-4,
        learning_rate_constant=5e-4 * 4000**0.5,
        layer_prepostprocess_dropout=0.3,
        attention_dropout=0.1,
        weight_dropout=0.1,
        conv_input_dropout=0.0,
    )


@register_hparams
def dynamic_conv_big() -> DynamicConvHParams:
    """WMT16 En-De: 1024/4096, 16 heads, dropout 0.3, with GLU: fairseq's ``lightconv_wmt_en_de_big``.

    The authors accumulated 16 batches of 3,584 tokens on each of 8 GPUs; here one device accumulates all of them. The
    learning rate follows one cycle of a cosine from a peak of 1e-3 after 10,000 steps down to 0 at the last step of
    ``--train_steps`` (30,000). For En-Fr: dropout 0.1 (``layer_prepostprocess_dropout=0.1``), 80,000 steps.
    """
    return dynamic_conv_base().replace(
        batch_size=3584,
        gradient_accumulation_steps=8 * 16,
        hidden_size=1024,
        filter_size=4096,
        num_heads=16,
        learning_rate_schedule=_COSINE,
        learning_rate_constant=1e-3,
        learning_rate_warmup_steps=10000,
        layer_prepostprocess_dropout=0.3,
        attention_dropout=0.1,
        weight_dropout=0.1,
    )


@register_hparams
def dynamic_conv_small() -> DynamicConvHParams:
    """6+6 layers of 256/1024, 4 heads: transformer_iwslt_small with convolutions, which have a GLU.

    Pre-norm, no biases in projections, dropout 0.1, a peak of 256^-0.5 * 4000^-0.5 = 9.9e-4.
    """
    return DynamicConvHParams().replace(
        batch_size=4096,
        conv_even_kernel="left",
        hidden_size=256,
        filter_size=1024,
        num_heads=4,
        num_hidden_layers=6,
        optimizer_adam_beta2=0.98,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        learning_rate_constant=1.0,
        learning_rate_warmup_steps=4000,
    )


@register_hparams
def dynamic_conv_small_data() -> DynamicConvHParams:
    """3+3 layers for 10,000 to 50,000 pairs: transformer_small_data with convolutions and sublayer dropout 0.2."""
    return dynamic_conv_small().replace(**SMALL_DATA, layer_prepostprocess_dropout=0.2)


@register_hparams
def dynamic_conv_middle_data() -> DynamicConvHParams:
    """dynamic_conv_small_data at twice the width for 50,000 to 500,000 pairs.

    Tried on Tatoeba De-En (162,000 short sentences) and on a third of IWSLT14 De-En (49,000 pairs of talks) with 8,000
    and 10,000 joint subwords; docs/results has the curves.
    """
    return dynamic_conv_small_data().replace(hidden_size=256, filter_size=1024, learning_rate_constant=0.005)


@register_hparams
def dynamic_conv_test() -> DynamicConvHParams:
    """2+2 layers of width 16, like transformer_test, for tests."""
    return dynamic_conv_small().replace(num_hidden_layers=2, hidden_size=16, filter_size=8, num_heads=2)


@register_hparams
def lightweight_conv_base() -> DynamicConvHParams:
    """dynamic_conv_base with lightweight convolutions."""
    return dynamic_conv_base().replace(conv_type="lightweight")


@register_hparams
def lightweight_conv_iwslt() -> DynamicConvHParams:
    """dynamic_conv_iwslt with lightweight convolutions."""
    return dynamic_conv_iwslt().replace(conv_type="lightweight")


@register_hparams
def lightweight_conv_big() -> DynamicConvHParams:
    """dynamic_conv_big with lightweight convolutions."""
    return dynamic_conv_big().replace(conv_type="lightweight")
