"""Settings of layer-wise coordination: He et al. (NeurIPS 2018), sections 4.2, 4.3 and 5.2.

The paper states: 256/1024 with 4 heads (small), 512/2048 with 8 (base), 1024 with 16 (big), 14 layers for small and
big, Adam .9/.98, the schedule of Vaswani et al. (2017), batches of about 4,096 tokens counting both sides, and a
start-of-sentence symbol before the target. Everything else follows its baseline, tensor2tensor's Transformer: pre-norm,
dropout and label smoothing 0.1; the warm-up of 4,000 steps is that of Vaswani et al. For models that the paper trained
on 8 GPUs, gradient_accumulation_steps makes one device's update equally large.
"""

from t2t_ext.config.layer_coordination import LayerCoordinationHParams, SynchronousLayerCoordinationHParams
from t2t_ext.hparams._families import as_family
from t2t_ext.registry import register_hparams


@register_hparams
def layer_coordination_small() -> LayerCoordinationHParams:
    """The paper's model for IWSLT: 14 layers of 256/1024, 4 heads; as large as transformer_iwslt_small (6+6 layers)."""
    return LayerCoordinationHParams().replace(
        batch_size=4096,
        batch_tokens="sum",
        max_length=256,
        num_hidden_layers=14,
        hidden_size=256,
        filter_size=1024,
        num_heads=4,
        use_sos=True,
        optimizer="adam",
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.98,
        optimizer_adam_epsilon=1e-9,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        learning_rate_constant=1.0,
        learning_rate_warmup_steps=4000,
        label_smoothing=0.1,
        layer_prepostprocess_dropout=0.1,
        attention_dropout=0.1,
        relu_dropout=0.1,
    )


@register_hparams
def layer_coordination_base() -> LayerCoordinationHParams:
    """14 layers of 512/2048, 8 heads; the paper does not state the number of layers, so it is that of small and big."""
    return layer_coordination_small().replace(
        hidden_size=512, filter_size=2048, num_heads=8, gradient_accumulation_steps=8
    )


@register_hparams
def layer_coordination_big() -> LayerCoordinationHParams:
    """14 layers of 1024/4096, 16 heads, dropout 0.3 like transformer_big; as large as 6+6 layers of transformer_big.

    The paper prints a feed-forward width of 2,048. With that width the model would be a third smaller than the
    baseline, although the paper says that both are equally large: layer_coordination_big_ff2048.
    """
    return layer_coordination_base().replace(
        hidden_size=1024, filter_size=4096, num_heads=16, layer_prepostprocess_dropout=0.3
    )


@register_hparams
def layer_coordination_big_ff2048() -> LayerCoordinationHParams:
    """layer_coordination_big with the feed-forward width as printed."""
    return layer_coordination_big().replace(filter_size=2048)


@register_hparams
def layer_coordination_tiny() -> LayerCoordinationHParams:
    """4 layers of width 128, a seventh smaller than transformer_tiny's 2+2 layers."""
    return layer_coordination_small().replace(num_hidden_layers=4, hidden_size=128, filter_size=512)


@register_hparams
def layer_coordination_test() -> LayerCoordinationHParams:
    """2 layers of width 16, like transformer_test, for tests."""
    return layer_coordination_tiny().replace(num_hidden_layers=2, hidden_size=16, filter_size=8, num_heads=2)


# === Table 3 ===


@register_hparams
def layer_coordination_small_no_sharing() -> LayerCoordinationHParams:
    """Table 3, without weight sharing: 7 layers for the source and 7 for the target, equally many parameters.

    Target layer i reads the output of source layer i (section 3), so that every counted weight is used.
    """
    return layer_coordination_small().replace(lwc_share_weights=False, num_hidden_layers=7)


@register_hparams
def layer_coordination_small_no_sharing_input() -> LayerCoordinationHParams:
    """Without weight sharing, otherwise unchanged: a target layer reads its source layer's input, as shared ones do.

    The seventh source layer is left out because nothing would read its output: 18.28M parameters.
    """
    return layer_coordination_small_no_sharing().replace(lwc_source="input")


@register_hparams
def layer_coordination_small_no_mixed_attention() -> LayerCoordinationHParams:
    """Table 3, without mixed attention: self-attention, then cross-attention, with the same projections."""
    return layer_coordination_small().replace(lwc_mixed_attention=False)


@register_hparams
def layer_coordination_small_no_side_embedding() -> LayerCoordinationHParams:
    """Table 3, without source/target embedding."""
    return layer_coordination_small().replace(lwc_side_embedding=False)


@register_hparams
def layer_coordination_small_no_positions() -> LayerCoordinationHParams:
    """Table 3, without position embedding on either side."""
    return layer_coordination_small().replace(pos="none")


# === Table 4 ===


@register_hparams
def layer_coordination_small_10_layers() -> LayerCoordinationHParams:
    """Table 4: 10 layers, against 4+4 of the baseline."""
    return layer_coordination_small().replace(num_hidden_layers=10)


@register_hparams
def layer_coordination_small_18_layers() -> LayerCoordinationHParams:
    """Table 4: 18 layers, against 8+8 of the baseline; the paper's best on IWSLT14 De-En."""
    return layer_coordination_small().replace(num_hidden_layers=18)


@register_hparams
def layer_coordination_small_22_layers() -> LayerCoordinationHParams:
    """Table 4: 22 layers, against 10+10 of the baseline."""
    return layer_coordination_small().replace(num_hidden_layers=22)


# === Both directions, with the choices of Zhou et al. (2019): tanh, lambda 0.1, two triples ===


def _both_directions(hparams: LayerCoordinationHParams) -> SynchronousLayerCoordinationHParams:
    """Returns hparams for both directions: the first input is a direction's tag instead of the start symbol."""
    return as_family(hparams.replace(use_sos=False), SynchronousLayerCoordinationHParams)


@register_hparams
def synchronous_layer_coordination_small() -> SynchronousLayerCoordinationHParams:
    """layer_coordination_small for targets in two directions; the first input of each is its direction's tag."""
    return _both_directions(layer_coordination_small())


@register_hparams
def synchronous_layer_coordination_base() -> SynchronousLayerCoordinationHParams:
    """layer_coordination_base in both directions."""
    return _both_directions(layer_coordination_base())


@register_hparams
def synchronous_layer_coordination_tiny() -> SynchronousLayerCoordinationHParams:
    """layer_coordination_tiny in both directions."""
    return _both_directions(layer_coordination_tiny())


@register_hparams
def synchronous_layer_coordination_test() -> SynchronousLayerCoordinationHParams:
    """layer_coordination_test in both directions, for tests."""
    return _both_directions(layer_coordination_test())
