"""Lightweight and dynamic convolutions instead of self-attention (Wu et al., ICLR 2019).

The model is the Transformer with another mixer in both stacks (``layers/dynamic_convolution.py``); attention to the
source stays. ``DynamicConv`` replaces two hooks alone, so that relatives with other views of the source compose:
``class Mine(CrossViewTransformer, DynamicConv)`` with hparams of both families.
"""

from typing import Any

from t2t_ext.config.dynamic_conv import DynamicConvHParams
from t2t_ext.errors import UserError
from t2t_ext.layers.base import Layer
from t2t_ext.layers.dynamic_convolution import DecoderConvolution, EncoderConvolution
from t2t_ext.models.transformer import Transformer
from t2t_ext.registry import register_model


@register_model("dynamic_conv")
class DynamicConv(Transformer):
    """The Transformer with convolutions for self-attention, in both stacks or in one.

    Layers that ``dc_encoder_layers`` and ``dc_decoder_layers`` name have dual contextual modules instead.
    """

    hparams_class = DynamicConvHParams

    def __init__(self, hparams: DynamicConvHParams, **kwargs: Any) -> None:
        """Initialises the model; see Seq2Seq.

        Raises:
          UserError: The decoder writes in two directions at once, but its mixers would be convolutions.
        """
        if self.directions > 1 and isinstance(hparams, DynamicConvHParams) and hparams.conv_stacks != "encoder":
            raise UserError(
                f"{type(self).__name__} writes in {self.directions} directions at once, whose positions see each other "
                f"by attention: conv_stacks={hparams.conv_stacks} has convolutions there. Set conv_stacks=encoder."
            )
        super().__init__(hparams, **kwargs)

    def make_encoder_mixer(self, layer: int) -> Layer:
        """Returns the convolution of an encoder layer, counted from 0, or another mixer where it has none.

        That is self-attention where only the decoder has convolutions, and the dual contextual module in layers that
        ``dc_encoder_layers`` names.
        """
        if self.hparams.conv_stacks == "decoder" or layer in self.hparams.dual_encoder_layers:
            return super().make_encoder_mixer(layer)
        taps = self.hparams.encoder_kernels[layer]
        return EncoderConvolution(self.hparams, taps, name="convolution", dtype=self.dtype_policy)

    def make_decoder_mixer(self, layer: int) -> Layer:
        """Returns the convolution of a decoder layer, counted from 0, or another mixer; as ``make_encoder_mixer``."""
        if self.hparams.conv_stacks == "encoder" or layer in self.hparams.dual_decoder_layers:
            return super().make_decoder_mixer(layer)
        taps = self.hparams.decoder_kernels[layer]
        return DecoderConvolution(self.hparams, taps, name="convolution", dtype=self.dtype_policy)
