"""What the layers of t2t_ext share: named weights, and projections of the last axis.

Naming: a layer creates its sublayers in ``__init__`` with explicit names and builds
them in ``build``, so that a variable's path depends on the model's structure alone.
"""

import math
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

Initializer = Callable[..., tf.Tensor]


def make_initializer(name: str, gain: float) -> keras.initializers.Initializer:
    """Returns the initializer of projection matrices by its T2T name.

    Args:
      name: ``uniform_unit_scaling`` (uniform, variance gain / mean of fans: Glorot & Bengio 2010),
        ``normal_unit_scaling`` (normal, the same variance) or ``orthogonal``.
      gain: Scale of the variance (of the matrix itself for ``orthogonal``).

    Raises:
      ValueError: For another name.
    """
    if name == "uniform_unit_scaling":
        return keras.initializers.VarianceScaling(scale=gain, mode="fan_avg", distribution="uniform")
    if name == "normal_unit_scaling":
        return keras.initializers.VarianceScaling(scale=gain, mode="fan_avg", distribution="untruncated_normal")
    if name == "orthogonal":
        return keras.initializers.Orthogonal(gain=gain)
    raise ValueError(f"Unknown initializer {name!r}.")


class Layer(keras.layers.Layer):
    """A Keras layer with access to its weights in the compute dtype."""

    def value(self, variable: keras.Variable) -> tf.Tensor:
        """Returns a variable's value in the layer's compute dtype."""
        return tf.cast(variable.value, self.compute_dtype)


class Projection(Layer):
    """y = x W + b on the last axis; several projections of one input may be fused side by side.

    A fused projection is initialised part by part, as the separate ones would be.
    """

    def __init__(
        self,
        parts: int | Sequence[int],
        *,
        use_bias: bool,
        initializer: keras.initializers.Initializer,
        **kwargs: object,
    ) -> None:
        """Initialises the layer.

        Args:
          parts: Output width, or the widths of the fused projections.
          use_bias: Whether b is added (initially zero).
          initializer: Of each part of W.
          **kwargs: Keras's (name, dtype).
        """
        super().__init__(**kwargs)
        self.parts = (parts,) if isinstance(parts, int) else tuple(parts)
        self.use_bias = use_bias
        self.initializer = initializer

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates kernel [input width, sum of parts] and bias [sum of parts]."""
        width = input_shape[-1]

        def fused(shape: Sequence[int], dtype: str | None = None) -> tf.Tensor:
            # An initializer with a fixed seed would give equal parts: clone() draws a new one for each.
            del shape
            return tf.concat([self.initializer.clone()((width, part), dtype=dtype) for part in self.parts], axis=1)

        self.kernel = self.add_weight(name="kernel", shape=(width, sum(self.parts)), initializer=fused)
        self.bias = (
            self.add_weight(name="bias", shape=(sum(self.parts),), initializer="zeros") if self.use_bias else None
        )

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Projects float [..., input width] to float [..., sum of parts]."""
        # One flat product instead of a batched one with a broadcast kernel.
        y = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), self.value(self.kernel))
        if self.bias is not None:
            y = tf.nn.bias_add(y, self.value(self.bias))
        if x.shape.rank == 2:
            return y
        return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [sum(self.parts)]], axis=0))

    def split(self, y: tf.Tensor) -> list[tf.Tensor]:
        """Splits the output float [..., sum of parts] into its parts."""
        return tf.split(y, self.parts, axis=-1)


class LayerNormalization(Layer):
    """Layer normalisation over the last axis (Ba et al. 2016), computed in float32."""

    def __init__(self, epsilon: float, **kwargs: object) -> None:
        """Initialises the layer with the epsilon added to the variance."""
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates scale and bias [width]."""
        width = input_shape[-1]
        self.scale = self.add_weight(name="scale", shape=(width,), initializer="ones", autocast=False)
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros", autocast=False)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Normalises float [..., width], keeping shape and dtype."""
        x32 = tf.cast(x, tf.float32)
        centred = x32 - tf.reduce_mean(x32, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        normalised = centred * tf.math.rsqrt(variance + self.epsilon)
        y = normalised * tf.cast(self.scale.value, tf.float32) + tf.cast(self.bias.value, tf.float32)
        return tf.cast(y, self.compute_dtype)


def parameter_count(layer: keras.layers.Layer) -> int:
    """Returns how many numbers the layer's trainable weights hold."""
    return sum(math.prod(v.shape) for v in layer.trainable_weights)
