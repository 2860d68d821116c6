"""Lexical constraints and diverse groups in plain Python: one sentence, one hypothesis and one phrase at a time.

As in numpy_beam_search, the model is a function of the prefix; EOS, penalty and Found come from there.
"""

from numpy_beam_search import EOS, NEVER, Found, all_sequences, anything, nothing, penalty, score_of


def occurrences(ids, phrase):
    """Returns how often a phrase occurs in a sequence."""
    return sum(tuple(ids[i : i + len(phrase)]) == tuple(phrase) for i in range(len(ids)))


def missing_phrases(ids, phrases):
    """Returns the phrases that a sequence lacks; a phrase listed n times must occur n times."""
    missing = []
    for i, phrase in enumerate(phrases):
        listed = 1 + sum(other == phrase for other in phrases[:i])
        if occurrences(ids, phrase) < listed:
            missing.append(phrase)
    return missing


def begun(ids, phrase):
    """Returns the length of the longest proper prefix of a phrase with which a sequence ends."""
    return max(j for j in range(len(phrase)) if tuple(ids[len(ids) - j :]) == tuple(phrase[:j]) and j <= len(ids))


def bank(ids, phrases):
    """Returns how many tokens of the phrases a sequence has."""
    missing = missing_phrases(ids, phrases)
    there = sum(map(len, phrases)) - sum(map(len, missing))
    return there + max((begun(ids, phrase) for phrase in missing), default=0)


def constrained_brute_force(log_probs, phrases, *, vocab_size, limit, alpha, kind="gnmt", forbidden=(0,)):
    """Returns all sequences: finished ones with every phrase by score, then unfinished ones, fewest missing first."""
    found = []
    for ids in all_sequences(vocab_size, limit, forbidden):
        missing, finished = len(missing_phrases(ids, phrases)), ids[-1] == EOS
        if not (finished and missing):
            log_prob = score_of(log_probs, ids)
            hypothesis = Found(ids, log_prob, log_prob / penalty(len(ids), alpha, kind), finished)
            found.append((finished, -missing, hypothesis.score, hypothesis))
    return [hypothesis for *_, hypothesis in sorted(found, key=lambda each: each[:3], reverse=True)]


def constrained_search(
    log_probs, phrases, *, limit, beam, alpha, wanted=1, kind="gnmt", forbidden=(0,), allowed=anything, bonus=nothing
):
    """Searches with dynamic beam allocation; `log_probs` and `phrases` are lists with an entry for each direction.

    Phrases are given in each direction's order; `allowed` and `bonus` are as for the plain search. Returns up to `beam`
    hypotheses as (missing phrases, direction, Found).
    """

    def end(ids, log_prob, finished):
        return Found(ids, log_prob, log_prob / penalty(len(ids), alpha, kind) + bonus(ids), finished)

    width = beam // len(log_probs)
    sides = [[((), 0.0)] for _ in log_probs]
    pool = []
    for _ in range(limit):
        ended = []
        for direction, live in enumerate(sides):
            own = phrases[direction]
            grown = _continue(live, log_probs[direction], own, 2 * width, forbidden, allowed)
            kept = _take_turns(grown, own, 2 * width)
            for ids, log_prob in kept:
                if ids[-1] == EOS and (beam > 1 or ids == kept[0][0]):
                    ended.append((0, direction, end(ids, log_prob, True)))
            sides[direction] = [each for each in kept if each[0][-1] != EOS][:width]
        pool = _by_score(pool + ended)[:beam]
        alive = [log_prob for side in sides for _, log_prob in side]
        safe = len(pool) >= wanted and (
            beam == 1 or not alive or pool[wanted - 1][2].score >= max(alive) / penalty(limit, alpha, kind)
        )
        if safe or not alive:
            return pool
    left = [
        (len(missing_phrases(ids, phrases[direction])), direction, end(ids, lp, False))
        for direction, side in enumerate(sides)
        for ids, lp in side
    ]
    return (pool + sorted(left, key=lambda each: (-each[0], each[2].score), reverse=True))[:beam]


def _continue(live, log_probs, phrases, count, forbidden, allowed):
    """Returns each hypothesis's `count` best continuations (ids, log P) and those that its missing phrases need."""
    grown = []
    for ids, log_prob in live:
        step = log_probs(ids)
        possible = [v for v in range(len(step)) if v not in forbidden and allowed(ids, v)]
        tokens = set(sorted(possible, key=lambda v: step[v], reverse=True)[:count])
        for phrase in missing_phrases(ids, phrases):
            tokens |= {phrase[0], phrase[begun(ids, phrase)]}
        for token in tokens.intersection(possible):
            if token != EOS or not missing_phrases(ids, phrases):
                grown.append(((*ids, token), log_prob + step[token]))
    return grown


def _take_turns(grown, phrases, count):
    """Returns the `count` continuations that the banks choose in turn, the bank with most phrase tokens first."""
    by_bank = {}
    for each in sorted(grown, key=lambda g: g[1], reverse=True):
        by_bank.setdefault(bank(each[0], phrases), []).append(each)
    kept = []
    while any(by_bank.values()) and len(kept) < count:
        for number in sorted(by_bank, reverse=True):
            if by_bank[number] and len(kept) < count:
                kept.append(by_bank[number].pop(0))
    return kept


def _by_score(pool):
    return sorted(pool, key=lambda each: each[2].score, reverse=True)


def diverse_search(
    log_probs,
    *,
    groups,
    strength,
    limit,
    beam,
    alpha,
    wanted=1,
    kind="gnmt",
    forbidden=(0,),
    allowed=anything,
    bonus=nothing,
):
    """Returns the `wanted` best hypotheses of diverse beam search.

    Args:
      log_probs: for each direction, a function (prefix) -> log-probabilities [V].
      groups: how many groups share the beam.
      strength: how much a token's log P loses for each hypothesis of an earlier group that the token extends.
      limit, beam, alpha, wanted, kind, forbidden, allowed, bonus: as for the plain search.
    """

    def end(ids, log_prob, finished):
        return Found(ids, log_prob, log_prob / penalty(len(ids), alpha, kind) + bonus(ids), finished)

    width, places, each_wanted = beam // groups // len(log_probs), beam // groups, -(-wanted // groups)
    live = {(g, d): [((), 0.0)] for g in range(groups) for d in range(len(log_probs))}
    pools = [[] for _ in range(groups)]
    for t in range(1, limit + 1):
        chosen = [[] for _ in log_probs]
        for (g, d), side in live.items():
            grown = []
            for ids, log_prob in side:
                step = log_probs[d](ids)
                possible = [v for v in range(len(step)) if v not in forbidden and allowed(ids, v)]
                grown += [((*ids, v), log_prob + step[v]) for v in possible]
            grown.sort(key=lambda each, d=d: each[1] - strength * chosen[d].count(each[0][-1]), reverse=True)
            grown = grown[: 2 * width]
            ended = [end(ids, lp, True) for ids, lp in grown if ids[-1] == EOS]
            pools[g] = sorted(pools[g] + ended, key=lambda f: f.score, reverse=True)[:places]
            live[g, d] = [each for each in grown if each[0][-1] != EOS][:width]
            chosen[d] += [ids[-1] for ids, _ in live[g, d]]
        if t == limit:
            for (g, _), side in live.items():
                pools[g] += [end(ids, lp, False) for ids, lp in side]
        elif all(_is_safe(pools[g], live, g, each_wanted, penalty(limit, alpha, kind)) for g in range(groups)):
            break
    ranked = [sorted(pool, key=lambda f: (f.finished, f.score), reverse=True)[:places] for pool in pools]
    return _merge(ranked, wanted)


def _is_safe(pool, live, group, wanted, longest_penalty):
    best = max((lp for (g, _), side in live.items() if g == group for _, lp in side), default=NEVER)
    return len(pool) >= wanted and pool[wanted - 1].score >= best / longest_penalty


def _merge(pools, wanted):
    """Merges the groups: the best hypothesis of every group, then the second and so on; repeated ones come last."""
    new, again = [], []
    for place in range(max(map(len, pools))):
        row = [pool[place] for pool in pools if place < len(pool)]
        for each in sorted(row, key=lambda f: (f.finished, f.score), reverse=True):
            (again if each.ids in [other.ids for other in new] else new).append(each)
    taken = new[:wanted]
    rest = again[: wanted - len(taken)]
    return [each for part in (taken, rest) for each in sorted(part, key=lambda f: (f.finished, f.score), reverse=True)]
