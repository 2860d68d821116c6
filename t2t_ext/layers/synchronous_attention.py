"""Synchronous bidirectional attention, SBAtt (Zhou et al. 2019, section 3.2, equations 3 to 10).

Two targets of a sentence are generated at once, side 0 from left to right, side 1 from right to left. A
position attends to the past of its own side (history). With the same projections, it attends to the tokens
that the other side has generated so far (future). The two results are fused.

Both sides of a sentence form one sequence, so that frames, feed-forward sublayers and cross-attention need not
distinguish them:

* Whole sequences: float [B, 2 * T, D], inside of a mixer [B, 2, H, T, d]; ``SidesMask`` says what may be seen.
* Steps: K hypotheses of each direction. Keys and values of both directions are in one cache
  [B, 1, H, columns, d], column = step * 2K + direction * K + rank. A step computes its logits once and applies
  two softmaxes with the two biases of ``SynchronousStepContext``.

Legend: B sentences, T target positions, H heads, d width of a head, D width of the model, K hypotheses of a direction.
"""

import dataclasses
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.variants.synchronous import SynchronousFields
from t2t_ext.layers.attention import (
    SelfAttention,
    StepContext,
    attention_weights,
    mask_bias,
    merge_heads,
    split_heads,
)
from t2t_ext.layers.base import Description, Projection, shape_of_heads
from t2t_ext.layers.dropout import dropout
from t2t_ext.layers.masks import causal_mask

SIDES = 2
ACTIVATIONS = {"linear": tf.identity, "tanh": tf.tanh, "relu": tf.nn.relu}

MemoryState = dict[str, dict[str, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class SynchronousStepContext(StepContext):
    """A ``StepContext`` with an additional bias over the columns of both directions.

    Attributes:
      sides_bias: float32 [B, 1, 1, 2 * 2 * K, columns]: 0 at the hypotheses' own pasts in the first 2 * K rows and at
        the pasts of their partners in the other rows, -1e9 elsewhere.
    """

    sides_bias: tf.Tensor


class SidesMask(NamedTuple):
    """The masks of whole sequences, True where a position is visible.

    Attributes:
      history: bool [1, 1, 1, T, T], for positions of the same side.
      future: bool [B, 2, 1, T, T], for positions of the other side; axis 1 is the side that attends.
    """

    history: tf.Tensor
    future: tf.Tensor


def sides_mask(labels: tf.Tensor) -> SidesMask:
    """Returns the masks of whole sequences with labels int32 [B, 2, T].

    Position t sees the positions j <= t of its own side, and those positions j <= t of the other side whose label is
    not PAD. The inputs of these are not padding and are among the 1 + t tokens that the other side has read when t is
    predicted. Position j = 0 is always visible: its input (the direction's tag, or a zero vector) exists even on a side
    of only PAD, and a softmax with no visible position would be over all positions.
    """
    causal = causal_mask(tf.shape(labels)[2])[tf.newaxis]
    real = tf.not_equal(tf.reverse(labels, [1]), 0) | tf.equal(tf.range(tf.shape(labels)[2]), 0)
    return SidesMask(causal, causal & real[:, :, tf.newaxis, tf.newaxis])


def step_context(
    position: tf.Tensor,
    visible: tf.Tensor,
    partner_visible: tf.Tensor,
    parents: tf.Tensor,
    *,
    with_prefix: bool = False,
) -> SynchronousStepContext:
    """Returns the context of a step in both directions.

    Args:
      position: int32 scalar, the number of inputs before this one.
      visible: bool [B, 2, K, n * K], each hypothesis's own past; see Seq2Seq.step.
      partner_visible: bool [B, 2, K, n * K], the columns of the other direction that it sees.
      parents: int32 [B, 2, K]; see StepContext.
      with_prefix: Whether the cache begins with one column per direction that precedes all hypotheses. Each hypothesis
        sees both columns.
    """
    batch, hypotheses = tf.shape(visible)[0], visible.shape[2]
    same = tf.eye(SIDES, dtype=tf.bool)
    by_side = tf.reshape(same, [1, SIDES, 1, 1, SIDES, 1])
    columns = [batch, SIDES, hypotheses, -1, 1, hypotheses]
    own, partner = tf.reshape(visible, columns), tf.reshape(partner_visible, columns)
    both = tf.stack([own & by_side, partner & ~by_side], axis=1)
    both = tf.reshape(both, [batch, 1, 1, 2 * SIDES * hypotheses, tf.shape(visible)[3] * SIDES])
    if with_prefix:
        prefix = tf.repeat(tf.concat([same, ~same], axis=0), hypotheses, axis=0)  # [2 * 2 * K, 2]
        prefix = tf.broadcast_to(prefix, [batch, 1, 1, *prefix.shape])
        both = tf.concat([prefix, both], axis=4)
        visible = tf.pad(visible, [[0, 0], [0, 0], [0, 0], [1, 0]], constant_values=True)
    return SynchronousStepContext(
        position, visible, partner_visible, parents, mask_bias(visible)[:, :, tf.newaxis], mask_bias(both)
    )


@registry.register_layer("two_way_mixer", "self_attention")
class SidesSelfAttention(SelfAttention):
    """Self-attention in which each side attends only to its own past, as ``SelfAttention`` already does in steps."""

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        return Description("self-attention", "each direction by itself", shape_of_heads(self))

    def project_sides(self, x: tf.Tensor) -> list[tf.Tensor]:
        """Projects float [B, 2 * T, D] to queries, keys and values float [B, 2, H, T, d]."""
        shape = tf.shape(x)
        parts = [self.qkv(x)] if self.key_width == self.value_width else self.qkv.split(self.qkv(x))
        heads = 3 * self.heads // len(parts)
        sides = [shape[0], SIDES, shape[1] // SIDES, heads]
        parts = [tf.transpose(tf.reshape(y, [*sides, y.shape[-1] // heads]), [0, 1, 3, 2, 4]) for y in parts]
        return parts if len(parts) == 3 else tf.split(parts[0], 3, axis=2)

    def look(self, query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, mask: tf.Tensor, training: bool) -> tf.Tensor:
        """Attends with float [B, 2, H, T, d] under a mask; returns the heads' results with the width of the values."""
        weights = attention_weights(query, keys, mask_bias(mask), self.scale)
        return tf.matmul(dropout(weights, self.attention_dropout, training), values)

    def mix(self, query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, mask: SidesMask, training: bool) -> tf.Tensor:
        """Returns the heads' results, float [B, 2, H, T, d]."""
        return self.look(query, keys, values, mask.history, training)

    def call(self, x: tf.Tensor, mask: Any, training: bool = False) -> tf.Tensor:
        """Mixes whole sequences float [B, 2 * T, D] under a SidesMask."""
        query, keys, values = self.project_sides(x)  # [B, 2, H, T, d]
        y = merge_heads(self.mix(query, keys, values, mask, training))  # [B, 2, T, H * d]
        shape = tf.shape(x)
        return self.output_projection(tf.reshape(y, [shape[0], shape[1], y.shape[-1]]))

    def distributions(self, x: tf.Tensor, mask: Any) -> tf.Tensor:
        """Returns the attention distributions float [B, 1, 2, H, T, T]: the history of both sides."""
        query, keys, _ = self.project_sides(x)
        return attention_weights(query, keys, mask_bias(mask.history), self.scale)[:, tf.newaxis]


@registry.register_layer("two_way_mixer", "synchronous")
class SynchronousAttention(SidesSelfAttention):
    """SBAtt, the mixer of a decoder layer whose two directions attend to each other.

    Both directions share one set of projections. The weights are those of ``SelfAttention``, under the same names;
    ``sb_fusion=gate`` adds ``gate/kernel``, and a trainable lambda adds ``lambda``.
    """

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        fields = hparams.part(SynchronousFields)
        self.fusion = fields.sb_fusion
        self.start_lambda, self.trainable_lambda = fields.sb_lambda, fields.sb_lambda_trainable
        self.future_dropout = fields.sb_future_dropout
        self.gated_heads = fields.sb_gate == "head"
        self.gate_width = self.value_width // (self.heads if self.gated_heads else 1)
        self.gate = None
        if self.fusion == "gate":
            args = {**self.projection_args, "use_bias": False}
            self.gate = Projection([self.gate_width] * 2, name="gate", **args)

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        super().build(input_shape)
        self.trained_lambda = None
        if self.gate is not None:
            self.gate.build((None, 2 * self.gate_width))
        elif self.trainable_lambda != "none":
            self.trained_lambda = self.add_weight(
                name="lambda",
                shape=(1 if self.trainable_lambda == "scalar" else self.value_width,),
                initializer=keras.initializers.Constant(self.start_lambda),
            )

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        if self.gate is not None:
            setting = f"gate of {'each head' if self.gated_heads else 'all heads'}"
        else:
            trained = {"none": "", "scalar": ", trained", "vector": ", trained vector"}[self.trainable_lambda]
            setting = f"{self.fusion}, lambda = {self.start_lambda:g}{trained}"
        name = "synchronous bidirectional attention"
        return Description(name, setting, shape_of_heads(self), "Zhou et al. 2019", "self-attention")

    # === Fusion ===

    def fuse(self, history: tf.Tensor, future: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Fuses the attention's results for history and future, float [..., H, T, d] each; equations 4 to 6."""
        future = dropout(future, self.future_dropout, training)
        if self.gate is None:
            factor = tf.cast(self.start_lambda, future.dtype)
            if self.trained_lambda is not None:
                factor = self.value(self.trained_lambda)
                factor = factor if self.trainable_lambda == "scalar" else tf.reshape(factor, [self.heads, 1, -1])
            return history + factor * ACTIVATIONS[self.fusion](future)
        if self.gated_heads:
            read, update = self.gate.split(tf.sigmoid(self.gate(tf.concat([history, future], axis=-1))))
        else:
            gates = self.gate(tf.concat([merge_heads(history), merge_heads(future)], axis=-1))
            read, update = (split_heads(part, self.heads) for part in self.gate.split(tf.sigmoid(gates)))
        return read * history + update * future

    # === Whole sequences ===

    def mix(self, query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, mask: SidesMask, training: bool) -> tf.Tensor:
        """Returns the heads' results for both sides at once, float [B, 2, H, T, d]; equations 3 and 7."""
        history = self.look(query, keys, values, mask.history, training)
        future = self.look(query, tf.reverse(keys, [1]), tf.reverse(values, [1]), mask.future, training)
        return self.fuse(history, future, training)

    def distributions(self, x: tf.Tensor, mask: Any) -> tf.Tensor:
        """Returns the attention distributions float [B, 2, 2, H, T, T]: the history, then the future of both sides."""
        query, keys, _ = self.project_sides(x)
        history = attention_weights(query, keys, mask_bias(mask.history), self.scale)
        future = attention_weights(query, tf.reverse(keys, [1]), mask_bias(mask.future), self.scale)
        return tf.stack([history, future], axis=1)

    # === Step by step ===

    def start(self, batch: tf.Tensor, directions: int) -> MemoryState:
        """Returns the empty key/value cache of both directions together, float [B, 1, H, 0, d].

        Raises:
          ValueError: There are not two directions.
        """
        if directions != SIDES:
            raise ValueError(f"Synchronous attention is between two directions, not {directions}.")
        return super().start(batch, 1)

    def step(self, x: tf.Tensor, context: Any, state: MemoryState) -> tuple[tf.Tensor, MemoryState]:
        """Mixes one new position of every hypothesis with its own past and its partner's; see SelfAttention."""
        query, keys, values = self.project_step(x, [1, SIDES * context.hypotheses[1]])
        keys = tf.concat([state["memories"]["keys"], keys], axis=3)
        values = tf.concat([state["memories"]["values"], values], axis=3)
        logits = tf.matmul(query * tf.cast(self.scale, query.dtype), keys, transpose_b=True)
        logits = tf.cast(logits, tf.float32)  # [B, 1, H, 2 * K, columns]
        # The same logits have two biases; putting them in the rows of one softmax and one product is fastest.
        weights = tf.nn.softmax(tf.concat([logits, logits], axis=3) + context.sides_bias)
        history, future = tf.split(tf.matmul(tf.cast(weights, values.dtype), values), 2, axis=3)
        y = self.output_rows(self.fuse(history, future))
        return y, {"memories": {"keys": keys, "values": values}}
