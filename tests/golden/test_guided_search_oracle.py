"""Compares lexical constraints and diverse groups with all possible sequences and with plain Python."""

import numpy as np
import pytest
from numpy_beam_search import beam_search
from numpy_guided_search import constrained_brute_force, constrained_search, diverse_search, missing_phrases
from test_beam_search_oracle import same
from test_rules_oracle import Rules
from toy_step import Toy


def make_phrases(phrases, turned_round=(False,)):
    """Converts phrases (one list of tuples of ids per sentence) to the format of the toolkit's search."""
    import tensorflow as tf

    from t2t_ext.search import lexical_constraints

    number = max([1, *map(len, phrases)])
    longest = max([1, *(len(phrase) for row in phrases for phrase in row)])
    tokens, lengths = np.zeros([len(phrases), number, longest], np.int32), np.zeros([len(phrases), number], np.int32)
    for b, row in enumerate(phrases):
        for c, phrase in enumerate(row):
            tokens[b, c, : len(phrase)], lengths[b, c] = phrase, len(phrase)
    return lexical_constraints.make_phrases(tf.constant(tokens), tf.constant(lengths), turned_round)


def search(toy, limits, *, phrases=None, turned_round=(False,), groups=1, strength=0.5, rules=list, **config):
    """Runs the toolkit's search over the toy; returns a list of dicts per sentence, which count unmet phrases.

    The function `rules` makes the rules inside the graph.
    """
    import tensorflow as tf

    from t2t_ext.search.beam_search import SearchConfig
    from t2t_ext.search.beam_search import beam_search as ours
    from t2t_ext.search.guided_strategies import ConstrainedBeam, DiverseGroups
    from t2t_ext.search.lexical_constraints import count_unmet

    settings = SearchConfig(directions=toy.directions, **config)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)], autograph=False)
    def run(lengths):
        strategy, made = None, None
        if phrases is not None:
            made = make_phrases(phrases, turned_round)
            strategy = ConstrainedBeam(made)
        elif groups > 1:
            strategy = DiverseGroups(groups, strength)
        state = toy.start(tf.shape(lengths)[0], settings.live)
        asked = rules()
        step = toy.make_step(with_attention=any(rule.needs_attention for rule in asked))
        found = ours(step, state, lengths, settings, asked, strategy)
        unmet = tf.zeros_like(found.lengths) if made is None else count_unmet(made, found.ids, found.directions)
        return found, unmet

    result, unmet = run(tf.constant(limits, tf.int32))
    result = type(result)(*(part.numpy() for part in result))
    return [
        [
            {
                "ids": tuple(int(i) for i in result.ids[b, n, : result.lengths[b, n]]),
                "log_prob": result.log_probs[b, n],
                "score": result.scores[b, n],
                "finished": bool(result.finished[b, n]),
                "direction": int(result.directions[b, n]),
                "unmet": int(unmet[b, n]),
            }
            for n in range(result.ids.shape[1])
        ]
        for b in range(len(limits))
    ]


# Vocabulary: 0 is PAD, 1 is EOS, ids from 2 are words.
EDGE_CASES = {
    "none": [],
    "one word": [(2,)],
    "one phrase": [(3, 2)],
    "overlapping": [(2, 3), (3, 4)],
    "overlapping with itself": [(2, 2)],
    "the same twice": [(3,), (3,)],
    "the same phrase twice": [(2, 2), (2, 2)],
    "a beginning of another": [(4,), (4, 3)],
    "an end of another": [(3, 4), (4,)],
    "inside another": [(2, 3, 4), (3,)],
    "a beginning within itself": [(2, 3, 2, 4)],
    "several": [(4,), (2,), (3,)],
    "too many for the limit": [(2, 2, 2), (3, 3, 3)],
}


def test_a_wide_beam_finds_the_best_of_all_sequences_with_the_phrases():
    """A wide beam finds the best sequences with the phrases in every edge case; the cases form one batch."""
    limit, vocab_size, wanted = 5, 5, 4
    cases = list(EDGE_CASES.values())
    toy = Toy(len(cases), vocab_size, seed=1)
    found = search(toy, [limit] * len(cases), phrases=cases, beam_size=3**5 + 10, num_hypotheses=wanted, alpha=0.6)
    for sentence, phrases in enumerate(cases):
        expected = constrained_brute_force(
            toy.log_probs(sentence), phrases, vocab_size=vocab_size, limit=limit, alpha=0.6
        )[:wanted]
        same(found[sentence], expected)
        for hypothesis in found[sentence]:
            assert hypothesis["unmet"] == len(missing_phrases(hypothesis["ids"], phrases))
            assert not (hypothesis["finished"] and hypothesis["unmet"])
    assert not any(h["unmet"] for row in found[:-1] for h in row[:1])
    assert all(h["unmet"] for h in found[-1])


@pytest.mark.parametrize("beam", [1, 4])
def test_ordinary_beams_with_phrases_agree_with_the_independent_search(beam):
    rng = np.random.default_rng(beam)
    cases = [[], [(7,)], [(8, 9), (9, 10)], [(5, 5, 6), (5,), (5,)], [(2, 9)] * 2, [(11, 12, 13, 14, 15)]]
    cases += [[tuple(map(int, rng.integers(2, 23, size=rng.integers(1, 4)))) for _ in range(k)] for k in (1, 2, 2, 3)]
    limits = [12, 12, 12, 14, 7, 3, 12, 9, 12, 5]
    toy = Toy(len(cases), 23, seed=5, eos=1.0)
    settings = {"alpha": 0.6}
    found = search(toy, limits, phrases=cases, beam_size=beam, num_hypotheses=beam, **settings)
    for sentence, (phrases, limit) in enumerate(zip(cases, limits, strict=True)):
        expected = constrained_search(
            [toy.log_probs(sentence)], [phrases], limit=limit, beam=beam, wanted=beam, **settings
        )
        same(found[sentence][: len(expected)], [hypothesis for *_, hypothesis in expected])
        assert [h["unmet"] for h in found[sentence]] == [number for number, *_ in expected]


@pytest.mark.parametrize("wanted", [1, 4])
def test_a_sentence_without_phrases_is_searched_as_ever(wanted):
    """A sentence without phrases has the usual result, even in a batch with sentences that have phrases."""
    limits = [12, 1, 7, 12, 3]
    toy = Toy(len(limits), 23, seed=5, eos=1.0)
    cases = [[], [], [(5, 6)], [], []]
    found = search(toy, limits, phrases=cases, beam_size=4, num_hypotheses=wanted, alpha=0.6, banned=(0, 3))
    for sentence in (0, 1, 3, 4):
        expected = beam_search(
            toy.log_probs(sentence), limit=limits[sentence], beam=4, alpha=0.6, forbidden=(0, 3), wanted=wanted
        )
        same(found[sentence], expected[:wanted])


@pytest.mark.parametrize("groups", [1, 2])
def test_phrases_and_groups_obey_all_rules(groups):
    """Phrases, or groups, agree with the independent search when lengths, n-grams, prefixes and coverage matter too."""
    limits, beam = [9, 4, 12, 9, 1, 12], 4
    toy = Toy(len(limits), 9, seed=3, eos=1.0, source=3)
    rules = Rules(
        toy, limits, minimum=[3, 5, 0, 6, 2, 4], ngram=2, beta=0.3, prefixes=[[2, 5], [], [4], [3, 3, 3], [2], []],
        ends_word=[True, False, True, False, True, False],
    )  # fmt: skip
    cases = [[(5, 6)], [(7,), (8,)], [(4, 4), (2,)], [], [(3,)], [(5, 2, 7), (5,), (5,)]]
    guided = {"groups": groups, "strength": 0.7} if groups > 1 else {"phrases": cases}
    settings = {"alpha": 0.6, "wanted": beam, "beam": beam}
    found = search(toy, limits, rules=rules.make, beam_size=beam, num_hypotheses=beam, alpha=0.6, **guided)
    for sentence, limit in enumerate(limits):
        ruled = {"allowed": rules.allowed(sentence), "bonus": rules.bonus(sentence), "limit": limit}
        log_probs = [toy.log_probs(sentence)]
        if groups > 1:
            expected = diverse_search(log_probs, **guided, **settings, **ruled)
        else:
            missing = constrained_search(log_probs, [cases[sentence]], **settings, **ruled)
            expected = [hypothesis for *_, hypothesis in missing]
        there = [each for each in found[sentence] if each["log_prob"] > -1e8]
        same(there, expected)
        if groups == 1:
            assert [each["unmet"] for each in there] == [number for number, *_ in missing]


def test_phrases_in_two_directions():
    """The right-to-left direction produces the phrases in reverse order."""
    cases = [[(5, 6, 7)], [], [(8, 9), (3,)]]
    backward = [[phrase[::-1] for phrase in row] for row in cases]
    limits = [9, 6, 8]
    toy = Toy(3, 21, seed=7, eos=0.5, directions=2)
    found = search(toy, limits, phrases=cases, turned_round=(False, True), beam_size=6, num_hypotheses=6, alpha=0.6)
    for sentence, limit in enumerate(limits):
        expected = constrained_search(
            [toy.log_probs(sentence, direction) for direction in range(2)],
            [cases[sentence], backward[sentence]],
            limit=limit,
            beam=6,
            alpha=0.6,
            wanted=6,
        )
        same(found[sentence], [hypothesis for *_, hypothesis in expected])
        assert [h["direction"] for h in found[sentence]] == [direction for _, direction, _ in expected]
        assert [h["unmet"] for h in found[sentence]] == [unmet for unmet, *_ in expected]


def test_phrases_and_a_large_vocabulary():
    """Improbable phrase tokens are found in a vocabulary so large that the best tokens are searched in blocks."""
    toy = Toy(2, 5003, seed=1, eos=6.0, scale=1.0, rows=401)
    cases = [[(4000, 17)], [(4999,), (2, 3, 4)]]
    found = search(toy, [8, 8], phrases=cases, beam_size=4, num_hypotheses=4, alpha=0.6)
    for sentence in range(2):
        expected = constrained_search(
            [toy.log_probs(sentence)], [cases[sentence]], limit=8, beam=4, alpha=0.6, wanted=4
        )
        same(found[sentence], [hypothesis for *_, hypothesis in expected])


@pytest.mark.parametrize(
    ("beam", "groups", "strength", "wanted"), [(4, 2, 0.3, 1), (4, 4, 5.0, 4), (6, 3, 0.3, 2), (8, 2, 5.0, 8)]
)
def test_diverse_groups_agree_with_the_independent_search(beam, groups, strength, wanted):
    limits = [9, 1, 6, 9]
    toy = Toy(len(limits), 23, seed=5, eos=1.0)
    settings = {"groups": groups, "strength": strength, "alpha": 0.6}
    found = search(toy, limits, beam_size=beam, num_hypotheses=wanted, banned=(0, 3), **settings)
    for sentence, limit in enumerate(limits):
        expected = diverse_search(
            [toy.log_probs(sentence)], limit=limit, beam=beam, forbidden=(0, 3), wanted=wanted, **settings
        )
        assert len(expected) == wanted or limit == 1
        same(found[sentence][: len(expected)], expected)


def test_diverse_groups_in_two_directions():
    limits = [8, 3, 6]
    toy = Toy(len(limits), 21, seed=7, eos=0.5, directions=2)
    found = search(toy, limits, groups=2, strength=0.8, beam_size=8, num_hypotheses=8, alpha=0.6)
    for sentence, limit in enumerate(limits):
        expected = diverse_search(
            [toy.log_probs(sentence, direction) for direction in range(2)],
            groups=2, strength=0.8, limit=limit, beam=8, alpha=0.6, wanted=8,
        )  # fmt: skip
        same(found[sentence][: len(expected)], expected)


def test_wide_diverse_groups_find_the_best_of_all_sequences():
    """Groups wide enough for every sequence find the best ones: no sequence is lost, and repeats come last."""
    limit, vocab_size = 3, 4
    toy = Toy(1, vocab_size, seed=3)
    (found,) = search(toy, [limit], groups=2, strength=1.0, beam_size=40, num_hypotheses=6, alpha=0.6)
    expected = constrained_brute_force(toy.log_probs(0), [], vocab_size=vocab_size, limit=limit, alpha=0.6)
    same(found, expected[:6])


def test_diversity_diversifies():
    """Strong diversity makes the groups' first tokens differ; with weak diversity all groups find the same."""
    toy = Toy(6, 40, seed=9, eos=-30.0)

    def first_tokens(strength):
        found = search(toy, [6] * 6, groups=4, strength=strength, beam_size=4, num_hypotheses=4, alpha=0.6)
        return [{h["ids"][0] for h in row} for row in found]

    assert all(len(tokens) == 4 for tokens in first_tokens(1000.0))
    assert all(len(tokens) == 1 for tokens in first_tokens(1e-6))


def test_diverse_groups_that_find_the_same():
    """Distinct hypotheses come first, the best one at the top; repeated ones fill the rest of the list."""
    toy = Toy(3, 12, seed=2, eos=1.0)
    found = search(toy, [6] * 3, groups=2, strength=1e-6, beam_size=4, num_hypotheses=4, alpha=0.6)
    for sentence, row in enumerate(found):
        expected = beam_search(toy.log_probs(sentence), limit=6, beam=2, alpha=0.6, wanted=2)
        same(row, expected + expected)
