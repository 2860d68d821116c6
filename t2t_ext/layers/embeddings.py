"""Embeddings of tokens, feature vectors and the target space, learned vectors, and position vectors."""

import math

import keras
import numpy as np
import tensorflow as tf

from t2t_ext.data.text.special_ids import FIRST_TEXT_ID, UNK_ID
from t2t_ext.layers.base import Description, Layer, Projection
from t2t_ext.layers.dropout import cut_tokens
from t2t_ext.layers.masks import real_positions

_MAX_TIMESCALE = 10000.0


class TokenEmbedding(Layer):
    """A matrix of token embeddings, which the softmax may share (Press & Wolf 2017).

    Rows are initialized from N(0, 1/D) and multiplied by sqrt(D) when they are looked up (T2T's "sqrt_depth").
    The embedding of PAD (id 0) is zero.
    """

    def __init__(self, vocab_size: int, width: int, *, multiply: bool = True, **kwargs: object) -> None:
        """Initializes the layer for a matrix [V, D]; with ``multiply``, embeddings are multiplied by sqrt(D)."""
        super().__init__(**kwargs)
        self.vocab_size, self.width = vocab_size, width
        self.multiplier = math.sqrt(width) if multiply else 1.0

    def build(self, input_shape: object = None) -> None:
        """Creates the matrix [V, D]."""
        self.matrix = self.add_weight(
            name="embeddings",
            shape=(self.vocab_size, self.width),
            initializer=keras.initializers.RandomNormal(stddev=self.width**-0.5),
            autocast=False,  # so that only the gathered rows are cast, not the whole matrix
        )

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        return Description(role.replace("_", " "), shape=f"{self.vocab_size:,} x {self.width}")

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """Embeds ids int32 [...] as float [..., D]."""
        # The matrix is read before the gather: a gather from the variable itself makes TensorFlow copy the whole matrix
        # at every later read, and the softmax may read the same matrix.
        rows = tf.cast(tf.gather(tf.convert_to_tensor(self.matrix.value), ids), self.compute_dtype)
        real = tf.cast(tf.not_equal(ids, 0), rows.dtype)[..., tf.newaxis]
        # EOS and direction tags are never cut; SimCut's paper keeps the ends of sentences.
        control = (ids < FIRST_TEXT_ID) & (ids != UNK_ID)
        return cut_tokens(rows * (real * tf.cast(self.multiplier, rows.dtype)), kept=control)


def sinusoids(positions: tf.Tensor, width: int, layout: str = "concat") -> tf.Tensor:
    """Returns sinusoidal position vectors (Vaswani et al. 2017, section 3.5).

    Args:
      positions: int [N], counted from 0.
      width: D.
      layout: ``concat`` is T2T's layout: all sines, then all cosines, with D/2 timescales that grow
        geometrically from 1 to 10000 inclusive. ``interleaved`` is the layout of Vaswani et al.:
        sin(p / 10000^(k/D)) at even k, cos(p / 10000^((k-1)/D)) at odd k. He et al. (2018) cite
        this layout but print k/D at odd k as well.

    Returns:
      float32 [N, D].
    """
    pairs = width // 2
    steps = np.arange(pairs, dtype=np.float64)
    exponent = steps / max(pairs - 1, 1) if layout == "concat" else 2 * steps / width
    rates = tf.constant(_MAX_TIMESCALE**-exponent, tf.float32)
    angles = tf.cast(positions, tf.float32)[:, tf.newaxis] * rates[tf.newaxis, :]
    if layout == "concat":
        signal = tf.concat([tf.sin(angles), tf.cos(angles)], axis=1)
    else:
        signal = tf.reshape(tf.stack([tf.sin(angles), tf.cos(angles)], axis=2), [-1, 2 * pairs])
    return tf.pad(signal, [[0, 0], [0, width % 2]])


class LearnedVectors(Layer):
    """A few learned vectors that are added to embeddings, initialized from N(0, 1/D)."""

    def __init__(self, count: int, width: int, **kwargs: object) -> None:
        """Initializes the layer for ``count`` vectors of width D = ``width``."""
        super().__init__(**kwargs)
        self.count, self.width = count, width

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        names = {"side_embedding": "vectors of source and target", "sos": "start of the target"}
        name = names.get(role, role.replace("_", " "))
        return Description(name, "", f"{self.count} x {self.width}", "He et al. 2018", "")

    def build(self, input_shape: object = None) -> None:
        """Creates the matrix [count, D]."""
        self.matrix = self.add_weight(
            name="embeddings",
            shape=(self.count, self.width),
            initializer=keras.initializers.RandomNormal(stddev=self.width**-0.5),
        )

    def vector(self, index: int) -> tf.Tensor:
        """Returns the vector with an index, float [D]."""
        return self.value(self.matrix)[index]


class TargetSpaceEmbedding(LearnedVectors):
    """A learned vector for the kind of target, which is added to the encoder's input; T2T has 32 kinds."""

    SPACES = 32

    def __init__(self, width: int, space: int, **kwargs: object) -> None:
        """Initializes the layer for one target space id, 0 <= space < 32."""
        super().__init__(self.SPACES, width, **kwargs)
        self.space = space

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        return Description("target space", f"number {self.space}", f"{self.SPACES} x {self.width}")

    def call(self) -> tf.Tensor:
        """Returns the vector of the target space, float [D]."""
        return self.vector(self.space)


class FeatureEmbedding(Projection):
    """The projection x W + b of every feature vector of a source; a vector of only zeros is padding and stays zero.

    A learned projection from the features' size F to the model's width D is used by Anderson et al. (2018,
    https://arxiv.org/abs/1707.07998) and by later work that feeds their features to a Transformer.
    """

    def __init__(self, size: int, width: int, **kwargs: object) -> None:
        """Initializes the layer for size F and width D; the keyword ``initializer`` is that of W."""
        super().__init__(width, use_bias=True, **kwargs)
        self.size = size

    def build(self, input_shape: object = None) -> None:
        """Creates W [F, D] and b [D]."""
        super().build((None, self.size))

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        return Description("projection of feature vectors", shape=f"{self.size:,} -> {self.parts[0]}")

    def call(self, features: tf.Tensor) -> tf.Tensor:
        """Projects features float [B, S, F] to float [B, S, D] in the compute dtype."""
        features = tf.convert_to_tensor(features)
        real = tf.cast(real_positions(features), self.compute_dtype)[..., tf.newaxis]
        # The static size F may be lost if a batch was divided into slices.
        rows = tf.reshape(tf.cast(features, self.compute_dtype), [-1, self.size])
        shape = tf.shape(features)
        return cut_tokens(tf.reshape(self.rows(rows), [shape[0], shape[1], sum(self.parts)]) * real)
