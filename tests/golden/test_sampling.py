"""Samples have the right distributions of tokens and of translations; random numbers depend only on the sentence."""

import collections

import numpy as np
import pytest
from numpy_beam_search import EOS, all_sequences, penalty, score_of
from numpy_sampling import chi_square_excess, truncated
from test_beam_search_oracle import search
from test_rules_oracle import Rules
from toy_step import Toy

DRAWS = 20000


def counts_of(logits, banned=(), seed=1, **truncation):
    """Returns how often each token is drawn from one distribution in many draws."""
    import tensorflow as tf

    from t2t_ext.search import random_numbers
    from t2t_ext.search.sampling import Truncation, draw

    key = random_numbers.fold(tf.constant(seed, tf.int64), tf.range(DRAWS))
    rows = tf.tile(tf.constant(logits, tf.float32)[tf.newaxis], [DRAWS, 1])
    tokens = draw(rows, random_numbers.uniform(key, 0), Truncation(**truncation), banned)
    return np.bincount(tokens.numpy(), minlength=len(logits))


@pytest.mark.parametrize("vocab_size", [7, 300, 700])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.7, 0, 1.0), (1.5, 3, 1.0), (1.0, 0, 0.8), (1.0, 0, 0.3), (0.8, 5, 0.9), (1.0, 2000, 0.95)],
)
def test_frequencies(vocab_size, temperature, top_k, top_p):
    logits = 2.0 * np.random.default_rng(vocab_size).standard_normal(vocab_size)
    expected = truncated(logits, temperature=temperature, top_k=top_k, top_p=top_p, forbidden=(0, 4))
    counts = counts_of(logits, (0, 4), temperature=temperature, keep_top_k=top_k, keep_top_p=top_p)
    assert chi_square_excess(counts, expected) < 0
    # The test can distinguish one temperature from another.
    other = truncated(logits, temperature=1.2 * temperature, top_k=top_k, top_p=top_p, forbidden=(0, 4))
    assert chi_square_excess(counts, other) > 0 or np.max(expected) == 1


def test_a_temperature_of_next_to_nothing():
    counts = counts_of([0.5, 9.0, 3.0, 2.9], banned=(1,), temperature=1e-40)
    assert counts.tolist() == [0, 0, DRAWS, 0]


def test_the_nucleus_is_the_smallest_set():
    import tensorflow as tf

    from t2t_ext.search.sampling import _nucleus

    rng = np.random.default_rng(3)
    probabilities = rng.dirichlet(np.full(400, 0.1), size=20).astype(np.float32)
    for share in (0.01, 0.5, 0.9, 0.999, 0.9999999):
        for row, kept in zip(probabilities, _nucleus(tf.constant(probabilities), share).numpy(), strict=True):
            assert set(kept[kept > 0]) <= set(row)
            assert kept.sum() >= min(share, row.sum()) - 1e-6
            assert kept[kept > 0].min() > row[kept == 0].max()  # the most probable ones
            assert kept.sum() - kept[kept > 0].min() < share + 1e-6  # and one fewer would not do


def test_the_borders_of_the_unit_interval():
    """0 draws the first token with a positive probability; the largest number below 1 draws the last such token."""
    import tensorflow as tf

    from t2t_ext.search.sampling import _invert

    weights = np.zeros([6, 300], np.float32)
    weights[:, [5, 130, 131, 270]] = np.random.default_rng(0).random([6, 4]) + 0.1
    lowest = _invert(tf.constant(weights), tf.zeros([6])).numpy()
    highest = _invert(tf.constant(weights), tf.fill([6], np.nextafter(np.float32(1), np.float32(0)))).numpy()
    assert list(lowest) == [5] * 6
    assert list(highest) == [270] * 6


def test_a_sentences_numbers_do_not_depend_on_its_batch():
    import tensorflow as tf

    from t2t_ext.search import random_numbers as numbers

    one = tf.constant([[7, 8, 9, 1]])
    many = tf.constant([[8, 7, 9, 1, 0, 0], [7, 8, 9, 1, 0, 0], [7, 8, 9, 9, 1, 0], [7, 8, 9, 1, 1, 0]])
    keys = numbers.fingerprint(many).numpy()
    assert keys[1] == numbers.fingerprint(one).numpy()[0]
    assert len(set(keys)) == 4


def test_random_numbers_are_uniform_and_unrelated():
    import tensorflow as tf

    from t2t_ext.search import random_numbers as numbers

    keys = numbers.fold(tf.range(200, dtype=tf.int64)[:, tf.newaxis], tf.range(500))
    drawn = np.stack([numbers.uniform(keys, step).numpy() for step in range(2)])
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert chi_square_excess(np.histogram(drawn, bins=64, range=(0, 1))[0], np.full(64, 1 / 64)) < 0
    for left, right in ((drawn[0], drawn[1]), (drawn[0, 1:], drawn[0, :-1]), (drawn[0, :, 1:], drawn[0, :, :-1])):
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 0.012


def sample(toy, limits, keys, chains, rules=list, **truncation):
    """Samples translations of the toy's sentences and returns them in the format of `search`."""
    import tensorflow as tf

    from t2t_ext.search.sampling import Sampling, Truncation

    def strategy():
        return Sampling(tf.constant(keys, tf.int64), Truncation(**truncation))

    settings = {"beam_size": chains, "num_hypotheses": chains, "alpha": 0.6}
    return search(toy, limits, rules=rules, strategy=strategy, **settings)


@pytest.mark.parametrize(
    ("truncation", "rules"),
    [
        ({}, {}),
        ({"temperature": 0.6, "keep_top_p": 0.85}, {}),
        ({"keep_top_k": 2}, {}),
        ({"temperature": 1.3}, {"minimum": [1, 2], "ngram": 2, "prefixes": [[3], [2, 3]], "ends_word": [True, False]}),
    ],
)
def test_whole_translations_have_the_right_probabilities(truncation, rules):
    limits, chains = [3, 4], 1500
    toy = Toy(2, 5, seed=2, scale=1.0)
    names = {"temperature": "temperature", "keep_top_k": "top_k", "keep_top_p": "top_p"}
    rules = Rules(toy, limits, **rules)
    found = sample(toy, limits, [11, 12], chains, rules.make, **truncation)
    for sentence, limit in enumerate(limits):
        log_probs, allowed = toy.log_probs(sentence), rules.allowed(sentence)

        def probability(ids, log_probs=log_probs, allowed=allowed):
            result = 1.0
            for t, token in enumerate(ids):
                past = tuple(ids[:t])
                forbidden = [v for v in range(5) if v == 0 or not allowed(past, v)]
                step = truncated(log_probs(past), forbidden=forbidden, **{names[n]: v for n, v in truncation.items()})
                result *= step[token]
            return result

        sequences = list(all_sequences(5, limit))
        expected = [probability(ids) for ids in sequences]
        assert sum(expected) == pytest.approx(1)
        assert len(found[sentence]) == chains
        counts = collections.Counter(hypothesis["ids"] for hypothesis in found[sentence])
        assert chi_square_excess([counts[ids] for ids in sequences], expected) < 0
        assert chi_square_excess([counts[ids] for ids in sequences], np.roll(expected, 1)) > 0
        for hypothesis in found[sentence][:50]:
            ids = hypothesis["ids"]
            assert hypothesis["log_prob"] == pytest.approx(score_of(log_probs, ids), abs=1e-4)
            assert hypothesis["score"] == pytest.approx(hypothesis["log_prob"] / penalty(len(ids), 0.6), abs=1e-4)
            assert hypothesis["finished"] == (ids[-1] == EOS)


def test_samples_depend_on_their_key_and_number_alone():
    limits = [6, 9, 3]
    toy = Toy(3, 12, seed=4)
    together = sample(toy, limits, [5, 6, 5], 8)
    alone = Toy(1, 12, seed=4)
    alone.table, alone.attention = toy.table[:, 1:2], toy.attention[:, 1:2]
    (fewer,) = sample(alone, [9], [6], 3)
    assert [h["ids"] for h in fewer] == [h["ids"] for h in together[1][:3]]
    assert len({h["ids"] for h in together[1]}) > 4
    (other,) = sample(alone, [9], [7], 8)
    assert [h["ids"] for h in other] != [h["ids"] for h in together[1]]
