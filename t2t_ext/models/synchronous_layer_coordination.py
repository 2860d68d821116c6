"""Layer-wise coordination that writes in both directions: He et al. (2018) with Zhou et al. (2019).

Source and two targets of a sentence go through the same layers: in every layer a position of a direction attends to the
source and its own past in one softmax, and to what the other direction has written until then
(``layers/synchronous_mixed_attention.py``). The source depends on neither. The first input of a direction is its tag;
one vector tells the source from both targets, and positions begin at 0 in each of the three.

Variables are layer_coordination's, by the same names; a trained lambda and a gate are added
(docs/decisions/0026).

Legend: B sentences, S source positions, T target positions of a direction, D width.
"""

import tensorflow as tf

from t2t_ext.config.layer_coordination import SynchronousLayerCoordinationHParams
from t2t_ext.layers.mixed_attention import BothSides
from t2t_ext.layers.synchronous_mixed_attention import (
    SynchronousMixedAttention,
    SynchronousMixedContext,
    SynchronousSideBySide,
)
from t2t_ext.models.layer_coordination import LayerCoordination
from t2t_ext.models.synchronous import SynchronousDecoding
from t2t_ext.registry import register_model


@register_model("synchronous_layer_coordination")
class SynchronousLayerCoordination(SynchronousDecoding, LayerCoordination):
    """One stack of layers, or two that are aligned, for a source and two targets that look at each other."""

    hparams_class = SynchronousLayerCoordinationHParams
    sides_class = SynchronousSideBySide
    step_context_class = SynchronousMixedContext

    def make_attention(self, layer: int) -> BothSides:
        """Returns the attention of a layer; only where ``sb_layers`` says so do the directions look at each other."""
        if layer not in self.hparams.synchronous_layers:
            return super().make_attention(layer)
        return SynchronousMixedAttention(self.hparams, name="attention", dtype=self.dtype_policy)

    def training_features(self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the output float [B, 2, T, D], with ``predict_tag`` [B, 2, 1 + T, D]; see Seq2Seq."""
        return self._features(inputs, targets, training)

    def attention_weights(self, inputs: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns every layer's attention distributions.

        ``layer_i/mixed_attention/DIRECTION/history`` is float [B, H, T, S + T]: source positions, then the direction's
        own inputs, for DIRECTION ``l2r`` and ``r2l``; ``layer_i/self_attention/DIRECTION/future`` [B, H, T, T] is over
        the other direction's inputs. Without mixed attention there are ``layer_i/self_attention/DIRECTION/history``
        [B, H, T, T] and ``layer_i/source_attention/DIRECTION`` [B, H, T, S] instead of the first.
        ``layer_i/source_self_attention`` is layer_coordination's. With ``predict_tag`` there is a position more, before
        the first.
        """
        return LayerCoordination.attention_weights(self, inputs, targets)
