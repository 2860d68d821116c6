"""Tests of the steps that take the beginning of a document, or keep sentences apart by tags."""

import pickle

import pytest

from t2t_ext.data.text import document_steps
from t2t_ext.data.text.text_steps import TextSteps, parse_steps
from t2t_ext.errors import UserError


def test_the_first_words_are_counted_behind_the_tokenizer_and_spelt_as_they_are():
    assert TextSteps(("first_3_words",)).prepare(["a  b\tc d", "a b c", " a b c d", "", "x"]) == [
        "a  b\tc", "a b c", " a b c", "", "x",
    ]  # fmt: skip
    steps = TextSteps(("moses_tokenize", "first_4_words", "lowercase"), "en")
    assert steps.prepare(["Don't go. Not now."]) == ["don &apos;t go ."]
    assert steps.restore(["don &apos;t go ."]) == ["don't go."]


def test_steps_see_each_tagged_sentence_and_the_tags_are_taken_out():
    steps = TextSteps(("sentence_tags", "moses_tokenize", "lowercase"), "en")
    (prepared,) = steps.prepare(["<t> It isn't. </t><t>Is it? </t>"])
    assert prepared == "<t> it isn &apos;t . </t> <t> is it ? </t>"
    assert steps.restore([prepared, "<t> cut off", "<t> </t>", "no tags ."]) == [
        "it isn't. is it?", "cut off", "", "no tags.",
    ]  # fmt: skip
    assert steps.prepare(["No tags.", "", "<t> </t>"]) == ["no tags .", "", ""]
    assert TextSteps(("sentence_tags",)).restore(["<t> A b. </t> <t> C. </t>"]) == ["A b. C."]


def test_a_beginning_leaves_its_last_sentence_open():
    beginnings = ["<t> It isn't. </t> <t> Is it", "<t> Is it </t>", "No tags", ""]
    expected = ["<t> it isn &apos;t . </t> <t> is it", "<t> is it </t>", "no tags", ""]
    names = ("moses_tokenize", "lowercase")
    assert TextSteps(("sentence_tags", *names), "en").prepare_beginnings(beginnings) == expected
    assert TextSteps(names, "en").prepare_beginnings(beginnings[2:]) == expected[2:]
    assert TextSteps().prepare_beginnings(beginnings) == beginnings


def test_an_abbreviation_ends_the_open_sentence_alone():
    beginnings = ["<t> In the U.S. </t> <t> By Dr.", "<t> In the U.S. </t>", "By Dr.", "<t> </t>"]
    expected = ["<t> In the U.S . </t> <t> By Dr.", "<t> In the U.S . </t>", "By Dr.", ""]
    assert TextSteps(("sentence_tags", "moses_tokenize"), "en").prepare_beginnings(beginnings) == expected


def test_beginnings_and_phrases_are_not_truncated():
    steps = TextSteps(("tokenized", "first_2_words", "lowercase"), "en")
    assert steps.prepare(["A B C"]) == ["a b"]
    assert steps.prepare_beginnings(["A B C"]) == steps.prepare(["A B C"], sentences=False) == ["a b c"]


def test_a_truecaser_learns_from_sentences():
    steps = TextSteps(("sentence_tags", "moses_tokenize", "truecase"), "en")
    texts = ["<t> The man saw the dog . </t> <t> The dog saw London . </t>"] * 3
    tokens = steps.until("truecase").prepare(texts)
    steps = steps.with_learned("truecase", steps.learn("truecase", tokens))
    assert steps.prepare(["<t> The dog . </t> <t> The man in London . </t>"]) == [
        "<t> the dog . </t> <t> the man in London . </t>"
    ]
    again = pickle.loads(pickle.dumps(steps))
    assert again.prepare(texts) == steps.prepare(texts)


def test_a_chain_comes_back_from_its_record():
    steps = TextSteps(("tokenized", "first_400_words", "lowercase"), "en")
    again = TextSteps.from_record(steps.record(), {})
    assert again.names == steps.names
    assert "the first 400 words" in str(steps.record())
    assert pickle.loads(pickle.dumps(steps)).prepare(["A " * 500])[0].split() == ["a"] * 400


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("first_0_words", "no step 'first_0_words'"),
        ("first_N_words", "no step"),
        ("first_99999999999_words", "no step 'first_99999999999_words'.*N a number from 1 to 1,000,000,000"),
        ("first_1000000001_words", "no step"),
        ("frist_400_words", "Did you mean 'first_N_words'"),
        ("first_4_words,moses_tokenize", "Write moses_tokenize,first_4_words"),
        ("first_4_words,first_5_words", "exclude each other"),
        ("first_4_words,first_4_words", "given twice"),
        ("sentence_tags,first_4_words", "instead of the text"),
        ("lowercase,sentence_tags", "Write sentence_tags,lowercase"),
    ],
)
def test_chains_that_cannot_be(steps, message):
    with pytest.raises(UserError, match=message):
        parse_steps(steps, "--source_steps")


def test_tags_are_one_subword_each_of_a_new_vocabulary(tmp_path):
    from t2t_ext.data.text import sentencepiece_model

    texts = ["<t> the man won . </t> <t> london lost . </t>"] * 9
    symbols = document_steps.symbols(("sentence_tags",))
    model = sentencepiece_model.SentencePieceModel(sentencepiece_model.train(texts, 330, tags=symbols), "new")
    (ids,) = model.encode(texts[:1], False)
    pieces = [model.piece(each) for each in ids]
    assert pieces.count("▁<t>") == pieces.count("▁</t>") == 2
    assert model.decode(ids) == texts[0]
    assert not document_steps.symbols((), ("lowercase",))
