"""Cross-attention to source views that are more than one sequence of states for all queries (Liu et al. 2020).

``AdaptiveAttention`` combines the encoder's layers separately for each query; ``TwoAttentions`` attends to two views.
Both differ from ``SourceAttention`` in the form of their views and of the keys and values kept for decoding. The
decoder inspects neither.

Legend: B sentences, N encoder layers, S source positions, T target positions, H heads, D width of the model, d width
of a head. e_j is the normalized output of encoder layer j.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.variants.source_views import SourceViewFields
from t2t_ext.layers.attention import SourceAttention, attention_weights, mask_bias, merge_heads, split_heads
from t2t_ext.layers.base import Description, Layer, LayerNormalization
from t2t_ext.layers.dropout import dropout


class Weighing(Layer):
    """One vector v_j for each encoder layer; its dot product with a state is the layer's score.

    The vectors are initially zero, so that at first all layers have the same weight.
    """

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shape = (hparams.encoder_layers, hparams.hidden_size)

    def build(self, input_shape: object = None) -> None:
        """Creates the vectors [N, D]."""
        self.vectors = self.add_weight(name="vectors", shape=self.shape, initializer="zeros")


class AdaptiveAttention(SourceAttention):
    """Attention of a state h to its own view R(h) = sum_j alpha_j e_j, with alpha = softmax_j(v_j h).

    The view's keys and values are sums of the layers' keys and values, which are projected once. The query is repeated
    N times side by side, multiplied by alpha_j, and compared with the keys of all layers side by side. The layers'
    results are summed with weights alpha_j. A step therefore costs N times as much as the usual cross-attention, and no
    view is ever computed.

    This also works for soft integration, LN(e_N + R(h)). Let beta_j = alpha_j, plus 1 for j = N. The variance of
    sum_j beta_j e_j at a source position is then beta^T C beta, where C holds the N x N covariances of the layers at
    this position over the D channels.
    """

    def __init__(
        self,
        hparams: TransformerHParams,
        weighing: Weighing,
        norm: LayerNormalization | None = None,
        projections_of: SourceAttention | None = None,
        **kwargs: Any,
    ) -> None:
        """Initializes the layer.

        Args:
          hparams: The model's hparams.
          weighing: The vectors v_j; their owner builds them.
          norm: LN of the soft integration, also built by its owner; None: the view is R(h) itself.
          projections_of: An attention with which this one shares projections; None: it has its own.
          **kwargs: Keras arguments (name, dtype).
        """
        super().__init__(hparams, projections_of, **kwargs)
        self.weighing = weighing
        self.norm = norm

    def memory(self, view: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Projects the encoder's layers e_1 to e_N, float [B, N, S, D].

        Returns:
          Keys and values float [B, H, S, N * d]; with soft integration, also the layers' covariances at each position,
          float32 [B, N * N, S].
        """
        if self.norm is None:
            return tuple(self._side_by_side_layers(part) for part in self.key_value.split(self.key_value(view)))
        layers = view.shape[1]
        states = tf.cast(view, tf.float32)
        centered = states - tf.reduce_mean(states, axis=-1, keepdims=True)
        at_positions = tf.transpose(centered, [0, 2, 1, 3])
        covariances = tf.matmul(at_positions, at_positions, transpose_b=True) / self.width
        covariances = tf.reshape(covariances, [tf.shape(view)[0], -1, layers * layers])
        # The biases of the normalization and of the projection are the same for all layers. They are added only once,
        # with the values.
        scaled = centered * tf.cast(self.norm.scale.value, tf.float32)
        rows = tf.reshape(tf.cast(scaled, view.dtype), [-1, self.width])
        projected = tf.matmul(rows, self.value(self.key_value.kernel))
        shape = tf.concat([tf.shape(view)[:-1], [self.key_width + self.value_width]], axis=0)
        keys, values = self.key_value.split(tf.reshape(projected, shape))
        return (
            self._side_by_side_layers(keys),
            self._side_by_side_layers(values),
            tf.transpose(covariances, [0, 2, 1]),
        )

    def _side_by_side_layers(self, x: tf.Tensor) -> tf.Tensor:
        """Turns projected layers float [B, N, S, H * d] into float [B, H, S, N * d]."""
        layers, width = x.shape[1], x.shape[3] // self.heads
        x = tf.reshape(x, [-1, layers, tf.shape(x)[2], self.heads, width])
        x = tf.transpose(x, [0, 3, 2, 1, 4])
        return tf.reshape(x, [-1, self.heads, tf.shape(x)[2], layers * width])

    def _look(self, x: tf.Tensor, memory: tuple[tf.Tensor, ...], bias: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Computes the attention from float [B, T, D] with a bias float32 that broadcasts to [B, H, T, S].

        Returns:
          The distributions float32 [B, H, T, S]; beta float32 [B, T, N]; and, with soft integration, the factors with
          which LN scales the view's states, float32 [B, T, S], otherwise None.
        """
        scores = tf.matmul(tf.reshape(x, [-1, self.width]), self.value(self.weighing.vectors), transpose_b=True)
        layers = scores.shape[1]
        beta = tf.nn.softmax(tf.cast(tf.reshape(scores, [-1, tf.shape(x)[1], layers]), tf.float32))
        if self.norm is not None:
            beta += tf.one_hot(layers - 1, layers)
        query = split_heads(self.query(x) * tf.cast(self.scale, x.dtype), self.heads)
        each = query[:, :, :, tf.newaxis] * tf.cast(beta, x.dtype)[:, tf.newaxis, :, :, tf.newaxis]
        each = tf.reshape(each, [-1, self.heads, tf.shape(x)[1], layers * query.shape[-1]])
        logits = tf.cast(tf.matmul(each, memory[0], transpose_b=True), tf.float32)
        factors = None
        if self.norm is not None:
            pairs = beta[:, :, :, tf.newaxis] * beta[:, :, tf.newaxis]
            pairs = tf.reshape(pairs, [-1, tf.shape(x)[1], layers * layers])
            variances = tf.maximum(tf.matmul(pairs, memory[2]), 0.0)
            factors = tf.math.rsqrt(variances + self.norm.epsilon)
            logits *= factors[:, tf.newaxis]
        return tf.nn.softmax(logits + bias), beta, factors

    def _attend_to(
        self, x: tf.Tensor, memory: tuple[tf.Tensor, ...], bias: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Attends from float [B, T, D] and projects to float [B, T, D]; see ``_look`` for the arguments."""
        weights, beta, factors = self._look(x, memory, bias)
        weights = dropout(tf.cast(weights, x.dtype), self.attention_dropout, training)
        normed = weights if factors is None else weights * tf.cast(factors, x.dtype)[:, tf.newaxis]
        found = tf.matmul(normed, memory[1])
        width = self.value_width // self.heads
        each = tf.reshape(found, [-1, self.heads, tf.shape(x)[1], beta.shape[-1], width])
        found = tf.reduce_sum(each * tf.cast(beta, x.dtype)[:, tf.newaxis, :, :, tf.newaxis], axis=3)
        if self.norm is not None:
            # In training, the weights that dropout leaves need not sum to 1.
            constant = self.key_value.rows(tf.cast(self.norm.bias.value, x.dtype)[tf.newaxis])
            constant = tf.reshape(self.key_value.split(constant)[1], [self.heads, 1, width])
            found += tf.reduce_sum(weights, axis=-1, keepdims=True) * constant
        return self.output_projection(merge_heads(found))

    def call(self, x: tf.Tensor, view: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Attends from float [B, T, D] to the layers float [B, N, S, D] under mask bool [B, 1, 1, S]."""
        return self._attend_to(x, self.memory(view), mask_bias(mask), training)

    def distributions(self, x: tf.Tensor, view: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the attention distributions float [B, H, T, S] for float [B, T, D]."""
        return tf.cast(self._look(x, self.memory(view), mask_bias(mask))[0], x.dtype)

    def step(self, x: tf.Tensor, memory: tuple[tf.Tensor, ...], bias: tf.Tensor, hypotheses: int) -> tf.Tensor:
        """Attends from one position of every hypothesis, float [B * R * K, D]; see SourceAttention."""
        y = self._attend_to(tf.reshape(x, [-1, hypotheses, self.width]), memory, bias)
        return tf.reshape(y, [-1, self.width])

    def step_distributions(
        self, x: tf.Tensor, memory: tuple[tf.Tensor, ...], bias: tf.Tensor, hypotheses: int
    ) -> tf.Tensor:
        """Returns the attention distributions of ``step``, float32 [B, H, R * K, S]."""
        return self._look(tf.reshape(x, [-1, hypotheses, self.width]), memory, bias)[0]


class TwoAttentions(SourceAttention):
    """Attention to the last encoder layer and to another view, LN(MHA(h, e_N) + MHA'(h, R)).

    The attention to the last layer keeps the names of its weights. A view is the pair of both views, and the keys and
    values for decoding are also a pair. The attention distributions are the mean of both attentions.
    """

    def __init__(self, hparams: TransformerHParams, weighing: Weighing | None = None, **kwargs: Any) -> None:
        """Initializes the layer; ``weighing`` has the vectors with which each query weights the encoder's layers.

        Without ``weighing``, the second view is float [B, S, D] like the first.
        """
        super().__init__(hparams, **kwargs)
        args: dict[str, Any] = {
            "projections_of": self if hparams.part(SourceViewFields).integration_attention == "shared" else None,
            "name": "view",
            "dtype": self.dtype_policy,
        }
        self.second = (
            SourceAttention(hparams, **args) if weighing is None else AdaptiveAttention(hparams, weighing, **args)
        )
        self.norm = LayerNormalization(hparams.norm_epsilon, name="norm", dtype=self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the projections and the normalization."""
        super().build(input_shape)
        self.second.build(None)
        self.norm.build((None, self.width))

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        return dataclasses.replace(super().described(role), name="two cross-attentions")

    def memory(self, view: tuple[tf.Tensor, tf.Tensor]) -> tuple[tuple, tuple]:
        """Returns the keys and values of both views."""
        return super().memory(view[0]), self.second.memory(view[1])

    def call(
        self, x: tf.Tensor, view: tuple[tf.Tensor, tf.Tensor], mask: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Attends from float [B, T, D] to both views under mask bool [B, 1, 1, S]."""
        keys, values = super().memory(view[0])
        first = self.attend(split_heads(self.query(x), self.heads), keys, values, mask, training)
        return self.norm(first + self.second(x, view[1], mask, training=training))

    def distributions(self, x: tf.Tensor, view: tuple[tf.Tensor, tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
        """Returns the mean of both attentions' distributions, float [B, H, T, S], for float [B, T, D]."""
        keys, _ = super().memory(view[0])
        first = attention_weights(split_heads(self.query(x), self.heads), keys, mask_bias(mask), self.scale)
        return 0.5 * (first + self.second.distributions(x, view[1], mask))

    def step(self, x: tf.Tensor, memory: tuple[tuple, tuple], bias: tf.Tensor, hypotheses: int) -> tf.Tensor:
        """Attends from one position of every hypothesis, float [B * R * K, D]; see SourceAttention."""
        first = super().step(x, memory[0], bias, hypotheses)
        return self.norm(first + self.second.step(x, memory[1], bias, hypotheses))

    def step_distributions(
        self, x: tf.Tensor, memory: tuple[tuple, tuple], bias: tf.Tensor, hypotheses: int
    ) -> tf.Tensor:
        """Returns the mean of both attentions' distributions of ``step``, float32 [B, H, R * K, S]."""
        first = super().step_distributions(x, memory[0], bias, hypotheses)
        return 0.5 * (first + self.second.step_distributions(x, memory[1], bias, hypotheses))
