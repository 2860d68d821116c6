"""Tests of sentences that have no attention to show."""

import pytest

from t2t_ext.analysis.attention import sentences
from t2t_ext.analysis.attention.sentences import look
from t2t_ext.data.text.text_encoder import EOS_ID
from t2t_ext.errors import UserError
from t2t_ext.translation.hypothesis import Hypothesis


def test_a_sentence_without_a_translation_is_told(make_translator, monkeypatch):
    one = make_translator(beam_size=1)
    monkeypatch.setattr(one, "translate", lambda lines: [[Hypothesis("", -1e9, 0, -1e9, False, ())]])
    with pytest.raises(UserError, match="There is no translation: the model's probabilities are NaN"):
        look(one, "the cat")


def test_a_sentence_of_which_the_subword_model_leaves_nothing_is_empty(make_translator, monkeypatch):
    one = make_translator(beam_size=1)
    with pytest.raises(UserError, match="The sentence is empty"):
        look(one, " \u3000")
    monkeypatch.setattr(sentences, "_ids", lambda encoder, text: [EOS_ID])
    monkeypatch.setattr(one, "translate", None)
    with pytest.raises(UserError, match="The sentence is empty"):
        look(one, "\u200b")
