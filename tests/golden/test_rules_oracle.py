"""Compares the rules (length, n-grams, prefixes, coverage) with all possible sequences and the independent search."""

import numpy as np
import pytest
from numpy_beam_search import EOS, beam_search, brute_force, greedy, search_directions
from test_beam_search_oracle import same, search
from toy_step import Toy

BETA = 0.4
LIMITS = [4, 3, 1, 2, 4, 4]
MINIMUM = [2, 2, 3, 0, 3, 1]
PREFIXES = [[2], [], [3, 2], [2], [2, 3, 3], [3, 3, 2, 2, 2]]
ENDS_WORD = [True, False, False, True, True, True]


class Rules:
    """The rules of a search in two forms: the toolkit's, made inside the graph, and plain functions of a sentence."""

    def __init__(self, toy, limits, *, minimum=None, ngram=0, prefixes=None, ends_word=None, beta=0.0):
        self.toy, self.limits, self.ngram, self.beta = toy, limits, ngram, beta
        self.minimum, self.prefixes = minimum, prefixes
        self.ends_word = ends_word or [False] * len(limits)
        # Only EOS and tokens with even numbers may follow a complete word.
        self.starts = [token == EOS or token % 2 == 0 for token in range(toy.table.shape[-1])]

    def make(self):
        """Returns the toolkit's rules."""
        import tensorflow as tf

        from t2t_ext.search import rules

        made = []
        if self.minimum:
            made.append(rules.MinimumLength(tf.constant(self.minimum)))
        if self.ngram:
            made.append(rules.NoRepeatedNgrams(self.ngram))
        if self.beta:
            words = tf.constant([self.words(sentence) for sentence in range(len(self.limits))])
            made.append(rules.CoveragePenalty(self.beta, words, self.toy.directions))
        if self.prefixes:
            ids = tf.ragged.constant(self.prefixes, dtype=tf.int32)
            lengths = tf.constant([len(prefix) for prefix in self.prefixes])
            made.append(rules.ForcedPrefix(ids.to_tensor(), lengths, tf.constant(self.ends_word), self.starts))
        return made

    def words(self, sentence):
        """Returns which source positions are words; each further sentence has one word fewer."""
        size = self.toy.attention.shape[-1]
        return [position < max(size - sentence, 1) for position in range(size)]

    def allowed(self, sentence):
        """Returns a function (prefix, token) -> whether the token may follow, for a sentence."""

        def function(ids, token):
            position, limit = len(ids), self.limits[sentence]
            if self.prefixes and position < len(self.prefixes[sentence]):
                return token == self.prefixes[sentence][position]
            behind = self.prefixes and position == len(self.prefixes[sentence]) and self.ends_word[sentence]
            if behind and not self.starts[token]:
                return False
            if self.minimum and token == EOS and position < min(self.minimum[sentence], limit - 1):
                return False
            grams = [tuple((*ids, token)[i : i + self.ngram]) for i in range(position - self.ngram + 2)]
            return not self.ngram or not grams or grams[-1] not in grams[:-1]

        return function

    def right(self, sentence):
        """Returns a function (ids) -> bool that checks a whole sequence, written independently of `allowed`.

        N-grams within the forced prefix may be repeated.
        """

        def function(ids):
            body = [token for token in ids if token != EOS]
            prefix = self.prefixes[sentence] if self.prefixes else []
            if body[: len(prefix)] != prefix[: len(ids)]:
                return False
            behind = ids[len(prefix)] if prefix and self.ends_word[sentence] and len(ids) > len(prefix) else EOS
            if not self.starts[behind]:
                return False
            ends_early = self.minimum and ids[-1] == EOS and len(ids) < self.limits[sentence]
            if ends_early and len(body) < self.minimum[sentence]:
                return False
            grams = [tuple(ids[i : i + self.ngram]) for i in range(len(ids) - self.ngram + 1)]
            late = [i + self.ngram > len(prefix) for i in range(len(grams))]
            return not self.ngram or not any(late[i] and grams[i] in grams[:i] for i in range(len(grams)))

        return function

    def bonus(self, sentence):
        """Returns a function (ids) -> the coverage penalty."""

        def function(ids):
            covered = np.clip(self.toy.coverage(sentence, ids), 1e-6, 1.0)
            return self.beta * np.log(covered)[self.words(sentence)].sum()

        return function


KINDS = {
    "minimum": {"minimum": MINIMUM},
    "ngram_1": {"ngram": 1},
    "ngram_2": {"ngram": 2},
    "prefix": {"prefixes": PREFIXES},
    "words": {"prefixes": PREFIXES, "ends_word": ENDS_WORD},
    "coverage": {"beta": BETA},
    "all": {"minimum": MINIMUM, "ngram": 2, "prefixes": PREFIXES, "ends_word": ENDS_WORD, "beta": BETA},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab_size", [pytest.param(4, marks=pytest.mark.slow), 5])
def test_a_wide_beam_finds_the_best_of_all_sequences(vocab_size, kind):
    toy = Toy(len(LIMITS), vocab_size, seed=vocab_size, source=7)
    rules = Rules(toy, LIMITS, **KINDS[kind])
    beam = (vocab_size - 2) ** 4 + 3
    found = search(toy, LIMITS, rules=rules.make, beam_size=beam, num_hypotheses=3, alpha=0.6)
    for sentence, limit in enumerate(LIMITS):
        finished, unfinished = brute_force(
            toy.log_probs(sentence), vocab_size=vocab_size, limit=limit, alpha=0.6,
            right=rules.right(sentence), bonus=rules.bonus(sentence),
        )  # fmt: skip
        expected = finished + unfinished
        assert expected
        same(found[sentence], expected[:3])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("beam", "wanted", "alpha"), [pytest.param(4, 1, 0.6, marks=pytest.mark.slow), (3, 3, 1.0), (1, 1, 0.6)]
)
def test_ordinary_beams_agree_with_the_independent_search(beam, wanted, alpha, kind):
    limits = [12, 1, 7, 12, 3, 9, 2, 12]
    settings = {
        **KINDS[kind],
        **({"minimum": [9, 4, 3, 14, 0, 5, 1, 2]} if "minimum" in KINDS[kind] else {}),
        **({"prefixes": [*PREFIXES, [2, 2], [5, 4, 6, 7]]} if "prefixes" in KINDS[kind] else {}),
        **({"ends_word": [*ENDS_WORD, True, True]} if "ends_word" in KINDS[kind] else {}),
    }
    toy = Toy(len(limits), 9, seed=5, eos=0.5, source=9)
    rules = Rules(toy, limits, **settings)
    found = search(toy, limits, rules=rules.make, beam_size=beam, num_hypotheses=wanted, alpha=alpha)
    for sentence, limit in enumerate(limits):
        constraints = {"limit": limit, "alpha": alpha, "allowed": rules.allowed(sentence)}
        if beam == 1:
            best = greedy(toy.log_probs(sentence), **constraints)
            score = best.score + rules.bonus(sentence)(best.ids)
            expected = [type(best)(best.ids, best.log_prob, score, best.finished)]
        else:
            expected = beam_search(
                toy.log_probs(sentence), beam=beam, wanted=wanted, bonus=rules.bonus(sentence), **constraints
            )
        same(found[sentence], expected[:wanted])


def test_two_directions():
    limits = [9, 4, 9, 1, 6]
    toy = Toy(len(limits), 8, seed=7, eos=0.5, directions=2, use_partner=True)
    rules = Rules(toy, limits, minimum=[3, 2, 5, 0, 1], ngram=2)
    found = search(toy, limits, rules=rules.make, beam_size=6, num_hypotheses=6, alpha=0.6)
    for sentence, limit in enumerate(limits):
        functions = [toy.log_probs(sentence, direction) for direction in range(2)]
        allowed = rules.allowed(sentence)
        expected = search_directions(functions, limit=limit, beam=6, alpha=0.6, wanted=6, allowed=allowed)
        same(found[sentence], expected)


def test_a_large_vocabulary_and_longer_ngrams():
    toy = Toy(3, 1003, seed=1, eos=3.0, scale=3.0, rows=97)
    limits = [9, 12, 12]
    rules = Rules(toy, limits, minimum=[5, 0, 11], ngram=3)
    found = search(toy, limits, rules=rules.make, beam_size=4, num_hypotheses=4, alpha=0.6)
    for sentence, limit in enumerate(limits):
        allowed = rules.allowed(sentence)
        same(
            found[sentence],
            beam_search(toy.log_probs(sentence), limit=limit, beam=4, alpha=0.6, wanted=4, allowed=allowed),
        )
