"""Random numbers that depend only on a seed and a sentence, not on the batch or the sentence's place in it.

TensorFlow's generators draw a whole tensor from one seed, so the numbers of a row depend on how
many rows precede it. Here every number is a hash of its own coordinates (a counter-based
generator), computed with the finaliser of SplitMix64 (Steele, Lea and Flood 2014, figure 16).

All numbers are int64, whose products wrap around on every device.
"""

import tensorflow as tf


def _wrapped(number: int) -> int:
    """Returns the signed number with the same bits as an unsigned 64-bit number."""
    return number - (1 << 64) if number >= 1 << 63 else number


_GOLDEN = _wrapped(0x9E3779B97F4A7C15)
_FIRST = _wrapped(0xBF58476D1CE4E5B9)
_SECOND = _wrapped(0x94D049BB133111EB)


def _shifted(x: tf.Tensor, bits: int) -> tf.Tensor:
    """Shifts int64 to the right and fills with zeros from the left."""
    return tf.bitwise.bitwise_and(tf.bitwise.right_shift(x, tf.constant(bits, tf.int64)), (1 << (64 - bits)) - 1)


def mix(x: tf.Tensor) -> tf.Tensor:
    """Returns a hash of each number, int64 [...], in which every bit depends on every bit of the number."""
    x = tf.cast(x, tf.int64)
    x = tf.bitwise.bitwise_xor(x, _shifted(x, 30)) * _FIRST
    x = tf.bitwise.bitwise_xor(x, _shifted(x, 27)) * _SECOND
    return tf.bitwise.bitwise_xor(x, _shifted(x, 31))


def fold(key: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Returns a new key int64 for each pair of a key int64 and an integer number, broadcast against each other."""
    return mix(key + (tf.cast(number, tf.int64) + 1) * _GOLDEN)


def fingerprint(ids: tf.Tensor) -> tf.Tensor:
    """Returns a key int64 [B] for each row of ids int32 [B, S]; padding with 0 at the end changes nothing.

    For feature vectors float32 [B, S, F], the bits of the numbers are used as ids.
    """
    if ids.shape.rank == 3:
        shape = tf.shape(ids)
        ids = tf.reshape(tf.bitcast(ids, tf.int32), [shape[0], shape[1] * shape[2]])
    hashes = fold(mix(tf.range(tf.shape(ids)[1])[tf.newaxis] + 1), ids)
    return mix(tf.reduce_sum(tf.where(tf.equal(ids, 0), tf.constant(0, tf.int64), hashes), axis=1))


def uniform(key: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Returns a float32 in [0, 1) for each pair of a key and a number; see ``fold``."""
    return tf.cast(_shifted(fold(key, number), 40), tf.float32) * 2.0**-24
