"""Compares word n-grams and the stepwise penalty with all possible sequences and with the independent search."""

import numpy as np
import pytest
from numpy_beam_search import beam_search, brute_force, penalty, search_directions
from numpy_summary_search import no_word_ngram_again, repeated_ngrams, stepwise_search, summary_penalty
from test_beam_search_oracle import same, search
from toy_step import Toy

BETA = 0.7
# Word boundaries are marked before tokens, as in SentencePiece, or after tokens, as in subword-nmt.
SPELLINGS = {"before": (range(2, 99, 2), ()), "behind": ((), range(2, 99, 2))}


def word_rule(size, begins, ends, vocab_size, ignored=(), turned=(False,)):
    """Returns the toolkit's rule for each direction; for a backward direction, words begin where they end."""
    from t2t_ext.search.word_ngrams import Boundaries, NoRepeatedWordNgrams

    table = {side: np.array([v in tokens for v in range(vocab_size)]) for side, tokens in enumerate((begins, ends))}
    boundaries = Boundaries(*(np.stack([table[side ^ each] for each in turned]) for side in (0, 1)))
    return NoRepeatedWordNgrams(size, boundaries, [[w[::-1] if each else w for each in turned] for w in ignored])


def penalty_of(toy, sentence, words, beta=BETA):
    return lambda ids: summary_penalty(toy.coverage(sentence, ids)[words], beta)


@pytest.mark.parametrize(
    ("size", "ignored", "spelling"),
    [(1, (), "before"), (2, ((2,),), "behind"), (3, (), "behind"), (3, ((2, 3), (4,)), "before")],
)
def test_word_ngrams_agree_with_the_independent_search(size, ignored, spelling):
    limits = [12, 1, 7, 12, 12, 9, 12]
    toy = Toy(len(limits), 6, seed=size, eos=-1.0, scale=1.0)
    begins, ends = SPELLINGS[spelling]
    allowed = no_word_ngram_again(size, begins, ends, ignored)
    found = search(
        toy, limits, rules=lambda: [word_rule(size, begins, ends, 6, ignored)],
        beam_size=4, num_hypotheses=4, alpha=0.6,
    )  # fmt: skip
    for sentence, limit in enumerate(limits):
        log_probs = toy.log_probs(sentence)
        expected = beam_search(log_probs, limit=limit, beam=4, alpha=0.6, wanted=4, allowed=allowed)
        same(found[sentence], expected)
        assert not any(repeated_ngrams(each.ids, size, begins, ends, ignored) for each in expected)


def test_repetitions_are_there_without_the_rule_and_a_long_word_may_come_again():
    toy = Toy(4, 5, seed=4)
    begins, ends = SPELLINGS["before"]

    def best(with_rule):
        import tensorflow as tf

        from t2t_ext.search.rules import MinimumLength

        def ours():
            long = MinimumLength(tf.constant([14] * 4))
            return [long, word_rule(3, begins, ends, 5)] if with_rule else [long]

        found = search(toy, [20] * 4, rules=ours, beam_size=4, num_hypotheses=1, alpha=0.6)
        return [each[0]["ids"] for each in found]

    ruled = best(True)
    assert any(repeated_ngrams(ids, 3, begins, ends) for ids in best(False))
    assert not any(repeated_ngrams(ids, 3, begins, ends) for ids in ruled)
    # N-grams of subwords may repeat: those within a repeated word.
    assert any(repeated_ngrams(ids, 3, range(99), ()) for ids in ruled)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_word_ngrams_of_two_directions(spelling):
    limits = [10, 4, 12, 1, 8]
    toy = Toy(len(limits), 6, seed=7, eos=-0.5, scale=1.0, directions=2, use_partner=True)
    begins, ends = SPELLINGS[spelling]
    turned_round = [no_word_ngram_again(2, begins, ends, [(3, 2)]), no_word_ngram_again(2, ends, begins, [(2, 3)])]
    found = search(
        toy, limits, rules=lambda: [word_rule(2, begins, ends, 6, [(3, 2)], (False, True))],
        beam_size=6, num_hypotheses=6, alpha=0.6,
    )  # fmt: skip
    for sentence, limit in enumerate(limits):
        functions = []
        for direction, allowed in enumerate(turned_round):
            given = toy.log_probs(sentence, direction)

            def ruled(own, partner, given=given, allowed=allowed):
                return [v if allowed(own, token) else -1e9 for token, v in enumerate(given(own, partner))]

            functions.append(ruled)
        expected = search_directions(functions, limit=limit, beam=6, alpha=0.6, wanted=6)
        same(found[sentence], [each for each in expected if each.log_prob > -1e8])


@pytest.mark.parametrize("stepwise", [False, True])
def test_a_wide_beam_finds_the_best_of_all_sequences_by_the_summary_penalty(stepwise):
    from t2t_ext.search import rules

    limits, source, vocab_size = [4, 3, 1, 2, 4], 3, 4
    toy = Toy(len(limits), vocab_size, seed=vocab_size, source=source)
    words = np.array([[True] * source, [True, True, False], [False] * 3, [True, False, True], [True] * 3])

    def ours():
        import tensorflow as tf

        mask = tf.constant(words)
        return [rules.StepwisePenalty(BETA, mask) if stepwise else rules.CoveragePenalty(BETA, mask, 1, "summary")]

    found = search(toy, limits, rules=ours, beam_size=(vocab_size - 2) ** 4 + 3, num_hypotheses=3, alpha=0.6)
    for sentence, limit in enumerate(limits):
        taken = penalty_of(toy, sentence, words[sentence])

        def bonus(ids, taken=taken):
            return -taken(ids) / (penalty(len(ids), 0.6) if stepwise else 1.0)

        finished, unfinished = brute_force(
            toy.log_probs(sentence), vocab_size=vocab_size, limit=limit, alpha=0.6, bonus=bonus
        )
        same(found[sentence], (finished + unfinished)[:3])


@pytest.mark.parametrize(("beam", "wanted", "alpha"), [(4, 4, 0.9), (1, 1, 0.9)])
def test_the_stepwise_penalty_agrees_with_the_independent_search(beam, wanted, alpha):
    from t2t_ext.search import rules

    limits = [12, 1, 7, 12, 3, 9, 2, 12]
    toy = Toy(len(limits), 9, seed=5, eos=0.5, source=4)
    begins, ends = SPELLINGS["before"]
    words = np.array([[True] * 4, [True] * 4, [True, True, False, False], [True] * 4] * 2)
    prefixes = [[2, 3], [], [4], [], [], [5, 5, 5], [], []]

    def ours():
        import tensorflow as tf

        ids = tf.ragged.constant(prefixes, dtype=tf.int32)
        prefix = rules.ForcedPrefix(
            ids.to_tensor(), tf.constant([len(each) for each in prefixes]), tf.constant([False] * 8), [True] * 9
        )
        return [word_rule(2, begins, ends, 9), prefix, rules.StepwisePenalty(BETA, tf.constant(words))]

    found = search(toy, limits, rules=ours, beam_size=beam, num_hypotheses=wanted, alpha=alpha)
    free = no_word_ngram_again(2, begins, ends)
    for sentence, limit in enumerate(limits):
        prefix = prefixes[sentence]

        def allowed(ids, token, prefix=prefix):
            return token == prefix[len(ids)] if len(ids) < len(prefix) else free(ids, token)

        expected = stepwise_search(
            toy.log_probs(sentence), penalty_of(toy, sentence, words[sentence]),
            beam=beam, limit=limit, alpha=alpha, wanted=wanted, allowed=allowed,
        )  # fmt: skip
        same(found[sentence], expected[:wanted])
