"""The k best logits and the normalizer for large vocabularies, in few passes over the logits."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_BLOCK = 128
_PART = 16  # of a block
# Below this many blocks a candidate block, the plain top-k is as fast.
_WORTHWHILE = 4
_MINUS_INFINITY = -1e9


def top_k_tokens(logits: tf.Tensor, k: int, banned: Sequence[int] = ()) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the k largest logits that are not banned, largest first.

    In stages: the k best of the vocabulary are in the k blocks with the largest maxima, and those of these blocks in
    the k parts with the largest maxima, so that only these parts are sorted. The result is that of a plain top-k, also
    among equal logits, where the smaller id comes first.

    Args:
      logits: float32 [N, V] with V known.
      k: How many, 1 <= k <= V.
      banned: Ids that must not be chosen; they come back only if fewer than k others exist, with a value below -1e8.

    Returns:
      values float32 [N, k] and ids int32 [N, k].
    """
    vocab_size = logits.shape[-1]
    ban = np.zeros([vocab_size], np.float32)
    ban[list(banned)] = _MINUS_INFINITY
    blocks = -(-vocab_size // _BLOCK)
    if blocks < _WORTHWHILE * k:
        return tf.math.top_k(logits + ban if banned else logits, k)

    padding = blocks * _BLOCK - vocab_size
    if padding:
        logits = tf.pad(logits, [[0, 0], [0, padding]], constant_values=2 * _MINUS_INFINITY)
        ban = np.pad(ban, [0, padding])
    blocked = tf.reshape(logits, [-1, blocks, _BLOCK])
    maxima = tf.reduce_max(blocked, axis=-1)
    ban = ban.reshape(blocks, _BLOCK)
    with_bans = np.flatnonzero(ban.any(axis=1))
    if with_bans.size:
        # Only blocks that hold a banned id are looked at again.
        allowed = [tf.reduce_max(blocked[:, block] + ban[block], axis=-1) for block in with_bans]
        columns = [
            allowed[np.searchsorted(with_bans, block)] if block in with_bans else None for block in range(blocks)
        ]
        first, last = with_bans[0], with_bans[-1] + 1
        middle = [maxima[:, b] if columns[b] is None else columns[b] for b in range(first, last)]
        maxima = tf.concat([maxima[:, :first], tf.stack(middle, axis=1), maxima[:, last:]], axis=1)

    best_blocks = _best_in_order(maxima, k)
    candidates = tf.gather(blocked, best_blocks, batch_dims=1) + tf.gather(tf.constant(ban), best_blocks)
    values, places = _top_k_of_parts(tf.reshape(candidates, [-1, k * _BLOCK]), k)
    ids = tf.gather(best_blocks, places // _BLOCK, batch_dims=1) * _BLOCK + places % _BLOCK
    return values, ids


def _best_in_order(maxima: tf.Tensor, k: int) -> tf.Tensor:
    """Returns the places int32 [N, k] of the k largest of float32 [N, W], smaller places first."""
    _, best = tf.math.top_k(maxima, k, sorted=False)
    return -tf.math.top_k(-best, k)[0]


def _top_k_of_parts(rows: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns values and places of the k largest of rows float32 [N, W], largest first; W is a multiple of 16."""
    width = rows.shape[-1]
    if width < 2 * _WORTHWHILE * _PART * k:
        return tf.math.top_k(rows, k)
    parts = tf.reshape(rows, [-1, width // _PART, _PART])
    best = _best_in_order(tf.reduce_max(parts, axis=-1), k)
    candidates = tf.reshape(tf.gather(parts, best, batch_dims=1), [-1, k * _PART])
    values, places = tf.math.top_k(candidates, k)
    return values, tf.gather(best, places // _PART, batch_dims=1) * _PART + places % _PART


def log_normalizer(logits: tf.Tensor) -> tf.Tensor:
    """Returns the log-sum-exp of logits float32 [..., V], float32 [..., 1].

    By way of the softmax, which is one fast operation where exp, sum and log are several passes: the largest
    probability is exp(largest logit - normalizer), and at least 1 / V, so that its logarithm is exact.
    """
    largest = tf.reduce_max(logits, axis=-1, keepdims=True)
    return largest - tf.math.log(tf.reduce_max(tf.nn.softmax(logits), axis=-1, keepdims=True))
