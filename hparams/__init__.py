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

INDEX: Mapping[str, str] = {name: "t2t_ext.hparams.transformer" for name in _TRANSFORMER}
