"""Label smoothing (Szegedy et al. 2016, section 7) as defined in T2T, and its cross-entropy as a Keras loss."""

import math
from typing import Any

import keras
import tensorflow as tf

from t2t_ext.data.text.special_ids import PAD_ID


def smoothing_terms(label_smoothing: float, vocab_size: int) -> tuple[float, float, float]:
    """Returns the probabilities and the entropy of T2T's smoothed distribution.

    Args:
      label_smoothing: ls, the total probability of all wrong tokens (Szegedy et al. 2016, section 7).
      vocab_size: Number of classes V.

    Returns:
      The confidence 1 - ls; the probability ls / (V - 1) of each wrong token; and the entropy in nats. The entropy is
      the lowest possible cross-entropy and is subtracted from the loss.
    """
    confidence = 1.0 - label_smoothing
    low = label_smoothing / (vocab_size - 1)
    entropy = -sum(count * p * math.log(p) for count, p in ((1, confidence), (vocab_size - 1, low)) if p > 0)
    return confidence, low, entropy


def weights_of(sample_weight: Any, rank: int) -> tf.Tensor:
    """Returns sample weights as float32 of a given rank; missing dimensions, as of weights [B], are appended as 1."""
    weights = tf.cast(sample_weight, tf.float32)
    missing = [1] * (rank - weights.shape.rank)
    return tf.reshape(weights, tf.concat([tf.shape(weights), missing], 0)) if missing else weights


@keras.saving.register_keras_serializable("t2t_ext")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Label-smoothed cross-entropy in nats, averaged over the tokens that are not padding; 0 at its optimum.

    The trainer minimizes the same loss, but computes logits and gradients in one pass (``training/losses.py``).
    """

    def __init__(self, label_smoothing: float = 0.0, name: str = "smoothed_cross_entropy", **kwargs: Any) -> None:
        """Initializes the loss; see ``smoothing_terms`` for ``label_smoothing``."""
        super().__init__(name=name, **kwargs)
        self.label_smoothing = label_smoothing

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        """Returns the loss of labels int [...] and logits float [..., V], a float32 scalar.

        The losses of the tokens are multiplied by ``sample_weight`` [...] if it is given. Their sum is divided by the
        number of tokens that are not padding. As with any Keras loss, it is also divided by the number of replicas,
        whose gradients are summed.
        """
        labels = tf.cast(y_true, tf.int32)
        real = tf.cast(tf.not_equal(labels, PAD_ID), tf.float32)
        losses = self.call(labels, y_pred) * real
        if sample_weight is not None:
            losses *= weights_of(sample_weight, losses.shape.rank)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return tf.math.divide_no_nan(tf.reduce_sum(losses), tf.reduce_sum(real) * replicas)

    def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
        """Returns the loss of every token, including padding, float32 [...]."""
        log_probs = tf.nn.log_softmax(tf.cast(y_pred, tf.float32))
        confidence, low, entropy = smoothing_terms(self.label_smoothing, log_probs.shape[-1])
        right = tf.gather(log_probs, tf.cast(y_true, tf.int32), batch_dims=log_probs.shape.rank - 1)
        return -(confidence - low) * right - low * tf.reduce_sum(log_probs, axis=-1) - entropy

    def get_config(self) -> dict[str, Any]:
        """Returns the settings from which ``from_config`` makes an equal loss."""
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
