"""The position-wise feed-forward sublayer (Vaswani et al. 2017, section 3.3; gated variants: Shazeer 2020)."""

from collections.abc import Callable

import tensorflow as tf

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.layers.base import Description, Layer, Projection, make_initializer
from t2t_ext.layers.dropout import dropout, relu_dropout


def _gelu(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.gelu(x, approximate=True)


Activation = Callable[[tf.Tensor], tf.Tensor]
ACTIVATIONS: dict[str, Activation] = {"relu": tf.nn.relu, "gelu": _gelu, "swish": tf.nn.silu}
# activation(x W + b) * (x V + c)
GATED: dict[str, Activation] = {"glu": tf.nn.sigmoid, "geglu": _gelu, "swiglu": tf.nn.silu}


class FeedForward(Layer):
    """Two projections with biases and an activation between them; in gated variants, the first projection is a pair."""

    def __init__(self, hparams: TransformerHParams, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.activation = hparams.ffn_activation
        self.width, self.filter_width = hparams.hidden_size, hparams.filter_size
        self.relu_dropout = hparams.relu_dropout
        initializer = make_initializer(hparams.initializer, hparams.initializer_gain)
        args = {"use_bias": True, "initializer": initializer, "dtype": self.dtype_policy}
        inner = [self.filter_width] * (2 if self.activation in GATED else 1)
        self.inner = Projection(inner, name="inner", **args)
        self.outer = Projection(self.width, name="outer", **args)

    def build(self, input_shape: object = None) -> None:
        """Creates the two projections."""
        self.inner.build((None, self.width))
        self.outer.build((None, self.filter_width))

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        shape = f"{self.width} -> {self.filter_width:,} -> {self.width}"
        return Description("feed-forward", self.activation, shape)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Transforms float [..., D], keeping its shape."""
        rows = tf.reshape(x, [-1, self.width])
        y, factor = self.inner.rows(rows), 1.0
        if self.activation == "relu":
            # The factor that scales the kept units up is applied to the next kernel.
            y, factor = relu_dropout(y, self.relu_dropout, training)
        elif self.activation in GATED:
            gate, linear = self.inner.split(y)
            y = dropout(GATED[self.activation](gate) * linear, self.relu_dropout, training)
        else:
            y = dropout(ACTIVATIONS[self.activation](y), self.relu_dropout, training)
        return tf.reshape(self.outer.rows(y, factor), tf.shape(x))
