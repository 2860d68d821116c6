"""An independent beam search in plain Python, and an oracle that tries every sequence.

Both know a model only as a function ``log_probs(prefix) -> [V]`` of one sentence
(float64, normalized over the whole vocabulary). They process one sentence at a time, without batches.

`beam_search` has tensor2tensor's semantics (the best ``2 * beam`` continuations of the live
hypotheses; live and finished hypotheses in separate pools). Each sentence has its own limit
and its own stop, and forbidden symbols are left out.

Rules are plain functions: ``allowed(prefix, token)`` for the search, ``right(ids)`` of
a whole sequence for the oracle, and ``bonus(ids)``, which is added to the score.
"""

import dataclasses
import itertools
import math

EOS = 1
NEVER = -math.inf


@dataclasses.dataclass(frozen=True)
class Found:
    """A hypothesis: its ids (including EOS if it has one), log P, penalized score, and whether it ends with EOS."""

    ids: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool

    @property
    def length(self):
        """Returns the number of generated tokens, EOS included."""
        return len(self.ids)


def penalty(length, alpha, kind="gnmt"):
    """Returns the length penalty ((5 + length) / 6)^alpha of Wu et al. (2016) eq. 14, or length^alpha."""
    return ((5.0 + length) / 6.0) ** alpha if kind == "gnmt" else float(length) ** alpha


def score_of(log_probs, ids):
    """Returns log P of a sequence by the chain rule."""
    return sum(log_probs(tuple(ids[:t]))[token] for t, token in enumerate(ids))


def all_sequences(vocab_size, limit, forbidden=(0,)):
    """Yields every sequence of at most `limit` tokens whose only EOS is last, and those of `limit` without EOS."""
    words = [v for v in range(vocab_size) if v != EOS and v not in forbidden]
    for length in range(1, limit + 1):
        for body in itertools.product(words, repeat=length - 1):
            yield (*body, EOS)
    yield from itertools.product(words, repeat=limit)


def anything(prefix, token):
    """Allows every token: no rule."""
    return True


def nothing(ids):
    """Returns 0: no bonus."""
    return 0.0


def brute_force(
    log_probs, *, vocab_size, limit, alpha, kind="gnmt", forbidden=(0,), right=lambda ids: True, bonus=nothing
):
    """Returns the finished and the unfinished hypotheses that are right, each list by penalized score, best first."""
    finished, unfinished = [], []
    for ids in all_sequences(vocab_size, limit, forbidden):
        if not right(ids):
            continue
        log_prob = score_of(log_probs, ids)
        found = Found(ids, log_prob, log_prob / penalty(len(ids), alpha, kind) + bonus(ids), ids[-1] == EOS)
        (finished if found.finished else unfinished).append(found)
    return _ranked(finished), _ranked(unfinished)


def _ranked(found):
    return sorted(found, key=lambda f: f.score, reverse=True)


def _grow(live, log_probs, forbidden, count, allowed):
    """Returns the `count` best continuations (ids, log P) of the live hypotheses of one direction."""
    grown = []
    for rank, (ids, log_prob) in enumerate(live):
        step = log_probs(ids, rank)
        grown += [((*ids, v), log_prob + step[v]) for v in range(len(step)) if v not in forbidden and allowed(ids, v)]
    return sorted(grown, key=lambda g: g[1], reverse=True)[:count]


def beam_search(log_probs, **settings):
    """Searches for one sentence in one direction; see `search_directions`."""
    return search_directions([lambda own, partner: log_probs(own)], **settings)


def search_directions(
    log_probs,
    *,
    limit,
    beam,
    alpha,
    kind="gnmt",
    forbidden=(0,),
    wanted=1,
    allowed=anything,
    bonus=nothing,
    top=False,
    heuristic=False,
):
    """Searches for one sentence in one or two directions.

    Args:
      log_probs: for each direction (one or two) a function (own prefix, partner's prefix) -> [V] log-probabilities;
        the partner is the other direction's live hypothesis of the same rank.
      limit: the length of the longest hypothesis, EOS included.
      beam: the number of live hypotheses of all directions together, and the size of their common finished pool.
      alpha: exponent of the length penalty.
      kind: "gnmt" or "len_power".
      forbidden: ids that are never produced.
      wanted: how many hypotheses the caller wants; the search stops when that many cannot be beaten any more.
      allowed: function (prefix, token) -> whether the token may follow the prefix.
      bonus: function (ids) of a hypothesis that has ended, added to its score; at most 0.
      top: whether only as many best continuations count as there are live hypotheses, instead of twice as many.
      heuristic: whether to stop when no live hypothesis would win by ending at the next step at no cost.

    Returns:
      Up to `beam` hypotheses, the best first. Those cut off by the limit follow all finished ones, by penalized score.
    """
    width = beam // len(log_probs)
    live = [[((), 0.0)] for _ in log_probs]
    finished = []
    for t in range(1, limit + 1):
        grown = []
        for direction, function in enumerate(log_probs):
            partners = [ids for ids, _ in live[direction - 1]]

            def ask(own, rank, function=function, partners=partners):
                return function(own, partners[min(rank, len(partners) - 1)])

            grown.append(_grow(live[direction], ask, forbidden, width if top else 2 * width, allowed))

        def end(ids, log_prob, finished, t=t):
            return Found(ids, log_prob, log_prob / penalty(t, alpha, kind) + bonus(ids), finished)

        ended = [end(i, lp, True) for side in grown for i, lp in side if i[-1] == EOS]
        finished = _ranked(finished + ended)[:beam]
        live = [[(i, lp) for i, lp in side if i[-1] != EOS][:width] for side in grown]
        alive = [lp for side in live for _, lp in side]
        if not alive:
            return finished
        length = min(t + 1, limit) if heuristic else limit
        if len(finished) >= wanted and finished[wanted - 1].score >= max(alive) / penalty(length, alpha, kind):
            return finished
    left = [end(i, lp, False) for side in live for i, lp in side]
    return (finished + _ranked(left))[:beam]


def greedy(log_probs, *, limit, alpha, kind="gnmt", forbidden=(0,), allowed=anything):
    """Returns the hypothesis with the most probable token at every step, until EOS or the limit."""
    ids, log_prob = (), 0.0
    while len(ids) < limit and EOS not in ids:
        step = log_probs(ids)
        best = max((v for v in range(len(step)) if v not in forbidden and allowed(ids, v)), key=lambda v: step[v])
        ids, log_prob = (*ids, best), log_prob + step[best]
    return Found(ids, log_prob, log_prob / penalty(len(ids), alpha, kind), EOS in ids)
