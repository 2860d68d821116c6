"""Beam search over one or two directions, inside ``tf.function``.

As in T2T, live and finished hypotheses are kept separately. Of the 2K best continuations of
K live hypotheses, those that end with EOS compete for the pool of finished hypotheses by
penalized score; the others continue. Every sentence has its own length limit and stops on its
own, so its result does not depend on the rest of the batch.

The model's key/value caches are never reordered. The keys and values of all hypotheses of a
sentence stay side by side, in column ``step * K + rank``. Only a small bool matrix, the ancestry,
is reordered with the beam; it says which columns are a hypothesis's own past.

With two directions (Zhou et al. 2019) each has K live hypotheses of its own and both share the
pool. The module ``partners`` decides what a hypothesis sees of the other direction.

Legend: B sentences, R directions, K live hypotheses of a direction, F places in the pool,
N hypotheses asked for, T steps, V vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID
from t2t_ext.search.partners import Partners, follow_partners, partner_columns, partner_invariants, start_partners
from t2t_ext.search.rules import Rule, Step
from t2t_ext.search.search_state import (
    NOT_THERE,
    UNFINISHED,
    Candidates,
    FinishedPool,
    Live,
    Result,
    SearchConfig,
    length_penalty,
    lengthened,
)
from t2t_ext.search.shortlist import Columns
from t2t_ext.search.strategies import BeamStrategy, Continuations
from t2t_ext.search.top_k import log_normalizer

StepFunction = Callable[..., tuple[tf.Tensor, ...]]

# A matrix product with fewer rows than this may round differently from the same rows in a larger product.
MIN_ROWS = 4
# How many sentences may be searched together once some are done. There are few sizes because oneDNN compiles every
# product for each number of rows, on each thread.
_SIZES = np.array(sorted(factor << power for factor in (1, 3) for power in range(20)), np.int32)


def at_least_wide(ids: tf.Tensor) -> tf.Tensor:
    """Pads ids int32 [..., T] with PAD to at least MIN_ROWS positions, int32 [..., max(T, MIN_ROWS)].

    Feature vectors float32 [B, S, F] are padded with zero vectors to float32 [B, max(S, MIN_ROWS), F].
    """
    vectors = [[0, 0]] if ids.dtype.is_floating else []
    missing = tf.maximum(MIN_ROWS - tf.shape(ids)[-1 - len(vectors)], 0)
    paddings = [[0, 0]] * (ids.shape.rank - 1 - len(vectors)) + [[0, missing]] + vectors
    return tf.pad(ids, paddings, constant_values=PAD_ID)


def _start_live(batch: tf.Tensor, strategy: BeamStrategy, config: SearchConfig) -> Live:
    """Returns K hypotheses without tokens in every direction; the strategy says which of them exist."""
    shape = [batch, config.directions, config.live]
    return Live(
        ids=tf.zeros(shape, tf.int64),
        log_probs=tf.broadcast_to(tf.constant(strategy.first_log_probs(config)), shape),
        tokens=tf.zeros([*shape, 0], tf.int64),
        parents=tf.broadcast_to(tf.range(config.live, dtype=tf.int64), shape),
        ancestry=tf.zeros([*shape, 0], tf.bool),
    )


def _start_pool(batch: tf.Tensor, config: SearchConfig) -> FinishedPool:
    shape = [batch, config.beam_size]
    return FinishedPool(
        ranks=tf.fill(shape, tf.constant(NOT_THERE, tf.float64)),
        log_probs=tf.fill(shape, NOT_THERE),
        lengths=tf.zeros(shape, tf.int64),
        finished=tf.zeros(shape, tf.bool),
        directions=tf.zeros(shape, tf.int64),
        tokens=tf.zeros([*shape, 0], tf.int64),
    )


def _visible(live: Live, config: SearchConfig) -> tf.Tensor:
    """Returns the ancestry extended by each hypothesis's own column of this step, bool [B, R, K, (T + 1) * K]."""
    own = tf.one_hot(tf.range(config.live), config.live, True, False)  # [K, K]
    own = tf.broadcast_to(own, [tf.shape(live.ids)[0], config.directions, config.live, config.live])  # [B, R, K, K]
    return tf.concat([live.ancestry, own], axis=3)


def _extend(tokens: tf.Tensor, parents: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """Appends tokens int64 [B, R, C] to the tokens [B, R, K, T] of their parents; returns [B, R, C, T + 1]."""
    return tf.concat([tf.gather(tokens, parents, batch_dims=2), new[..., tf.newaxis]], axis=3)


def _next_live(
    candidates: Continuations, chosen: tuple[tf.Tensor, tf.Tensor], live: Live, visible: tf.Tensor, config: SearchConfig
) -> Live:
    """Returns the new live hypotheses; ``chosen`` is the result of ``BeamStrategy.choose``."""
    _, parents, tokens = candidates
    places, log_probs = chosen
    places = tf.cast(places, tf.int64)
    if config.directions == 2:
        # The other direction also attends to empty places, so they hold a copy of the first hypothesis.
        places = tf.where(log_probs > NOT_THERE / 2, places, places[..., :1])
    parents = tf.gather(parents, places, batch_dims=2)  # [B, R, K]
    tokens = tf.gather(tokens, places, batch_dims=2)  # [B, R, K]
    return Live(
        ids=tokens,
        log_probs=tf.maximum(log_probs, NOT_THERE),
        tokens=_extend(live.tokens, parents, tokens),
        parents=parents,
        ancestry=tf.gather(visible, parents, batch_dims=2),  # [B, R, K, (T + 1) * K]
    )


def _int32(numbers: tf.Tensor) -> tf.Tensor:
    return tf.cast(numbers, tf.int32)


def _sum(parts: Iterable[tf.Tensor | None]) -> tf.Tensor | None:
    """Returns the sum of the rules' contributions, float32 [B, R, K] by parent, or None if there are none."""
    found = [part for part in parts if part is not None]
    return tf.add_n(found) if found else None


def _rank_candidates(
    candidates: Continuations,
    live: Live,
    new_live: Live,
    bonus: tf.Tensor | None,
    subtracted: tf.Tensor | None,
    length: tf.Tensor,
    at_limit: tf.Tensor,
    config: SearchConfig,
) -> list[Candidates]:
    """Returns the candidates for the pool: continuations with EOS and, at the limit, the live hypotheses."""
    log_probs, parents, tokens = candidates
    penalty = length_penalty(length, config.alpha, config.penalty)
    ending = tf.equal(tokens, EOS_ID) & (log_probs > NOT_THERE / 2)  # [B, R, C]
    if config.beam_size == 1:
        ending &= tf.constant([True] + [False] * (tokens.shape[-1] - 1))
    limited = at_limit[:, tf.newaxis, tf.newaxis] & (new_live.log_probs > NOT_THERE / 2)

    def rank(asks: tf.Tensor, log_probs: tf.Tensor, parents: tf.Tensor, behind: float) -> tf.Tensor:
        scores = log_probs / penalty
        if bonus is not None:
            scores += tf.gather(bonus, parents, batch_dims=2)
        scores = tf.cast(scores, tf.float64) - behind
        return tf.where(asks, scores, tf.constant(NOT_THERE, tf.float64))

    def restored(log_probs: tf.Tensor, parents: tf.Tensor) -> tf.Tensor:
        return log_probs if subtracted is None else log_probs + tf.gather(subtracted, parents, batch_dims=2)

    ended = rank(ending, log_probs, parents, 0.0), restored(log_probs, parents)
    truncated = (
        rank(limited, new_live.log_probs, new_live.parents, UNFINISHED),
        restored(new_live.log_probs, new_live.parents),
    )
    return [
        Candidates(*ended, True, _extend(live.tokens, parents, tokens)),
        Candidates(*truncated, False, new_live.tokens),
    ]


def _invariants(structure: Any, growing: bool = False) -> Any:
    """Returns the shape invariants of loop variables: the batch size may change and memories grow along axis 3."""
    if isinstance(structure, dict):
        return {key: _invariants(value, growing or key == "memories") for key, value in structure.items()}
    if isinstance(structure, list | tuple):
        parts = [_invariants(value, growing) for value in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
    shape = structure.shape.as_list()
    if shape:
        shape[0] = None
    if growing:
        shape[3] = None
    return tf.TensorShape(shape)


class _Going(NamedTuple):
    """The loop variables for the sentences that are still searched; except for scalars, axis 0 is the sentence.

    Attributes:
      places: int64 [B], the position of each sentence in the whole batch.
      limits: int64 [B], the most tokens of each sentence's hypotheses, EOS included.
      done: bool [B], whether the search for a sentence is over.
      live: The live hypotheses.
      pool: The pool of finished hypotheses.
      state: The decoding state of the model.
      rules: The states of all rules, the strategy's first.
      partners: The state of the partners; see the module ``partners``.
      columns: The candidates of a shortlist; () without a shortlist.
    """

    places: tf.Tensor
    limits: tf.Tensor
    done: tf.Tensor
    live: Live
    pool: FinishedPool
    state: Any
    rules: tuple[Any, ...]
    partners: Partners
    columns: Columns | tuple[()]


def _going_invariants(going: _Going, config: SearchConfig) -> _Going:
    fixed = tf.TensorShape([None, config.directions, config.live])
    places = tf.TensorShape([None, config.beam_size])
    each = tf.TensorShape([None])
    return _Going(
        places=each,
        limits=each,
        done=each,
        live=Live(fixed, fixed, fixed.concatenate([None]), fixed, fixed.concatenate([None])),
        pool=FinishedPool(places, places, places, places, places, places.concatenate([None])),
        state=_invariants(going.state),
        rules=_invariants(going.rules),
        partners=partner_invariants(config),
        columns=_invariants(going.columns),
    )


def _count(done: tf.Tensor) -> tf.Tensor:
    """Returns how many sentences are not done, int32 scalar."""
    return tf.reduce_sum(tf.cast(~done, tf.int32))


def _update_pools(pool: FinishedPool, going: _Going) -> FinishedPool:
    """Returns the pools of all sentences, tokens [B, F, longest], updated for the sentences that were searched."""
    missing = tf.shape(pool.tokens)[2] - tf.shape(going.pool.tokens)[2]
    new = going.pool._replace(tokens=lengthened(going.pool.tokens, missing))
    rows = going.places[:, tf.newaxis]
    return FinishedPool(
        *(tf.tensor_scatter_nd_update(whole, rows, part) for whole, part in zip(pool, new, strict=True))
    )


def _smaller_size(searched: tf.Tensor, least: int) -> tf.Tensor:
    """Returns the next smaller number of sentences to search together; 0 if ``searched`` is at most ``least``.

    ``searched`` and the result are int32 scalars.
    """
    return tf.where(searched <= least, 0, tf.reduce_max(tf.where(searched > _SIZES, _SIZES, 0)))


def _leave_out_done(going: _Going, least: int) -> _Going:
    """Keeps the sentences that are not done, plus as few finished ones as are needed to reach an allowed size."""
    needed = tf.maximum(_count(going.done), least)
    rows = tf.cast(tf.argsort(tf.cast(going.done, tf.float32), stable=True), tf.int64)
    rows = rows[: tf.reduce_min(tf.where(needed <= _SIZES, _SIZES, tf.shape(rows)[0]))]
    return tf.nest.map_structure(lambda part: tf.gather(part, rows) if part.shape.rank else part, going)


def _scores(pool: FinishedPool, with_bonus: bool, config: SearchConfig) -> tf.Tensor:
    """Returns the penalized scores float32 [B, N] of finished hypotheses, with the rules' bonus if there is one."""
    scores = pool.log_probs / length_penalty(pool.lengths, config.alpha, config.penalty)
    if not with_bonus:
        return scores
    # Ranks are scores plus the bonus, minus a multiple of 1e6.
    bonus = pool.ranks - tf.cast(scores, tf.float64)
    bonus -= UNFINISHED * tf.round(bonus / UNFINISHED)
    return scores + tf.where(pool.ranks > NOT_THERE / 2, tf.cast(bonus, tf.float32), 0.0)


def beam_search(
    step: StepFunction,
    state: Any,
    limits: tf.Tensor,
    config: SearchConfig,
    rules: Sequence[Rule] = (),
    strategy: BeamStrategy | None = None,
    columns: Columns | None = None,
) -> Result:
    """Searches for the most probable token sequences.

    When a third or a quarter of the sentences being searched are done, the following steps leave them out.

    Args:
      step: A function like Seq2Seq.step: (ids int64 [B, R, K], visible, partner_visible, parents, state) ->
        (logits float32 [B, R, K, V], state). Anything it knows about single sentences belongs in the state. If a rule
        needs attention, a function like Seq2Seq.step_with_attention: it returns (logits, attention float32
        [B, R, K, S], state).
      state: The decoding state before the first step: nested dicts, lists and tuples of tensors, which are scalars or
        have the sentences on axis 0. Tensors under a key ``memories`` may grow along axis 3 ([B, R, heads, steps * K,
        depth]).
      limits: int32 [B], the most tokens (with EOS) that each sentence's hypotheses may have, >= 1.
      config: The search's constants.
      rules: The rules that hypotheses must obey, in the order in which they are applied.
      strategy: How continuations are chosen; None: the usual beam.
      columns: The ids that the columns of the step's logits stand for; None: the whole vocabulary.

    Returns:
      The N best hypotheses of every sentence.
    """
    strategy = strategy or BeamStrategy()
    rules = (strategy, *rules)
    with_attention = any(rule.needs_attention for rule in rules)
    with_bonus = any(type(rule).bonus is not Rule.bonus for rule in rules)
    with_subtracted = any(type(rule).subtracted is not Rule.subtracted for rule in rules)
    batch = tf.shape(limits)[0]
    longest = tf.reduce_max(limits)
    least = -(-MIN_ROWS // config.beam_size)

    def extend(length: tf.Tensor, going: _Going) -> tuple[tf.Tensor, _Going]:
        """Gives every hypothesis one more token."""
        live = going.live
        length += 1
        visible = _visible(live, config)
        partner_visible = partner_columns(going.partners, visible, live.log_probs, config)
        logits, *attention, state = step(live.ids, visible, partner_visible, live.parents, going.state)
        now = Step(
            *(length, _int32(going.limits), _int32(live.tokens), live.log_probs, logits),
            attention=attention[0] if with_attention else None,
            columns=going.columns if isinstance(going.columns, Columns) else None,
        )
        with_states = list(zip(rules, going.rules, strict=True))
        allowed, normalizer = logits, log_normalizer(logits)
        for rule, rule_state in with_states:
            allowed = rule.adjust(allowed, now, rule_state)
        log_probs, *numbers = strategy.propose(allowed, normalizer, live, now, going.rules[0], config)
        parents, tokens = (tf.cast(each, tf.int64) for each in numbers)
        candidates = log_probs, parents, tokens
        new_live = _next_live(candidates, strategy.choose(candidates, config, going.rules[0]), live, visible, config)
        partners = follow_partners(
            going.partners, partner_visible, candidates, new_live.parents, live.log_probs, strategy, config
        )
        parents, ids = _int32(new_live.parents), _int32(new_live.ids)
        states = [rule.update(each, parents, ids, now) for rule, each in with_states]
        at_limit = tf.cast(length, tf.int64) >= going.limits
        bonus = _sum(rule.bonus(now, each) for rule, each in with_states) if with_bonus else None
        subtracted = _sum(rule.subtracted(now, each) for rule, each in with_states) if with_subtracted else None
        kinds = _rank_candidates(candidates, live, new_live, bonus, subtracted, length, at_limit, config)
        pool = strategy.collect(going.pool, kinds, length, going.done, config, states[0])
        done = going.done | at_limit | strategy.is_done(pool, new_live, going.limits, config)
        changed = {"live": new_live, "pool": pool, "state": state, "rules": tuple(states), "partners": partners}
        return length, going._replace(done=done, **changed)

    def until_many_are_done(
        length: tf.Tensor, pool: FinishedPool, going: _Going
    ) -> tuple[tf.Tensor, FinishedPool, _Going]:
        enough = _smaller_size(tf.shape(going.done)[0], least)
        length, going = tf.while_loop(
            lambda length, going: _count(going.done) > enough,
            extend,
            (length, going),
            shape_invariants=(tf.TensorShape([]), _going_invariants(going, config)),
        )
        return length, _update_pools(pool, going), _leave_out_done(going, least)

    live, empty = _start_live(batch, strategy, config), _start_pool(batch, config)
    states = tuple(rule.start(batch, config.live) for rule in rules)
    partners = start_partners(batch, config)
    done = tf.zeros([batch], tf.bool)
    numbers = tf.range(tf.cast(batch, tf.int64))
    going = _Going(numbers, tf.cast(limits, tf.int64), done, live, empty, state, states, partners, columns or ())
    pool = empty._replace(tokens=tf.zeros([batch, config.beam_size, longest], tf.int64))
    shapes = _going_invariants(going, config)
    _, pool, _ = tf.while_loop(
        lambda length, pool, going: ~tf.reduce_all(going.done),
        until_many_are_done,
        (tf.constant(0), pool, going),
        shape_invariants=(tf.TensorShape([]), shapes.pool, shapes),
    )
    best = strategy.finish(pool, config)
    return Result(
        ids=_int32(best.tokens[:, :, : _int32(tf.reduce_max(best.lengths))]),
        log_probs=best.log_probs,
        scores=_scores(best, with_bonus or with_subtracted, config),
        lengths=_int32(best.lengths),
        finished=best.finished,
        directions=_int32(best.directions),
    )
