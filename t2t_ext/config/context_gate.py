"""Hyper-parameters of the Transformer with a context gate (He et al. 2018, section 5.4, after Tu et al. 2017)."""

import dataclasses

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.strict_params import hparam


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextGateHParams(TransformerHParams):
    """A Transformer with a gate that weighs the decoder's attention to the source against attention to its past."""

    context_gate: str = hparam(
        "head",
        "Gate of a decoder layer: one number for each head-sized group of channels (head: num_heads numbers) or for "
        "each channel (channel: hidden_size numbers).",
        choices=("head", "channel"),
    )
