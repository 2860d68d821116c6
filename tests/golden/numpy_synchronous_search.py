"""An independent synchronous beam search in plain Python, written from its definition; one sentence at a time.

The state of a hypothesis at step t is computed once, with the partner that it has at step t. So the search builds a
graph of nodes, one for each hypothesis and step. A node knows the nodes of its own past and the nodes of the other side
that it sees. A model's output at a node follows by recursion from the equations and from which nodes see which. In this
way every earlier partner is replayed.

Definitions (K hypotheses per side):

* The partner of a side's hypothesis of rank i is the other side's hypothesis of rank i, or the other side's best one
  (``pairing="best"``). A hypothesis sees its partner's past including the node of the same step. A rank without a live
  hypothesis has a copy of the side's best one.
* Of the 2K best continuations of a side, those with EOS go to the pool, which both sides share; the first K others
  stay alive.
* ``top``: only the K best continuations of a side count; those with EOS go to the pool, the others stay alive. A side
  may thus run out of hypotheses and has then ended.
* ``freeze``: if a hypothesis's continuation with EOS is among the K best of its side, the hypothesis has finished as a
  partner. Descendants of the hypotheses that saw it at this step see from then on only what those saw.
"""

import dataclasses
import math

import numpy as np
from numpy_beam_search import EOS, NEVER, penalty

L2R_ID, R2L_ID = 3, 4


@dataclasses.dataclass(eq=False)
class Node:
    """One step of a hypothesis.

    Attributes:
      side: 0 or 1.
      token: The input token, None for the side's tag.
      past: The earlier nodes of the hypothesis and this node.
      seen: The nodes of the other side that this node sees.
      states: A cache for what models compute at this node.
    """

    side: int
    token: int | None
    past: tuple = ()
    seen: tuple = ()
    states: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Found:
    """A hypothesis: its ids in generation order, log P, penalized score, whether it ends with EOS, and its side."""

    ids: tuple
    log_prob: float
    score: float
    finished: bool
    side: int


@dataclasses.dataclass
class _Live:
    ids: tuple
    log_prob: float
    past: tuple
    frozen: tuple | None = None


def search(
    model,
    *,
    limit,
    beam,
    alpha,
    kind="gnmt",
    forbidden=(0,),
    wanted=1,
    pairing="rank",
    finished_partner="next_alive",
    recompute=False,
    top=False,
    allowed=lambda prefix, token: True,
):
    """Searches for one sentence in both directions.

    Args:
      model: Has ``log_probs(node)`` -> [V] and ``start()`` -> the nodes of each side before the first step.
      limit: The length of the longest hypothesis, EOS included.
      beam: 2K.
      alpha: Exponent of the length penalty.
      kind: Kind of the length penalty, "gnmt" or "len_power".
      forbidden: Ids that are never produced.
      wanted: The search stops when this many hypotheses cannot be beaten any more.
      pairing: ``rank`` or ``best``.
      finished_partner: ``next_alive`` or ``freeze``.
      recompute: Whether every step makes all nodes of a pair anew, with the current partners.
      top: Whether only the K best continuations of a side count.
      allowed: Function (prefix, token) -> whether the token may follow the prefix.

    Returns:
      Up to ``beam`` hypotheses (`Found`), the best first; those cut off by the limit come last.
    """
    width = beam // 2
    starts = model.start()
    live = [[_Live((), 0.0 if i == 0 else NEVER, starts[side]) for i in range(width)] for side in (0, 1)]
    pool = []
    ask = recomputed(model) if recompute else model.log_probs
    for t in range(1, limit + 1):
        _feed(live, pairing)
        grown = [_grow(side, ask, forbidden, allowed)[: width if top else 2 * width] for side in live]
        for side, continuations in enumerate(grown):
            for rank, token, log_prob in continuations:
                if token == EOS:
                    ids = (*live[side][rank].ids, EOS)
                    pool.append(Found(ids, log_prob, log_prob / penalty(t, alpha, kind), True, side))
        pool = sorted(pool, key=lambda found: found.score, reverse=True)[:beam]
        ended = [{rank for rank, token, _ in side[:width] if token == EOS} for side in grown]
        live = [
            _continue(live[side], grown[side], ended[1 - side], width, pairing, finished_partner) for side in (0, 1)
        ]
        alive = [each.log_prob for side in live for each in side if each.log_prob > NEVER]
        if not alive:
            return pool
        if len(pool) >= wanted and pool[wanted - 1].score >= max(alive) / penalty(limit, alpha, kind):
            return pool
    left = [
        Found(each.ids, each.log_prob, each.log_prob / penalty(limit, alpha, kind), False, side)
        for side in (0, 1)
        for each in live[side]
        if each.log_prob > NEVER
    ]
    return (pool + sorted(left, key=lambda found: found.score, reverse=True))[:beam]


def _feed(live, pairing):
    """Adds a node to every hypothesis and sets what each new node sees of the other side."""
    for side, hypotheses in enumerate(live):
        for each in hypotheses:
            node = Node(side, each.ids[-1] if each.ids else None)
            node.past = each.past = (*each.past, node)
    for side, hypotheses in enumerate(live):
        for rank, each in enumerate(hypotheses):
            partner = live[1 - side][0 if pairing == "best" else rank]
            each.past[-1].seen = partner.past if each.frozen is None else each.frozen


def _grow(hypotheses, ask, forbidden, allowed):
    """Returns all continuations (rank, token, log P) of a side's hypotheses, the best first."""
    grown = []
    for rank, each in enumerate(hypotheses):
        if each.log_prob > NEVER:
            step = ask(each.past[-1])
            tokens = [v for v in range(len(step)) if v not in forbidden and allowed(each.ids, v)]
            grown += [(rank, v, each.log_prob + step[v]) for v in tokens]
    return sorted(grown, key=lambda each: each[2], reverse=True)


def _continue(hypotheses, continuations, ended_partners, width, pairing, finished_partner):
    """Returns the hypotheses of a side that stay alive, filled up with copies to ``width``."""
    chosen = []
    for rank, token, log_prob in continuations:
        parent = hypotheses[rank]
        if token == EOS or len(chosen) == width:
            continue
        frozen = parent.frozen
        if finished_partner == "freeze" and frozen is None and (0 if pairing == "best" else rank) in ended_partners:
            frozen = parent.past[-1].seen
        chosen.append(_Live((*parent.ids, token), log_prob, parent.past, frozen))
    if not chosen:
        return [dataclasses.replace(each, log_prob=NEVER) for each in hypotheses]
    best = chosen[0]
    copies = [_Live(best.ids, NEVER, best.past, best.frozen) for _ in range(width - len(chosen))]
    return chosen + copies


def recomputed(model):
    """Returns a function (node) -> log-probabilities at a copy of it with a new past and new nodes of its partner."""

    def ask(node):
        own = [Node(node.side, each.token) for each in node.past]
        other = [Node(1 - node.side, each.token) for each in node.seen]
        for nodes, partners in ((own, other), (other, own)):
            for t, each in enumerate(nodes):
                each.past, each.seen = tuple(nodes[: t + 1]), tuple(partners[: t + 1])
        return model.log_probs(own[-1])

    return ask


def log_probs_of_pair(model, pair):
    """Returns log-probabilities [V] at every step of both sides, given the words of both in generation order.

    Position t of a side sees the other side's inputs up to t, or all of them if there are fewer.
    """
    starts = model.start()
    nodes = [[*starts[side], *(Node(side, token) for token in (None, *pair[side][:-1]))] for side in (0, 1)]
    for side in (0, 1):
        for t, node in enumerate(nodes[side]):
            node.past, node.seen = tuple(nodes[side][: t + 1]), tuple(nodes[1 - side][: t + 1])
    return [[model.log_probs(node) for node in side[len(starts[0]) :]] for side in nodes]


def log_softmax(x):
    """Returns x - log sum exp(x) of a vector."""
    shifted = x - x.max()
    return shifted - math.log(np.exp(shifted).sum())
