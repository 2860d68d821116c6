"""Hyper-parameters of the synchronous Transformer (Zhou et al. 2019)."""

import dataclasses

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.strict_params import hparam


@dataclasses.dataclass(frozen=True, kw_only=True)
class SynchronousHParams(TransformerHParams):
    """A Transformer that generates in both directions at once by default."""

    synchronous: bool = hparam(
        True, "The decoder generates left to right and right to left at once (Zhou et al. 2019)."
    )
