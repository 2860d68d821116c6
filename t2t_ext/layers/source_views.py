"""Which view of the encoder each decoder layer attends to.

The Transformer's decoder sees the last encoder layer from everywhere; cross-view decoding
(Liu et al. 2020) replaces this part alone.
"""

import dataclasses

import tensorflow as tf

from t2t_ext.layers.base import Layer


@dataclasses.dataclass(frozen=True)
class EncoderOutput:
    """What the encoder hands to the decoder.

    Attributes:
      layers: The outputs e_1 ... e_N of the encoder layers, float [B, S, D] each, not normalised in pre-norm stacks.
      final: float [B, S, D], e_N after the stack's final normalisation, where it has one.
      mask: bool [B, 1, 1, S], True at real positions.
    """

    layers: list[tf.Tensor]
    final: tf.Tensor
    mask: tf.Tensor


class LastView(Layer):
    """Every decoder layer attends to the encoder's final output (Vaswani et al. 2017)."""

    def __init__(self, decoder_layers: int, **kwargs: object) -> None:
        """Initialises the routing for a number of decoder layers."""
        super().__init__(**kwargs)
        self.decoder_layers = decoder_layers

    def build(self, input_shape: object = None) -> None:
        """Creates nothing: the view has no weights."""

    def views(self, encoded: EncoderOutput) -> list[tf.Tensor]:
        """Returns the view of each decoder layer, float [B, S, D]."""
        return [encoded.final] * self.decoder_layers
