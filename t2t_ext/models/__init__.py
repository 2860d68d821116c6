"""Models: one file a model; ``seq2seq`` is the contract that they share.

``INDEX`` says which module registers which model, so that names are listed without importing TensorFlow.
"""

from collections.abc import Mapping

INDEX: Mapping[str, str] = {
    "asynchronous_transformer": "t2t_ext.models.asynchronous",
    "synchronous_transformer": "t2t_ext.models.synchronous",
    "transformer": "t2t_ext.models.transformer",
}
