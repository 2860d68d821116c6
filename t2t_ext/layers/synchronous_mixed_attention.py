"""Synchronous bidirectional attention (Zhou et al. 2019) in a layer that also reads the source (He et al. 2018).

Two targets of a sentence are generated at once. A position of a direction attends

* to the source and the past of its own direction in one softmax (history: mixed attention), or only to this past if a
  separate sublayer attends to the source,
* with the same projections, to the tokens that the other direction has generated so far (future).

The two results are fused as in ``layers/synchronous_attention.py``. The source is only part of the history; in both, it
would be counted twice. Neither direction influences the states of the source.

The layouts are those of mixed attention and of synchronous attention. In whole sequences, the target's rows are
[B, 2, T]. In steps, both directions share one cache, with column = step * 2K + direction * K + rank.

Legend: B sentences, S source positions, T target positions of a direction, K hypotheses of a direction, C columns of
both directions, H heads, d width of a head, D width of the model.
"""

import dataclasses
from typing import Any, Self

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.layers.attention import mask_bias
from t2t_ext.layers.base import Description
from t2t_ext.layers.mixed_attention import (
    SIDE_NAMES,
    Memory,
    MixedAttention,
    MixedStepContext,
    Show,
    SideBySide,
    joint_bias,
)
from t2t_ext.layers.synchronous_attention import SynchronousAttention, sides_mask


@dataclasses.dataclass(frozen=True)
class SynchronousSideBySide(SideBySide):
    """The layout of a source and two targets.

    Attributes:
      future_bias: float32 [B, 2, 1, T, T], 0 where a position of one direction may see a position of the other.
    """

    future_bias: tf.Tensor

    @classmethod
    def of(cls, inputs: tf.Tensor, targets: tf.Tensor, mixed: bool, **more: Any) -> Self:
        """Returns the layout of inputs int32 [B, S] and labels int32 [B, 2, T]."""
        return super().of(inputs, targets, mixed, future_bias=mask_bias(sides_mask(targets).future), **more)


@dataclasses.dataclass(frozen=True)
class SynchronousMixedContext(MixedStepContext):
    """The step context of mixed attention in both directions.

    Attributes:
      sides_bias: float32 [B, 1, 1, 2 * 2 * K, C]; see SynchronousStepContext.
      history_bias: float32 [B, 1, 1, 2 * K, S + C], over the source and the columns of both directions: 0 at the
        source's tokens and at the hypotheses' own pasts.
      future_bias: float32 [B, 1, 1, 2 * K, C], 0 at the columns of the other direction that a hypothesis sees.
      sides_columns: int32 [2], S and C.
    """

    sides_bias: tf.Tensor
    history_bias: tf.Tensor
    future_bias: tf.Tensor
    sides_columns: tf.Tensor

    @classmethod
    def of(cls, context: Any, source_bias: tf.Tensor, **more: Any) -> Self:
        """Returns a context for layers that also read the source, with bias float32 [B, 1, 1, 1, S].

        ``context`` is a SynchronousStepContext.
        """
        history, future = tf.split(context.sides_bias, 2, axis=3)
        return super().of(
            context,
            source_bias,
            history_bias=joint_bias(source_bias, history),
            future_bias=future,
            sides_columns=tf.stack([tf.shape(source_bias)[-1], tf.shape(future)[-1]]),
            **more,
        )


@registry.register_layer("shared_mixer", "synchronous")
class SynchronousMixedAttention(MixedAttention, SynchronousAttention):
    """Mixed attention of two directions that attend to each other, with SBAtt's weights under the same names."""

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        return dataclasses.replace(SynchronousAttention.described(self, role), name="synchronous mixed attention")

    def look_from_target(
        self, target: list[tf.Tensor], memory: Memory, sides: Any, training: bool, show: Show | None
    ) -> tf.Tensor:
        """Returns the heads' fused results for history and future, float [B, 2, H, T, d]; see BothSides."""
        history = super().look_from_target(target, memory, sides, training, show)
        query, keys, values = target
        keys, values = tf.reverse(keys, [1]), tf.reverse(values, [1])  # the other direction's, [B, 2, H, T, d]
        future, weights = self.look(query, keys, values, sides.future_bias, training)
        if show is not None:
            for side, part in zip(SIDE_NAMES, tf.unstack(weights, axis=1), strict=True):
                show(f"self_attention/{side}/future", part)
        return self.fuse(history, future, training)

    def mixed_step(self, y: tf.Tensor, context: Any, source: Memory, state: Any) -> tuple[tf.Tensor, tf.Tensor, Any]:
        """Attends from one new position of every hypothesis to the source, its own past and its partner's past.

        See BothSides. The context is a SynchronousMixedContext, and the distributions are those of the history.
        """
        query, keys, values = self.project_step(y, [1, 2 * context.hypotheses[1]])  # [B, 1, H, 2 * K, d]
        keys = tf.concat([state["memories"]["keys"], keys], axis=3)
        values = tf.concat([state["memories"]["values"], values], axis=3)
        query *= tf.cast(self.scale, query.dtype)
        to_source, to_past = (
            tf.cast(tf.matmul(query, part, transpose_b=True), tf.float32) for part in (source[0], keys)
        )
        weights = tf.nn.softmax(tf.concat([to_source, to_past], axis=4) + context.history_bias)
        weights = tf.cast(weights, values.dtype)
        to_source, to_own = tf.split(weights, context.sides_columns, axis=4)
        to_partner = tf.cast(tf.nn.softmax(to_past + context.future_bias), values.dtype)
        # Both attend to the same values, so that they are rows of one product.
        own, future = tf.split(tf.matmul(tf.concat([to_own, to_partner], axis=3), values), 2, axis=3)
        fused = self.fuse(tf.matmul(to_source, source[1]) + own, future)
        return self.output_rows(fused), weights, {"memories": {"keys": keys, "values": values}}
