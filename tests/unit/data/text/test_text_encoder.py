"""Tests of the subword encoder: it is lossless and deterministic, and no text can produce its special ids."""

import io
import pickle

import pytest
import sentencepiece

from t2t_ext.data.text import sentencepiece_model, text_encoder
from t2t_ext.data.text.text_encoder import EOS_ID, L2R_ID, PAD_ID, R2L_ID, UNK_ID, SubwordEncoder
from t2t_ext.errors import UserError

ODD_TEXTS = [
    "",
    " ",
    "   ",
    " leading",
    "  two leading",
    "trailing ",
    "double  blank",
    "\t",
    "tab\there",
    "emoji 😀👩‍👩‍👧 here",
    "line\u2028separator",
    "next\u0085line",
    "no\u00a0break \u3000 wide",
    "carriage\rreturn\r",
    "nul\x00byte",
    "\x0b\x0c\x1c\x1d\x1e",
    "ligature ﬁ, half-width ｶﾅ, e\u0301 é",
    "\ufeffbom \ufffd \U0010ffff",
    "</s> <pad> <unk> <l2r> <r2l> <reserved_0> <0x41> ⁇",
    "漢字かな交じり文 и кириллица",
]


@pytest.fixture(scope="module")
def encoder(toy_corpus):
    return SubwordEncoder(sentencepiece_model.train([text for pair in toy_corpus.train for text in pair], 400))


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_every_text_comes_back(encoder, text):
    ids = encoder.encode(text)
    assert encoder.decode(ids) == text
    assert not set(ids) & set(range(text_encoder.FIRST_TEXT_ID))
    assert encoder.encode_batch([text, "cat"]) == [ids, encoder.encode("cat")]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_sampled_segmentations_come_back_too(encoder, text):
    for ids in encoder.sample_batch([text, "the cat"], 0.5, seed=1, add_eos=True):
        assert ids[-1] == EOS_ID
        assert encoder.decode(ids) in (text, "the cat")
        assert not set(ids[:-1]) & set(range(text_encoder.FIRST_TEXT_ID))


def test_bpe_dropout_is_a_function_of_the_seed_and_leaves_out_as_many_merges_as_it_says(encoder, toy_corpus):
    texts = [source for source, _ in toy_corpus.train]
    usual = encoder.encode_batch(texts)
    assert encoder.sample_batch(texts, 0.1, seed=7) == encoder.sample_batch(texts, 0.1, seed=7)
    assert encoder.sample_batch(texts, 0.1, seed=7) != encoder.sample_batch(texts, 0.1, seed=8)
    assert encoder.sample_batch(texts, 1e-9, seed=7) == usual
    assert encoder.sample_batch(ODD_TEXTS, 1e-9, seed=7) == encoder.encode_batch(ODD_TEXTS)
    assert encoder.encode_batch(texts) == usual
    lengths = [sum(map(len, encoder.sample_batch(texts, dropout, seed=7))) for dropout in (1e-9, 0.1, 0.5, 0.999)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[1] < 1.6 * lengths[0]
    assert lengths[-1] > 0.95 * sum(len(text) + 1 for text in texts)  # characters, and the first space


def test_bpe_dropout_takes_no_minutes_for_words_that_are_none(encoder):
    text = "thecat" * 50_000  # BPE-dropout of 300,000 characters would take hours
    usual, drawn = encoder.encode_batch([text, "the cat"]), encoder.sample_batch([text, "the cat"], 0.999, seed=1)
    assert drawn[0] == usual[0]
    assert len(drawn[1]) > len(usual[1])


def test_bpe_dropout_splits_no_tag(toy_corpus):
    texts = [f"<2de> {source}" for source, _ in toy_corpus.train]
    encoder = SubwordEncoder(sentencepiece_model.train(texts, 400, tags=["<2de>"]))
    tag = encoder.pieces(range(text_encoder.FIRST_TEXT_ID + 1)).index("<2de>")
    assert encoder.sample_batch(texts, 1e-9, seed=1) == encoder.encode_batch(texts)
    assert all(ids.count(tag) == 1 for ids in encoder.sample_batch(texts, 0.9, seed=1))


def test_bpe_dropout_of_a_unigram_model_is_refused(toy_corpus):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(source for source, _ in toy_corpus.train), model_writer=model, vocab_size=60,
        hard_vocab_limit=False, pad_id=PAD_ID, eos_id=EOS_ID, unk_id=UNK_ID, bos_id=-1, minloglevel=2,
    )  # fmt: skip
    with pytest.raises(UserError, match="is a unigram model without any"):
        SubwordEncoder(model.getvalue()).sample_batch(["the cat"], 0.1, seed=1)


def test_special_ids(encoder):
    pieces = encoder.pieces(range(text_encoder.FIRST_TEXT_ID))
    assert pieces[:5] == ["<pad>", "</s>", "<unk>", "<l2r>", "<r2l>"]
    assert (PAD_ID, EOS_ID, UNK_ID, L2R_ID, R2L_ID) == (0, 1, 2, 3, 4)
    assert pieces[5:] == [f"<reserved_{i}>" for i in range(6)]
    assert encoder.pieces([text_encoder.FIRST_TEXT_ID]) == ["<0x00>"]


def test_decoding_stops_at_eos_and_skips_what_is_not_text(encoder):
    cat, dog = encoder.encode("the cat"), encoder.encode("the door")
    assert encoder.decode([L2R_ID, *cat[:1], PAD_ID, 7, *cat[1:], EOS_ID, *dog]) == "the cat"
    assert encoder.decode([EOS_ID, *dog]) == ""
    with pytest.raises(ValueError, match=str(encoder.vocab_size)):
        encoder.decode([encoder.vocab_size])


def test_batches_can_end_in_eos(encoder):
    assert encoder.encode_batch(["", "the cat"], add_eos=True) == [[EOS_ID], [*encoder.encode("the cat"), EOS_ID]]


def test_training_is_deterministic_and_reaches_the_size(encoder, toy_corpus):
    again = SubwordEncoder(sentencepiece_model.train([text for pair in toy_corpus.train for text in pair], 400))
    assert again == encoder
    assert again.sha256 == encoder.sha256
    assert encoder.vocab_size == 400


def test_a_small_corpus_gives_a_smaller_model():
    small = SubwordEncoder(sentencepiece_model.train(["the cat sat", "on the mat"], 8192))
    assert 277 <= small.vocab_size < 400
    assert small.decode(small.encode("a  dog 😀")) == "a  dog 😀"


def test_long_lines_do_not_break_training():
    long_line = "grüne Katze " * 5000
    model = SubwordEncoder(sentencepiece_model.train([long_line, "rote Katze"], 300))
    assert model.decode(model.encode(long_line)) == long_line


def test_sizes_that_cannot_be(toy_corpus):
    with pytest.raises(UserError, match=r"vocab_size=100 is too small.*at least \d{3}"):
        SubwordEncoder(sentencepiece_model.train([pair[0] for pair in toy_corpus.train], 100))
    with pytest.raises(UserError, match="no characters"):
        SubwordEncoder(sentencepiece_model.train(["", ""], 400))


def test_saved_pickled_and_read_back(encoder, tmp_path):
    encoder.save(tmp_path / "x.model")
    assert SubwordEncoder.from_file(tmp_path / "x.model") == encoder
    assert SubwordEncoder(encoder.model_bytes).encode("cat") == encoder.encode("cat")
    assert pickle.loads(pickle.dumps(encoder)) == encoder


def test_unusable_models(tmp_path):
    with pytest.raises(UserError, match=r"none\.model cannot be read"):
        SubwordEncoder.from_file(tmp_path / "none.model")
    for content in (b"", b"no model"):
        (tmp_path / "bad.model").write_bytes(content)
        with pytest.raises(UserError, match=r"bad\.model is not a SentencePiece model"):
            SubwordEncoder.from_file(tmp_path / "bad.model")


def test_a_model_with_other_special_ids_is_refused(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat"] * 5),
        model_prefix=str(tmp_path / "other"),
        vocab_size=20,
        model_type="bpe",
        minloglevel=2,
        hard_vocab_limit=False,
    )
    with pytest.raises(UserError, match="--pad_id=0 --eos_id=1 --unk_id=2"):
        SubwordEncoder.from_file(tmp_path / "other.model")


def test_the_encoder_in_the_graph_outlives_training_in_the_same_process(encoder):
    import tensorflow as tf

    from t2t_ext.data.text.graph_text_encoder import GraphSubwordEncoder

    graph = GraphSubwordEncoder(encoder.model_bytes)
    encode = tf.function(lambda strings: graph.encode(strings), autograph=False)
    before = encode(tf.constant(["the cat"])).to_list()
    tf.random.set_seed(7)  # training does so, and it clears TensorFlow's cache of kernels
    assert encode(tf.constant(["the cat"])).to_list() == before == [[*encoder.encode("the cat"), EOS_ID]]
    assert graph.decode(tf.ragged.constant([encoder.encode("the cat")])).numpy() == [b"the cat"]
