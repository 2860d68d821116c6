"""Strategies propose, choose and keep continuations at each step of a search. This module holds the usual beam.

A strategy is also a rule: it may have a state and forbid tokens.

Legend: B sentences, R directions, K live hypotheses of a direction, C continuations, F places
in the pool, N hypotheses asked for, T steps, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_ext.data.text.text_encoder import EOS_ID
from t2t_ext.search.rules import Rule, Step
from t2t_ext.search.search_state import (
    NOT_THERE,
    Candidates,
    FinishedPool,
    Live,
    SearchConfig,
    length_penalty,
    lengthened,
)
from t2t_ext.search.shortlist import Columns, ids_of
from t2t_ext.search.top_k import top_k_continuations, top_k_tokens

# Log-probabilities float32, parents and tokens int32 or int64, each [B, R, C].
Continuations = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def best_of_each(
    logits: tf.Tensor, config: SearchConfig, columns: Columns | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns logits and ids [B, R, K, E] of the E = 2K most probable continuations of each hypothesis.

    E is smaller if the vocabulary has fewer ids.
    """
    if columns is not None:
        values, places = tf.math.top_k(logits + columns.banned[:, tf.newaxis, tf.newaxis], 2 * config.live)
        return values, tf.ensure_shape(ids_of(columns, places), values.shape)
    vocab_size = logits.shape[-1]
    each = min(2 * config.live, vocab_size)
    values, ids = top_k_tokens(tf.reshape(logits, [-1, vocab_size]), each, config.banned)
    shape = [-1, config.directions, config.live, each]
    return tf.reshape(values, shape), tf.cast(tf.reshape(ids, shape), tf.int32)


class BeamStrategy(Rule):
    """Beam search; other strategies override the methods in which they differ.

    Of the 2K best continuations of K live hypotheses, those that end compete for the pool by penalized score; the
    others continue.
    """

    def first_log_probs(self, config: SearchConfig) -> list[float]:
        """Returns the log-probabilities of the K live hypotheses before the first step: only one exists."""
        return [0.0] + [NOT_THERE] * (config.live - 1)

    def propose(
        self, logits: tf.Tensor, normalizer: tf.Tensor, live: Live, step: Step, state: Any, config: SearchConfig
    ) -> Continuations:
        """Returns the continuations to choose from: the 2K best of each direction, best first.

        Args:
          logits: float32 [B, R, K, V] after the rules.
          normalizer: float32 [B, R, K, 1], log-sum-exp of the model's own logits over the whole vocabulary, so that
            a hypothesis's log-probability is the model's own.
          live: The live hypotheses.
          step: The step.
          state: The state of the strategy.
          config: The search's constants.

        Returns:
          Log-probabilities, parents and tokens, each [B, R, C] with C = 2K, or fewer if there are not so many.
        """
        if step.columns is None:
            live_rows = [-1, config.live]
            found = top_k_continuations(
                tf.reshape(logits, [*live_rows, logits.shape[3]]),
                tf.reshape(normalizer, live_rows),
                tf.reshape(live.log_probs, live_rows),
                count := min(2 * config.live, config.live * logits.shape[3]),
                config.banned,
            )
            log_probs, parents, tokens = (tf.reshape(part, [-1, config.directions, count]) for part in found)
            return log_probs, parents, tokens
        values, ids = best_of_each(logits, config, step.columns)
        each = ids.shape[3]
        sums = values - normalizer + live.log_probs[..., tf.newaxis]
        flat = [-1, config.directions, config.live * each]
        log_probs, places = tf.math.top_k(tf.reshape(sums, flat), min(2 * config.live, config.live * each))
        tokens = tf.gather(tf.reshape(ids, flat), places, batch_dims=2)
        return log_probs, places // each, tokens

    def choose(self, candidates: Continuations, config: SearchConfig, state: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns which continuations continue: the K best that do not end.

        Returns:
          Their places among the candidates, int32 or int64 [B, R, K], and their log-probabilities, float32 [B, R, K],
          -1e9 or less where nothing continues.
        """
        log_probs, _, tokens = candidates
        extendable = tf.where(tf.equal(tokens, EOS_ID), 2 * NOT_THERE, log_probs)
        log_probs, places = tf.math.top_k(extendable, config.live)
        return places, log_probs

    def in_beam(self, count: int, config: SearchConfig) -> np.ndarray:
        """Returns which of ``count`` continuations of a direction are its K best, bool [C]."""
        return np.arange(count) < config.live

    def collect(
        self,
        pool: FinishedPool,
        kinds: Sequence[Candidates],
        length: tf.Tensor,
        done: tf.Tensor,
        config: SearchConfig,
        state: Any,
    ) -> FinishedPool:
        """Returns the F best of the pool and the candidates; sentences that are done keep their pool.

        Args:
          pool: The pool, tokens [B, F, T - 1].
          kinds: Candidates, all of this length: those finished with EOS, and those truncated at the limit.
          length: int32 scalar, T.
          done: bool [B].
          config: The search's constants.
          state: The state of the strategy for the next step.
        """
        # Puts the directions side by side: [B, R, C, ...] becomes [B, R * C, ...]. All parts share these two shapes.
        batch = tf.shape(done)[0]
        flat, flat_tokens = tf.stack([batch, -1]), tf.stack([batch, -1, length])
        closed, lasting = done[:, tf.newaxis], tf.cast(length, tf.int64)
        ranks, log_probs, lengths, finished = [pool.ranks], [pool.log_probs], [pool.lengths], [pool.finished]
        directions, tokens = [pool.directions], [lengthened(pool.tokens, 1)]
        for kind in kinds:
            asking = tf.reshape(kind.ranks, flat)
            ranks.append(tf.where(closed, tf.constant(NOT_THERE, tf.float64), asking))
            log_probs.append(tf.reshape(kind.log_probs, flat))
            lengths.append(tf.fill(tf.shape(asking), lasting))
            finished.append(tf.fill(tf.shape(asking), kind.finished))
            if config.directions > 1:
                numbers = tf.range(config.directions, dtype=tf.int64)[:, tf.newaxis]
                sides = tf.broadcast_to(numbers, tf.shape(kind.ranks))
                directions.append(tf.reshape(sides, flat))
            tokens.append(tf.reshape(kind.tokens, flat_tokens))
        best, places = tf.math.top_k(tf.concat(ranks, axis=1), config.beam_size)

        def pick(parts: list[tf.Tensor]) -> tf.Tensor:
            return tf.gather(tf.concat(parts, axis=1), places, batch_dims=1)

        sides = pick(directions) if config.directions > 1 else pool.directions
        return FinishedPool(best, pick(log_probs), pick(lengths), pick(finished), sides, pick(tokens))

    def is_done(self, pool: FinishedPool, live: Live, limits: tf.Tensor, config: SearchConfig) -> tf.Tensor:
        """Returns, for each sentence, whether no live hypothesis can still get among the N best, bool [B].

        A live hypothesis's log-probability can only fall, and the length penalty at the limit helps it most;
        ``early_stopping=heuristic`` uses the penalty at the next step instead. The rules' bonuses are never more than
        0, so the bound holds with them, too. They are ignored here, because the present coverage penalty says nothing
        about the final one: it becomes smaller with every token.
        """
        nth = pool.ranks[:, config.num_hypotheses - 1]
        if config.beam_size == 1:
            return nth > NOT_THERE / 2
        return nth >= self.best_attainable(live.log_probs, live, limits, config)

    def best_attainable(self, log_probs: tf.Tensor, live: Live, limits: tf.Tensor, config: SearchConfig) -> tf.Tensor:
        """Returns a bound on the score that live hypotheses can still reach, float64 [B].

        Args:
          log_probs: float32 [B, R, K], of the hypotheses; diverse groups pass each group as a sentence of its own.
          live: All live hypotheses, which give the present length.
          limits: int64 [B], the most tokens of the hypotheses.
          config: The search's constants.
        """
        lengths = limits
        if config.early_stopping == "heuristic":
            lengths = tf.minimum(limits, tf.shape(live.tokens, tf.int64)[-1] + 1)
        bound = tf.reduce_max(log_probs, axis=[1, 2]) / length_penalty(lengths, config.alpha, config.penalty)
        return tf.cast(bound, tf.float64)

    def finish(self, pool: FinishedPool, config: SearchConfig) -> FinishedPool:
        """Returns the N best of the pool, best first."""
        return FinishedPool(*(part[:, : config.num_hypotheses] for part in pool))


class TopBeam(BeamStrategy):
    """A beam that extends only the K best continuations (Zhou et al. 2019, section 2.2 and footnote 12).

    If one of them finishes, the next best continuation does not take its place. With one hypothesis per direction, each
    direction is searched greedily: it ends as soon as its most probable token is EOS.
    """

    def propose(
        self, logits: tf.Tensor, normalizer: tf.Tensor, live: Live, step: Step, state: Any, config: SearchConfig
    ) -> Continuations:
        """Returns the K best continuations of each direction; see BeamStrategy."""
        log_probs, parents, tokens = super().propose(logits, normalizer, live, step, state, config)
        return log_probs[..., : config.live], parents[..., : config.live], tokens[..., : config.live]
