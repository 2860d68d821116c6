"""Multi-head scaled dot-product attention (Vaswani et al. 2017, section 3.2).

Legend: B sentences, R directions (1, or 2 in synchronous decoding), K hypotheses of a
direction, H heads, T query positions, S key positions, D width of the model, d width of a head.

A mixer is the sublayer in which the positions of one sequence exchange information. A decoder
mixer works on whole sequences (``call``) and step by step (``step``), with equal results. Other
mixers (convolutions, synchronous attention, dual context) have the same methods.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.layers.base import Description, Layer, Mixer, Projection, make_initializer, shape_of_heads
from t2t_ext.layers.dropout import dropout

# Added to the logits of masked positions. In a softmax with any unmasked logit, their weight is exactly 0
# in float32. If all positions of a row are masked (padding), the row becomes uniform instead of NaN.
_MASKED = -1e9


@dataclasses.dataclass(frozen=True)
class StepContext:
    """The context of one step of the search, which a decoder mixer receives together with its input.

    Attributes:
      position: int32 scalar, the number of tokens before this one.
      visible: bool [B, R, K, (position + 1) * K]: the columns that are a hypothesis's own past, including
        this step. The columns are the steps of all hypotheses, ordered by step.
      partner_visible: The same for the steps of the other direction, or None.
      parents: int32 [B, R, K], the rank of each hypothesis one step before; R and K are static.
      bias: float32 [B, R, 1, K, (position + 1) * K], 0 where ``visible`` is True and -1e9 elsewhere.
    """

    position: tf.Tensor
    visible: tf.Tensor
    partner_visible: tf.Tensor | None
    parents: tf.Tensor
    bias: tf.Tensor

    @property
    def hypotheses(self) -> tuple[int, int]:
        """R and K; the input of a step has one row for each element of [B, R, K]."""
        return self.parents.shape[1], self.parents.shape[2]


def mask_bias(mask: tf.Tensor) -> tf.Tensor:
    """Returns the bias to add to attention logits: float32, 0 where the bool mask is True and -1e9 elsewhere."""
    return tf.where(mask, 0.0, _MASKED)


def split_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    """Turns float [..., T, H*d] into [..., H, T, d]."""
    shape = tf.shape(x)
    x = tf.reshape(x, tf.concat([shape[:-1], [heads, x.shape[-1] // heads]], axis=0))
    rank = x.shape.rank
    return tf.transpose(x, [*range(rank - 3), rank - 2, rank - 3, rank - 1])


def merge_heads(x: tf.Tensor) -> tf.Tensor:
    """Turns float [..., H, T, d] back into [..., T, H*d]."""
    width = x.shape[-3] * x.shape[-1]
    rank = x.shape.rank
    x = tf.transpose(x, [*range(rank - 3), rank - 2, rank - 3, rank - 1])
    return tf.reshape(x, tf.concat([tf.shape(x)[:-2], [width]], axis=0))


def attention_weights(query: tf.Tensor, keys: tf.Tensor, bias: tf.Tensor | None, scale: float) -> tf.Tensor:
    """Returns softmax(query keys^T scale + bias), computed in float32.

    Args:
      query: float [..., T, d].
      keys: float [..., S, d].
      bias: float32, broadcast to [..., T, S]; see ``mask_bias``. None: all positions are visible.
      scale: Factor on the logits, usually d^-0.5.

    Returns:
      float [..., T, S] in the query's dtype.
    """
    logits = tf.cast(tf.matmul(query * tf.cast(scale, query.dtype), keys, transpose_b=True), tf.float32)
    return tf.cast(tf.nn.softmax(logits if bias is None else logits + bias), query.dtype)


class _Attention(Layer):
    """The base of self-attention and cross-attention, with head sizes, scale and output projection."""

    def __init__(self, hparams: TransformerHParams, output_projection: Projection | None = None, **kwargs: Any) -> None:
        """Initializes the layer from the model's hparams, with another layer's output projection if it is given."""
        super().__init__(**kwargs)
        self.heads = hparams.num_heads
        self.width = hparams.hidden_size
        self.key_width = hparams.attention_key_channels or hparams.hidden_size
        self.value_width = hparams.attention_value_channels or hparams.hidden_size
        scaled_by = self.key_width // self.heads if hparams.attention_scale == "head" else self.width
        self.scale = scaled_by**-0.5
        self.attention_dropout = hparams.attention_dropout
        self.projection_args = {
            "use_bias": hparams.projection_bias,
            "initializer": make_initializer(hparams.initializer, hparams.initializer_gain),
            "dtype": self.dtype_policy,
        }
        if output_projection is None:
            output_projection = Projection(self.width, name="output", **self.projection_args)
        self.output_projection = output_projection

    def weights_of(self, query: tf.Tensor, keys: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
        """Returns the weights of the values, float [..., H, T, S]; the bias, float32, is added to the logits."""
        return attention_weights(query, keys, bias, self.scale)

    def attend(
        self, query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, mask: tf.Tensor | None, training: bool
    ) -> tf.Tensor:
        """Attends with float [..., H, T, d] queries and projects to float [..., T, D]."""
        weights = self.weights_of(query, keys, None if mask is None else mask_bias(mask))  # [..., H, T, S]
        weights = dropout(weights, self.attention_dropout, training)
        return self.output_projection(merge_heads(tf.matmul(weights, values)))

    def _side_by_side(self, x: tf.Tensor, parts: list[int]) -> tf.Tensor:
        """Splits rows float [B * ... * K, H * d] into float [B, ..., H, K, d], with ``parts`` = [..., K, H].

        In a step of the search, all sizes except the batch size are static, which keeps the number of operations small.
        """
        x = tf.reshape(x, [-1, *parts, x.shape[-1] // parts[-1]])
        axes = list(range(len(parts) + 2))
        axes[-3], axes[-2] = axes[-2], axes[-3]
        return tf.transpose(x, axes)

    def _attend_step(self, query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Attends with float [B, ..., H, K, d] and a float32 bias; projects to rows float [B * ... * K, D]."""
        return self.output_rows(tf.matmul(self.weights_of(query, keys, bias), values))

    def output_rows(self, y: tf.Tensor) -> tf.Tensor:
        """Projects the heads' results in a step, float [B, ..., H, K, d], to rows float [B * ... * K, D]."""
        axes = list(range(y.shape.rank))
        axes[-3], axes[-2] = axes[-2], axes[-3]
        return self.output_projection(tf.reshape(tf.transpose(y, axes), [-1, self.value_width]))


@registry.register_layer("encoder_mixer", "self_attention")
@registry.register_layer("decoder_mixer", "self_attention")
class SelfAttention(_Attention, Mixer):
    """Self-attention with fused query, key and value projections, as a mixer of the encoder and the decoder."""

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.qkv = Projection([self.key_width, self.key_width, self.value_width], name="qkv", **self.projection_args)

    def build(self, input_shape: object = None) -> None:
        """Creates the projections."""
        self.qkv.build((None, self.width))
        self.output_projection.build((None, self.value_width))

    def project(self, x: tf.Tensor) -> list[tf.Tensor]:
        """Projects float [..., T, D] to queries, keys and values, each float [..., H, T, d]."""
        return [split_heads(part, self.heads) for part in self.qkv.split(self.qkv(x))]

    def call(self, x: tf.Tensor, mask: Any, training: bool = False) -> tf.Tensor:
        """Mixes a whole sequence float [B, T, D]; the mask is bool, broadcast to [B, H, T, T], or None."""
        query, keys, values = self.project(x)  # [B, H, T, d]
        return self.attend(query, keys, values, mask, training)

    def distributions(self, x: tf.Tensor, mask: Any) -> tf.Tensor:
        """Returns the attention distributions float [B, H, T, T] for float [B, T, D]."""
        query, keys, _ = self.project(x)
        return attention_weights(query, keys, None if mask is None else mask_bias(mask), self.scale)

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        return Description("self-attention", shape=shape_of_heads(self))

    def start(self, batch: tf.Tensor, directions: int) -> dict[str, dict[str, tf.Tensor]]:
        """Returns the empty decoding state, a key/value cache float [B, R, H, 0, d]."""

        def empty(width: int) -> tf.Tensor:
            return tf.zeros([batch, directions, self.heads, 0, width // self.heads], self.compute_dtype)

        return {"memories": {"keys": empty(self.key_width), "values": empty(self.value_width)}}

    def project_step(self, x: tf.Tensor, parts: list[int]) -> list[tf.Tensor]:
        """Projects rows float [B * ... * K, D] to queries, keys, values float [B, ..., H, K, d]; parts is [..., K]."""
        return self.heads_of(self.qkv(x), parts)

    def heads_of(self, x: tf.Tensor, parts: list[int]) -> list[tf.Tensor]:
        """Splits projected rows into queries, keys and values; see ``project_step``."""
        if self.key_width == self.value_width:
            return tf.split(self._side_by_side(x, [*parts, 3 * self.heads]), 3, axis=-3)
        return [self._side_by_side(part, [*parts, self.heads]) for part in self.qkv.split(x)]

    def step(
        self, x: tf.Tensor, context: Any, state: dict[str, dict[str, tf.Tensor]]
    ) -> tuple[tf.Tensor, dict[str, dict[str, tf.Tensor]]]:
        """Mixes one new position of every hypothesis, float [B * R * K, D], with its own past.

        Returns:
          float [B * R * K, D] and the new state.
        """
        query, keys, values, state = self.extend(x, context, state)
        return self._attend_step(query, keys, values, context.bias), state

    def extend(self, y: tf.Tensor, context: StepContext, state: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Any]:
        """Projects one new position of every hypothesis, float [B * R * K, D], and extends the cache.

        Returns:
          The position's queries float [B, R, H, K, d], the keys and the values of all positions so far float
          [B, R, H, columns, d], and the new state.
        """
        query, keys, values = self.project_step(y, list(context.hypotheses))
        keys = tf.concat([state["memories"]["keys"], keys], axis=3)
        values = tf.concat([state["memories"]["values"], values], axis=3)
        return query, keys, values, {"memories": {"keys": keys, "values": values}}


class SourceAttention(_Attention):
    """Cross-attention of target positions to a view of the encoder, with fused key and value projections."""

    def __init__(
        self, hparams: TransformerHParams, projections_of: "SourceAttention | None" = None, **kwargs: Any
    ) -> None:
        """Initializes the layer from the model's hparams, with another layer's projections if it is given."""
        if projections_of is None:
            super().__init__(hparams, **kwargs)
            self.query = Projection(self.key_width, name="query", **self.projection_args)
            self.key_value = Projection([self.key_width, self.value_width], name="kv", **self.projection_args)
        else:
            super().__init__(hparams, projections_of.output_projection, **kwargs)
            self.query, self.key_value = projections_of.query, projections_of.key_value
        self.has_own_projections = projections_of is None

    def build(self, input_shape: object = None) -> None:
        """Creates the projections."""
        if self.has_own_projections:
            self.query.build((None, self.width))
            self.key_value.build((None, self.width))
            self.output_projection.build((None, self.value_width))

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        if role == "backward_attention":
            return Description("attention to the backward states", "", shape_of_heads(self), "Zhang et al. 2018", "")
        return Description("cross-attention", "", shape_of_heads(self))

    def memory(self, view: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Projects a view float [B, S, D] of the source to keys and values float [B, H, S, d]."""
        keys, values = self.key_value.split(self.key_value(view))
        return split_heads(keys, self.heads), split_heads(values, self.heads)

    def call(self, x: tf.Tensor, view: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Attends from float [B, T, D] to a view float [B, S, D] under mask bool [B, 1, 1, S]."""
        keys, values = self.memory(view)  # [B, H, S, d]
        return self.attend(split_heads(self.query(x), self.heads), keys, values, mask, training)

    def distributions(self, x: tf.Tensor, view: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the attention distributions float [B, H, T, S] for float [B, T, D]."""
        keys, _ = self.memory(view)
        return attention_weights(split_heads(self.query(x), self.heads), keys, mask_bias(mask), self.scale)

    def step(self, x: tf.Tensor, memory: tuple[tf.Tensor, tf.Tensor], bias: tf.Tensor, hypotheses: int) -> tf.Tensor:
        """Attends from one position of every hypothesis, float [B * R * K, D], to the sentence's keys and values.

        ``memory`` holds these, float [B, H, S, d]. It is never tiled, since the hypotheses of a sentence are the rows
        of one product. ``bias`` float32 [B, 1, 1, S] is added to the logits; ``hypotheses`` is R * K.
        """
        query = self._side_by_side(self.query(x), [hypotheses, self.heads])  # [B, H, R * K, d]
        return self._attend_step(query, *memory, bias)

    def step_distributions(
        self, x: tf.Tensor, memory: tuple[tf.Tensor, tf.Tensor], bias: tf.Tensor, hypotheses: int
    ) -> tf.Tensor:
        """Returns the attention distributions of ``step``, float32 [B, H, R * K, S]."""
        query = self._side_by_side(self.query(x), [hypotheses, self.heads])
        logits = tf.matmul(query * tf.cast(self.scale, query.dtype), memory[0], transpose_b=True)
        return tf.nn.softmax(tf.cast(logits, tf.float32) + bias)
