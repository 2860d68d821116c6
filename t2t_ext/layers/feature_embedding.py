"""Feature vectors, such as those of an image's regions, in the place of embedded tokens."""

import tensorflow as tf

from t2t_ext.layers.base import Description, Projection
from t2t_ext.layers.masks import real_positions


class FeatureEmbedding(Projection):
    """x W + b for every feature vector of a source; a vector of zeros alone is padding and stays zeros.

    As Anderson et al. (2018, https://arxiv.org/abs/1707.07998) and those who put a Transformer behind their features do
    it: a learned projection from the features' size F to the model's width D.
    """

    def __init__(self, size: int, width: int, **kwargs: object) -> None:
        """Initializes the layer.

        Args:
          size: F, numbers of a feature vector.
          width: D.
          **kwargs: ``initializer`` of W, and Keras's (name, dtype).
        """
        super().__init__(width, use_bias=True, **kwargs)
        self.size = size

    def build(self, input_shape: object = None) -> None:
        """Creates W [F, D] and b [D]."""
        super().build((None, self.size))

    def described(self, role: str) -> Description:
        """Returns what the layer is; see Layer."""
        del role
        return Description("projection of feature vectors", shape=f"{self.size:,} -> {self.parts[0]}")

    def call(self, features: tf.Tensor) -> tf.Tensor:
        """Projects features float [B, S, F] to float [B, S, D] in the compute dtype."""
        features = tf.convert_to_tensor(features)
        real = tf.cast(real_positions(features), self.compute_dtype)[..., tf.newaxis]
        # F may have been lost on the way, where a batch was divided into slices.
        rows = tf.reshape(tf.cast(features, self.compute_dtype), [-1, self.size])
        shape = tf.shape(features)
        return tf.reshape(self.rows(rows), [shape[0], shape[1], sum(self.parts)]) * real
