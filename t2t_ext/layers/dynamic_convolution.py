"""Lightweight and dynamic convolutions (Wu, Fan, Baevski, Dauphin & Auli, ICLR 2019).

This is a depthwise convolution whose D channels form H groups (heads) of d channels with one kernel each. A kernel of k
taps is normalized by a softmax over the taps (section 3, LightConv). In a dynamic convolution, the kernel is a linear
function of the position's own input (section 4, DynamicConv). An input projection with a gated linear unit precedes the
convolution, and an output projection follows it (section 3.1).

The convolution of a stretch of positions is, for each head, a product with a band matrix: row t holds the kernel of
position t at the columns of the positions that its taps reach. Up to ``_BLOCK`` positions form one stretch. Longer
sequences are split into stretches that also see the edges of their neighbors, so that time and memory grow with T, not
T^2.

Legend: B sentences, R directions, K hypotheses of a direction, T positions, D width, H heads, d = D / H, k taps.
"""

from collections.abc import Callable
from typing import Any, Self

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.dynamic_conv import DynamicConvHParams
from t2t_ext.layers.attention import StepContext
from t2t_ext.layers.base import Description, Mixer, Projection, make_initializer
from t2t_ext.layers.dropout import dropout
from t2t_ext.layers.gradients import custom_gradient

# The largest number of positions in a stretch; twice the kernel's length if that is more, so that a stretch with
# neighbors is never shorter than the kernel.
_BLOCK = 64


def convolve(x: tf.Tensor, weights: tf.Tensor, left: int) -> tf.Tensor:
    """Convolves every position with its own kernel: y[t] = sum over j of weights[t, j] x[t - left + j].

    Positions outside of the sequence are zero. The gradient is written out and reuses the band matrices.

    Args:
      x: float [B, T, H * d], T > 0.
      weights: float [B, T, H, k] of x's dtype.
      left: Number of taps to the left of a position, 0 <= left < k.

    Returns:
      float [B, T, H * d].
    """
    heads, width = weights.shape[2], x.shape[2]
    stretches = _Stretches(x.shape[1] or tf.shape(x)[1], heads, weights.shape[3], left)

    @custom_gradient
    def function(x: tf.Tensor, weights: tf.Tensor) -> tuple:
        seen = stretches.seen(tf.reshape(x, [-1, stretches.length, heads, width // heads]))
        band = stretches.band(weights)

        def gradients(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            dy = stretches.split(tf.reshape(dy, [-1, stretches.length, heads, width // heads]))
            dx = stretches.seen_gradient(tf.matmul(band, dy, transpose_a=True))
            d_weights = stretches.band_gradient(tf.matmul(dy, seen, transpose_b=True))
            return tf.reshape(dx, [-1, stretches.length, width]), d_weights

        return tf.reshape(stretches.join(tf.matmul(band, seen)), [-1, stretches.length, width]), gradients

    y = function(x, weights)
    y.set_shape(x.shape)
    return y


class _Stretches:
    """Splits a sequence into stretches of n positions that see w positions each; turns kernels into band matrices.

    Sizes that depend on the length are Python ints if the length is static, so that XLA knows them; otherwise, they are
    int32 scalars.
    """

    def __init__(self, length: int | tf.Tensor, heads: int, taps: int, left: int) -> None:
        """Computes the sizes for kernels with ``taps`` taps, ``left`` of which are to the left of a position."""
        self.length, self.heads, self.taps, self.left = length, heads, taps, left
        self.count = -(-length // max(_BLOCK, 2 * taps))
        self.rows = -(-length // self.count)
        self.padding = self.count * self.rows - length
        # Taps that reach beyond the whole sequence are dropped. A single stretch has no neighbors to see.
        self.before, self.after = (_minimum(reach, self.rows - 1) for reach in (left, taps - 1 - left))
        self.one = self.count == 1

    def split(self, x: tf.Tensor) -> tf.Tensor:
        """Splits float [B, T, H, d] into float [B, count, H, n, d], padded with zeros."""
        if self.one is not True:
            x = tf.pad(x, [[0, 0], [0, self.padding], [0, 0], [0, 0]])
        x = tf.reshape(x, [-1, self.count, self.rows, self.heads, x.shape[3]])
        return tf.transpose(x, [0, 1, 3, 2, 4])

    def join(self, x: tf.Tensor) -> tf.Tensor:
        """Reverses ``split``."""
        x = tf.transpose(x, [0, 1, 3, 2, 4])
        x = tf.reshape(x, [-1, self.count * self.rows, self.heads, x.shape[4]])
        return x if self.one is True else x[:, : self.length]

    def seen(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the positions of float [B, T, H, d] that each stretch sees, float [B, count, H, w, d]."""

        def with_edges() -> tf.Tensor:
            left = tf.pad(x[:, :-1, :, self.rows - self.before :], [[0, 0], [1, 0], [0, 0], [0, 0], [0, 0]])
            right = tf.pad(x[:, 1:, :, : self.after], [[0, 0], [0, 1], [0, 0], [0, 0], [0, 0]])
            return tf.concat([left, x, right], axis=3)

        x = self.split(x)
        return _choose(self.one, lambda: x, with_edges)

    def seen_gradient(self, dx: tf.Tensor) -> tf.Tensor:
        """Returns the gradient of x, float [B, T, H, d], for a gradient of ``seen(x)`` float [B, count, H, w, d]."""

        def with_edges() -> tf.Tensor:
            left, middle, right = tf.split(dx, tf.stack([self.before, self.rows, self.after]), axis=3)
            left = tf.pad(left[:, 1:], [[0, 0], [0, 1], [0, 0], [self.rows - self.before, 0], [0, 0]])
            right = tf.pad(right[:, :-1], [[0, 0], [1, 0], [0, 0], [0, self.rows - self.after], [0, 0]])
            return middle + left + right

        return self.join(_choose(self.one, lambda: dx, with_edges))

    def band(self, weights: tf.Tensor) -> tf.Tensor:
        """Turns kernels float [B, T, H, k] into band matrices float [B, count, H, n, w].

        The kernel in row t of a band starts at column t. For this, rows of k kernel weights and n zeros are reshaped
        into rows of n + k - 1 numbers, so that each row is shifted by one relative to the row before.
        """
        weights = self.split(weights)
        taps = self.before + 1 + self.after
        weights = tf.slice(weights, [0, 0, 0, 0, self.left - self.before], [-1, -1, -1, -1, taps])
        outer = [-1, self.count, self.heads]
        flat = tf.reshape(tf.pad(weights, [[0, 0]] * 4 + [[0, self.rows]]), [*outer, self.rows * (self.rows + taps)])
        flat = tf.slice(flat, [0, 0, 0, 0], [-1, -1, -1, self.rows * (self.rows + taps - 1)])
        band = tf.reshape(flat, [*outer, self.rows, self.rows + taps - 1])
        return _choose(
            self.one, lambda: tf.slice(band, [0, 0, 0, 0, self.before], [-1, -1, -1, -1, self.rows]), lambda: band
        )

    def band_gradient(self, band: tf.Tensor) -> tf.Tensor:
        """Returns the gradient of the kernels, float [B, T, H, k], for one of the bands, float [B, count, H, n, w]."""
        taps = self.before + 1 + self.after
        band = _choose(self.one, lambda: tf.pad(band, [[0, 0]] * 4 + [[self.before, self.after]]), lambda: band)
        outer = [-1, self.count, self.heads]
        flat = tf.reshape(band, [*outer, self.rows * (self.rows + taps - 1)])
        flat = tf.pad(flat, [[0, 0]] * 3 + [[0, self.rows]])
        weights = tf.reshape(flat, [*outer, self.rows, self.rows + taps])
        weights = tf.slice(weights, [0] * 5, [-1, -1, -1, -1, taps])
        dropped = self.left - self.before
        weights = tf.pad(weights, [[0, 0]] * 4 + [[dropped, self.taps - taps - dropped]])
        weights = tf.ensure_shape(weights, [None, None, None, None, self.taps])
        return self.join(weights)


def _minimum(a: int, b: int | tf.Tensor) -> int | tf.Tensor:
    return tf.minimum(a, b) if tf.is_tensor(b) else min(a, b)


def _choose(condition: bool | tf.Tensor, yes: Callable[[], tf.Tensor], no: Callable[[], tf.Tensor]) -> tf.Tensor:
    if isinstance(condition, bool):
        return yes() if condition else no()
    return tf.cond(condition, yes, no)


@custom_gradient
def gated_linear_unit(x: tf.Tensor) -> tuple:
    """Returns a * sigmoid(b), float [N, D], for float [N, 2 D] = [a; b] (Dauphin et al. 2017).

    The sigmoid is computed in float32, which is also faster than bfloat16. Two tensors are kept for the gradient.
    """
    values, gate = tf.split(x, 2, axis=-1)
    gate = tf.cast(tf.sigmoid(tf.cast(gate, tf.float32)), x.dtype)
    y = values * gate

    def gradients(dy: tf.Tensor) -> tf.Tensor:
        d_values = dy * gate
        return tf.concat([d_values, y * (dy - d_values)], axis=-1)

    return y, gradients


class _Convolution(Mixer):
    """The base of the mixers of encoder and decoder, with projections, gate and kernels."""

    layer_name = "convolution"
    stack = ""

    @classmethod
    def make(cls, hparams: DynamicConvHParams, layer: int, dtype: Any) -> Self:
        """Returns the convolution for a layer, counted from 0; ``dtype`` is a Keras dtype policy."""
        sizes = hparams.encoder_kernels if cls.stack == "encoder" else hparams.decoder_kernels
        return cls(hparams, sizes[layer], name=cls.layer_name, dtype=dtype)

    def __init__(self, hparams: DynamicConvHParams, taps: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width, self.heads, self.taps = hparams.hidden_size, hparams.convolution_heads, taps
        self.dynamic = hparams.conv_type == "dynamic"
        self.glu, self.weight_softmax = hparams.conv_glu, hparams.weight_softmax
        self.weight_dropout, self.input_dropout = hparams.weight_dropout, hparams.conv_input_dropout
        self.initializer = make_initializer(hparams.initializer, hparams.initializer_gain)
        args = {"initializer": self.initializer, "dtype": self.dtype_policy}
        biases = hparams.projection_bias
        self.input_projection = Projection((2 if self.glu else 1) * self.width, use_bias=biases, name="input", **args)
        self.kernels = Projection(self.heads * taps, use_bias=False, name="taps", **args) if self.dynamic else None
        self.output_projection = Projection(self.width, use_bias=biases, name="output", **args)

    def build(self, input_shape: object = None) -> None:
        """Creates the projections, and the kernels [H, k] if they are not dynamic."""
        self.input_projection.build((None, self.width))
        if self.kernels is not None:
            self.kernels.build((None, self.width))
        else:
            self.shared_kernels = self.add_weight(
                name="taps", shape=(self.heads, self.taps), initializer=self.initializer
            )
        self.output_projection.build((None, self.width))

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        return Description(
            f"{'dynamic' if self.dynamic else 'lightweight'} convolution",
            f"{self.taps} tap{'s' if self.taps > 1 else ''}",
            f"D = {self.width}, {self.heads} heads of {self.width // self.heads}",
            "Wu et al. 2019",
            "self-attention",
        )

    def _gated(self, x: tf.Tensor) -> tf.Tensor:
        """Projects rows float [N, D] to the convolution's inputs float [N, D]."""
        y = self.input_projection.rows(x)
        return gated_linear_unit(y) if self.glu else y

    def _weights(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the kernels float [N, H, k] for inputs float [N, D], normalized in float32."""
        if self.kernels is not None:
            logits = tf.reshape(self.kernels.rows(rows), [-1, self.heads, self.taps])
        else:
            logits = self.shared_kernels.value[tf.newaxis]
        if self.weight_softmax:
            logits = tf.nn.softmax(tf.cast(logits, tf.float32))
        weights = tf.cast(logits, self.compute_dtype)
        return weights if self.dynamic else tf.broadcast_to(weights, [tf.shape(rows)[0], self.heads, self.taps])

    def _mix(self, x: tf.Tensor, mask: tf.Tensor | None, left: int, training: bool) -> tf.Tensor:
        """Mixes float [B, T, D]; ``mask`` bool [B, T] is False at inputs that count as zero; None: there are none."""
        shape = tf.shape(x)
        x = dropout(x, self.input_dropout, training)
        rows = self._gated(tf.reshape(x, [-1, self.width]))
        if mask is not None:
            rows *= tf.cast(tf.reshape(mask, [-1, 1]), rows.dtype)
        weights = self._weights(rows)
        weights = dropout(weights, self.weight_dropout, training)
        weights = tf.reshape(weights, [shape[0], shape[1], self.heads, self.taps])
        return self.output_projection(convolve(tf.reshape(rows, shape), weights, left))


@registry.register_layer("encoder_mixer", "dynamic_convolution")
class EncoderConvolution(_Convolution):
    """The encoder's mixer with centered kernels; ``conv_even_kernel`` is the side of the extra tap of even kernels."""

    stack = "encoder"

    def __init__(self, hparams: DynamicConvHParams, taps: int, **kwargs: Any) -> None:
        super().__init__(hparams, taps, **kwargs)
        self.left = (taps - (hparams.conv_even_kernel == "right")) // 2

    def call(self, x: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Mixes a whole sequence float [B, S, D] under mask bool [B, 1, 1, S]; padding (False) counts as zero."""
        return self._mix(x, mask[:, 0, 0], self.left, training)


@registry.register_layer("decoder_mixer", "dynamic_convolution")
class DecoderConvolution(_Convolution):
    """The decoder's causal mixer, whose kernels end at the position itself."""

    stack = "decoder"

    def call(self, x: tf.Tensor, mask: tf.Tensor | None = None, training: bool = False) -> tf.Tensor:
        """Mixes a whole sequence float [B, T, D]; no mask is needed, since kernels do not reach later positions."""
        return self._mix(x, None, self.taps - 1, training)

    def start(self, batch: tf.Tensor, directions: int) -> dict[str, dict[str, tf.Tensor]]:
        """Returns the empty decoding state, the inputs of all hypotheses side by side, float [B, R, H, 0, d]."""
        empty = tf.zeros([batch, directions, self.heads, 0, self.width // self.heads], self.compute_dtype)
        return {"memories": {"inputs": empty}}

    def step(
        self, x: tf.Tensor, context: StepContext, state: dict[str, dict[str, tf.Tensor]]
    ) -> tuple[tf.Tensor, dict[str, dict[str, tf.Tensor]]]:
        """Mixes one new position of every hypothesis with its own past; see SelfAttention."""
        directions, hypotheses = context.hypotheses
        rows = self._gated(x)
        weights = self._weights(rows)
        depth = self.width // self.heads
        inputs = tf.transpose(tf.reshape(rows, [-1, directions, hypotheses, self.heads, depth]), [0, 1, 3, 2, 4])
        inputs = tf.concat([state["memories"]["inputs"], inputs], axis=3)[..., -self.taps * hypotheses :, :]
        steps = tf.shape(inputs)[3] // hypotheses
        weights = tf.reshape(weights, [-1, directions, hypotheses, self.heads, self.taps])
        weights = tf.transpose(weights, [0, 1, 3, 2, 4])[..., self.taps - steps :]
        visible = context.visible[:, :, tf.newaxis, :, -self.taps * hypotheses :]
        weights = tf.repeat(weights, hypotheses, axis=4) * tf.cast(visible, weights.dtype)
        y = tf.matmul(weights, inputs)
        y = tf.reshape(tf.transpose(y, [0, 1, 3, 2, 4]), [-1, self.width])
        # The next step no longer needs the oldest step.
        kept = inputs[..., -(self.taps - 1) * hypotheses :, :] if self.taps > 1 else inputs[..., :0, :]
        return self.output_projection(y), {"memories": {"inputs": kept}}
