"""Samples from a model's distribution: temperature, the k most probable tokens, the nucleus.

Legend: B sentences, R directions, K live hypotheses of a direction, N rows, V vocabulary.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_ext.data.text.text_encoder import EOS_ID
from t2t_ext.search import random_numbers
from t2t_ext.search.rules import FORBIDDEN, Step
from t2t_ext.search.search_state import NOT_THERE, Candidates, FinishedPool, Live, SearchConfig, lengthened
from t2t_ext.search.strategies import BeamStrategy, Continuations
from t2t_ext.search.top_k import top_k_tokens

_BLOCK = 128
# At this temperature the larger of two different logits is certain; at lower ones, quotients would be infinite.
_LEAST_TEMPERATURE = 1e-25


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truncation:
    """Changes to the model's distribution before a token is drawn.

    Attributes:
      temperature: Logits are divided by it; less than 1 makes probable tokens more probable.
      keep_top_k: How many of the most probable tokens are kept (Fan et al. 2018); 0: all.
      keep_top_p: Share of the probability that the nucleus must have (Holtzman et al. 2020, section 3.1). Only the
        nucleus is kept: the smallest set of most probable tokens with at least this share, after the other two
        changes. Tokens as probable as the last of them are kept, too. 1: all.
    """

    temperature: float = 1.0
    keep_top_k: int = 0
    keep_top_p: float = 1.0


def draw(logits: tf.Tensor, numbers: tf.Tensor, truncation: Truncation, banned: Sequence[int] = ()) -> tf.Tensor:
    """Draws a token int32 [N] from each row's distribution, by inverting its cumulative sum at one random number.

    Args:
      logits: float32 [N, V] with V known; -1e9 where a rule forbids a token.
      numbers: float32 [N], uniform in [0, 1).
      truncation: The changes to the distribution.
      banned: Ids that are never drawn.
    """
    vocab_size = logits.shape[-1]
    if 0 < truncation.keep_top_k < vocab_size:
        logits, ids = top_k_tokens(logits, truncation.keep_top_k, banned)
        ids = tf.cast(ids, tf.int32)
    else:
        ids = None
        if banned:
            ban = np.zeros([vocab_size], np.float32)
            ban[list(banned)] = FORBIDDEN
            logits += ban
    probabilities = tf.nn.softmax(logits / max(truncation.temperature, _LEAST_TEMPERATURE))
    if truncation.keep_top_p < 1.0:
        probabilities = _nucleus(probabilities, truncation.keep_top_p)
    places = _invert(probabilities, numbers)
    return places if ids is None else tf.gather(ids, places, batch_dims=1)


def _nucleus(probabilities: tf.Tensor, share: float) -> tf.Tensor:
    """Returns the probabilities float32 [N, V], set to 0 outside the nucleus.

    Bisection finds the smallest probability in the nucleus. It is exact after 31 steps, because non-negative floats
    have the same order as their bits. Sorting the vocabulary would take three times as long.
    """
    bits = tf.bitcast(probabilities, tf.int32)
    low, high = tf.zeros_like(bits[:, 0]), tf.reduce_max(bits, axis=1)

    def kept(least: tf.Tensor) -> tf.Tensor:
        return tf.where(bits >= least[:, tf.newaxis], probabilities, 0.0)

    # Because of rounding, the whole row may sum to less than a share close to 1.
    wanted = tf.minimum(share, tf.reduce_sum(probabilities, axis=1))

    def halve(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        middle = low + (high - low + 1) // 2
        enough = tf.reduce_sum(kept(middle), axis=1) >= wanted
        return tf.where(enough, middle, low), tf.where(enough, high, middle - 1)

    low, _ = tf.while_loop(lambda low, high: tf.reduce_any(low < high), halve, (low, high))
    return kept(low)


def _invert(weights: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Returns the first place int32 [N] where the running sum of weights [N, V] exceeds a share [N] of the total.

    The block of tokens is found first, then the token in it, because the running sum of a whole row is slow.
    """
    width = weights.shape[-1]
    blocks = -(-width // _BLOCK)
    weights = tf.pad(weights, [[0, 0], [0, blocks * _BLOCK - width]])
    weights = tf.reshape(weights, [-1, blocks, _BLOCK])
    sums = tf.cumsum(tf.reduce_sum(weights, axis=2), axis=1)
    block, before = _first_above(sums, numbers * sums[:, -1])
    inside = tf.cumsum(tf.gather(weights, block, batch_dims=1), axis=1)
    place, _ = _first_above(inside, numbers * sums[:, -1] - before)
    return block * _BLOCK + place


def _first_above(sums: tf.Tensor, bound: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first place int32 [N] where running sums [N, W] exceed a bound [N], and the sum before that place.

    Rounding may put the bound at the last sum or beyond. It is then moved just below the last sum, so that the sum
    grows at the place found.
    """
    last = sums[:, -1]
    bound = tf.clip_by_value(bound, 0.0, last * (1.0 - 2.0**-20))
    place = tf.reduce_sum(tf.cast(sums <= bound[:, tf.newaxis], tf.int32), axis=1)
    before = tf.gather(tf.pad(sums, [[0, 0], [1, 0]]), place, batch_dims=1)
    return place, before


class Sampling(BeamStrategy):
    """Draws independent samples of each sentence instead of a beam, and returns them in drawing order.

    Each of the K live hypotheses is an independent chain from the first token on: it continues with a token drawn from
    those that the rules allow, until that token is EOS. The number of a chain is its place in the pool (counted from
    that of the row's first), so the n-th sample is the same however many are asked for. Only models of one direction
    can be sampled.
    """

    def __init__(self, keys: tf.Tensor, truncation: Truncation, firsts: tf.Tensor | int = 0) -> None:
        """Initializes the strategy.

        Args:
          keys: int64 [B], which determine what is drawn: ``random_numbers.fingerprint`` of each sentence, folded with a
            seed.
          truncation: The changes to the distribution.
          firsts: int32 [B], the number of the first chain of each row, if a sentence has several rows.
        """
        self._keys = keys
        self._truncation = truncation
        self._firsts = firsts

    def start(self, batch: tf.Tensor, live: int) -> tf.Tensor:
        """Returns a key for each chain, int64 [B, K]."""
        numbers = tf.range(live) + tf.reshape(self._firsts, [-1, 1])
        return random_numbers.fold(self._keys[:, tf.newaxis], numbers)

    def first_log_probs(self, config: SearchConfig) -> list[float]:
        """Returns zeros: all chains exist from the beginning."""
        return [0.0] * config.live

    def propose(
        self, logits: tf.Tensor, normalizer: tf.Tensor, live: Live, step: Step, state: tf.Tensor, config: SearchConfig
    ) -> Continuations:
        """Returns one continuation of each chain; its log-probability is the model's, before any truncation."""
        rows = tf.reshape(logits, [-1, logits.shape[-1]])
        numbers = tf.reshape(random_numbers.uniform(state, step.length), [-1])
        tokens = draw(rows, numbers, self._truncation, config.banned)
        tokens = tf.ensure_shape(tf.reshape(tokens, tf.shape(live.ids)), live.ids.shape)
        log_probs = tf.gather(step.logits - normalizer, tokens, batch_dims=3) + live.log_probs
        # A chain ends if the rules leave no token.
        log_probs += tf.where(tf.gather(logits, tokens, batch_dims=3) > FORBIDDEN / 2, 0.0, FORBIDDEN)
        return log_probs, tf.broadcast_to(tf.range(config.live), tf.shape(tokens)), tokens

    def choose(self, candidates: Continuations, config: SearchConfig, state: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all chains; those that have finished count as not existing."""
        log_probs, places, tokens = candidates
        return places, tf.where(tf.equal(tokens, EOS_ID), NOT_THERE, log_probs)

    def collect(
        self,
        pool: FinishedPool,
        kinds: Sequence[Candidates],
        length: tf.Tensor,
        done: tf.Tensor,
        config: SearchConfig,
        state: Any,
    ) -> FinishedPool:
        """Puts every chain that ends into its own place in the pool."""
        pool = pool._replace(tokens=lengthened(pool.tokens, 1))
        for kind in kinds:
            ranks = kind.ranks[:, 0]
            ends = (ranks > NOT_THERE / 2) & ~done[:, tf.newaxis]
            pool = FinishedPool(
                ranks=tf.where(ends, ranks, pool.ranks),
                log_probs=tf.where(ends, kind.log_probs[:, 0], pool.log_probs),
                lengths=tf.where(ends, tf.cast(length, tf.int64), pool.lengths),
                finished=tf.where(ends, kind.finished, pool.finished),
                directions=pool.directions,
                tokens=tf.where(ends[..., tf.newaxis], kind.tokens[:, 0], pool.tokens),
            )
        return pool

    def is_done(self, pool: FinishedPool, live: Live, limits: tf.Tensor, config: SearchConfig) -> tf.Tensor:
        """Returns, for each sentence, whether all chains are finished, bool [B]."""
        return tf.reduce_all(live.log_probs < NOT_THERE / 2, axis=[1, 2])
