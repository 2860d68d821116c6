"""Views of the encoder that decoder layers attend to: the last layer, unless a variant says otherwise.

Legend: B sentences, S source positions, D width, N encoder layers. e_j is the output of encoder layer j, from e_1 to
e_N, normalized.
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
      layers: The outputs e_1 ... e_N of the encoder layers, float [B, S, D] each. In pre-norm stacks those are
        normalized that the hparams' views see, e_N by the stack's last normalization; the others, and with
        ``source_view=last`` all of them, are not.
      final: float [B, S, D], e_N after the stack's final normalization, where it has one.
      mask: bool [B, 1, 1, S], True at real positions.
    """

    layers: list[tf.Tensor]
    final: tf.Tensor
    mask: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Reading:
    """The encoder layers that the layers of a decoder attend to, for ``--describe``.

    Attributes:
      what: The formula of what decoder layer i attends to.
      layers: For each decoder layer the encoder layers that its view is made of, from 1, none where it reads the
        source's embeddings; empty where only the model's own code knows.
      joined: The encoder layer that every view is joined with; 0 where none is.
      part: The view's own weights.
    """

    what: str
    layers: tuple[tuple[int, ...], ...]
    joined: int
    part: Description


class ViewNormalization(Layer):
    """Normalizes what the decoder sees of a pre-norm encoder, whose layers' outputs are not normalized.

    Attributes:
      seen: The encoder layers that have a normalization of their own here, counted from 0.
    """

    seen: Sequence[int] = ()

    def normalized(
        self, states: Sequence[tf.Tensor], final: tf.Tensor, final_norm: LayerNormalization
    ) -> list[tf.Tensor]:
        """Returns ``EncoderOutput.layers``.

        Args:
          states: The layers' outputs, float [B, S, D] each.
          final: The last of them, normalized.
          final_norm: What it was normalized with.
        """
        raise NotImplementedError


class SourceViews(Layer):
    """Views of the encoder: ``views`` computes them, ``make_attention`` makes the attention that reads them."""

    @classmethod
    def make(cls, hparams: TransformerHParams, **kwargs: Any) -> Self:
        """Returns the views that the model's hparams ask for."""
        return cls(**kwargs)

    @classmethod
    def normalization(cls, hparams: TransformerHParams, **kwargs: Any) -> ViewNormalization | None:
        """Returns what normalizes the encoder's layers that are seen, a part of the encoder; None: nothing does."""
        return None

    def build(self, input_shape: object = None) -> None:
        """Creates nothing, unless a view has weights."""

    def read_by(self, decoder_layers: int, encoder_layers: int) -> Reading | None:
        """Returns what a decoder of so many layers reads of the encoder; None where the views do not say."""
        return None

    def views(self, encoded: EncoderOutput) -> list[Any]:
        """Returns the view of each decoder layer, float [B, S, D] or whatever its attention attends to.

        It is computed once for a sentence: every tensor has the sentences on axis 0.
        """
        raise NotImplementedError

    def make_attention(self, hparams: TransformerHParams, layer: int, **kwargs: Any) -> SourceAttention:
        """Returns the attention of a decoder layer, counted from 0, to its view."""
        return SourceAttention(hparams, **kwargs)


@registry.register_layer("source_views", "last")
class LastView(SourceViews):
    """Every decoder layer attends to the encoder's final output (Vaswani et al. 2017)."""

    def __init__(self, decoder_layers: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.decoder_layers = decoder_layers

    @classmethod
    def make(cls, hparams: TransformerHParams, **kwargs: Any) -> Self:
        """Returns the views that the model's hparams ask for."""
        return cls(hparams.decoder_layers, **kwargs)

    def read_by(self, decoder_layers: int, encoder_layers: int) -> Reading | None:
        """Returns that every layer reads the last one; see SourceViews."""
        if type(self) is not LastView:  # a view of a user's own may read what it likes
            return None
        last = f"e_{encoder_layers}"
        return Reading(last, ((encoder_layers,),) * decoder_layers, 0, Description("view of the source", last))

    def views(self, encoded: EncoderOutput) -> list[tf.Tensor]:
        """Returns the view of each decoder layer, float [B, S, D]."""
        return [encoded.final] * self.decoder_layers
