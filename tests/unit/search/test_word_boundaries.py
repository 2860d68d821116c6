"""Tests of word boundaries among the subwords of real vocabularies, for both directions of generation."""

import numpy as np
import pytest

from t2t_ext.data.features.types import TARGET, Text
from t2t_ext.data.generation import vocabulary
from t2t_ext.data.generation.preparation import TextPreparation
from t2t_ext.data.generation.workers import Workers

SENTENCE = "the old lamp paints the flowers here ."


@pytest.fixture(scope="module", params=["sentencepiece", "subword_nmt"])
def encoder(request, toy_corpus, tiny_encoder):
    if request.param == "sentencepiece":
        return tiny_encoder
    samples = [{"inputs": source, "targets": target} for source, target in toy_corpus.train]
    with Workers(1) as workers:
        made = vocabulary.train_vocabulary(
            samples, {"inputs": Text(), "targets": Text(side=TARGET)}, vocab_size=0, joint=True, sample_size=999,
            seed=1, workers=workers, preparation=TextPreparation(subwords="subword_nmt", num_merges=20),
        )  # fmt: skip
    return made.target


@pytest.mark.parametrize("turned", [False, True])
def test_words_are_those_between_spaces(encoder, turned):
    from t2t_ext.search.word_ngrams import word_boundaries

    ids = encoder.encode(SENTENCE)
    assert len(ids) > len(SENTENCE.split()) + 3  # some words have several subwords
    begins, ends = (table[0] for table in word_boundaries(encoder, (turned,)))
    written = ids[::-1] if turned else ids
    words = []
    for place, token in enumerate(written):
        if place == 0 or begins[token] or ends[written[place - 1]]:
            words.append([])
        words[-1].append(token)
    spelt = [encoder.decode(word[::-1] if turned else word).strip() for word in words]
    assert spelt == (SENTENCE.split()[::-1] if turned else SENTENCE.split())


def test_both_directions_side_by_side(tiny_encoder):
    from t2t_ext.search.word_ngrams import word_boundaries

    begins, ends = word_boundaries(tiny_encoder, (False, True))
    assert begins.shape == ends.shape == (2, tiny_encoder.vocab_size)
    np.testing.assert_array_equal(begins[0], ends[1])
    assert not begins[1].any()
    assert not ends[0].any()


def test_words_that_the_vocabulary_cannot_write(encoder):
    from t2t_ext.config.decode import resolve_decode_hparams
    from t2t_ext.translation.searcher import unknown_words

    written = "no_repeat_ngram_size=2,no_repeat_ngram_unit=words,no_repeat_ngram_ignore="
    unknown = [] if encoder.segmented_by_graph else ["\N{SNOWMAN}"]  # SentencePiece vocabularies contain all bytes
    assert unknown_words(resolve_decode_hparams(f"{written}. the \N{SNOWMAN}"), encoder) == unknown
    assert unknown_words(resolve_decode_hparams(f"{written}. lamp"), encoder) == []
    assert unknown_words(resolve_decode_hparams(), encoder) == []
