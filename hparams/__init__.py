"""The garden's hparams sets: every published setting under a name, one file a model family.

``INDEX`` says which module registers which set, so that names are listed without importing the modules.
"""

from collections.abc import Mapping

_TRANSFORMER = (
    "transformer_base",
    "transformer_base_single_gpu",
    "transformer_base_v1",
    "transformer_base_v2",
    "transformer_base_v3",
    "transformer_big",
    "transformer_big_single_gpu",
    "transformer_iwslt_4layer",
    "transformer_iwslt_small",
    "transformer_small",
    "transformer_test",
    "transformer_tiny",
)

_TRANSFORMER_OF_PAPERS = (
    "transformer_base_ampomah2021",
    "transformer_base_he2018",
    "transformer_base_liu2020",
    "transformer_big_ende_liu2020",
    "transformer_big_he2018",
    "transformer_big_liu2020",
    "transformer_big_zhou2019",
    "transformer_iwslt_ampomah2021",
    "transformer_iwslt_liu2020",
)

_ASYNCHRONOUS = (
    "asynchronous_transformer_base",
    "asynchronous_transformer_big",
    "asynchronous_transformer_small",
    "asynchronous_transformer_test",
    "asynchronous_transformer_tiny",
)

_SYNCHRONOUS = (
    "synchronous_transformer_base",
    "synchronous_transformer_base_original",
    "synchronous_transformer_big",
    "synchronous_transformer_big_original",
    "synchronous_transformer_small",
    "synchronous_transformer_small_original",
    "synchronous_transformer_test",
    "synchronous_transformer_tiny",
    "synchronous_transformer_tiny_original",
)

_DYNAMIC_CONV = (
    "dynamic_conv_base",
    "dynamic_conv_big",
    "dynamic_conv_iwslt",
    "dynamic_conv_small",
    "dynamic_conv_test",
    "lightweight_conv_base",
    "lightweight_conv_big",
    "lightweight_conv_iwslt",
)

_CROSS_VIEW = (
    "cross_view_dynamic_conv_big",
    "cross_view_dynamic_conv_iwslt",
    "cross_view_dynamic_conv_test",
    "cross_view_transformer_base",
    "cross_view_transformer_big",
    "cross_view_transformer_small",
    "cross_view_transformer_test",
)

_COMPOSED = (
    "composed_transformer_base",
    "composed_transformer_big",
    "composed_transformer_iwslt_4layer",
    "composed_transformer_small",
    "composed_transformer_test",
    "composed_transformer_tiny",
)

_CONTEXT_GATE = ("context_gate_transformer_small", "context_gate_transformer_test")

_LAYER_COORDINATION = (
    "layer_coordination_base",
    "layer_coordination_big",
    "layer_coordination_big_ff2048",
    "layer_coordination_small",
    "layer_coordination_small_10_layers",
    "layer_coordination_small_18_layers",
    "layer_coordination_small_22_layers",
    "layer_coordination_small_no_mixed_attention",
    "layer_coordination_small_no_positions",
    "layer_coordination_small_no_sharing",
    "layer_coordination_small_no_side_embedding",
    "layer_coordination_test",
    "layer_coordination_tiny",
    "synchronous_layer_coordination_base",
    "synchronous_layer_coordination_small",
    "synchronous_layer_coordination_test",
    "synchronous_layer_coordination_tiny",
)

_DUAL_CONTEXT = (
    "dual_context_base",
    "dual_context_base_dec",
    "dual_context_base_full",
    "dual_context_iwslt",
    "dual_context_iwslt_dec",
    "dual_context_iwslt_full",
    "dual_context_test",
)

INDEX: Mapping[str, str] = {
    **dict.fromkeys(_TRANSFORMER, "t2t_ext.hparams.transformer"),
    **dict.fromkeys(_COMPOSED, "t2t_ext.hparams.composed"),
    **dict.fromkeys(_CONTEXT_GATE, "t2t_ext.hparams.context_gate"),
    **dict.fromkeys(_CROSS_VIEW, "t2t_ext.hparams.cross_view"),
    **dict.fromkeys(_DUAL_CONTEXT, "t2t_ext.hparams.dual_context"),
    **dict.fromkeys(_LAYER_COORDINATION, "t2t_ext.hparams.layer_coordination"),
    **dict.fromkeys(_ASYNCHRONOUS, "t2t_ext.hparams.asynchronous"),
    **dict.fromkeys(_SYNCHRONOUS, "t2t_ext.hparams.synchronous"),
    **dict.fromkeys(_DYNAMIC_CONV, "t2t_ext.hparams.dynamic_conv"),
    **dict.fromkeys(_TRANSFORMER_OF_PAPERS, "t2t_ext.hparams.transformer_papers"),
    "transformer_base_summarization": "t2t_ext.hparams.summarization",
}
