"""Label smoothing (Szegedy et al. 2016, section 7) as T2T counts it, and its cross-entropy as a Keras loss."""

import math
from typing import Any

import keras
import tensorflow as tf

from t2t_ext.data.text.special_ids import PAD_ID


def smoothing_terms(label_smoothing: float, vocab_size: int) -> tuple[float, float, float]:
    """Returns T2T's smoothed distribution and its entropy.

    Args:
      label_smoothing: Probability given to all wrong tokens together (Szegedy et al. 2016, section 7).
      vocab_size: Number of classes V.

    Returns:
      (confidence 1 - ls, probability ls / (V - 1) of each wrong token, entropy in nats: the least
      cross-entropy that can be reached, which the loss is reduced by).
    """
    confidence = 1.0 - label_smoothing
    low = label_smoothing / (vocab_size - 1)
    entropy = -sum(count * p * math.log(p) for count, p in ((1, confidence), (vocab_size - 1, low)) if p > 0)
    return confidence, low, entropy


def weights_of(sample_weight: Any, rank: int) -> tf.Tensor:
    """Returns weights as float32 of a number of dimensions: those that are missing, as of weights [B], are 1."""
    weights = tf.cast(sample_weight, tf.float32)
    missing = [1] * (rank - weights.shape.rank)
    return tf.reshape(weights, tf.concat([tf.shape(weights), missing], 0)) if missing else weights


@keras.saving.register_keras_serializable("t2t_ext")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Label-smoothed cross-entropy in nats, the mean over the tokens that are not padding; 0 at its optimum.

    It is what the trainer minimizes; there, logits and gradients are computed in one pass (``training/losses.py``).
    """

    def __init__(self, label_smoothing: float = 0.0, name: str = "smoothed_cross_entropy", **kwargs: Any) -> None:
        """Initializes the loss; ``label_smoothing`` as of ``smoothing_terms``."""
        super().__init__(name=name, **kwargs)
        self.label_smoothing = label_smoothing

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        """Returns the loss of labels int [...] and logits float [..., V], a float32 scalar.

        Tokens' losses are multiplied by ``sample_weight`` [...], where there is one, and divided by their number.
        """
        labels = tf.cast(y_true, tf.int32)
        real = tf.cast(tf.not_equal(labels, PAD_ID), tf.float32)
        losses = self.call(labels, y_pred) * real
        if sample_weight is not None:
            losses *= weights_of(sample_weight, losses.shape.rank)
        return tf.math.divide_no_nan(tf.reduce_sum(losses), tf.reduce_sum(real))

    def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
        """Returns the loss of every token, padding included, float32 [...]."""
        log_probs = tf.nn.log_softmax(tf.cast(y_pred, tf.float32))
        confidence, low, entropy = smoothing_terms(self.label_smoothing, log_probs.shape[-1])
        right = tf.gather(log_probs, tf.cast(y_true, tf.int32), batch_dims=log_probs.shape.rank - 1)
        return -(confidence - low) * right - low * tf.reduce_sum(log_probs, axis=-1) - entropy

    def get_config(self) -> dict[str, Any]:
        """Returns what ``from_config`` needs to make an equal loss."""
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
