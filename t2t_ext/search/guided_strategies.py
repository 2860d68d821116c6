"""Strategies that guide the search: banks for lexical constraints, and diverse groups.

Legend: B sentences, R directions, K live hypotheses of a direction, G groups, E continuations of a hypothesis that the
model proposes, C continuations to choose from, F places in the pool, N hypotheses asked for.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.text.text_encoder import EOS_ID
from t2t_ext.search import diverse_groups, lexical_constraints
from t2t_ext.search.lexical_constraints import Phrases, Progress
from t2t_ext.search.rules import Step
from t2t_ext.search.search_state import (
    NOT_THERE,
    UNFINISHED,
    Candidates,
    FinishedPool,
    Live,
    SearchConfig,
)
from t2t_ext.search.strategies import BeamStrategy, Continuations, TopBeam, best_of_each

# Ranks distinguish up to this many missing phrases; empty places of the pool must still rank behind.
_MOST_MISSING = 400

ConstraintState = tuple[Phrases, Progress]


def guided_strategy(hparams: DecodeHParams, phrases: Phrases | None = None) -> BeamStrategy | None:
    """Returns the strategy that the phrases or the hparams ask for; None means the usual beam.

    Raises:
      UserError: Phrases are given although the hparams exclude them.
    """
    if phrases is not None:
        hparams.check_constraints()
        return ConstrainedBeam(phrases)
    groups = hparams.diverse_groups
    if groups == 1:
        return TopBeam() if hparams.beam_extends == "top" else None
    return DiverseGroups(groups, hparams.diverse_strength)


class ConstrainedBeam(BeamStrategy):
    """A beam divided among banks for lexical constraints; only hypotheses with all phrases may end.

    A sentence without phrases has a single bank, and thus the usual beam.
    """

    def __init__(self, phrases: Phrases) -> None:
        self._phrases = phrases

    def start(self, batch: tf.Tensor, live: int) -> ConstraintState:
        """Returns the state before the first step."""
        return self._phrases, lexical_constraints.start_progress(self._phrases, live)

    def propose(
        self,
        logits: tf.Tensor,
        normalizer: tf.Tensor,
        live: Live,
        step: Step,
        state: ConstraintState,
        config: SearchConfig,
    ) -> Continuations:
        """Returns the 2K continuations that the banks choose in turn, each [B, R, 2K], in the order of choice."""
        phrases, progress = state
        values, ids = best_of_each(logits, config, step.columns)
        wanted, wanted_values = lexical_constraints.wanted_continuations(phrases, progress, logits, ids, step.columns)
        tokens, values = tf.concat([ids, wanted], axis=3), tf.concat([values, wanted_values], axis=3)
        log_probs = values - normalizer + live.log_probs[..., tf.newaxis]

        shape = tf.shape(tokens)
        flat = [shape[0], shape[1], shape[2] * shape[3]]
        parents = tf.reshape(tf.broadcast_to(tf.range(shape[2])[:, tf.newaxis], shape), flat)
        tokens, log_probs = tf.reshape(tokens, flat), tf.reshape(log_probs, flat)
        after = lexical_constraints.advance(phrases, lexical_constraints.choose_parents(progress, parents), tokens)
        may_end = ~tf.reduce_any(lexical_constraints.missing(phrases, after), axis=-1)
        log_probs = tf.where(may_end | tf.not_equal(tokens, EOS_ID), log_probs, NOT_THERE)
        count = min(2, ids.shape[3]) * config.live
        places = lexical_constraints.take_turns(log_probs, lexical_constraints.banks(phrases, after), count)
        log_probs, parents, tokens = (tf.gather(part, places, batch_dims=2) for part in (log_probs, parents, tokens))
        return log_probs, parents, tokens

    def choose(
        self, candidates: Continuations, config: SearchConfig, state: ConstraintState
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the places of the first K that do not end, and their log-probabilities, both [B, R, K]."""
        log_probs, _, tokens = candidates
        return diverse_groups.first_unfinished(log_probs, tokens, config.live)

    def update(self, state: ConstraintState, parents: tf.Tensor, tokens: tf.Tensor, step: Step) -> ConstraintState:
        """Returns the state of the next step."""
        phrases, progress = state
        progress = lexical_constraints.choose_parents(progress, parents)
        return phrases, lexical_constraints.advance(phrases, progress, tokens)

    def collect(
        self,
        pool: FinishedPool,
        kinds: Sequence[Candidates],
        length: tf.Tensor,
        done: tf.Tensor,
        config: SearchConfig,
        state: ConstraintState,
    ) -> FinishedPool:
        """Returns the new pool; a hypothesis truncated at the limit ranks behind all that lack fewer phrases."""
        unmet = tf.reduce_sum(tf.cast(lexical_constraints.missing(*state), tf.int32), axis=-1)
        behind = UNFINISHED * tf.cast(tf.minimum(unmet, _MOST_MISSING), tf.float64)
        kinds = [
            kind if kind.finished else kind._replace(ranks=tf.maximum(kind.ranks - behind, NOT_THERE)) for kind in kinds
        ]
        return super().collect(pool, kinds, length, done, config, state)


class DiverseGroups(BeamStrategy):
    """Groups of hypotheses that choose continuations one after the other, each with its own share of the pool."""

    def __init__(self, groups: int, strength: float) -> None:
        """Initializes the strategy; the live hypotheses of a direction must be a multiple of the groups.

        For each hypothesis of an earlier group that a token has extended in this step, ``strength`` is subtracted from
        the token's log-probability.
        """
        self._groups, self._strength = groups, strength

    def first_log_probs(self, config: SearchConfig) -> list[float]:
        """Returns the log-probabilities before the first step: one hypothesis of each group exists."""
        return ([0.0] + [NOT_THERE] * (config.live // self._groups - 1)) * self._groups

    def propose(
        self, logits: tf.Tensor, normalizer: tf.Tensor, live: Live, step: Step, state: tuple, config: SearchConfig
    ) -> Continuations:
        """Returns the 2K / G best continuations of every group, group after group."""
        values, tokens = best_of_each(logits, config, step.columns)
        log_probs = values - normalizer + live.log_probs[..., tf.newaxis]
        places = diverse_groups.choose_in_turn(log_probs, tokens, self._groups, self._strength)
        batch, each = tf.shape(places)[0], tokens.shape[3]
        places = tf.reshape(places, [batch, config.directions, self._groups * places.shape[3]])
        flat = [batch, config.directions, config.live * each]
        log_probs, tokens = (tf.gather(tf.reshape(part, flat), places, batch_dims=2) for part in (log_probs, tokens))
        return log_probs, places // each, tokens

    def in_beam(self, count: int, config: SearchConfig) -> np.ndarray:
        """Returns which of ``count`` continuations are the K / G best of their group, bool [C]."""
        return np.arange(count) % (count // self._groups) < config.live // self._groups

    def choose(self, candidates: Continuations, config: SearchConfig, state: tuple) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns places and log-probabilities [B, R, K] of each group's first K / G continuations that do not end."""
        log_probs, _, tokens = candidates
        batch, each = tf.shape(log_probs)[0], log_probs.shape[2] // self._groups
        grouped = [batch, config.directions, self._groups, each]
        log_probs, tokens = tf.reshape(log_probs, grouped), tf.reshape(tokens, grouped)
        places, log_probs = diverse_groups.first_unfinished(log_probs, tokens, config.live // self._groups)
        places += each * tf.range(self._groups)[:, tf.newaxis]
        shape = [batch, config.directions, config.live]
        return tf.reshape(places, shape), tf.reshape(log_probs, shape)

    def collect(
        self,
        pool: FinishedPool,
        kinds: Sequence[Candidates],
        length: tf.Tensor,
        done: tf.Tensor,
        config: SearchConfig,
        state: tuple,
    ) -> FinishedPool:
        """Returns the new pool: the hypotheses of each group compete for the group's own share."""
        share = dataclasses.replace(config, beam_size=config.beam_size // self._groups)
        kinds = [
            Candidates(self._split(kind.ranks), self._split(kind.log_probs), kind.finished, self._split(kind.tokens))
            for kind in kinds
        ]
        shares = FinishedPool(*(_regrouped(part, share.beam_size) for part in pool))
        found = super().collect(shares, kinds, length, tf.repeat(done, self._groups), share, state)
        return FinishedPool(*(_regrouped(part, config.beam_size) for part in found))

    def is_done(self, pool: FinishedPool, live: Live, limits: tf.Tensor, config: SearchConfig) -> tf.Tensor:
        """Returns bool [B]: whether no live hypothesis can still get among the N / G best of its group."""
        wanted = -(-config.num_hypotheses // self._groups)
        nth = _regrouped(pool.ranks, config.beam_size // self._groups)[:, wanted - 1]
        bound = self.best_attainable(self._split(live.log_probs), live, tf.repeat(limits, self._groups), config)
        return tf.reduce_all(tf.reshape(nth >= bound, [-1, self._groups]), axis=1)

    def finish(self, pool: FinishedPool, config: SearchConfig) -> FinishedPool:
        """Returns the N best of all groups; see ``diverse_groups.merge_pools``."""
        return diverse_groups.merge_pools(pool, self._groups, config.num_hypotheses)

    def _split(self, x: tf.Tensor) -> tf.Tensor:
        """Turns each group into a sentence: [B, R, C, ...] becomes [B G, R, C / G, ...]."""
        shape = tf.shape(x)
        split = tf.reshape(x, tf.concat([shape[:2], [self._groups, -1], shape[3:]], axis=0))
        split = tf.transpose(split, [0, 2, 1, *range(3, len(split.shape))])
        return tf.reshape(split, tf.concat([[-1, x.shape[1], x.shape[2] // self._groups], shape[3:]], axis=0))


def _regrouped(x: tf.Tensor, places: int) -> tf.Tensor:
    """Turns each group's share of the pool into a sentence's pool, [B, F, ...] to [B G, F / G, ...], or back."""
    return tf.reshape(x, tf.concat([[-1, places], tf.shape(x)[2:]], axis=0))
