"""Which positions may be attended to. A mask is bool, True where a query may look.

Legend: B sentences, S source positions, T target positions, ids 0 are padding.
"""

import tensorflow as tf


def padding_mask(ids: tf.Tensor) -> tf.Tensor:
    """Returns bool [B, 1, 1, S]: True at the tokens of ids int [B, S], False at the padding."""
    return tf.not_equal(ids, 0)[:, tf.newaxis, tf.newaxis, :]


def causal_mask(length: tf.Tensor) -> tf.Tensor:
    """Returns bool [1, 1, length, length]: position t sees the positions up to and including t."""
    positions = tf.range(length)
    return (positions[tf.newaxis, :] <= positions[:, tf.newaxis])[tf.newaxis, tf.newaxis]
