"""Finished sentences leave the batch: one hypothesis that never ends does not hold up the other sentences."""

import numpy as np
import pytest
import tensorflow as tf
from numpy_beam_search import beam_search as by_hand
from toy_step import Toy

from t2t_ext.search.beam_search import SearchConfig, beam_search

SENTENCES = 13


def searched_sentences(toy, limits, **config):
    """Searches eagerly; returns the result and the number of sentences in the batch of each step."""
    step, counts = toy.make_step(), []

    def counted(ids, *args):
        counts.append(int(ids.shape[0]))
        return step(ids, *args)

    settings = SearchConfig(**config)
    start = toy.start(len(limits), settings.live)
    return beam_search(counted, start, tf.constant(limits), settings), counts


@pytest.mark.parametrize(("beam_size", "least"), [(4, 1), (2, 2), (1, 4)])
def test_a_runaway_hypothesis_goes_on_alone(beam_size, least):
    """A sentence that never ends continues alone, or with just enough others for the rows that a product needs."""
    toy = Toy(SENTENCES, 11, seed=1, eos=4.0)
    toy.table[:, 5, :, 1] -= 30  # this one never ends
    found, counts = searched_sentences(toy, [20] * SENTENCES, beam_size=beam_size)
    assert counts[0] == SENTENCES
    assert counts == sorted(counts, reverse=True)
    assert len(counts) == 20
    assert counts[10:] == [least] * 10
    expected = [sentence != 5 for sentence in range(SENTENCES)]
    np.testing.assert_array_equal(found.finished[:, 0], expected)


def test_every_sentence_keeps_its_own_limit_and_result():
    limits = [1 + (7 * sentence) % 13 for sentence in range(SENTENCES)]
    toy = Toy(SENTENCES, 11, seed=2)
    found, counts = searched_sentences(toy, limits, beam_size=4, num_hypotheses=4)
    assert len(counts) <= max(limits)
    assert len(set(counts)) > 3
    for sentence, limit in enumerate(limits):
        expected = by_hand(toy.log_probs(sentence), limit=limit, beam=4, alpha=0.6, wanted=4)
        lengths = found.lengths[sentence].numpy()
        ids = [tuple(found.ids[sentence, n, :length].numpy()) for n, length in enumerate(lengths)]
        assert ids == [each.ids for each in expected]
        assert (lengths <= limit).all()
