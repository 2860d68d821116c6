"""The k best logits and the normalizer for large vocabularies, in few passes over the logits.

Places are computed in int64, as everywhere in the search; see ``search_state``.

Legend: N rows, K hypotheses, V vocabulary, W width of a block.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

_BLOCK = 128
_PART = 16  # Width of a part of a block.
# With fewer than this many blocks for each of the k best, a plain top-k is as fast.
_WORTHWHILE = 4
_MINUS_INFINITY = -1e9


def _block_width(vocab_size: int) -> int:
    """Returns W, a multiple of 16 near 128.

    If possible, W divides the vocabulary size, because padding would copy all logits.
    """
    widths = range(_BLOCK // 2, 2 * _BLOCK + 1, _PART)
    return min(widths, key=lambda width: (vocab_size % width != 0 or vocab_size < 2 * _BLOCK, abs(width - _BLOCK)))


def _in_blocks(logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns logits float32 [N, V] as blocks [N, blocks, W], padded with -2e9, and their maxima [N, blocks]."""
    width = _block_width(logits.shape[-1])
    blocks = -(-logits.shape[-1] // width)
    if padding := blocks * width - logits.shape[-1]:
        logits = tf.pad(logits, [[0, 0], [0, padding]], constant_values=2 * _MINUS_INFINITY)
    blocked = tf.reshape(logits, [-1, blocks, width])
    return blocked, tf.reduce_max(blocked, axis=-1)


def _ban(vocab_size: int, banned: Sequence[int]) -> np.ndarray:
    """Returns -1e9 for banned ids and 0 for others, float32 [V]."""
    ban = np.zeros([vocab_size], np.float32)
    ban[list(banned)] = _MINUS_INFINITY
    return ban


def _without_banned(blocked: tf.Tensor, maxima: tf.Tensor, ban: np.ndarray) -> tf.Tensor:
    """Returns the maxima [N, blocks] of blocks [N, blocks, W] after adding ban float32 [blocks, W].

    Only the maxima of blocks with a banned id are computed again.
    """
    with_bans = np.flatnonzero(ban.any(axis=1))
    if not with_bans.size:
        return maxima
    allowed = {int(block): tf.reduce_max(blocked[:, block] + ban[block], axis=-1) for block in with_bans}
    first, last = min(allowed), max(allowed) + 1
    middle = [allowed[block] if block in allowed else maxima[:, block] for block in range(first, last)]
    return tf.concat([maxima[:, :first], tf.stack(middle, axis=1), maxima[:, last:]], axis=1)


def top_k_tokens(logits: tf.Tensor, k: int, banned: Sequence[int] = ()) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the k largest logits that are not banned, largest first.

    The search has stages: the k best logits are in the k blocks with the largest maxima, and within these blocks in the
    k parts with the largest maxima, so only these parts are sorted. The result equals that of a plain top-k; among
    equal logits the smaller id comes first.

    Args:
      logits: float32 [N, V] with V known.
      k: How many logits, 1 <= k <= V.
      banned: Ids that must not be chosen; they are returned only if fewer than k others exist, with a value below -1e8.

    Returns:
      values float32 [N, k] and ids int64 [N, k].
    """
    values, _, ids = _top_k(logits[:, tf.newaxis], k, banned, lambda x, _: x)
    return values, ids


def top_k_continuations(
    logits: tf.Tensor, normalizers: tf.Tensor, log_probs: tf.Tensor, k: int, banned: Sequence[int] = ()
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the k largest of logits - normalizers + log_probs over all tokens of K hypotheses together.

    The stages are those of ``top_k_tokens``, but for all hypotheses at once: after the first stage there are k blocks
    per sentence, not per hypothesis. Among equal sums the earlier hypothesis comes first, then the smaller id.

    Args:
      logits: float32 [N, K, V] with K and V known.
      normalizers: float32 [N, K].
      log_probs: float32 [N, K].
      k: How many sums, 1 <= k <= K * V.
      banned: As for ``top_k_tokens``.

    Returns:
      sums float32, hypotheses int64 and ids int64, each [N, k], largest sum first.
    """

    def sums(x: tf.Tensor, of_hypothesis: tf.Tensor | None) -> tf.Tensor:
        def of(each: tf.Tensor) -> tf.Tensor:
            each = each if of_hypothesis is None else tf.gather(each, of_hypothesis, batch_dims=1)
            return each[..., tf.newaxis]

        return x - of(normalizers) + of(log_probs)

    return _top_k(logits, k, banned, sums)


def _top_k(
    logits: tf.Tensor, k: int, banned: Sequence[int], sums: Callable[[tf.Tensor, tf.Tensor | None], tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the k largest sums, their hypotheses and their ids, as ``top_k_continuations`` does.

    ``sums`` turns logits float32 [N, C, ...] into the sums to compare; its second argument int64 [N, C] says to which
    hypotheses the logits belong. None: C is K, one entry for each hypothesis.
    """
    hypotheses, vocab_size = logits.shape[1:]
    ban, width = _ban(vocab_size, banned), _block_width(vocab_size)
    blocks = -(-vocab_size // width)
    if hypotheses * blocks < _WORTHWHILE * k:
        flat = tf.reshape(sums(logits + ban if banned else logits, None), [-1, hypotheses * vocab_size])
        values, places = tf.math.top_k(flat, k)
        places = tf.cast(places, tf.int64)
        return values, places // vocab_size, places % vocab_size

    blocked, maxima = _in_blocks(tf.reshape(logits, [-1, vocab_size]))
    ban = np.pad(ban, [0, blocks * width - vocab_size]).reshape(blocks, width)
    maxima = sums(tf.reshape(_without_banned(blocked, maxima, ban), [-1, hypotheses, blocks]), None)
    best = _best_in_order(tf.reshape(maxima, [-1, hypotheses * blocks]), k)
    of_hypothesis, of_vocabulary = best // blocks, best % blocks
    candidates = tf.gather(tf.reshape(blocked, [-1, hypotheses * blocks, width]), best, batch_dims=1)
    if banned:
        candidates += tf.gather(tf.constant(ban), of_vocabulary)
    values, places = _top_k_of_parts(tf.reshape(sums(candidates, of_hypothesis), [-1, k * width]), k)
    block = places // width
    ids = tf.gather(of_vocabulary, block, batch_dims=1) * width + places % width
    return values, tf.gather(of_hypothesis, block, batch_dims=1), ids


def _best_in_order(maxima: tf.Tensor, k: int) -> tf.Tensor:
    """Returns the places int64 [N, k] of the k largest of float32 [N, C], in ascending order."""
    _, best = tf.math.top_k(maxima, k, sorted=False)
    return -tf.math.top_k(-tf.cast(best, tf.int64), k)[0]


def _top_k_of_parts(rows: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns values and places int64 of the k largest of rows float32 [N, C], largest first; C is a multiple of 16."""
    width = rows.shape[-1]
    if width < 2 * _WORTHWHILE * _PART * k:
        values, places = tf.math.top_k(rows, k)
        return values, tf.cast(places, tf.int64)
    parts = tf.reshape(rows, [-1, width // _PART, _PART])
    best = _best_in_order(tf.reduce_max(parts, axis=-1), k)
    candidates = tf.reshape(tf.gather(parts, best, batch_dims=1), [-1, k * _PART])
    values, places = tf.math.top_k(candidates, k)
    places = tf.cast(places, tf.int64)
    return values, tf.gather(best, places // _PART, batch_dims=1) * _PART + places % _PART


def log_normalizer(logits: tf.Tensor) -> tf.Tensor:
    """Returns the log-sum-exp of logits float32 [..., V], float32 [..., 1].

    It is computed from the softmax, which is one fast operation, while exp, sum and log are several passes. The largest
    probability is exp(largest logit - normalizer). It is at least 1 / V, so its logarithm is precise. If V is a known
    multiple of W, both maxima are read from a single block, and ``top_k_continuations`` needs the same block maxima.
    """
    vocab_size = logits.shape[-1]
    if vocab_size is None or vocab_size % _block_width(vocab_size):
        largest = tf.reduce_max(logits, axis=-1, keepdims=True)
        return largest - tf.math.log(tf.reduce_max(tf.nn.softmax(logits), axis=-1, keepdims=True))
    rows = tf.reshape(logits, [-1, vocab_size])
    blocked, maxima = _in_blocks(rows)
    probabilities = tf.reshape(tf.nn.softmax(rows), [-1, *blocked.shape[1:]])
    best = tf.gather(probabilities, tf.argmax(maxima, axis=1, output_type=tf.int32), batch_dims=1)
    normalizers = tf.reduce_max(maxima, axis=1) - tf.math.log(tf.reduce_max(best, axis=1))
    return tf.reshape(normalizers, tf.concat([tf.shape(logits)[:-1], [1]], axis=0))
