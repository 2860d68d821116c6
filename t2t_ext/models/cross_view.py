"""Layer-wise cross-view decoding (Liu et al. 2020): every decoder layer sees the source in a view of its own.

The views are a part of every model with an encoder (``layers/source_views.py``, ``source_view`` and ``integration``
among the hparams), so that they go together with any mixer, any decoder and any other relative of the Transformer. The
models here are the paper's two, under names of their own; all weights that they share with the Transformer and with
DynamicConv have their names, so that a trained run of those is what they continue from.
"""

from typing import Any

from t2t_ext.errors import UserError
from t2t_ext.models.dynamic_conv import DynamicConv
from t2t_ext.models.transformer import Transformer
from t2t_ext.registry import register_model


class CrossViewDecoding:
    """Makes sure that a model decodes with views of the source. Comes before the model among the bases."""

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        """Initialises the model; see Seq2Seq.

        Raises:
          UserError: All decoder layers would see the last encoder layer, as without this class.
        """
        super().__init__(hparams, **kwargs)
        if self.hparams.source_view == "last":
            raise UserError(
                f"{type(self).__name__} with source_view=last is the model without cross-view decoding. Add "
                "source_view=gca,integration=soft to --hparams, take an hparams set whose name begins with "
                "cross_view_, or choose --model=transformer or dynamic_conv."
            )


@register_model("cross_view_transformer")
class CrossViewTransformer(CrossViewDecoding, Transformer):
    """The Transformer with layer-wise cross-view decoding (Liu et al. 2020)."""


@register_model("cross_view_dynamic_conv")
class CrossViewDynamicConv(CrossViewDecoding, DynamicConv):
    """DynamicConv (Wu et al. 2019) with layer-wise cross-view decoding (Liu et al. 2020)."""
