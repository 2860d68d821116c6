"""Models: one file a model; ``seq2seq`` is the contract that they share.

``INDEX`` says which module registers which model, so that names are listed without importing TensorFlow.
"""

from collections.abc import Mapping

INDEX: Mapping[str, str] = {
    "asynchronous_transformer": "t2t_ext.models.asynchronous",
    "composed_transformer": "t2t_ext.models.composed",
    "context_gate_transformer": "t2t_ext.models.context_gate",
    "cross_view_dynamic_conv": "t2t_ext.models.cross_view",
    "cross_view_transformer": "t2t_ext.models.cross_view",
    "dual_context_transformer": "t2t_ext.models.dual_context",
    "dynamic_conv": "t2t_ext.models.dynamic_conv",
    "layer_coordination": "t2t_ext.models.layer_coordination",
    "synchronous_layer_coordination": "t2t_ext.models.synchronous_layer_coordination",
    "synchronous_transformer": "t2t_ext.models.synchronous",
    "transformer": "t2t_ext.models.transformer",
}
