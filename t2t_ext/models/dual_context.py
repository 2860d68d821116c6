"""The dual contextual module in encoder, decoder or both (Ampomah et al. 2021).

The module is a part of every model that has self-attention (``layers/dual_context.py``, ``dc_encoder_layers`` and
``dc_decoder_layers`` among the hparams), so that it goes together with views of the source, decoders of both directions
and other relatives of the Transformer. The model here is the paper's, under a name of its own.
"""

from typing import Any

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.errors import UserError
from t2t_ext.models.transformer import Transformer
from t2t_ext.registry import register_model


@register_model("dual_context_transformer")
class DualContextTransformer(Transformer):
    """The Transformer with dual contextual modules in chosen layers (Ampomah et al. 2021)."""

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        """Initialises the model; see Seq2Seq.

        Raises:
          UserError: No layer has a dual contextual module.
        """
        super().__init__(hparams, **kwargs)
        if not self.hparams.dual_encoder_layers and not self.hparams.dual_decoder_layers:
            raise UserError(
                f"{type(self).__name__} without dual contextual modules is a Transformer. Add dc_encoder_layers=all or "
                "dc_decoder_layers=all to --hparams, take an hparams set whose name begins with dual_context_, or "
                "choose --model=transformer."
            )
