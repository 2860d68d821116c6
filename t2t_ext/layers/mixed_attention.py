"""Mixed attention: a target position attends to the source and its own past in one softmax (He et al. 2018, section 3).

Both sides are read as inputs of the same layer, with the same projections:

    Mixed_Attention(Q, K, V) = softmax(Q K^T / sqrt(d) + M) V      (equation 3)

The queries are those of the m target positions. The keys and values are those of the n source positions followed by
those of the m target positions. M(i, j) is 0 for j < n (the source) or j <= i + n (the past and position i itself) and
-infinity otherwise. Source padding is also masked. d is the width of a head, as in the program that the paper extends
(``attention_scale``).

In whole sequences, the rows of both sides form one matrix, with the source rows before the target rows. Projections,
normalizations and feed-forward sublayers process both in one operation.

``BothSides`` is the interface of all layers of this kind. ``MixedAttention`` has the projections of self-attention;
``mixed_dual_context`` and ``synchronous_mixed_attention`` have others.

Legend: B sentences, S source positions, T target positions, R directions (1, or 2 in synchronous decoding), K
hypotheses of a direction, H heads, D width of the model, d width of a head. If R is 2, tensors of the target have an
axis R before H, [B, R, H, T, d], and the target has B * R * T rows.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.layers.attention import SelfAttention, StepContext, attention_weights, mask_bias
from t2t_ext.layers.base import Description, Mixer, shape_of_heads
from t2t_ext.layers.dropout import dropout
from t2t_ext.layers.masks import causal_mask, padding_mask

Memory = Sequence[tf.Tensor]  # keys and values
SIDE_NAMES = ("l2r", "r2l")
# Takes the name of a distribution within its layer, and the distribution.
Show = Callable[[str, tf.Tensor], None]


@dataclasses.dataclass(frozen=True)
class SideBySide:
    """The layout of source and target positions in the rows [B * S + B * R * T, ...], and what they may attend to.

    Attributes:
      source: int32 scalar, S.
      target: [T], or [R, T] if R is 2; T is an int32 scalar.
      rows: int32 [2], B * S and B * R * T.
      real: bool [B, S], False at source padding.
      mixed: Whether a target position sees the source in the same softmax as its past.
      source_bias: float32 [B, 1, 1, S], added to logits over the source: 0 at its tokens, which every position may see.
      target_bias: float32 [B, 1, T, S + T], 0 where M of equation 3 is 0 and there is no padding. If a target position
        sees only the target, [1, 1, T, T]. If R is 2, there is one more axis of size 1.
    """

    source: tf.Tensor
    target: list[Any]
    rows: tf.Tensor
    real: tf.Tensor
    mixed: bool
    source_bias: tf.Tensor
    target_bias: tf.Tensor

    @classmethod
    def of(cls, inputs: tf.Tensor, targets: tf.Tensor, mixed: bool, **more: Any) -> Self:
        """Returns the layout of inputs int32 [B, S] and targets int32 [B, T], or [B, 2, T] for two directions."""
        mask, shape = padding_mask(inputs), tf.shape(targets)
        source_bias, past = mask_bias(mask), mask_bias(causal_mask(shape[-1]))
        two = targets.shape.rank == 3
        if two:
            past = past[:, tf.newaxis]
        return cls(
            source=tf.shape(inputs)[1],
            target=[len(SIDE_NAMES), shape[2]] if two else [shape[1]],
            rows=tf.stack([tf.size(inputs), tf.size(targets)]),
            real=mask[:, 0, 0],
            mixed=mixed,
            source_bias=source_bias,
            target_bias=joint_bias(source_bias[:, tf.newaxis] if two else source_bias, past) if mixed else past,
            **more,
        )

    def split(self, rows: tf.Tensor) -> list[tf.Tensor]:
        """Splits rows [B * S + B * R * T, ...] into those of the source and those of the target."""
        return tf.split(rows, self.rows, axis=0)

    def seen_by_target(self, of_source: tf.Tensor) -> tf.Tensor:
        """Returns a source tensor [B, ...] reshaped so that it broadcasts to target tensors [B, ...] or [B, 2, ...]."""
        return of_source if len(self.target) == 1 else of_source[:, tf.newaxis]


@dataclasses.dataclass(frozen=True)
class MixedStepContext(StepContext):
    """The step context of mixed attention, with C columns for the hypotheses' past, K for every step.

    Attributes:
      source_bias: float32 [B, 1, 1, 1, S], added to logits over only the source.
      joint_bias: float32 [B, R, 1, K, S + C], added to logits over the source and the past.
      columns: int32 [2], S and C.
    """

    source_bias: tf.Tensor
    joint_bias: tf.Tensor
    columns: tf.Tensor

    @classmethod
    def of(cls, context: Any, source_bias: tf.Tensor, **more: Any) -> Self:
        """Returns a StepContext extended for layers that also read the source, with bias float32 [B, 1, 1, 1, S]."""
        return cls(
            **{field.name: getattr(context, field.name) for field in dataclasses.fields(context)},
            source_bias=source_bias,
            joint_bias=joint_bias(source_bias, context.bias),
            columns=tf.stack([tf.shape(source_bias)[-1], tf.shape(context.bias)[-1]]),
            **more,
        )


class BothSides(Mixer):
    """A mixin that implements the attention of both sides for mixers with projections that source and target share.

    The mixer must provide ``heads``, ``scale`` and ``attention_dropout``; the methods ``start`` and ``step`` of decoder
    mixers, in which a target position attends only to its past; and the methods below that raise NotImplementedError.
    """

    heads: int
    scale: float
    attention_dropout: float

    # === To be implemented by the mixer ===

    def project_rows(self, y: tf.Tensor, sides: SideBySide) -> list[list[tf.Tensor]]:
        """Projects rows float [B * S + B * R * T, D] to each side's queries, keys, values, float [B, H, length, d]."""
        raise NotImplementedError

    def project_source(self, y: tf.Tensor, real: tf.Tensor) -> list[tf.Tensor]:
        """Projects source rows float [B * S, D] to queries, keys and values float [B, H, S, d].

        ``real`` bool [B, S] is False at padding.
        """
        raise NotImplementedError

    def queries(self, y: tf.Tensor, parts: list[Any]) -> tf.Tensor:
        """Projects rows float [B * ... * K, D] only to queries, float [B, ..., H, K, d]; parts is [..., K]."""
        raise NotImplementedError

    def extend(self, y: tf.Tensor, context: StepContext, state: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Any]:
        """Projects one new position of every hypothesis, rows float [B * R * K, D].

        Returns:
          Its queries float [B, R, H, K, d], the keys and the values of all positions including the new one float
          [B, R, H, C, d], and the new state, which contains them.
        """
        raise NotImplementedError

    def joined(self, found: tf.Tensor) -> tf.Tensor:
        """Projects the results of all heads side by side, float [N, H * d], to the layer's output float [N, D]."""
        raise NotImplementedError

    @property
    def found_width(self) -> int:
        """The width H * d of all heads' results side by side."""
        raise NotImplementedError

    def show(self, show: Show | None, name: str, weights: tf.Tensor) -> None:
        """Passes distributions float [B, H, T, S] to ``show`` if it is given; a layer may split and rename them."""
        if show is not None:
            show(name, weights)

    # === Whole sequences ===

    def mix_rows(
        self, y: tf.Tensor, sides: SideBySide, with_source: bool, training: bool = False, show: Show | None = None
    ) -> tuple[tf.Tensor, Memory]:
        """Attends from the positions of both sides to the positions that each may see.

        Args:
          y: float [B * S + B * R * T, D], the rows of the source, then the rows of the target.
          sides: The layout of the rows.
          with_source: Whether the source positions also attend; otherwise they are only attended to.
          training: Whether attention dropout is applied.
          show: Receives the distributions.

        Returns:
          float [B * S + B * R * T, D], or [B * R * T, D] without the source; and the source's keys and values float
          [B, H, S, d].
        """
        source, target = self.project_rows(y, sides)
        query, *memory = source  # each float [B, H, S, d]
        found = []
        if with_source:
            of_source, weights = self.look(query, memory[0], memory[1], sides.source_bias, training)
            self.show(show, "source_self_attention", weights)
            found.append(self.rows_of(of_source))
        found.append(self.rows_of(self.look_from_target(target, memory, sides, training, show)))
        return self.joined(found[0] if len(found) == 1 else tf.concat(found, axis=0)), memory

    def look_from_target(
        self, target: list[tf.Tensor], memory: Memory, sides: Any, training: bool, show: Show | None
    ) -> tf.Tensor:
        """Returns the heads' results float [B, H, T, d] for the target's attention to source and past, or only past.

        Args:
          target: Queries, keys and values of the target, float [B, H, T, d].
          memory: Keys and values of the source, float [B, H, S, d].
          sides: The layout of the rows, a SideBySide.
          training: Whether attention dropout is applied.
          show: Receives the distributions.
        """
        query, *seen = target
        if sides.mixed:
            seen = [
                _behind(sides.seen_by_target(part), of_target) for part, of_target in zip(memory, seen, strict=True)
            ]
        found, weights = self.look(query, seen[0], seen[1], sides.target_bias, training)
        self.show_of_target(show, "mixed_attention" if sides.mixed else "self_attention", weights)
        return found

    def attend_to_source(
        self, y: tf.Tensor, memory: Memory, sides: SideBySide, training: bool = False, show: Show | None = None
    ) -> tf.Tensor:
        """Attends from the target rows float [B * R * T, D] only to the source; see ``mix_rows`` for the arguments."""
        keys, values, bias = (sides.seen_by_target(part) for part in (*memory, sides.source_bias))
        found, weights = self.look(self.queries(y, sides.target), keys, values, bias, training)
        self.show_of_target(show, "source_attention", weights)
        return self.joined(self.rows_of(found))

    def show_of_target(self, show: Show | None, name: str, weights: tf.Tensor) -> None:
        """Passes the target's distributions to ``show``: [B, H, T, S], or [B, 2, H, T, S] separately by direction."""
        if weights.shape.rank == 4:
            self.show(show, name, weights)
            return
        history = "" if name == "source_attention" else "/history"
        for side, part in zip(SIDE_NAMES, tf.unstack(weights, axis=1), strict=True):
            self.show(show, f"{name}/{side}{history}", part)

    def look(
        self, query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Attends with queries float [..., H, T, d] to keys and values float [..., H, S, d] in whole sequences.

        ``bias`` is added to the logits; see ``mask_bias``.

        Returns:
          The heads' results float [..., H, T, d], and the distributions float [..., H, T, S] before dropout.
        """
        weights = attention_weights(query, keys, bias, self.scale)
        return tf.matmul(dropout(weights, self.attention_dropout, training), values), weights

    def rows_of(self, found: tf.Tensor) -> tf.Tensor:
        """Puts the heads of float [B, ..., H, T, d] side by side: rows float [B * ... * T, H * d]."""
        axes = list(range(found.shape.rank))
        axes[-3], axes[-2] = axes[-2], axes[-3]
        return tf.reshape(tf.transpose(found, axes), [-1, self.found_width])

    def mix_source(
        self, y: tf.Tensor, real: tf.Tensor, bias: tf.Tensor, training: bool = False, show: Show | None = None
    ) -> tuple[Memory, tf.Tensor]:
        """Attends from the source rows float [B * S, D] to the source; ``real`` bool [B, S] is False at padding.

        Returns:
          The keys and values for decoding, see ``source_memory``, and the layer's output float [B * S, D].
        """
        query, keys, values = self.project_source(y, real)
        found, weights = self.look(query, keys, values, bias, training)
        self.show(show, "source_self_attention", weights)
        return _memory(keys, values), self.joined(self.rows_of(found))

    # === Step by step ===

    def source_memory(self, y: tf.Tensor, real: tf.Tensor) -> Memory:
        """Projects source rows to keys and values float [B, 1, H, S, d] for all decoding steps; see ``mix_source``."""
        return _memory(*self.project_source(y, real)[1:])

    def mixed_step(self, y: tf.Tensor, context: Any, source: Memory, state: Any) -> tuple[tf.Tensor, tf.Tensor, Any]:
        """Attends from one new position of every hypothesis to the source and to its own past in one softmax.

        The source's keys and values are neither tiled nor concatenated with those of the hypotheses; only the logits
        are concatenated.

        Args:
          y: float [B * R * K, D].
          context: The step, a MixedStepContext.
          source: Keys and values float [B, 1, H, S, d] from ``source_memory``.
          state: From ``start`` or the previous step.

        Returns:
          float [B * R * K, D]; the distributions over the source and the columns of the past, float
          [B, R, H, K, S + C]; and the new state.
        """
        query, keys, values, state = self.extend(y, context, state)
        query *= tf.cast(self.scale, query.dtype)
        logits = [tf.matmul(query, part, transpose_b=True) for part in (source[0], keys)]
        weights = tf.nn.softmax(tf.cast(tf.concat(logits, axis=4), tf.float32) + context.joint_bias)
        weights = tf.cast(weights, values.dtype)
        to_source, to_past = tf.split(weights, context.columns, axis=4)
        found = tf.matmul(to_source, source[1]) + tf.matmul(to_past, values)
        return self.joined(self.rows_of(found)), weights, state

    def source_step(self, y: tf.Tensor, context: MixedStepContext, source: Memory) -> tuple[tf.Tensor, tf.Tensor]:
        """Attends from rows float [B * R * K, D] only to the source's keys and values.

        Returns:
          float [B * R * K, D] and the distributions float [B, R, H, K, S].
        """
        query = self.queries(y, list(context.hypotheses))
        found, weights = self.look(query, source[0], source[1], context.source_bias)
        return self.joined(self.rows_of(found)), weights


@registry.register_layer("shared_mixer", "self_attention")
class MixedAttention(BothSides, SelfAttention):
    """Mixed attention, with the weights of self-attention."""

    layer_name = "attention"
    extend = SelfAttention.extend

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        return Description("mixed attention", "", shape_of_heads(self), "He et al. 2018")

    def project_rows(self, y: tf.Tensor, sides: SideBySide) -> list[list[tf.Tensor]]:
        """Projects the rows of both sides in one product; see BothSides."""
        rows = sides.split(self.qkv(y))
        return [self.heads_of(part, parts) for part, parts in zip(rows, ([sides.source], sides.target), strict=True)]

    def project_source(self, y: tf.Tensor, real: tf.Tensor) -> list[tf.Tensor]:
        """Projects source rows float [B * S, D] to queries, keys and values; see BothSides."""
        return self.project_step(y, [tf.shape(real)[1]])

    def source_memory(self, y: tf.Tensor, real: tf.Tensor) -> Memory:
        """Projects source rows to keys and values but not to queries; see BothSides."""
        rows = tf.split(self._projected(y, self.key_width, None), [self.key_width, self.value_width], axis=-1)
        return _memory(*(self._side_by_side(part, [tf.shape(real)[1], self.heads]) for part in rows))

    def queries(self, y: tf.Tensor, parts: list[Any]) -> tf.Tensor:
        """Projects rows only to queries; see BothSides."""
        return self._side_by_side(self._projected(y, 0, self.key_width), [*parts, self.heads])

    def joined(self, found: tf.Tensor) -> tf.Tensor:
        """Applies the output projection to rows float [N, H * d]."""
        return self.output_projection(found)

    @property
    def found_width(self) -> int:
        """The width of the values of all heads together."""
        return self.value_width

    def _projected(self, y: tf.Tensor, start: int, end: int | None) -> tf.Tensor:
        """Projects rows float [N, D] to the columns start to end of queries, keys and values side by side."""
        rows = tf.matmul(y, tf.cast(self.qkv.kernel.value[:, start:end], self.compute_dtype))
        return rows if self.qkv.bias is None else rows + tf.cast(self.qkv.bias.value[start:end], rows.dtype)


def _memory(keys: tf.Tensor, values: tf.Tensor) -> Memory:
    """Adds the direction axis for decoding to keys and values float [B, H, S, d]: float [B, 1, H, S, d]."""
    return keys[:, tf.newaxis], values[:, tf.newaxis]


def _behind(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Appends the target's keys or values to the source's: [B, H, T, d] to [B, H, S, d], [B, 2, ...] to [B, 1, ...]."""
    if target.shape.rank == 5:
        source = tf.repeat(source, target.shape[1], axis=1)
    return tf.concat([source, target], axis=-2)


def joint_bias(source_bias: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Concatenates a bias over the source, float32 [..., S], and one over the target or the past, float32 [..., C].

    The result is float32 [..., S + C]; all axes except the last are broadcast to each other.
    """
    parts = (source_bias, bias)
    shape = tf.broadcast_dynamic_shape(*(tf.shape(part)[:-1] for part in parts))
    joined = [tf.broadcast_to(part, tf.concat([shape, tf.shape(part)[-1:]], axis=0)) for part in parts]
    return tf.concat(joined, axis=-1)


def source_part(weights: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
    """Returns the normalized source part of a mixed distribution float [..., S + C].

    It is float32 [..., S] and sums to 1, or to 0 if the source has no part of the distribution.
    """
    part = tf.cast(weights[..., :source], tf.float32)
    return tf.math.divide_no_nan(part, tf.reduce_sum(part, axis=-1, keepdims=True))
