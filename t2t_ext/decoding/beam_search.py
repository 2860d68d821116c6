"""Beam search over one or two directions, inside ``tf.function``.

Live hypotheses and the pool of ended ones are apart, as in T2T: of the 2K best
continuations of K live hypotheses, those that end (EOS) compete for the pool by penalised
score, the others go on. Every sentence has its own length limit and its own stop, so its
result does not depend on what else is in the batch.

The model's caches are never reordered. Keys and values of all hypotheses of a sentence stay
side by side, column ``step * K + rank``; what is reordered with the beam is a small bool
matrix, the ancestry, that says which columns are a hypothesis's own past.

With two directions (Zhou et al. 2019) each has K live hypotheses of its own and the pool is
shared; rank i of one direction attends to rank i of the other.

Legend: B sentences, R directions, K live hypotheses of a direction, F places in the pool,
N hypotheses asked for, T steps, V vocabulary.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_ext.decoding.length_penalty import length_penalty
from t2t_ext.decoding.top_k import top_k_tokens

StepFunction = Callable[..., tuple[tf.Tensor, Any]]

_MINUS_INFINITY = -1e9
# Ended by the length limit instead of EOS: ranks behind every hypothesis that ended by itself. Ranks are float64,
# so that scores are still told apart beside this number.
_UNFINISHED = 1e6
_EOS = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Constants of a search.

    Attributes:
      beam_size: Live hypotheses of all directions together, a multiple of ``directions``. 1 is greedy
        search: it ends at the first step whose most probable token is EOS.
      num_hypotheses: N, returned for every sentence, 1 <= N <= beam_size.
      directions: 1, or 2 for left-to-right and right-to-left at once.
      alpha: Exponent of the length penalty, >= 0.
      penalty: Kind of length penalty; see length_penalty.
      banned: Ids that are never produced (PAD, control symbols).
    """

    beam_size: int = 4
    num_hypotheses: int = 1
    directions: int = 1
    alpha: float = 0.6
    penalty: str = "gnmt"
    banned: tuple[int, ...] = (0,)

    @property
    def live(self) -> int:
        """K, the live hypotheses of one direction."""
        return self.beam_size // self.directions


class Live(NamedTuple):
    """Hypotheses that go on.

    Attributes:
      ids: int32 [B, R, K], the last token of each (ignored before the first step).
      log_probs: float32 [B, R, K], largest first.
      tokens: int32 [B, R, K, T].
      parents: int32 [B, R, K], rank of each hypothesis's past one step before.
      ancestry: bool [B, R, K, T * K], the columns that are a hypothesis's own past.
    """

    ids: tf.Tensor
    log_probs: tf.Tensor
    tokens: tf.Tensor
    parents: tf.Tensor
    ancestry: tf.Tensor


class Ended(NamedTuple):
    """The pool of ended hypotheses, best first.

    Attributes:
      ranks: float64 [B, F], the penalised score, lower by 1e6 where the length limit ended it; -1e9 is an empty place.
      log_probs: float32 [B, F].
      lengths: int32 [B, F], tokens with EOS.
      finished: bool [B, F], True if it ended with EOS.
      directions: int32 [B, F].
      tokens: int32 [B, F, T], padded with 0.
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
      ids: int32 [B, N, T], with EOS where finished, padded with 0.
      log_probs: float32 [B, N], sum over the tokens, EOS included.
      scores: float32 [B, N], log-probability divided by the length penalty.
      lengths: int32 [B, N], tokens with EOS.
      finished: bool [B, N], False where the length limit ended the hypothesis.
      directions: int32 [B, N].
    """

    ids: tf.Tensor
    log_probs: tf.Tensor
    scores: tf.Tensor
    lengths: tf.Tensor
    finished: tf.Tensor
    directions: tf.Tensor


def _start_live(batch: tf.Tensor, config: SearchConfig) -> Live:
    """One hypothesis of log-probability 0 in every direction; the other ranks are not there yet."""
    shape = [batch, config.directions, config.live]
    log_probs = tf.constant([0.0] + [_MINUS_INFINITY] * (config.live - 1))
    return Live(
        ids=tf.zeros(shape, tf.int32),
        log_probs=tf.broadcast_to(log_probs, shape),
        tokens=tf.zeros([*shape, 0], tf.int32),
        parents=tf.broadcast_to(tf.range(config.live), shape),
        ancestry=tf.zeros([*shape, 0], tf.bool),
    )


def _start_ended(batch: tf.Tensor, config: SearchConfig) -> Ended:
    shape = [batch, config.beam_size]
    return Ended(
        ranks=tf.fill(shape, tf.constant(_MINUS_INFINITY, tf.float64)),
        log_probs=tf.fill(shape, _MINUS_INFINITY),
        lengths=tf.zeros(shape, tf.int32),
        finished=tf.zeros(shape, tf.bool),
        directions=tf.zeros(shape, tf.int32),
        tokens=tf.zeros([*shape, 0], tf.int32),
    )


def _visible(live: Live, config: SearchConfig) -> tf.Tensor:
    """Returns the ancestry with this step's own columns, bool [B, R, K, (T + 1) * K]."""
    own = tf.eye(config.live, dtype=tf.bool)
    own = tf.broadcast_to(own, tf.concat([tf.shape(live.ids), [config.live]], axis=0))
    return tf.concat([live.ancestry, own], axis=3)


def _grow(logits: tf.Tensor, live: Live, config: SearchConfig) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the 2K best continuations of each direction, best first.

    Args:
      logits: float32 [B, R, K, V].
      live: The live hypotheses.
      config: The search's constants.

    Returns:
      log-probabilities float32, parents int32 and tokens int32, each [B, R, C] with C = 2K, or all there are.
    """
    vocab_size = logits.shape[-1]
    each = min(2 * config.live, vocab_size)
    rows = tf.reshape(logits, [-1, vocab_size])
    # The log-sum-exp is over the whole vocabulary, banned ids included, so that a hypothesis's
    # score is the model's probability of it.
    normaliser = tf.reduce_logsumexp(rows, axis=-1, keepdims=True)
    values, ids = top_k_tokens(rows, each, config.banned)
    shape = tf.shape(live.ids)
    sums = tf.reshape(values - normaliser, tf.concat([shape, [each]], axis=0)) + live.log_probs[..., tf.newaxis]
    flat = tf.concat([shape[:2], [config.live * each]], axis=0)
    log_probs, places = tf.math.top_k(tf.reshape(sums, flat), min(2 * config.live, config.live * each))
    tokens = tf.gather(tf.reshape(ids, flat), places, batch_dims=2)
    return log_probs, places // each, tokens


def _extend(tokens: tf.Tensor, parents: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """Appends tokens int32 [B, R, C] to the pasts [B, R, K, T] of their parents; returns [B, R, C, T + 1]."""
    return tf.concat([tf.gather(tokens, parents, batch_dims=2), new[..., tf.newaxis]], axis=3)


def _select_live(
    candidates: tuple[tf.Tensor, tf.Tensor, tf.Tensor], live: Live, visible: tf.Tensor, config: SearchConfig
) -> Live:
    """Returns the K best continuations that do not end."""
    log_probs, parents, tokens = candidates
    going_on = tf.where(tf.equal(tokens, _EOS), 2 * _MINUS_INFINITY, log_probs)
    log_probs, places = tf.math.top_k(going_on, config.live)
    parents = tf.gather(parents, places, batch_dims=2)
    tokens = tf.gather(tokens, places, batch_dims=2)
    return Live(
        ids=tokens,
        log_probs=tf.maximum(log_probs, _MINUS_INFINITY),
        tokens=_extend(live.tokens, parents, tokens),
        parents=parents,
        ancestry=tf.gather(visible, parents, batch_dims=2),
    )


class _Candidates(NamedTuple):
    """Hypotheses of one kind that ask for a place in the pool: ranks, log_probs [B, R, C], tokens [B, R, C, T]."""

    ranks: tf.Tensor
    log_probs: tf.Tensor
    finished: bool
    tokens: tf.Tensor


def _select_ended(
    ended: Ended, kinds: list[_Candidates], length: tf.Tensor, done: tf.Tensor, config: SearchConfig
) -> Ended:
    """Returns the F best of the pool and the candidates; sentences that are done keep their pool.

    Args:
      ended: The pool, tokens [B, F, T - 1].
      kinds: Candidates, all of this length.
      length: int32 scalar, T.
      done: bool [B].
      config: The search's constants.
    """
    batch = tf.shape(done)[0]

    def flat(x: tf.Tensor) -> tf.Tensor:
        """Puts the directions side by side: [B, R, C, ...] becomes [B, R * C, ...]."""
        return tf.reshape(x, tf.concat([[batch, -1], tf.shape(x)[3:]], axis=0))

    ranks, log_probs, lengths, finished, directions, tokens = [ended.ranks], [], [], [], [], []
    log_probs, lengths, finished = [ended.log_probs], [ended.lengths], [ended.finished]
    directions, tokens = [ended.directions], [tf.pad(ended.tokens, [[0, 0], [0, 0], [0, 1]])]
    for kind in kinds:
        shape = tf.shape(kind.ranks)
        closed = done[:, tf.newaxis, tf.newaxis]
        ranks.append(flat(tf.where(closed, tf.constant(_MINUS_INFINITY, tf.float64), kind.ranks)))
        log_probs.append(flat(kind.log_probs))
        lengths.append(flat(tf.fill(shape, length)))
        finished.append(flat(tf.fill(shape, kind.finished)))
        directions.append(flat(tf.broadcast_to(tf.range(config.directions)[:, tf.newaxis], shape)))
        tokens.append(flat(kind.tokens))
    best, places = tf.math.top_k(tf.concat(ranks, axis=1), config.beam_size)

    def pick(parts: list[tf.Tensor]) -> tf.Tensor:
        return tf.gather(tf.concat(parts, axis=1), places, batch_dims=1)

    return Ended(best, pick(log_probs), pick(lengths), pick(finished), pick(directions), pick(tokens))


def _rank_candidates(
    candidates: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    live: Live,
    new_live: Live,
    length: tf.Tensor,
    at_limit: tf.Tensor,
    config: SearchConfig,
) -> list[_Candidates]:
    """Returns what asks for a place in the pool: continuations with EOS, and at the limit the live hypotheses."""
    log_probs, parents, tokens = candidates
    penalty = length_penalty(length, config.alpha, config.penalty)
    ending = tf.equal(tokens, _EOS) & (log_probs > _MINUS_INFINITY / 2)
    if config.beam_size == 1:
        ending &= tf.constant([True] + [False] * (tokens.shape[-1] - 1))
    limited = at_limit[:, tf.newaxis, tf.newaxis] & (new_live.log_probs > _MINUS_INFINITY / 2)

    def rank(asks: tf.Tensor, log_probs: tf.Tensor, behind: float) -> tf.Tensor:
        scores = tf.cast(log_probs / penalty, tf.float64) - behind
        return tf.where(asks, scores, tf.constant(_MINUS_INFINITY, tf.float64))

    return [
        _Candidates(
            rank(ending, log_probs, 0.0),
            log_probs,
            True,
            _extend(live.tokens, parents, tokens),
        ),
        _Candidates(
            rank(limited, new_live.log_probs, _UNFINISHED),
            new_live.log_probs,
            False,
            new_live.tokens,
        ),
    ]


def _is_done(ended: Ended, live: Live, limits: tf.Tensor, config: SearchConfig) -> tf.Tensor:
    """Returns bool [B]: no live hypothesis can get among the N best any more.

    A live hypothesis's log-probability can only fall, and the penalty that helps it most is the one of the limit.
    """
    nth = ended.ranks[:, config.num_hypotheses - 1]
    if config.beam_size == 1:
        return nth > _MINUS_INFINITY / 2
    best_live = tf.reduce_max(live.log_probs, axis=[1, 2])
    bound = best_live / length_penalty(limits, config.alpha, config.penalty)
    return nth >= tf.cast(bound, tf.float64)


def _invariants(structure: Any, growing: bool = False) -> Any:
    """Returns the shapes that loop variables keep: all but the batch; memories grow along axis 3."""
    if isinstance(structure, dict):
        return {key: _invariants(value, growing or key == "memories") for key, value in structure.items()}
    if isinstance(structure, list | tuple):
        return type(structure)(_invariants(value, growing) for value in structure)
    shape = structure.shape.as_list()
    if shape:
        shape[0] = None
    if growing:
        shape[3] = None
    return tf.TensorShape(shape)


def beam_search(step: StepFunction, state: Any, limits: tf.Tensor, config: SearchConfig) -> Result:
    """Searches the most probable token sequences.

    Args:
      step: As Seq2Seq.step: (ids [B, R, K], visible, partner_visible, parents, state) ->
        (logits float32 [B, R, K, V], state).
      state: The decoding state before the first step: nested dicts, lists and tuples of tensors; those
        below a key ``memories`` may grow along axis 3 ([B, R, heads, steps * K, depth]).
      limits: int32 [B], the most tokens (with EOS) that each sentence may get, >= 1.
      config: The search's constants.

    Returns:
      The N best hypotheses of every sentence.
    """
    batch = tf.shape(limits)[0]
    live, ended = _start_live(batch, config), _start_ended(batch, config)
    longest = tf.reduce_max(limits)

    def go_on(length: tf.Tensor, done: tf.Tensor, *_: Any) -> tf.Tensor:
        return (length < longest) & ~tf.reduce_all(done)

    def body(length: tf.Tensor, done: tf.Tensor, live: Live, ended: Ended, state: Any) -> tuple[Any, ...]:
        length += 1
        visible = _visible(live, config)
        partner_visible = tf.reverse(visible, axis=[1]) if config.directions == 2 else None
        logits, state = step(live.ids, visible, partner_visible, live.parents, state)
        candidates = _grow(logits, live, config)
        new_live = _select_live(candidates, live, visible, config)
        at_limit = length >= limits
        kinds = _rank_candidates(candidates, live, new_live, length, at_limit, config)
        ended = _select_ended(ended, kinds, length, done, config)
        done |= at_limit | _is_done(ended, new_live, limits, config)
        return length, done, new_live, ended, state

    fixed = tf.TensorShape([None, config.directions, config.live])
    pool = tf.TensorShape([None, config.beam_size])
    shapes = (
        tf.TensorShape([]),
        tf.TensorShape([None]),
        Live(fixed, fixed, fixed.concatenate([None]), fixed, fixed.concatenate([None])),
        Ended(pool, pool, pool, pool, pool, pool.concatenate([None])),
        _invariants(state),
    )
    start = (tf.constant(0), tf.zeros([batch], tf.bool), live, ended, state)
    _, _, _, ended, _ = tf.while_loop(go_on, body, start, shape_invariants=shapes)

    best = Ended(*(part[:, : config.num_hypotheses] for part in ended))
    penalties = length_penalty(best.lengths, config.alpha, config.penalty)
    return Result(best.tokens, best.log_probs, best.log_probs / penalties, best.lengths, best.finished, best.directions)
