"""The data types of a search (constants, live hypotheses, pool of finished hypotheses, result) and the length penalty.

Tokens, places and lengths of hypotheses are int64 until the search is done. TensorFlow computes int32 tensors in host
memory, so with int32 a GPU would have to wait for the host more than ten times per step.

Legend: B sentences, R directions, K live hypotheses of a direction, F places in the pool,
N hypotheses asked for, T steps.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from t2t_ext.errors import UserError

# Log-probability of a hypothesis that does not exist. Anything below half of it counts as not existing.
NOT_THERE = -1e9
# Subtracted from the rank of a hypothesis truncated at the length limit, so that it ranks behind every hypothesis with
# EOS. Ranks are float64, so that scores still differ beside this number.
UNFINISHED = 1e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Constants of a search.

    Attributes:
      beam_size: Live hypotheses of all directions together, a multiple of ``directions``. 1 is greedy
        search, which ends at the first step whose most probable token is EOS.
      num_hypotheses: N, returned for every sentence, 1 <= N <= beam_size.
      directions: 1, or 2 for left-to-right and right-to-left at once.
      alpha: Exponent of the length penalty, >= 0.
      penalty: Kind of length penalty; see length_penalty.
      early_stopping: The length used to bound the score that a live hypothesis can still reach: the limit
        (``exact``) or the length after the next step (``heuristic``).
      banned: Ids that are never produced (PAD, control symbols).
      pairing: With two directions, which hypothesis of the other direction a hypothesis attends to: the one of the
        same ``rank``, or the ``best``.
      finished_partner: What a hypothesis sees once its partner is finished: ``next_alive`` or ``freeze``; see
        partners.
    """

    beam_size: int = 4
    num_hypotheses: int = 1
    directions: int = 1
    alpha: float = 0.6
    penalty: str = "gnmt"
    early_stopping: str = "exact"
    banned: tuple[int, ...] = (0,)
    pairing: str = "rank"
    finished_partner: str = "next_alive"

    @property
    def freezes(self) -> bool:
        """Whether hypotheses keep seeing the past of a finished partner."""
        return self.directions == 2 and self.finished_partner == "freeze"

    @property
    def live(self) -> int:
        """K, the live hypotheses of one direction."""
        return self.beam_size // self.directions


class Live(NamedTuple):
    """The live hypotheses, which continue.

    Attributes:
      ids: int64 [B, R, K], the last token of each hypothesis (ignored before the first step).
      log_probs: float32 [B, R, K], largest first. Constraints and groups have other orders: with constraints,
        hypotheses with the most constraint tokens come first.
      tokens: int64 [B, R, K, T].
      parents: int64 [B, R, K], the rank of each hypothesis's parent one step before.
      ancestry: bool [B, R, K, T * K], the columns that are a hypothesis's own past.
    """

    ids: tf.Tensor
    log_probs: tf.Tensor
    tokens: tf.Tensor
    parents: tf.Tensor
    ancestry: tf.Tensor


class FinishedPool(NamedTuple):
    """The pool of finished hypotheses, best first.

    Attributes:
      ranks: float64 [B, F], the penalized score, lower by 1e6 if truncated at the length limit; -1e9 in empty places.
      log_probs: float32 [B, F].
      lengths: int64 [B, F], tokens with EOS.
      finished: bool [B, F], True if the hypothesis has EOS, False if it was truncated at the length limit.
      directions: int64 [B, F].
      tokens: int64 [B, F, T], padded with 0.
    """

    ranks: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor
    finished: tf.Tensor
    directions: tf.Tensor
    tokens: tf.Tensor


class Result(NamedTuple):
    """The N best hypotheses of every sentence, best first.

    Attributes:
      ids: int32 [B, N, T], with EOS if finished, padded with 0.
      log_probs: float32 [B, N], sum over the tokens, EOS included.
      scores: float32 [B, N], log-probability divided by the length penalty, with the rules' bonuses and penalties.
      lengths: int32 [B, N], tokens with EOS.
      finished: bool [B, N], False if truncated at the length limit.
      directions: int32 [B, N].
    """

    ids: tf.Tensor
    log_probs: tf.Tensor
    scores: tf.Tensor
    lengths: tf.Tensor
    finished: tf.Tensor
    directions: tf.Tensor


class Candidates(NamedTuple):
    """Hypotheses of one kind that compete for a place in the pool.

    Attributes:
      ranks: float64 [B, R, C], as in the pool; -1e9 for hypotheses that do not compete.
      log_probs: float32 [B, R, C].
      finished: Whether these hypotheses end with EOS.
      tokens: int64 [B, R, C, T].
    """

    ranks: tf.Tensor
    log_probs: tf.Tensor
    finished: bool
    tokens: tf.Tensor


def length_penalty(lengths: tf.Tensor, alpha: float, kind: str = "gnmt") -> tf.Tensor:
    """Returns the penalty of each length.

    Args:
      lengths: int [...], tokens of the hypothesis with its EOS.
      alpha: Exponent, >= 0; 0 leaves log-probabilities as they are.
      kind: ``gnmt``: ((5 + length) / 6)^alpha (Wu et al. 2016, eq. 14, as in T2T);
        ``len_power``: length^alpha (as in fairseq).

    Returns:
      float32 [...].

    Raises:
      UserError: The kind is unknown.
    """
    lengths = tf.cast(lengths, tf.float32)
    if kind == "gnmt":
        return tf.pow((5.0 + lengths) / 6.0, alpha)
    if kind == "len_power":
        return tf.pow(tf.maximum(lengths, 1.0), alpha)
    raise UserError(f"length_penalty={kind!r} is unknown; use one of gnmt, len_power.")


def lengthened(tokens: tf.Tensor, steps: int | tf.Tensor) -> tf.Tensor:
    """Returns tokens int64 [B, F, T] followed by ``steps`` places of PAD, int64 [B, F, T + steps].

    ``tf.pad`` does not support int64 on GPUs.
    """
    shape = tf.shape(tokens)
    return tf.concat([tokens, tf.zeros([shape[0], tokens.shape[1], steps], tf.int64)], axis=2)
