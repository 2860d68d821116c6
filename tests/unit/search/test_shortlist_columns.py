"""Tests of the candidates of each sentence in a batch, and of the mapping between ids and their columns."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext.data.datasets.shortlist import Shortlist
from t2t_ext.search.shortlist import BEYOND, ShortlistTable, columns_of, ids_of

VOCAB_SIZE = 300


@pytest.fixture(scope="module")
def shortlist():
    rng = np.random.default_rng(1)
    best = np.where(rng.random([50, 7]) < 0.7, rng.integers(11, VOCAB_SIZE, [50, 7]), 0).astype(np.int32)
    return Shortlist(np.array([*range(11), 40, 41, 200], np.int32), best, ("s", "t"))


SOURCES = np.array([[20, 21, 22, 1], [49, 1, 0, 0], [1, 0, 0, 0], [20, 20, 30, 1]], np.int32)
MORE = np.array([[[250, 251]], [[0, 0]], [[12, 40]], [[0, 0]]], np.int32)


def test_candidates_are_each_sentences_own(shortlist):
    columns = ShortlistTable(shortlist, VOCAB_SIZE).columns(tf.constant(SOURCES), [tf.constant(MORE)], (0, 2, 41), 8)
    ids = columns.ids.numpy()
    # The padding of the source has no candidates, whatever the shortlist contains for PAD.
    expected = [
        sorted({*shortlist.always, *shortlist.best[source[source > 0]].ravel(), *more.ravel()})
        for source, more in zip(SOURCES, MORE, strict=True)
    ]
    assert [[i for i in row if i != BEYOND] for row in ids.tolist()] == expected
    assert ids.shape[1] % 8 == 0
    assert max(map(len, expected)) <= ids.shape[1] < max(map(len, expected)) + 8
    np.testing.assert_array_equal(columns.banned.numpy() < -1e8, np.isin(ids, [0, 2, 41]))
    alone = ShortlistTable(shortlist, VOCAB_SIZE).columns(tf.constant(SOURCES[1:2, :2]), [], (0,), 8).ids.numpy()
    assert [i for i in alone[0].tolist() if i != BEYOND] == expected[1]


@pytest.mark.parametrize(("least", "width"), [(8, 24), (100, 104), (129, 144), (270, 288)])
def test_widths_are_few(shortlist, least, width):
    columns = ShortlistTable(shortlist, VOCAB_SIZE).columns(tf.constant(SOURCES[2:3]), [], (0,), least)
    assert columns.ids.shape[1] == width


def test_columns_and_ids(shortlist):
    columns = ShortlistTable(shortlist, VOCAB_SIZE).columns(tf.constant(SOURCES), [], (0, 2), 8)
    ids = columns.ids.numpy()
    places = np.arange(ids.shape[1] * 4).reshape(4, 2, -1)[:, :, ::-1] % ids.shape[1]
    found = ids_of(columns, tf.constant(places, tf.int32)).numpy()
    wanted = np.take_along_axis(np.where(ids == BEYOND, 0, ids)[:, np.newaxis], places, axis=2)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(columns_of(columns, found), np.where(found == 0, 0, places))
    # Special ids are their own columns; an id that is not a candidate gets the column of PAD.
    assert columns_of(columns, tf.constant([[1, 299]] * 4)).numpy().tolist() == [[1, 0]] * 4
