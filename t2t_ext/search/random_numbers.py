"""Random numbers that are functions of a seed and a sentence, wherever in whatever batch the sentence is.

TensorFlow's generators draw a tensor from one seed, so that a row's numbers depend on how
many rows are before it. Here every number is a hash of its own coordinates (a counter-based
generator) by the finaliser of SplitMix64 (Steele, Lea and Flood 2014, figure 16).

All in int64, whose products wrap around on every device.
"""

import tensorflow as tf


def _wrapped(number: int) -> int:
    """Returns an unsigned 64-bit number as the signed one of the same bits."""
    return number - (1 << 64) if number >= 1 << 63 else number


_GOLDEN = _wrapped(0x9E3779B97F4A7C15)
_FIRST = _wrapped(0xBF58476D1CE4E5B9)
_SECOND = _wrapped(0x94D049BB133111EB)


def _shifted(x: tf.Tensor, bits: int) -> tf.Tensor:
    """Shifts int64 to the right, zeros coming in from the left."""
    return tf.bitwise.bitwise_and(tf.bitwise.right_shift(x, tf.constant(bits, tf.int64)), (1 << (64 - bits)) - 1)


def mix(x: tf.Tensor) -> tf.Tensor:
    """Returns a hash of each number, int64 [...]: every bit of it depends on every bit of the number."""
    x = tf.cast(x, tf.int64)
    x = tf.bitwise.bitwise_xor(x, _shifted(x, 30)) * _FIRST
    x = tf.bitwise.bitwise_xor(x, _shifted(x, 27)) * _SECOND
    return tf.bitwise.bitwise_xor(x, _shifted(x, 31))


def fold(key: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Returns a key for each pair of a key int64 and a number int, broadcast against each other."""
    return mix(key + (tf.cast(number, tf.int64) + 1) * _GOLDEN)


def fingerprint(ids: tf.Tensor) -> tf.Tensor:
    """Returns a key for each row of ids int32 [B, S], int64 [B]; padding with 0 at the end changes nothing.

    Of feature vectors float32 [B, S, F], their bits are the ids.
    """
    if ids.shape.rank == 3:
        shape = tf.shape(ids)
        ids = tf.reshape(tf.bitcast(ids, tf.int32), [shape[0], shape[1] * shape[2]])
    hashes = fold(mix(tf.range(tf.shape(ids)[1])[tf.newaxis] + 1), ids)
    return mix(tf.reduce_sum(tf.where(tf.equal(ids, 0), tf.constant(0, tf.int64), hashes), axis=1))


def uniform(key: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Returns float32 in [0, 1) for each pair of a key and a number, as ``fold``."""
    return tf.cast(_shifted(fold(key, number), 40), tf.float32) * 2.0**-24
