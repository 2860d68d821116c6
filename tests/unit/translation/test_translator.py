"""Tests of a translator's description and abilities, and of the lines that it cannot translate."""

import io
import types

import pytest
import sentencepiece
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.text.text_encoder import EOS_ID, SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.models.ensemble import Ensemble
from t2t_ext.translation import translator


def test_it_says_what_it_is(make_translator, tiny_model):
    one = make_translator(beam_size=8, num_hypotheses=2)
    model = f"Transformer of {tiny_model.count_params():,} parameters"
    subwords = f"{one.source_encoder.vocab_size} subwords"
    assert (
        repr(one) == f"<Translator: {model}, {subwords} to {subwords}, l2r, beam_size=8, alpha=0.6, num_hypotheses=2>"
    )
    encoder = one.source_encoder
    assert f"{model} + {model}," in repr(translator.Translator(Ensemble([tiny_model] * 2), encoder, encoder))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"sampling_method": "random"}, False),
        ({"diverse_groups": 2}, False),
        ({"beam_extends": "top"}, False),
    ],
)
def test_exports_have_constraints_where_the_search_takes_them(make_translator, settings, expected):
    assert make_translator(**settings).can_constrain is expected


def test_an_empty_line_has_one_translation(make_translator):
    one = make_translator(beam_size=3, num_hypotheses=3)
    full, empty = one.translate(["the cat", ""])
    assert len(full) == 3
    assert [(each.text, each.log_prob, each.score, each.length) for each in empty] == [("", 0.0, 0.0, 0)]


def test_lines_that_are_not_empty_and_get_no_translation_are_numbered(make_translator, monkeypatch):
    """If the search finds nothing, as with NaN probabilities, the numbers of the non-empty lines are kept."""
    one = make_translator()

    def nothing_found(settings, sources, empty, **given):
        zeros = tf.zeros([len(empty), 1])
        counts = tf.cast(zeros, tf.int32)
        return {
            "outputs": tf.fill([len(empty), 1], ""),
            "log_probs": tf.where(empty[:, tf.newaxis], 0.0, zeros - 1e9),
            "scores": zeros,
            "lengths": counts,
            "finished": empty[:, tf.newaxis],
            "directions": counts,
            "ids": counts[..., tf.newaxis],
        }

    monkeypatch.setattr(one, "_search", nothing_found)
    assert one(["the cat", "", "the lamp", " \u3000"]) == ["", "", "", ""]
    assert one.untranslated_line_numbers == (1, 3)
    assert one.empty_line_numbers == ()


def test_lines_that_are_not_empty_and_whose_translation_is_are_numbered(make_translator, monkeypatch):
    """A model that always prefers EOS gives empty translations only if they are allowed."""
    one, longer = make_translator(beam_size=2, min_length=0), make_translator(beam_size=2)
    step = one.model.step

    def end(*args, **kwargs):
        logits, state = step(*args, **kwargs)
        return logits + tf.one_hot(EOS_ID, logits.shape[-1], on_value=1e3), state

    monkeypatch.setattr(one.model, "step", end)
    assert one(["the cat", "", "the lamp"]) == ["", "", ""]
    assert (one.empty_line_numbers, one.untranslated_line_numbers) == ((1, 3), ())
    assert [len(hypotheses[0].ids) for hypotheses in longer.translate(["the cat", "", "the lamp"])] == [2, 0, 2]
    assert longer.empty_line_numbers == ()


def test_lines_of_which_a_normalizing_subword_model_leaves_nothing_are_empty(toy_corpus):
    """A user's SentencePiece model may drop invisible characters; a source without subwords gets no translation."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(source for source, _ in toy_corpus.train), model_writer=model, vocab_size=60,
        hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
    )  # fmt: skip
    encoder = SubwordEncoder(model.getvalue())
    lines = ["the cat", "\u200b", "\ufeff \u200b", ""]
    assert [bool(encoder.encode(line)) for line in lines] == [True, False, False, False]
    size = encoder.vocab_size
    small = registry.model("transformer")(
        registry.hparams("transformer_test").replace(num_hidden_layers=1), source_vocab_size=size,
        target_vocab_size=size,
    )  # fmt: skip
    hparams = DecodeHParams(beam_size=1, min_length=1, max_length_ratio=0, max_length_offset=3)
    one = translator.Translator(small, encoder, encoder, hparams)
    assert [found[0].length for found in one.translate(lines)] == [3, 0, 0, 0]
    assert (one.empty_line_numbers, one.untranslated_line_numbers) == ((), ())
    assert one.search_batch(tf.constant(lines))["lengths"].numpy().tolist() == [[3], [0], [0], [0]]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"lines": ["a", "b\ud800c"]}, "lines, number 2: U\\+D800"),
        ({"lines": ["a"], "prefixes": ["\udfff"]}, "prefixes, number 1: U\\+DFFF"),
        ({"lines": ["a"], "constraints": [["b", "\udc00"]]}, "constraints, number 1: U\\+DC00"),
    ],
)
def test_half_a_surrogate_pair_is_no_text(make_translator, given, named):
    with pytest.raises(UserError, match=f"{named} is half a surrogate pair"):
        make_translator(beam_size=1).translate(**given)


def test_what_a_model_says_of_itself_is_taken_from_it(tiny_model, tiny_encoder):
    hparams = tiny_model.hparams.replace(target_direction="r2l")
    size = tiny_encoder.vocab_size
    turned = type(tiny_model)(hparams, source_vocab_size=size, target_vocab_size=size)
    assert not turned.built
    one = translator.Translator(turned, tiny_encoder, tiny_encoder, DecodeHParams(beam_size=2, max_length_offset=3))
    assert (one.target_direction, one.can_force_prefix) == ("r2l", False)
    assert len(one(["the cat"])) == 1
    assert translator.Translator(tiny_model, tiny_encoder, tiny_encoder).target_direction == "l2r"


def test_what_is_no_text_is_named(make_translator):
    one = make_translator(beam_size=1)
    with pytest.raises(UserError, match="Number 2 of the inputs is None, which is no text"):
        one(["a", None])
    with pytest.raises(UserError, match="Number 1 of the prefixes is None, which is no text"):
        one.translate(["a"], prefixes=[None])
    for pair in (("a", "b", "c"), "ab"):
        with pytest.raises(UserError, match=r"Number 2 is .*: pairs are \(source, translation\)"):
            one.score([("a", "b"), pair])


def test_what_truncates_is_named(make_translator, tiny_model, monkeypatch):
    one = make_translator(max_input_length=50)
    assert one.describe_limits() == "max_input_length=50 subwords"
    monkeypatch.setattr(tiny_model, "longest_source", 31)
    assert make_translator(max_input_length=20).source_limit == 20
    short = make_translator(max_input_length=50)
    assert short.describe_limits() == "30 subwords, the most that the pretrained encoder reads (targets: 50)"
    other = Ensemble([tiny_model, tiny_model])
    assert (other.longest_source, short.source.read(["the " * 99]).rows[0][30]) == (31, EOS_ID)


def test_encoders_of_another_size_are_told(tiny_model, tiny_encoder):
    other = types.SimpleNamespace(vocab_size=tiny_encoder.vocab_size + 1)
    for side, encoders in (("source", (other, tiny_encoder)), ("target", (tiny_encoder, other))):
        told = rf"made for {tiny_encoder.vocab_size} {side} ids, and the {side} encoder has {other.vocab_size}\. Give"
        with pytest.raises(UserError, match=told):
            translator.Translator(tiny_model, *encoders)


def test_settings_that_do_not_fit_are_told(tiny_model, tiny_encoder, make_translator):
    with pytest.raises(UserError, match=r"precision=mixed_bfloat16: this Transformer computes in float32\. Leave"):
        translator.Translator(tiny_model, tiny_encoder, tiny_encoder, DecodeHParams(precision="mixed_bfloat16"))
    translator.Translator(tiny_model, tiny_encoder, tiny_encoder, DecodeHParams(precision="float32"))
    with pytest.raises(UserError, match="num_hypotheses=5: from 1 to beam_size=2"):
        make_translator(beam_size=2).search_batch(tf.constant(["the cat"]), num_hypotheses=5)
