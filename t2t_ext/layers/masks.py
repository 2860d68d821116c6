"""Attention masks: bool, True where a query may attend.

Legend: B sentences, S source positions, T target positions, F size of a feature vector. Ids 0, and feature vectors of
only zeros, are padding.
"""

import tensorflow as tf


def real_positions(inputs: tf.Tensor) -> tf.Tensor:
    """Returns which positions of ids int [B, S] or feature vectors float [B, S, F] are not padding: bool [B, S]."""
    real = tf.not_equal(inputs, 0)
    return tf.reduce_any(real, axis=-1) if inputs.shape.rank == 3 else real


def words_of_source(inputs: tf.Tensor) -> tf.Tensor:
    """Returns which positions are neither padding nor EOS, bool [B, S]; sources of feature vectors have no EOS."""
    real = real_positions(inputs)
    return real if inputs.shape.rank == 3 else real & tf.not_equal(inputs, 1)


def padding_mask(inputs: tf.Tensor) -> tf.Tensor:
    """Returns the mask bool [B, 1, 1, S] of ids int [B, S] or features float [B, S, F], which is False at padding."""
    return real_positions(tf.convert_to_tensor(inputs))[:, tf.newaxis, tf.newaxis, :]


def causal_mask(length: tf.Tensor) -> tf.Tensor:
    """Returns the mask bool [1, 1, length, length] with which position t sees the positions up to and including t."""
    positions = tf.range(length)
    return (positions[tf.newaxis, :] <= positions[:, tf.newaxis])[tf.newaxis, tf.newaxis]
