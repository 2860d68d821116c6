"""Settings of the Transformer: sets of tensor2tensor 1.15, baselines for IWSLT-sized corpora, and sets by corpus size.

Sets of tensor2tensor have the values of ``tensor2tensor/models/transformer.py``. Each set derives from an earlier one,
and its ``replace`` contains exactly what it changes.
"""

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.registry import register_hparams

# Shared by the sets for small data; tuned on Multi30k De-En with transformer_small_data.
SMALL_DATA = {
    "num_hidden_layers": 3,
    "hidden_size": 128,
    "filter_size": 512,
    "num_heads": 4,
    "batch_size": 2048,
    "batch_tokens": "target",
    "length_groups": 4,
    "optimizer": "schedule_free_adam_w",
    "optimizer_adam_beta2": 0.99,
    "optimizer_schedule_free_power": 2,
    "weight_decay": 0.02,
    "learning_rate_schedule": "constant*linear_warmup",
    "learning_rate_constant": 0.0075,
    "learning_rate_warmup_steps": 200,
    "use_target_space_embedding": False,
}


@register_hparams
def transformer_base_v1() -> TransformerHParams:
    """The base model of Vaswani et al. (2017): post-norm, 4,000 steps of warm-up."""
    return TransformerHParams().replace(
        batch_size=4096,
        max_length=256,
        hidden_size=512,
        filter_size=2048,
        num_heads=8,
        num_hidden_layers=6,
        clip_grad_norm=0.0,
        label_smoothing=0.1,
        weight_decay=0.0,
        optimizer="adam",
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.98,
        optimizer_adam_epsilon=1e-9,
        learning_rate_schedule="legacy",
        learning_rate=0.1,
        learning_rate_constant=1.0,
        learning_rate_warmup_steps=4000,
        initializer="uniform_unit_scaling",
        initializer_gain=1.0,
        layer_preprocess_sequence="none",
        layer_postprocess_sequence="dan",
        layer_prepostprocess_dropout=0.1,
        attention_dropout=0.0,
        relu_dropout=0.0,
        shared_embedding_and_softmax_weights=True,
        use_target_space_embedding=True,
    )


@register_hparams
def transformer_base_v2() -> TransformerHParams:
    """Pre-norm, dropout everywhere, a longer warm-up."""
    return transformer_base_v1().replace(
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        layer_prepostprocess_dropout=0.1,
        attention_dropout=0.1,
        relu_dropout=0.1,
        learning_rate_warmup_steps=8000,
        learning_rate=0.2,
    )


@register_hparams
def transformer_base_v3() -> TransformerHParams:
    """The schedule is written as factors; its peak is 2 * 512^-0.5 * 8000^-0.5 = 9.88e-4."""
    return transformer_base_v2().replace(
        optimizer_adam_beta2=0.997,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        learning_rate_constant=2.0,
    )


@register_hparams
def transformer_base() -> TransformerHParams:
    """The base model as of tensor2tensor 1.15: transformer_base_v3."""
    return transformer_base_v3()


@register_hparams
def transformer_big() -> TransformerHParams:
    """The big model. Its batch_size fits a 12 GB GPU; the paper used 8 GPUs with about 4,096 tokens each."""
    return transformer_base().replace(
        hidden_size=1024, filter_size=4096, num_heads=16, batch_size=2048, layer_prepostprocess_dropout=0.3
    )


@register_hparams
def transformer_big_single_gpu() -> TransformerHParams:
    """The big model for one GPU: less dropout, a longer warm-up."""
    return transformer_big().replace(layer_prepostprocess_dropout=0.1, learning_rate_warmup_steps=16000)


@register_hparams
def transformer_base_single_gpu() -> TransformerHParams:
    """The base model for one GPU: a small batch and a smaller peak, 0.1 * 16000^-0.5 = 7.9e-4."""
    return transformer_base().replace(
        batch_size=1024,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.1,
        learning_rate_warmup_steps=16000,
    )


@register_hparams
def transformer_small() -> TransformerHParams:
    """Two layers of width 256; the model that papers call small has six layers: transformer_iwslt_small."""
    return transformer_base().replace(num_hidden_layers=2, hidden_size=256, filter_size=1024, num_heads=4)


@register_hparams
def transformer_tiny() -> TransformerHParams:
    """Two layers of width 128."""
    return transformer_base().replace(num_hidden_layers=2, hidden_size=128, filter_size=512, num_heads=4)


@register_hparams
def transformer_test() -> TransformerHParams:
    """Two layers of width 16, for tests."""
    return transformer_base().replace(num_hidden_layers=2, hidden_size=16, filter_size=8, num_heads=2)


@register_hparams
def transformer_iwslt_small() -> TransformerHParams:
    """Baseline of 6+6 layers, 256/1024, 4 heads, for corpora of IWSLT's size (30,000 to 250,000 pairs).

    He et al. (NeurIPS 2018), layer-wise coordination, table 1. Adam's beta2 and the schedule are those of Vaswani et
    al. (2017); whatever the paper leaves open is as in transformer_base.
    """
    return transformer_base().replace(
        num_hidden_layers=6,
        hidden_size=256,
        filter_size=1024,
        num_heads=4,
        optimizer_adam_beta2=0.98,
        learning_rate_constant=1.0,
        learning_rate_warmup_steps=4000,
        use_target_space_embedding=False,
    )


@register_hparams
def transformer_iwslt_4layer() -> TransformerHParams:
    """Baseline of 4+4 layers, 256/1024, 4 heads, for corpora of the size of IWSLT or Multi30k.

    Otherwise like transformer_iwslt_small.
    """
    return transformer_iwslt_small().replace(num_hidden_layers=4)


@register_hparams
def transformer_small_data() -> TransformerHParams:
    """3+3 layers for 10,000 to 50,000 pairs: small updates with sentences of all lengths, Schedule-Free AdamW.

    The learning rate is high. Tuned on Multi30k De-En with 4,000 joint subwords; 8,000 are better.
    docs/results/multi30k.md lists what was tried. On a CPU add ``parallel_slices`` (as many as cores, up to 4) and, if
    the trainer says so, ``precision=mixed_bfloat16``.
    """
    return transformer_base().replace(**SMALL_DATA)


@register_hparams
def transformer_middle_data() -> TransformerHParams:
    """6+6 layers for 50,000 to 500,000 pairs: the size that fairseq trains on IWSLT14, with Schedule-Free AdamW.

    Not tuned here. Sizes, heads, dropout, label smoothing and tokens per update are fairseq's for IWSLT14 De-En
    (160,000 pairs; 10,000 joint subwords), but the model is pre-norm. Optimizer, learning rate and weight decay are
    those of Schedule-Free AdamW's entries in AlgoPerf, the fastest on its translation workload (Defazio et al. 2024).
    """
    return transformer_base().replace(
        num_hidden_layers=6,
        hidden_size=512,
        filter_size=1024,
        num_heads=4,
        batch_size=4096,
        batch_tokens="target",
        length_groups=4,
        layer_prepostprocess_dropout=0.3,
        attention_dropout=0.0,
        relu_dropout=0.0,
        optimizer="schedule_free_adam_w",
        optimizer_adam_beta2=0.9955,
        optimizer_adam_epsilon=1e-8,
        weight_decay=0.08,
        learning_rate_schedule="constant*linear_warmup",
        learning_rate_constant=0.0025,
        learning_rate_warmup_steps=600,
        use_target_space_embedding=False,
    )


@register_hparams
def transformer_large_data() -> TransformerHParams:
    """transformer_base for more than 500,000 pairs, with Schedule-Free AdamW; updates have sentences of all lengths.

    Not tuned here. Sizes and dropout are those of transformer_base; optimizer, rate and decay are those of
    transformer_middle_data. With fewer than eight devices set ``gradient_accumulation_steps``, and ``length_groups`` to
    a multiple of it: the published batches have 25,000 tokens or more.
    """
    return transformer_middle_data().replace(
        filter_size=2048,
        num_heads=8,
        layer_prepostprocess_dropout=0.1,
        attention_dropout=0.1,
        relu_dropout=0.1,
        learning_rate_warmup_steps=2000,
    )
