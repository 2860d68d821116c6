"""The dual contextual module (Ampomah et al. 2021, section 4), a mixer that replaces self-attention.

From its input r, it computes at every position t:

    r_hat_t = GLU([f neighbors of r_t] W^r + b^r)                      (equation 6)
    l_c = LayerNorm(r_hat + r)
    h_l = FI(r, l_c),  h_g = FI(r, r)                                   (equation 7)
    z_hat = [h_l; h_g] W_z + b_z                                        (equation 8)

FI is multi-head attention without an output projection; each of the two has its own projections. The residual sum and
the normalization of equation 9 belong to the sublayer's frame. In a pre-norm stack, r is the normalized residual
stream, and the normalization of equation 9 is left out.

For an even f, equation 6 is printed with f + 1 neighbors. However, W^r has f D rows, and the published parameter counts
correspond to f: a module has (2f + 4) D^2 parameters more than self-attention. The encoder's neighborhood is centered;
the decoder's ends at the position itself.

Both attentions are computed as one with 2 H heads, the local heads first.

Legend: B sentences, R directions (1), K hypotheses, T positions, D width of the model, H heads, d = D / H, f taps.
"""

from typing import Any

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.variants.dual_context import DualContextFields
from t2t_ext.layers.attention import StepContext, attention_weights, mask_bias, merge_heads, split_heads
from t2t_ext.layers.base import (
    Description,
    Layer,
    LayerNormalization,
    Mixer,
    Projection,
    make_initializer,
    shape_of_heads,
)
from t2t_ext.layers.dropout import dropout
from t2t_ext.layers.dynamic_convolution import gated_linear_unit

State = dict[str, dict[str, tf.Tensor]]


class LocalContext(Layer):
    """The local context unit: a convolution with a gated linear unit, residual sum and normalization (equation 6)."""

    def __init__(self, hparams: TransformerHParams, before: int, **kwargs: Any) -> None:
        """Initializes the unit; ``before`` (0 to f - 1) of the f positions precede the position itself."""
        super().__init__(**kwargs)
        self.width, self.taps, self.before = hparams.hidden_size, _taps(hparams), before
        self.convolution = Projection(
            2 * self.width,
            use_bias=True,
            initializer=make_initializer(hparams.initializer, hparams.initializer_gain),
            name="convolution",
            dtype=self.dtype_policy,
        )
        self.norm = LayerNormalization(hparams.norm_epsilon, name="norm", dtype=self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates W^r [f D, 2 D], with the taps in the order of positions, b^r [2 D] and the normalization."""
        self.convolution.build((None, self.taps * self.width))
        self.norm.build((None, self.width))

    def call(self, r: tf.Tensor) -> tf.Tensor:
        """Returns l_c float [B, T, D] for r float [B, T, D]; the caller zeroes padding that is in a neighborhood."""
        shape = tf.shape(r)
        padded = tf.pad(r, [[0, 0], [self.before, self.taps - 1 - self.before], [0, 0]])
        taps = [tf.slice(padded, [0, tap, 0], shape) for tap in range(self.taps)]
        rows = tf.reshape(tf.concat(taps, axis=2), [-1, self.taps * self.width])
        y = gated_linear_unit(self.convolution.rows(rows))
        return self.norm(tf.reshape(y, shape) + r)

    def rows(self, past: tf.Tensor, r: tf.Tensor, taps: tf.Tensor) -> tf.Tensor:
        """Returns l_c, rows float [N, D] for one position each, whose neighbors all precede it.

        Args:
          past: float [N, (taps - 1) * D], the inputs at earlier positions, oldest first.
          r: float [N, D], the input at the position itself.
          taps: int32 scalar, number of existing positions, at most f; positions before the first count as zero.
        """
        kernel = self.value(self.convolution.kernel)[(self.taps - taps) * self.width :]
        y = tf.matmul(tf.concat([past, r], axis=1), kernel)
        y = tf.ensure_shape(y, [None, 2 * self.width])
        y = gated_linear_unit(tf.nn.bias_add(y, self.value(self.convolution.bias)))
        return self.norm(y + r)


def centered_before(hparams: TransformerHParams) -> int:
    """Returns how many positions of a source neighborhood precede the position itself; see ``dc_even_kernel``."""
    fields = hparams.part(DualContextFields)
    return (fields.dc_kernel_size - (fields.dc_even_kernel != "left")) // 2


def _taps(hparams: TransformerHParams) -> int:
    """Returns f, the number of positions in a neighborhood."""
    return hparams.part(DualContextFields).dc_kernel_size


class DualContext(Mixer):
    """The base of the modules of encoder and decoder: the local context unit, two attentions and their aggregation."""

    layer_name = "dual_context"

    def __init__(self, hparams: TransformerHParams, before: int, **kwargs: Any) -> None:
        """Initializes the module from the model's hparams; see LocalContext for ``before``."""
        super().__init__(**kwargs)
        self.width, self.taps = hparams.hidden_size, _taps(hparams)
        # The heads of both attentions together.
        self.heads = 2 * hparams.num_heads
        self.key_width = hparams.attention_key_channels or self.width
        self.value_width = hparams.attention_value_channels or self.width
        scaled_by = self.key_width // hparams.num_heads if hparams.attention_scale == "head" else self.width
        self.scale = scaled_by**-0.5
        self.attention_dropout = hparams.attention_dropout
        args = {
            "initializer": make_initializer(hparams.initializer, hparams.initializer_gain),
            "dtype": self.dtype_policy,
        }
        biases = {"use_bias": hparams.projection_bias, **args}
        keys, values = self.key_width, self.value_width
        self.local = LocalContext(hparams, before, name="local", dtype=self.dtype_policy)
        # Projects r to the local queries, then to the queries, keys and values of the global attention.
        self.global_projection = Projection([keys, keys, keys, values], name="q_qkv", **biases)
        self.local_projection = Projection([keys, values], name="local_kv", **biases)
        self.aggregation = Projection(self.width, use_bias=True, name="aggregation", **args)

    def build(self, input_shape: object = None) -> None:
        """Creates the local context unit, the projections of both attentions, W_z [2 D, D] and b_z [D]."""
        self.local.build(None)
        self.global_projection.build((None, self.width))
        self.local_projection.build((None, self.width))
        self.aggregation.build((None, 2 * self.value_width))

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        shape = shape_of_heads(self, "2 x ", self.heads // 2)
        return Description("dual contextual module", f"f = {self.taps}", shape, "Ampomah et al. 2021", "self-attention")

    def _projected(self, r: tf.Tensor, local: tf.Tensor) -> list[tf.Tensor]:
        """Projects r and l_c, float [..., D], to queries, keys and values of both attentions, float [..., 2 H * d]."""
        query, keys, values = tf.split(
            self.global_projection(r), [2 * self.key_width, self.key_width, self.value_width], axis=-1
        )
        local_keys, local_values = self.local_projection.split(self.local_projection(local))
        return [query, tf.concat([local_keys, keys], axis=-1), tf.concat([local_values, values], axis=-1)]

    def _project(self, x: tf.Tensor, neighbors: tf.Tensor) -> list[tf.Tensor]:
        return [split_heads(part, self.heads) for part in self._projected(x, self.local(neighbors))]

    def _mix(self, x: tf.Tensor, neighbors: tf.Tensor, mask: tf.Tensor, training: bool) -> tf.Tensor:
        """Mixes r float [B, T, D]; ``neighbors`` is r, in the encoder with zeros at padding."""
        query, keys, values = self._project(x, neighbors)  # [B, 2 H, T, d]
        weights = attention_weights(query, keys, mask_bias(mask), self.scale)
        weights = dropout(weights, self.attention_dropout, training)
        return self.aggregation(merge_heads(tf.matmul(weights, values)))

    def _distributions(self, x: tf.Tensor, neighbors: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        query, keys, _ = self._project(x, neighbors)
        return attention_weights(query, keys, mask_bias(mask), self.scale)


@registry.register_layer("encoder_mixer", "dual_context")
class EncoderDualContext(DualContext):
    """The encoder's module; a neighborhood of an odd size is centered, and padding counts as zero."""

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        super().__init__(hparams, centered_before(hparams), **kwargs)

    def call(self, x: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Mixes a whole sequence float [B, S, D] under mask bool [B, 1, 1, S], False at padding."""
        return self._mix(x, self._real(x, mask), mask, training)

    def distributions(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the attention distributions float [B, 2 H, S, S]: the H local heads, then the H global ones."""
        return self._distributions(x, self._real(x, mask), mask)

    @staticmethod
    def _real(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        return x * tf.cast(mask[:, 0, 0, :, tf.newaxis], x.dtype)


@registry.register_layer("decoder_mixer", "dual_context")
class DecoderDualContext(DualContext):
    """The decoder's causal module; a position's neighbors are the f - 1 positions before it and the position itself."""

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        super().__init__(hparams, before=_taps(hparams) - 1, **kwargs)

    def call(self, x: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Mixes a whole sequence float [B, T, D] under mask bool [1 or B, 1, T, T]."""
        return self._mix(x, x, mask, training)

    def distributions(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the attention distributions float [B, 2 H, T, T]: the H local heads, then the H global ones."""
        return self._distributions(x, x, mask)

    def start(self, batch: tf.Tensor, directions: int) -> State:
        """Returns the empty decoding state, which keeps the past of all hypotheses side by side in columns.

        It has the keys and values of l_c and of r, float [B, R, 2 H, 0, d], and the inputs r, float [B, R, 1, 0, D].
        Of the inputs, only the last f - 1 steps are kept.
        """

        def empty(heads: int, width: int) -> tf.Tensor:
            return tf.zeros([batch, directions, heads, 0, width // heads], self.compute_dtype)

        memories = {
            "keys": empty(self.heads, 2 * self.key_width),
            "values": empty(self.heads, 2 * self.value_width),
            "inputs": empty(1, self.width),
        }
        return {"memories": memories}

    def step(self, x: tf.Tensor, context: StepContext, state: State) -> tuple[tf.Tensor, State]:
        """Mixes one new position of every hypothesis with its own past; see SelfAttention."""
        parts = list(context.hypotheses)
        local, inputs = self._local_step(x, context, state["memories"]["inputs"])
        query, keys, values = (self._columns(part, parts) for part in self._projected(x, local))
        keys = tf.concat([state["memories"]["keys"], keys], axis=3)
        values = tf.concat([state["memories"]["values"], values], axis=3)
        weights = attention_weights(query, keys, context.bias, self.scale)
        found = tf.transpose(tf.matmul(weights, values), [0, 1, 3, 2, 4])  # [B, R, K, 2 H, d]
        y = self.aggregation(tf.reshape(found, [-1, 2 * self.value_width]))
        return y, {"memories": {"keys": keys, "values": values, "inputs": inputs}}

    def _columns(self, rows: tf.Tensor, parts: list[int]) -> tf.Tensor:
        """Splits rows float [B * R * K, 2 H * d] into columns float [B, R, 2 H, K, d]."""
        split = tf.reshape(rows, [-1, *parts, self.heads, rows.shape[-1] // self.heads])
        return tf.transpose(split, [0, 1, 3, 2, 4])

    def _local_step(self, x: tf.Tensor, context: StepContext, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns l_c, rows float [B * R * K, D], and the inputs that the next step needs.

        The mask ``visible`` selects the columns of ``inputs`` that are a hypothesis's own past: one of the K columns of
        every step.
        """
        directions, hypotheses = context.hypotheses
        steps = tf.shape(inputs)[3] // hypotheses
        own = tf.cast(context.visible[..., -(self.taps * hypotheses) : -hypotheses], x.dtype)
        own = tf.reshape(own, [-1, directions, hypotheses, steps, hypotheses])
        past = tf.reshape(inputs, [-1, directions, steps, hypotheses, self.width])
        past = tf.transpose(tf.matmul(tf.transpose(own, [0, 1, 3, 2, 4]), past), [0, 1, 3, 2, 4])
        local = self.local.rows(tf.reshape(past, [tf.shape(x)[0], steps * self.width]), x, steps + 1)
        new = tf.reshape(x, [-1, directions, 1, hypotheses, self.width])
        kept = tf.concat([inputs, new], axis=3)
        # The next step no longer needs the oldest step.
        return local, kept[..., -(self.taps - 1) * hypotheses :, :] if self.taps > 1 else inputs
