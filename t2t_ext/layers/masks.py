"""Attention masks: bool, True where a query may attend.

Legend: B sentences, S source positions, T target positions, F size of a feature vector; ids 0, and feature vectors of
zeros alone, are padding.
"""

import tensorflow as tf


def real_positions(inputs: tf.Tensor) -> tf.Tensor:
    """Returns which positions of ids int [B, S], or feature vectors float [B, S, F], hold something: bool [B, S]."""
    real = tf.not_equal(inputs, 0)
    return tf.reduce_any(real, axis=-1) if inputs.shape.rank == 3 else real


def words_of_source(inputs: tf.Tensor) -> tf.Tensor:
    """Returns which positions hold words (not padding, not EOS), or feature vectors, which have no end: bool [B, S]."""
    real = real_positions(inputs)
    return real if inputs.shape.rank == 3 else real & tf.not_equal(inputs, 1)


def padding_mask(inputs: tf.Tensor) -> tf.Tensor:
    """Returns bool [B, 1, 1, S]: True at what ids int [B, S] or features float [B, S, F] hold, False at the padding."""
    return real_positions(tf.convert_to_tensor(inputs))[:, tf.newaxis, tf.newaxis, :]


def causal_mask(length: tf.Tensor) -> tf.Tensor:
    """Returns bool [1, 1, length, length]: position t sees the positions up to and including t."""
    positions = tf.range(length)
    return (positions[tf.newaxis, :] <= positions[:, tf.newaxis])[tf.newaxis, tf.newaxis]
