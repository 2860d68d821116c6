"""Mixed attention: of a target position to the source and to its own past, in one softmax (He et al. 2018, section 3).

Both sides are read at the same layer's input, with the same projections:

    Mixed_Attention(Q, K, V) = softmax(Q K^T / sqrt(d) + M) V      (equation 3)

with queries of the m target positions, keys and values of the n source and the m target positions side by side, and
M(i, j) = 0 for j < n (the source) or j <= i + n (the past and position i itself), else -infinity. Padding of the source
is masked, too. d is a head's width, as in the program that the paper extends (``attention_scale``).

In whole sequences the rows of both sides stand in one matrix, the source's before the target's: projections, norms and
feed-forward sublayers are one product for both.

Legend: B sentences, S source positions, T target positions, R directions (1), K hypotheses, H heads, D the model's
width, d a head's.
"""

import dataclasses

import tensorflow as tf

from t2t_ext.layers.attention import SelfAttention, StepContext, mask_bias
from t2t_ext.layers.dropout import dropout
from t2t_ext.layers.masks import causal_mask, padding_mask

Memory = tuple[tf.Tensor, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class SideBySide:
    """Where source and target positions are among the rows [B * S + B * T, ...], and what they may attend to.

    Attributes:
      source: int32 scalar, S.
      target: int32 scalar, T.
      rows: int32 [2], B * S and B * T.
      source_bias: float32 [B, 1, 1, S], added to logits: 0 at the source's tokens, which every position may see.
      target_bias: float32 [B, 1, T, S + T], 0 where M of equation 3 is and there is no padding; where a target position
        sees the target alone, [1, 1, T, T].
    """

    source: tf.Tensor
    target: tf.Tensor
    rows: tf.Tensor
    source_bias: tf.Tensor
    target_bias: tf.Tensor

    @classmethod
    def of(cls, inputs: tf.Tensor, targets: tf.Tensor, mixed: bool) -> "SideBySide":
        """Returns the layout of inputs int32 [B, S] and targets int32 [B, T]."""
        batch, source, target = tf.shape(inputs)[0], tf.shape(inputs)[1], tf.shape(targets)[1]
        source_bias, past = mask_bias(padding_mask(inputs)), mask_bias(causal_mask(target))
        return cls(
            source,
            target,
            tf.stack([batch * source, batch * target]),
            source_bias,
            joint_bias(source_bias, past) if mixed else past,
        )

    def split(self, rows: tf.Tensor) -> list[tf.Tensor]:
        """Splits rows [B * S + B * T, ...] into the source's and the target's."""
        return tf.split(rows, self.rows, axis=0)


@dataclasses.dataclass(frozen=True)
class MixedStepContext(StepContext):
    """What the layers must know of one step of the search, with C = (position + 1) * K columns of the hypotheses' past.

    Attributes:
      source_bias: float32 [B, 1, 1, 1, S], added to logits over the source alone.
      joint_bias: float32 [B, 1, 1, K, S + C], added to logits over the source and the past.
      columns: int32 [2], S and C.
    """

    source_bias: tf.Tensor
    joint_bias: tf.Tensor
    columns: tf.Tensor

    @classmethod
    def of(
        cls, position: tf.Tensor, visible: tf.Tensor, parents: tf.Tensor, source_bias: tf.Tensor
    ) -> "MixedStepContext":
        """Returns the context of a step; arguments as of ``Seq2Seq.step`` and float32 [B, 1, 1, 1, S]."""
        bias = mask_bias(visible)[:, :, tf.newaxis]
        columns = tf.stack([tf.shape(source_bias)[-1], tf.shape(visible)[-1]])
        return cls(position, visible, None, parents, bias, source_bias, joint_bias(source_bias, bias), columns)


class MixedAttention(SelfAttention):
    """The projections that source and target share, and all ways of looking through them."""

    def source_memory(self, y: tf.Tensor, length: tf.Tensor) -> Memory:
        """Projects source rows float [B * S, D] to keys and values float [B, 1, H, S, d], once for all steps."""
        rows = tf.split(self._projected(y, self.key_width, None), [self.key_width, self.value_width], axis=-1)
        return self.as_memory(*(self._side_by_side(part, [length, self.heads]) for part in rows))

    @staticmethod
    def as_memory(keys: tf.Tensor, values: tf.Tensor) -> Memory:
        """Turns keys and values float [B, H, S, d] into what steps look at, float [B, 1, H, S, d]."""
        return keys[:, tf.newaxis], values[:, tf.newaxis]

    def queries(self, y: tf.Tensor, parts: list[int]) -> tf.Tensor:
        """Projects rows float [B * ... * K, D] to queries alone, float [B, ..., H, K, d]; parts = [..., K]."""
        return self._side_by_side(self._projected(y, 0, self.key_width), [*parts, self.heads])

    def _projected(self, y: tf.Tensor, start: int, end: int | None) -> tf.Tensor:
        """Projects rows float [N, D] to some of the columns of queries, keys and values side by side."""
        rows = tf.matmul(y, tf.cast(self.qkv.kernel.value[:, start:end], self.compute_dtype))
        return rows if self.qkv.bias is None else rows + tf.cast(self.qkv.bias.value[start:end], rows.dtype)

    def look(
        self, query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Attends in whole sequences.

        Args:
          query: float [B, H, T, d].
          keys: float [B, H, S, d].
          values: float [B, H, S, d].
          bias: float32, broadcast to [B, H, T, S]; see ``mask_bias``.
          training: Whether attention dropout is applied.

        Returns:
          What the heads found, rows float [B * T, H * d] before the output projection, and the distributions float
          [B, H, T, S] before dropout.
        """
        logits = tf.matmul(query * tf.cast(self.scale, query.dtype), keys, transpose_b=True)
        weights = tf.cast(tf.nn.softmax(tf.cast(logits, tf.float32) + bias), query.dtype)
        found = tf.matmul(dropout(weights, self.attention_dropout, training), values)
        return tf.reshape(tf.transpose(found, [0, 2, 1, 3]), [-1, self.value_width]), weights

    def mixed_step(
        self,
        y: tf.Tensor,
        context: MixedStepContext,
        source: Memory,
        state: dict[str, dict[str, tf.Tensor]],
    ) -> tuple[tf.Tensor, tf.Tensor, dict[str, dict[str, tf.Tensor]]]:
        """Attends from one new position of every hypothesis to the source and to its own past, in one softmax.

        The source's memory is neither tiled nor joined with the hypotheses': their logits are.

        Args:
          y: float [B * K, D].
          context: The step.
          source: Keys and values float [B, 1, H, S, d], as from ``source_memory``.
          state: As from ``start`` or the step before.

        Returns:
          float [B * K, D], the distributions over the source and the columns of the past float [B, 1, H, K, S + C], and
          the new state.
        """
        query, keys, values = self.project_step(y, list(context.hypotheses))
        keys = tf.concat([state["memories"]["keys"], keys], axis=3)
        values = tf.concat([state["memories"]["values"], values], axis=3)
        query *= tf.cast(self.scale, query.dtype)
        logits = [tf.matmul(query, part, transpose_b=True) for part in (source[0], keys)]
        weights = tf.nn.softmax(tf.cast(tf.concat(logits, axis=4), tf.float32) + context.joint_bias)
        weights = tf.cast(weights, values.dtype)
        to_source, to_past = tf.split(weights, context.columns, axis=4)
        found = tf.matmul(to_source, source[1]) + tf.matmul(to_past, values)
        return self.output_rows(found), weights, {"memories": {"keys": keys, "values": values}, "windows": {}}

    def source_step(self, y: tf.Tensor, context: MixedStepContext, source: Memory) -> tuple[tf.Tensor, tf.Tensor]:
        """Attends from rows float [B * K, D] to the source alone.

        Args:
          y: float [B * K, D].
          context: The step.
          source: Keys and values float [B, 1, H, S, d].

        Returns:
          float [B * K, D] and the distributions float [B, 1, H, K, S].
        """
        query = self.queries(y, list(context.hypotheses)) * tf.cast(self.scale, self.compute_dtype)
        logits = tf.cast(tf.matmul(query, source[0], transpose_b=True), tf.float32) + context.source_bias
        weights = tf.cast(tf.nn.softmax(logits), source[1].dtype)
        return self.output_rows(tf.matmul(weights, source[1])), weights


def joint_bias(source_bias: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Joins what is added to logits over the source and to those over the target, once for all layers.

    Args:
      source_bias: float32 [..., S].
      bias: float32 [..., C], of target positions or of the columns of the hypotheses' past.

    Returns:
      float32 [..., S + C]; the axes before the last are broadcast to each other.
    """
    parts = (source_bias, bias)
    shape = tf.broadcast_dynamic_shape(*(tf.shape(part)[:-1] for part in parts))
    joined = [tf.broadcast_to(part, tf.concat([shape, tf.shape(part)[-1:]], axis=0)) for part in parts]
    return tf.concat(joined, axis=-1)


def source_part(weights: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
    """Returns a mixed distribution's part over the source as a distribution of its own.

    Args:
      weights: float [..., S + C], the source's S positions first.
      source: int32 scalar, S.

    Returns:
      float32 [..., S] that adds up to 1, or to 0 where nothing of the distribution is on the source.
    """
    part = tf.cast(weights[..., :source], tf.float32)
    return tf.math.divide_no_nan(part, tf.reduce_sum(part, axis=-1, keepdims=True))
