"""Tests of SimCut's second pass: it sets whole vectors of the second half of a batch to zero."""

import keras
import numpy as np
import tensorflow as tf

from t2t_ext.data.text.special_ids import EOS_ID, FIRST_TEXT_ID, L2R_ID
from t2t_ext.layers import dropout
from t2t_ext.layers.embeddings import FeatureEmbedding, TokenEmbedding

PROBABILITY = 0.25


def cut_rows(x, seed=(1, 2)):
    """Returns the float [2 B, ..., D] of ``x()`` under token_cut, and the share of zero vectors in its second half."""
    with dropout.seed_scope(tf.constant(seed)), dropout.token_cut(PROBABILITY):
        found = x()
    half = len(found) // 2
    return found.numpy(), (np.abs(found[half:]).max(-1) == 0).mean()


def test_whole_vectors_of_the_second_half_alone_are_cut_and_none_is_scaled():
    embedding = TokenEmbedding(40, 6)
    embedding.build()
    ids = tf.constant(np.random.default_rng(0).integers(FIRST_TEXT_ID, 40, [200, 2, 30]), tf.int32)
    whole = embedding(ids).numpy()
    found, share = cut_rows(lambda: embedding(ids))
    np.testing.assert_array_equal(found[:100], whole[:100])
    zero = np.abs(found).max(-1) == 0
    np.testing.assert_array_equal(found[~zero], whole[~zero])
    assert abs(share - PROBABILITY) < 0.02
    assert abs(zero[100:].mean((0, 2)) - PROBABILITY).max() < 0.03  # on both targets
    np.testing.assert_array_equal(cut_rows(lambda: embedding(ids))[0], found)
    assert (cut_rows(lambda: embedding(ids), seed=(1, 3))[0] != found).any()
    np.testing.assert_array_equal(embedding(ids), whole)


def test_ends_and_directions_are_never_cut():
    embedding = TokenEmbedding(40, 6)
    embedding.build()
    ids = tf.constant([[L2R_ID, EOS_ID]] * 200)
    _, share = cut_rows(lambda: embedding(ids))
    assert share == 0


def test_feature_vectors_are_cut_after_their_projection():
    embedding = FeatureEmbedding(3, 6, initializer=keras.initializers.Ones())
    embedding.build()
    features = tf.ones([200, 30, 3])
    found, share = cut_rows(lambda: embedding(features))
    assert abs(share - PROBABILITY) < 0.02
    assert (found[:100] != 0).all()
