"""Views of the encoder that decoder layers attend to: by default the last encoder layer, other views in variants.

Legend: B sentences, S source positions, D width, N encoder layers. e_j is the normalized output of encoder layer j,
from e_1 to e_N.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.layers.attention import SourceAttention
from t2t_ext.layers.base import Description, Layer, LayerNormalization


@dataclasses.dataclass(frozen=True)
class EncoderOutput:
    """The encoder's output for the decoder.

    Attributes:
      layers: The outputs e_1 ... e_N of the encoder layers, float [B, S, D] each. In pre-norm stacks, only the layers
        that the hparams' views use are normalized (with ``source_view=last``, none), e_N by the stack's final
        normalization.
      final: float [B, S, D], e_N after the stack's final normalization if there is one.
      mask: bool [B, 1, 1, S], True at positions that are not padding.
    """

    layers: list[tf.Tensor]
    final: tf.Tensor
    mask: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Reading:
    """The encoder layers that the layers of a decoder attend to, for ``--describe``.

    Attributes:
      what: The formula for the states that decoder layer i attends to.
      layers: For each decoder layer, the encoder layers in its view, counted from 1; an empty tuple if it reads the
        source embeddings. Empty altogether if only the model's own code knows the layers.
      joined: The encoder layer that is joined with every view; 0: none.
      part: The description of the view and its weights.
    """

    what: str
    layers: tuple[tuple[int, ...], ...]
    joined: int
    part: Description


class ViewNormalization(Layer):
    """Normalizes the layer outputs of a pre-norm encoder that the decoder uses; by themselves they are not normalized.

    Attributes:
      seen: The encoder layers that this layer normalizes, counted from 0.
    """

    seen: Sequence[int] = ()

    def normalized(
        self, states: Sequence[tf.Tensor], final: tf.Tensor, final_norm: LayerNormalization
    ) -> list[tf.Tensor]:
        """Returns ``EncoderOutput.layers``.

        Args:
          states: The layers' outputs, float [B, S, D] each.
          final: The last of them, normalized.
          final_norm: The normalization that was applied to it.
        """
        raise NotImplementedError


class SourceViews(Layer):
    """The views of the encoder: ``views`` computes them, ``make_attention`` makes the attention to them."""

    @classmethod
    def make(cls, hparams: TransformerHParams, **kwargs: Any) -> Self:
        """Returns the layer for the views that the model's hparams select."""
        return cls(**kwargs)

    @classmethod
    def normalization(cls, hparams: TransformerHParams, **kwargs: Any) -> ViewNormalization | None:
        """Returns the normalization of the encoder layers that the views use, or None; it is a part of the encoder."""
        return None

    def build(self, input_shape: object = None) -> None:
        """Creates the views' weights; by default, there are none."""

    def read_by(self, decoder_layers: int, encoder_layers: int) -> Reading | None:
        """Returns the encoder layers that a decoder with ``decoder_layers`` layers reads; None: not known."""
        return None

    def views(self, encoded: EncoderOutput) -> list[Any]:
        """Returns the view of each decoder layer, float [B, S, D] or whatever its attention attends to.

        Views are computed once per sentence: every tensor has the sentences on axis 0.
        """
        raise NotImplementedError

    def make_attention(self, hparams: TransformerHParams, layer: int, **kwargs: Any) -> SourceAttention:
        """Returns the cross-attention of a decoder layer, counted from 0, to its view."""
        return SourceAttention(hparams, **kwargs)


@registry.register_layer("source_views", "last")
class LastView(SourceViews):
    """Every decoder layer attends to the encoder's final output (Vaswani et al. 2017)."""

    def __init__(self, decoder_layers: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.decoder_layers = decoder_layers

    @classmethod
    def make(cls, hparams: TransformerHParams, **kwargs: Any) -> Self:
        """Returns the layer for the views that the model's hparams select."""
        return cls(hparams.decoder_layers, **kwargs)

    def read_by(self, decoder_layers: int, encoder_layers: int) -> Reading | None:
        """Returns the reading in which every decoder layer reads the last encoder layer; see SourceViews."""
        if type(self) is not LastView:  # a user's subclass may read other layers
            return None
        last = f"e_{encoder_layers}"
        return Reading(last, ((encoder_layers,),) * decoder_layers, 0, Description("view of the source", last))

    def views(self, encoded: EncoderOutput) -> list[tf.Tensor]:
        """Returns the view of each decoder layer, float [B, S, D]."""
        return [encoded.final] * self.decoder_layers
