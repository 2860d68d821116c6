"""The base classes of the layers of t2t_ext, projections of the last axis, and layer normalization.

Naming: a layer creates its sublayers in ``__init__`` with explicit names and builds
them in ``build``, so that a variable's path depends only on the model's structure.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from t2t_ext.layers.gradients import custom_gradient

Initializer = Callable[..., tf.Tensor]


def make_initializer(name: str, gain: float) -> keras.initializers.Initializer:
    """Returns the initializer of projection matrices with a given T2T name.

    Args:
      name: ``uniform_unit_scaling`` (uniform, variance gain / mean of fans: Glorot & Bengio 2010),
        ``normal_unit_scaling`` (normal, the same variance) or ``orthogonal``.
      gain: Scale of the variance (of the matrix itself for ``orthogonal``).

    Raises:
      ValueError: The name is unknown.
    """
    if name == "uniform_unit_scaling":
        return keras.initializers.VarianceScaling(scale=gain, mode="fan_avg", distribution="uniform")
    if name == "normal_unit_scaling":
        return keras.initializers.VarianceScaling(scale=gain, mode="fan_avg", distribution="untruncated_normal")
    if name == "orthogonal":
        return _Orthogonal(gain=gain)
    raise ValueError(f"Unknown initializer {name!r}.")


class _Orthogonal(keras.initializers.Orthogonal):
    """Initializes orthogonal matrices of any dtype; TensorFlow has no QR decomposition in bfloat16."""

    def __call__(self, shape: Sequence[int], dtype: str | None = None) -> tf.Tensor:
        """Returns a matrix of this shape, drawn in float32 and cast."""
        return tf.cast(super().__call__(shape, dtype="float32"), dtype or keras.config.floatx())


@dataclasses.dataclass(frozen=True)
class Description:
    """The description of a layer, for ``--describe``.

    Attributes:
      name: The layer's name.
      setting: Its particular settings, such as ``f = 2``.
      shape: Widths and heads, such as ``D = 512, 8 heads of 64``.
      paper: The paper that introduced it.
      replaces: The part of a Transformer that it replaces; empty if it is an addition; None if it is itself a part of
        the Transformer.
    """

    name: str
    setting: str = ""
    shape: str = ""
    paper: str = "Vaswani et al. 2017"
    replaces: str | None = None


def shape_of_heads(layer: Any, count: str = "", heads: int = 0) -> str:
    """Returns the text for an attention layer's shape in its description.

    If a layer has several attentions, ``heads`` is the number of heads of each, and ``count`` precedes it.
    """
    heads = heads or layer.heads
    keys, values = layer.key_width // heads, layer.value_width // heads
    of = f" of {keys}" if keys == values else f", keys of {keys}, values of {values}"
    return f"D = {layer.width}, {count}{heads} head{'s' if heads > 1 or count else ''}{of}"


class Layer(keras.layers.Layer):
    """A Keras layer with access to its weights in the compute dtype."""

    def described(self, role: str) -> Description | None:
        """Returns the layer's description, or None if it has none.

        Args:
          role: The name of the attribute that holds the layer in the model or in the surrounding layer.
        """
        return None

    def value(self, variable: keras.Variable) -> tf.Tensor:
        """Returns a variable's value in the layer's compute dtype."""
        return tf.cast(variable.value, self.compute_dtype)


class Mixer(Layer):
    """The sublayer in which the positions of a sequence exchange information.

    It works on whole sequences (``call``), in a decoder also step by step (``start``, ``step``) with equal results.

    Attributes:
      layer_name: The mixer's name within its layer, which is part of its variables' names.
      distributions: A method that returns the attention distributions of a whole sequence; None without attention.
    """

    layer_name = "self_attention"
    distributions: Callable[..., tf.Tensor] | None = None

    @classmethod
    def make(cls, hparams: Any, layer: int, dtype: Any) -> Self:
        """Returns the mixer for a layer, counted from 0; ``dtype`` is a Keras dtype policy."""
        return cls(hparams, name=cls.layer_name, dtype=dtype)

    def start(self, batch: tf.Tensor, directions: int) -> Any:
        """Returns the decoding state before the first step."""
        raise NotImplementedError(f"{type(self).__name__} does not decode.")

    def step(self, x: tf.Tensor, context: Any, state: Any) -> tuple[tf.Tensor, Any]:
        """Mixes one new position of every hypothesis, float [B * R * K, D]; returns the same and the new state."""
        raise NotImplementedError(f"{type(self).__name__} does not decode.")


class Projection(Layer):
    """The projection y = x W + b of the last axis; several projections of one input may be fused side by side.

    Each part of a fused projection is initialized as if it were a separate projection.
    """

    def __init__(
        self,
        parts: int | Sequence[int],
        *,
        use_bias: bool,
        initializer: keras.initializers.Initializer,
        **kwargs: object,
    ) -> None:
        """Initializes the layer.

        Args:
          parts: The output width, or the widths of the fused projections.
          use_bias: Whether b is added (initially zero).
          initializer: The initializer of each part of W.
          **kwargs: Keras arguments (name, dtype).
        """
        super().__init__(**kwargs)
        self.parts = (parts,) if isinstance(parts, int) else tuple(parts)
        self.use_bias = use_bias
        self.initializer = initializer

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the kernel [input width, sum of parts] and the bias [sum of parts]."""
        width = input_shape[-1]

        def fused(shape: Sequence[int], dtype: str | None = None) -> tf.Tensor:
            # An initializer draws the same values each time it is called; clone() gives each part a new seed.
            return tf.concat([self.initializer.clone()((width, part), dtype=dtype) for part in self.parts], axis=1)

        self.kernel = self.add_weight(name="kernel", shape=(width, sum(self.parts)), initializer=fused)
        self.bias = (
            self.add_weight(name="bias", shape=(sum(self.parts),), initializer="zeros") if self.use_bias else None
        )

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Projects float [..., input width] to float [..., sum of parts]."""
        if x.shape.rank == 2:
            return self.rows(x)
        # One flat product instead of a batched one with a broadcast kernel.
        y = self.rows(tf.reshape(x, [-1, x.shape[-1]]))
        return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [sum(self.parts)]], axis=0))

    def rows(self, x: tf.Tensor, factor: float = 1.0) -> tf.Tensor:
        """Projects rows float [N, input width], multiplied by ``factor``, to float [N, sum of parts].

        The factor is applied to the kernel, which is smaller than the rows.
        """
        kernel = self.kernel.value if factor == 1.0 else self.kernel.value * tf.cast(factor, self.kernel.dtype)
        y = tf.matmul(x, tf.cast(kernel, self.compute_dtype))
        return y if self.bias is None else add_bias(y, self.value(self.bias))

    def split(self, y: tf.Tensor) -> list[tf.Tensor]:
        """Splits the output float [..., sum of parts] into its parts."""
        return tf.split(y, self.parts, axis=-1)


@custom_gradient
def add_bias(rows: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """Adds a bias [D] to rows [N, D].

    The gradient of the bias is a product with ones, which accumulates in float32. TensorFlow's own gradient accumulates
    in the rows' dtype: in bfloat16 its error is up to a fifth after 2,000 rows, and on a GPU it takes longer than all
    products.
    """

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        ones = tf.ones([1, tf.shape(upstream)[0]], upstream.dtype)
        return upstream, tf.squeeze(tf.matmul(ones, upstream), 0)

    return tf.nn.bias_add(rows, bias), gradient


class LayerNormalization(Layer):
    """Layer normalization over the last axis (Ba et al. 2016), computed in float32."""

    def __init__(self, epsilon: float, **kwargs: object) -> None:
        """Initializes the layer; ``epsilon`` is added to the variance."""
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the scale and the bias, [width] each."""
        width = input_shape[-1]
        self.scale = self.add_weight(name="scale", shape=(width,), initializer="ones", autocast=False)
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros", autocast=False)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Normalizes float [..., width], keeping shape and dtype."""
        scale, bias = (tf.cast(variable.value, tf.float32) for variable in (self.scale, self.bias))
        return _normalized(x, scale, bias, self.epsilon, self.compute_dtype)


def _normalized(x: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor, epsilon: float, dtype: str) -> tf.Tensor:
    """Returns (x - mean) / sqrt(variance + epsilon) * scale + bias, float [..., D] of ``dtype``.

    The gradient is written out (Ba et al. 2016, supplement), so that one tensor is kept for it instead of four and the
    row sums weighted by ``scale`` are products with a vector.
    """

    @custom_gradient
    def function(x: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor) -> tuple:
        x32 = tf.cast(x, tf.float32)
        centered = x32 - tf.reduce_mean(x32, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
        inverse = tf.math.rsqrt(variance + epsilon)
        normalized = centered * inverse

        def gradients(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            width = x.shape[-1]
            d_bias = tf.cast(dy, tf.float32)
            d_scale = d_bias * normalized
            bias_rows, scale_rows = tf.reshape(d_bias, [-1, width]), tf.reshape(d_scale, [-1, width])
            weights = (scale / width)[:, tf.newaxis]
            mean = tf.reshape(tf.matmul(bias_rows, weights), tf.shape(inverse))
            correlation = tf.reshape(tf.matmul(scale_rows, weights), tf.shape(inverse))
            dx = inverse * (d_bias * scale - mean - normalized * correlation)
            return tf.cast(dx, x.dtype), tf.reduce_sum(scale_rows, axis=0), tf.reduce_sum(bias_rows, axis=0)

        return tf.cast(normalized * scale + bias, dtype), gradients

    return function(x, scale, bias)


def parameter_count(layer: keras.layers.Layer) -> int:
    """Returns the number of the layer's trainable parameters."""
    return sum(math.prod(v.shape) for v in layer.trainable_weights)
