"""Settings of the Transformer baselines as four papers trained them.

Papers: he2018 is Layer-Wise Coordination (He et al., NeurIPS 2018), liu2020 is Layer-Wise Cross-View Decoding (Liu et
al. 2020), zhou2019 is SB-NMT (Zhou et al., TACL 2019), ampomah2021 is the Dual Contextual module (Ampomah et al. 2021).
If a paper trained on several GPUs, gradient_accumulation_steps makes one device's update equally large; divide it by
the number of devices if you also have several.
"""

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.hparams.transformer import transformer_base, transformer_base_v1, transformer_big
from t2t_ext.registry import register_hparams

_PEAK_BASE = "constant*linear_warmup*rsqrt_decay"


@register_hparams
def transformer_base_he2018() -> TransformerHParams:
    """He et al. 2018, table 2, Transformer (base): 512/2048, 8 heads, 6+6 layers, 8 GPUs of about 4,096 tokens.

    Section 4.3 gives Adam's beta2 = 0.98 and the schedule of Vaswani et al. (2017), so 4,000 steps of warm-up to
    512^-0.5 * 4000^-0.5 = 7.0e-4. Whatever it leaves open is as in transformer_base, because the baseline is
    tensor2tensor's program.
    """
    return transformer_base().replace(
        optimizer_adam_beta2=0.98,
        learning_rate_constant=1.0,
        learning_rate_warmup_steps=4000,
        use_target_space_embedding=False,
        gradient_accumulation_steps=8,
    )


@register_hparams
def transformer_big_he2018() -> TransformerHParams:
    """He et al. 2018, table 2, Transformer (big): 1024/4096, 16 heads, 6+6 layers, 8 GPUs of about 4,096 tokens.

    The paper prints a feed-forward width of 2,048 for its own big model. But equal numbers of parameters (14 layers of
    12 d^2; 6 pairs of layers of 28 d^2) need four times the hidden size, as in tensor2tensor's big model.
    """
    return transformer_big().replace(
        batch_size=4096,
        optimizer_adam_beta2=0.98,
        learning_rate_constant=1.0,
        learning_rate_warmup_steps=4000,
        use_target_space_embedding=False,
        gradient_accumulation_steps=8,
    )


@register_hparams
def transformer_base_liu2020() -> TransformerHParams:
    """Liu et al. 2020, appendix A, IWSLT14 De-En: "Transformer-Base" on one GPU, post-norm like fairseq.

    The optimizer is not stated. Vaswani et al. (2017) and fairseq use Adam .9/.98 with a peak of 512^-0.5 * 4000^-0.5 =
    7.0e-4 after 4,000 steps. transformer_iwslt_liu2020 is the smaller model that fairseq trains on this corpus.
    """
    return transformer_base_v1().replace(use_target_space_embedding=False)


@register_hparams
def transformer_iwslt_liu2020() -> TransformerHParams:
    """The model that fairseq trains on IWSLT14 De-En, and perhaps Liu et al. 2020: 512/1024, 4 heads, dropout 0.3.

    The learning rate peaks at 5e-4 after 4,000 steps; decoupled weight decay of 1e-4.
    """
    return transformer_base_liu2020().replace(
        filter_size=1024,
        num_heads=4,
        layer_prepostprocess_dropout=0.3,
        optimizer="adam_w",
        weight_decay=1e-4,
        learning_rate_schedule=_PEAK_BASE,
        learning_rate_constant=5e-4 * 4000**0.5,
    )


@register_hparams
def transformer_big_liu2020() -> TransformerHParams:
    """Liu et al. 2020, appendix A, WMT14 En-Fr: "Transformer-Big" on 8 GPUs, post-norm like fairseq.

    The paper does not state batches, peak and dropout. It follows Ott et al. (2018), who give batches of 3,584 tokens
    and a peak of 5e-4 after 4,000 steps; dropout 0.1 is that of Vaswani et al. (2017) for English to French.
    """
    return transformer_base_liu2020().replace(
        batch_size=3584,
        hidden_size=1024,
        filter_size=4096,
        num_heads=16,
        layer_prepostprocess_dropout=0.1,
        learning_rate_schedule=_PEAK_BASE,
        learning_rate_constant=5e-4 * 4000**0.5,
        gradient_accumulation_steps=8,
    )


@register_hparams
def transformer_big_ende_liu2020() -> TransformerHParams:
    """Liu et al. 2020, appendix A, WMT14 En-De: transformer_big_liu2020 with 16 batches accumulated on each of 8 GPUs.

    The peak of 1e-3 and dropout 0.3 are those of Ott et al. (2018) for batches of this size and this language pair.
    """
    return transformer_big_liu2020().replace(
        layer_prepostprocess_dropout=0.3, learning_rate_constant=1e-3 * 4000**0.5, gradient_accumulation_steps=8 * 16
    )


@register_hparams
def transformer_big_zhou2019() -> TransformerHParams:
    """Zhou et al. 2019, section 4.2: 1024/4096, 16 heads, 6+6 layers, dropout 0.1, Adam .9/.998, warm-up of 16,000.

    Post-norm (equations 11 and 12) and with biases in the projections, like the authors' program. With one matrix of
    30,720 rows, these are the 207.8M parameters of table 6. The authors' script uses batches of 2,048 tokens.
    """
    return transformer_base_v1().replace(
        batch_size=2048,
        hidden_size=1024,
        filter_size=4096,
        num_heads=16,
        optimizer_adam_beta2=0.998,
        learning_rate_warmup_steps=16000,
        projection_bias=True,
        use_target_space_embedding=False,
    )


@register_hparams
def transformer_base_ampomah2021() -> TransformerHParams:
    """Ampomah et al. 2021, section 5, WMT14 En-De: 512/2048, 8 heads, 6+6 layers, batches of 4,960 tokens.

    Adam .9/.98 (the epsilon is printed as 10^9, a slip for 10^-9), one cycle of a cosine after a warm-up (So et al.
    2019). Warm-up and peak are not stated, so they are those of the Evolved Transformer in tensor2tensor: 8,000 steps
    up to 2 * 8000^-0.5 * 512^-0.5 = 9.9e-4. Post-norm, as in the paper's equations.
    """
    return transformer_base_v1().replace(
        batch_size=4960,
        learning_rate_schedule="constant*linear_warmup*single_cycle_cos_decay*rsqrt_hidden_size",
        learning_rate_warmup_steps=8000,
        learning_rate_constant=2.0 * 8000**-0.5,
        use_target_space_embedding=False,
    )


@register_hparams
def transformer_iwslt_ampomah2021() -> TransformerHParams:
    """Ampomah et al. 2021, section 5, IWSLT: hidden size 256, 4 heads, 4+4 layers, batches of 2,048 tokens.

    The feed-forward width is not stated; it is 1,024, four times the hidden size. Otherwise like
    transformer_base_ampomah2021.
    """
    return transformer_base_ampomah2021().replace(
        batch_size=2048, hidden_size=256, filter_size=1024, num_heads=4, num_hidden_layers=4
    )
