"""Diverse beam search: groups of hypotheses that are discouraged from continuing alike.

This is Algorithm 1 of Vijayakumar et al. 2018, https://arxiv.org/abs/1610.02424, with Hamming diversity. The live
hypotheses are divided into groups, which choose their continuations one after the other at each step. When a group
chooses, a token is penalized by ``strength`` times the number of hypotheses of earlier groups that have just been
extended by this token. Reported scores stay the model's. Endings (EOS) are neither counted nor penalized.

Each group has its own share of the pool of finished hypotheses; otherwise a single group could fill it. The N returned
hypotheses are the best of every group, then the second best of every group, and so on; a hypothesis that several
groups found counts once. They are returned by score, so the first is the best of all.

Legend: B sentences, R directions, G groups, K live hypotheses of a direction (group after group), E continuations of a
hypothesis, F places in the pool (group after group).
"""

import numpy as np
import tensorflow as tf

from t2t_ext.data.text.text_encoder import EOS_ID
from t2t_ext.search.search_state import FinishedPool

_DEAD = -1e9
# Subtracted from the rank of a repeated hypothesis, which then stands behind all others but before empty places.
_REPEATED = 4e8


def choose_in_turn(log_probs: tf.Tensor, tokens: tf.Tensor, groups: int, strength: float) -> tf.Tensor:
    """Lets the groups choose continuations one after the other.

    Args:
      log_probs: float32 [B, R, K, E], of the hypotheses with each continuation. E is 2K or the whole vocabulary, which
        is enough: at most K of a hypothesis's tokens are penalized, so its best remaining ones are among the 2K.
      tokens: int32 [B, R, K, E].
      groups: G.
      strength: The penalty of a token for each hypothesis of an earlier group that the same token has extended.

    Returns:
      Places int32 [B, R, G, C] among the K * E continuations, each group's best first, with C = 2K / G, or fewer if
      there are not so many.
    """
    shape = tf.shape(log_probs)
    live, each = log_probs.shape[2], log_probs.shape[3]
    own = live // groups
    size = own * each
    grouped = tf.stack([shape[0], shape[1], groups, size])
    log_probs, tokens = tf.reshape(log_probs, grouped), tf.reshape(tokens, grouped)
    places, chosen = [], None
    for group in range(groups):
        values, ids = log_probs[:, :, group], tokens[:, :, group]
        if chosen is not None:
            same = tf.equal(ids[..., tf.newaxis], chosen[:, :, tf.newaxis])
            values -= strength * tf.reduce_sum(tf.cast(same, tf.float32), axis=-1)
        _, best = tf.math.top_k(values, min(2 * own, size))
        ids, values = (tf.gather(part, best, batch_dims=2) for part in (ids, log_probs[:, :, group]))
        first, values = first_unfinished(values, ids, own)
        # Hypotheses that do not exist penalize nothing: no token is -1.
        ids = tf.where(values > _DEAD / 2, tf.gather(ids, first, batch_dims=2), -1)
        chosen = ids if chosen is None else tf.concat([chosen, ids], axis=2)
        places.append(best + group * size)
    return tf.stack(places, axis=2)


def first_unfinished(log_probs: tf.Tensor, tokens: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first ``count`` continuations that do not end, given log-probabilities and tokens [..., C].

    The result is their places int32 and log-probabilities float32, both [..., count]; log-probabilities are -1e9 where
    there are fewer. A continuation whose log-probability is below -5e8 does not exist.
    """
    size = tf.shape(tokens)[-1]
    unfinished = tf.not_equal(tokens, EOS_ID) & (log_probs > _DEAD / 2)
    _, places = tf.math.top_k(-tf.where(unfinished, 0, size) - tf.range(size), count)
    chosen = tf.where(unfinished, log_probs, _DEAD)
    return places, tf.gather(chosen, places, batch_dims=len(tokens.shape) - 1)


def merge_pools(pool: FinishedPool, groups: int, count: int) -> FinishedPool:
    """Returns the best ``count`` hypotheses of the groups' pools, best first, with repeated ones after all others."""
    batch, size = tf.shape(pool.ranks)[0], pool.ranks.shape[1]
    own = size // groups

    def by_place(x: tf.Tensor) -> tf.Tensor:
        """Puts the best of all groups side by side, then the second best: [B, G F/G, ...] becomes [B, F/G, G, ...]."""
        split = tf.reshape(x, tf.concat([[batch, groups, own], tf.shape(x)[2:]], axis=0))
        return tf.transpose(split, [0, 2, 1, *range(3, len(split.shape))])

    _, order = tf.math.top_k(by_place(pool.ranks), groups)

    def in_turn(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.gather(by_place(x), order, batch_dims=2), tf.shape(x))

    pool = type(pool)(*map(in_turn, pool))
    same = tf.reduce_all(tf.equal(pool.tokens[:, :, tf.newaxis], pool.tokens[:, tf.newaxis]), axis=-1)
    same &= tf.equal(pool.directions[:, :, tf.newaxis], pool.directions[:, tf.newaxis])
    earlier = tf.constant(np.tri(size, k=-1, dtype=bool))
    repeated = tf.reduce_any(same & earlier, axis=2)
    empty = pool.ranks <= _DEAD
    turn = tf.range(size) + tf.where(repeated, size, 0) + tf.where(empty, 2 * size, 0)
    _, taken = tf.math.top_k(-turn, count)
    behind = tf.where(repeated, tf.constant(_REPEATED, tf.float64), tf.zeros([], tf.float64))
    _, ranked = tf.math.top_k(tf.gather(pool.ranks - behind, taken, batch_dims=1), count)
    taken = tf.gather(taken, ranked, batch_dims=1)
    return type(pool)(*(tf.gather(part, taken, batch_dims=1) for part in pool))
