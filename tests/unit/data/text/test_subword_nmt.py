"""Tests of subword-nmt codes with ids, of the file with steps and subwords, and of the encoder in the graph."""

import io
import json
import pickle
import random
import subprocess
import sys
import zipfile

import pytest

from t2t_ext.data.features.types import TARGET, Text
from t2t_ext.data.generation import vocabulary
from t2t_ext.data.generation.preparation import TextPreparation
from t2t_ext.data.generation.workers import Workers
from t2t_ext.data.text import subword_nmt_model, text_container
from t2t_ext.data.text.subword_nmt_model import SubwordNmtModel
from t2t_ext.data.text.text_encoder import CONTROL_SYMBOLS, EOS_ID, FIRST_TEXT_ID, UNK_ID, SubwordEncoder
from t2t_ext.data.text.text_steps import TextSteps
from t2t_ext.errors import UserError

FEATURES = {"inputs": Text(), "targets": Text(side=TARGET)}
HARD = ["", " the  cat ", "the@@ @@ cat", "<pad> </s> <l2r> cat", "☃ the☃", "the\u00a0cat\tthe", "a" * 300]


def subword_nmt(name, *arguments, text):
    """Returns the output of subword-nmt's own command."""
    program = "from subword_nmt.subword_nmt import main; main()"
    command = [sys.executable, "-W", "ignore", "-c", program, name, *arguments]
    environment = {"PYTHONIOENCODING": "utf-8", "PATH": ""}
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True, env=environment)
    return done.stdout.decode()


def train(pairs, *, joint=True, vocab_size=0, sample_size=10_000, **preparation):
    samples = [{"inputs": source, "targets": target} for source, target in pairs]
    with Workers(1) as workers:
        return vocabulary.train_vocabulary(
            samples, FEATURES, vocab_size=vocab_size, joint=joint, sample_size=sample_size, seed=1, workers=workers,
            preparation=TextPreparation(**{"subwords": "subword_nmt", "num_merges": 60, **preparation}),
        )  # fmt: skip


@pytest.fixture(scope="module")
def joint(toy_corpus):
    return train(toy_corpus.train)


@pytest.fixture(scope="module")
def prepared(toy_corpus):
    steps = {"source_steps": ("moses_tokenize", "truecase"), "target_steps": ("moses_tokenize", "lowercase")}
    return train(toy_corpus.train, source_language="en", target_language="de", **steps)


def test_codes_and_subwords_are_the_librarys(joint, toy_corpus, tmp_path):
    text = "".join(f"{line}\n" for column in zip(*toy_corpus.train, strict=True) for line in column)
    codes = subword_nmt("learn-bpe", "-s", "60", text=text)
    assert joint.source.subwords.codes == codes
    (tmp_path / "codes").write_text(codes, encoding="utf-8")
    lines = [line for line in [*HARD, *(source for source, _ in toy_corpus.dev)] if line.strip(" ") == line]
    written = subword_nmt("apply-bpe", "-c", str(tmp_path / "codes"), text="".join(f"{line}\n" for line in lines))
    assert joint.source.segment(lines) == written.split("\n")[:-1]
    counts = subword_nmt("get-vocab", text=subword_nmt("apply-bpe", "-c", str(tmp_path / "codes"), text=text))
    expected = dict(line.split(" ") for line in counts.strip("\n").split("\n"))
    assert joint.source.subwords.counts == {piece: int(count) for piece, count in expected.items()}
    found = list(joint.source.subwords.counts.values())
    assert found == sorted(found, reverse=True)


def test_bpe_dropout_is_a_function_of_the_seed_and_invents_no_unknown_subwords(joint, toy_corpus):
    texts = [source for source, _ in toy_corpus.train]
    usual = joint.source.encode_batch(texts, add_eos=True)
    before = random.getstate()
    drawn = joint.source.sample_batch(texts, 0.3, seed=7, add_eos=True)
    assert random.getstate() == before
    assert drawn == joint.source.sample_batch(texts, 0.3, seed=7, add_eos=True)
    assert drawn != joint.source.sample_batch(texts, 0.3, seed=8, add_eos=True)
    assert [joint.source.decode(ids) for ids in drawn] == [joint.source.decode(ids) for ids in usual]
    assert sum(ids.count(UNK_ID) for ids in drawn) == sum(ids.count(UNK_ID) for ids in usual)
    assert sum(map(len, usual)) < sum(map(len, drawn)) < 2 * sum(map(len, usual))
    assert joint.source.sample_batch(texts, 1e-9, seed=7, add_eos=True) == usual
    assert SubwordEncoder(joint.source.model_bytes).encode_batch(texts, add_eos=True) == usual
    assert joint.source.sample_batch(["\u2603 the\u2603"], 0.3, seed=7) == joint.source.encode_batch(
        ["\u2603 the\u2603"]
    )


@pytest.mark.parametrize("version", ["0.1", "0.2"])
@pytest.mark.parametrize("limited", [False, True])
def test_long_words_are_segmented_as_the_library_does_in_reasonable_time(version, limited, monkeypatch):
    rng = random.Random(3)
    words = sorted({"".join(rng.choices("abc", k=rng.randint(2, 40))) for _ in range(300)})
    learned = subword_nmt_model.learn_codes(dict.fromkeys(words, 2), 60).split("\n", 1)[1].rstrip("\n").split("\n")
    # In any order, a pair may come before those that it is made of.
    for codes in (learned, rng.sample(learned, len(learned)), ["a a", "aa a", "b </w>", "aa aa", "a b</w>", "x y"]):
        text = "\n".join([f"#version: {version}", *codes])
        allowed = {"a@@", "b@@", "ab@@", "c", "ca"} if limited else None
        long = "".join(rng.choices("abc", k=60_000)), "a" * 9_001
        results = []
        for limit in (50, 1):
            monkeypatch.setattr(subword_nmt_model, "_LONG_WORD", limit)
            model = subword_nmt_model.SubwordNmtModel(text, {"a": 1}, allowed)
            results.append([model.segment(word) for word in [*words, "a", "aaa", "aaaa"]])
            assert [model.join(model.segment(word)) for word in long] == list(long)
            counts = subword_nmt_model.count_subwords(dict.fromkeys(words, 1), text, allowed)
            assert sum(counts.values()) == sum(len(each.split(" ")) for each in results[-1][: len(words)])
        assert results[0] == results[1]


def test_a_threshold_cuts_further_as_the_library_does(toy_corpus, tmp_path):
    made = train(toy_corpus.train, vocab_threshold=200)
    (tmp_path / "codes").write_text(made.source.subwords.codes, encoding="utf-8")
    for side, encoder in enumerate((made.source, made.target)):
        text = "".join(f"{pair[side]}\n" for pair in toy_corpus.train)
        counts = subword_nmt("get-vocab", text=subword_nmt("apply-bpe", "-c", str(tmp_path / "codes"), text=text))
        (tmp_path / "vocab").write_text(counts, encoding="utf-8")
        arguments = ("-c", str(tmp_path / "codes"), "--vocabulary", str(tmp_path / "vocab"))
        written = subword_nmt("apply-bpe", *arguments, "--vocabulary-threshold", "200", text=text)
        assert encoder.segment([pair[side] for pair in toy_corpus.train]) == written.split("\n")[:-1]
    assert made.joint
    assert not made.one_file  # each side has its own subwords


def test_ids(joint, toy_corpus):
    encoder = joint.source
    assert encoder.pieces(range(FIRST_TEXT_ID)) == ["<pad>", "</s>", "<unk>", *CONTROL_SYMBOLS]
    assert encoder.control_ids == tuple(range(3, FIRST_TEXT_ID))
    texts = [source for source, _ in toy_corpus.dev]
    for text, ids in zip(texts, encoder.encode_batch(texts, add_eos=True), strict=True):
        assert min(ids[:-1]) >= FIRST_TEXT_ID
        assert ids[-1] == EOS_ID
        assert encoder.decode(ids) == text
        assert " ".join(encoder.pieces(ids[:-1])) == encoder.segment([text])[0]
    # Text that looks like a special symbol does not get its id.
    assert set(encoder.encode("<pad> </s> <l2r>")) & set(range(FIRST_TEXT_ID)) <= {UNK_ID}
    with pytest.raises(ValueError, match="outside the vocabulary"):
        encoder.decode([encoder.vocab_size])


def test_join_is_the_inverse_of_segment(joint):
    for text in [*HARD, "x@@y @", "die Lampe ."]:
        (segmented,) = joint.source.segment([text])
        assert joint.source.join([segmented]) == [" ".join(word for word in text.split(" ") if word)]


def test_joint_means_equal_ids_not_equal_steps(prepared, joint):
    assert joint.joint
    assert joint.one_file
    assert prepared.joint
    assert not prepared.one_file
    assert prepared.source.sha256 != prepared.target.sha256
    assert prepared.source.ids_sha256 == prepared.target.ids_sha256


def test_separate(toy_corpus):
    made = train(toy_corpus.train, joint=False, num_merges=30)
    assert not made.joint
    assert "Katze" not in made.source.subwords.codes
    assert made.source.ids_sha256 != made.target.ids_sha256


def test_the_vocabulary_can_be_cut(toy_corpus, joint):
    made = train(toy_corpus.train, vocab_limit=40)
    assert made.source.vocab_size == 40
    whole = joint.source.subwords
    assert list(made.source.subwords.counts) == list(whole.counts)[: 40 - FIRST_TEXT_ID]
    assert UNK_ID in [i for ids in made.source.encode_batch([pair[0] for pair in toy_corpus.train]) for i in ids]
    with pytest.raises(UserError, match="--vocab_size=11 is too small"):
        train(toy_corpus.train, vocab_limit=11)


def test_a_sample_does_not_leave_subwords_out(toy_corpus):
    """If only a sample is counted, every subword that the codes can produce still gets an id."""
    made = train(toy_corpus.train, sample_size=50, num_merges=200)
    texts = [text for pair in toy_corpus.train for text in pair]
    assert not any(UNK_ID in ids for ids in made.source.encode_batch(texts))


def test_given_codes_and_vocabulary(joint, toy_corpus, tmp_path):
    codes, counts = tmp_path / "codes", tmp_path / "vocab"
    codes.write_text(joint.source.subwords.codes, encoding="utf-8")
    counts.write_text("the 7\ncat@@ 3\n", encoding="utf-8")
    made = train(toy_corpus.train, bpe_codes=(str(codes),))
    assert made.source.model_bytes == joint.source.model_bytes
    made = train(toy_corpus.train, bpe_codes=(str(codes),), bpe_vocab=(str(counts),))
    assert made.source.pieces(range(FIRST_TEXT_ID, made.source.vocab_size)) == ["the", "cat@@"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#version: 0.2\na b\na b c\n", "line 3: 'a b c' is not a pair"),
        (b"#version: 0.2\n\na b\n", "line 2 is empty"),
        (b"#version: 0.2\r\na b\r\n\r\nab c\r\n", "line 3 is empty"),
        (b"#version: 0.9\na b\n", "0.9"),
        (b"\xff\xfe", "not UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_bad_codes(tmp_path, content, message):
    if content is not None:
        (tmp_path / "codes").write_bytes(content)
    with pytest.raises(UserError, match=message):
        subword_nmt_model.read_codes(str(tmp_path / "codes"))


def test_a_byte_order_mark_is_no_part_of_codes(tmp_path):
    (tmp_path / "codes").write_text("\ufeff#version: 0.2\nt h\nth e</w>\n", encoding="utf-8")
    (tmp_path / "vocab").write_text("\ufeffthe 5\n", encoding="utf-8")
    model = SubwordNmtModel(
        subword_nmt_model.read_codes(str(tmp_path / "codes")), subword_nmt_model.read_counts(str(tmp_path / "vocab"))
    )
    assert model.segment("the then") == "the th@@ e@@ n"
    assert list(model.counts) == ["the"]


def test_bad_vocabulary(tmp_path):
    (tmp_path / "vocab").write_text("the 7\ncat\n")
    with pytest.raises(UserError, match="line 2: 'cat' is not 'subword count'"):
        subword_nmt_model.read_counts(str(tmp_path / "vocab"))


def test_nothing_to_learn_from():
    with pytest.raises(UserError, match="no word of two characters"):
        train([("a b", "")])


def test_tags_are_never_cut(toy_corpus):
    pairs = [(f"<2de> {source}", target) for source, target in toy_corpus.train]
    for options in ({}, {"source_steps": ("moses_tokenize",)}, {"subwords": "sentencepiece"}):
        made = train(pairs, tags=("<2de>", "<2fr>"), vocab_size=400, **options)
        prepared = made.source.prepare(["<2fr> the cat", "<2de>"])
        for text, ids in zip(prepared, made.source.encode_batch(prepared), strict=True):
            pieces = made.source.pieces(ids)
            assert text.split(" ")[0] in pieces[:2], options
            assert made.source.decode(ids) == text


def test_the_file(prepared, tmp_path):
    encoder = prepared.source
    encoder.save(tmp_path / "a.model")
    for again in (SubwordEncoder.from_file(tmp_path / "a.model"), pickle.loads(pickle.dumps(encoder))):
        assert again == encoder
        assert again.record() == encoder.record()
        texts = ["The old cat's lamp.", "Here!"]
        assert again.prepare(texts) == encoder.prepare(texts) == ["the old cat &apos;s lamp .", "here !"]
        assert again.restore(again.prepare(texts)) == texts
    content = zipfile.ZipFile(io.BytesIO(encoder.model_bytes))
    assert content.namelist() == ["text.json", "learnt/truecase", "codes.bpe", "vocabulary.txt"]
    assert [step["name"] for step in json.loads(content.read("text.json"))["steps"]] == ["moses_tokenize", "truecase"]
    assert SubwordEncoder.make(encoder.steps, encoder.subwords).model_bytes == encoder.model_bytes


def test_sentencepiece_with_steps(tiny_encoder):
    steps = TextSteps(["moses_tokenize", "lowercase"], "de")
    encoder = SubwordEncoder.make(steps, tiny_encoder.subwords)
    assert encoder.model_bytes != tiny_encoder.model_bytes
    assert encoder.ids_sha256 == tiny_encoder.ids_sha256
    assert encoder.prepare(["Katze!"]) == encoder.segment(["katze !"]) == ["katze !"]
    assert encoder.encode("katze !") == tiny_encoder.encode("katze !")
    # A model without text steps remains a plain SentencePiece model.
    assert SubwordEncoder.make(TextSteps(), tiny_encoder.subwords).model_bytes == tiny_encoder.model_bytes


def changed(encoder, name, content):
    """Returns the encoder's file with other content for one member, or without that member if content is None."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(encoder.model_bytes)) as old, zipfile.ZipFile(buffer, "w") as new:
        for entry in old.namelist():
            if entry != name:
                new.writestr(entry, old.read(entry))
            elif content is not None:
                new.writestr(entry, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text.json", "{", "neither a SentencePiece model nor a text encoder"),
        ("text.json", '{"format_version": 99}', "format version 99"),
        ("vocabulary.txt", "no count\n", "neither"),
        ("codes.bpe", None, "neither"),
        ("learnt/truecase", None, "neither"),
        ("codes.bpe", "a b c\n", "is not a pair"),
    ],
)
def test_damaged_files(prepared, tmp_path, name, content, message):
    (tmp_path / "x.model").write_bytes(changed(prepared.source, name, content))
    with pytest.raises(UserError, match=message):
        SubwordEncoder.from_file(tmp_path / "x.model")


def test_a_truncated_file(prepared, tmp_path):
    (tmp_path / "x.model").write_bytes(prepared.source.model_bytes[:-100])
    with pytest.raises(UserError, match=r"x\.model is neither"):
        SubwordEncoder.from_file(tmp_path / "x.model")


def test_a_file_that_claims_too_much(monkeypatch, prepared):
    monkeypatch.setattr(text_container, "_MOST_BYTES", 1000)
    with pytest.raises(UserError, match="larger than any text encoder"):
        SubwordEncoder(prepared.source.model_bytes)


def test_the_graph_gives_pythons_ids(joint, toy_corpus):
    import tensorflow as tf

    from t2t_ext.data.text.graph_text_encoder import graph_encoder

    encoder = joint.source
    graph = graph_encoder(encoder, "encoder")
    texts = encoder.segment([*HARD, *(source for source, _ in toy_corpus.dev)])
    expected = encoder.encode_batch(encoder.join(texts), add_eos=True)
    found = graph.encode(tf.constant(texts)).to_list()
    assert found == expected
    assert graph.encode(tf.constant(texts), 3).to_list() == [[*ids[:-1][:3], EOS_ID] for ids in expected]
    assert graph.encode(tf.constant([], tf.string)).to_list() == []
    known = [(text, ids) for text, ids in zip(texts, expected, strict=True) if UNK_ID not in ids]
    written = graph.decode(tf.ragged.constant([ids[:-1] for _, ids in known], dtype=tf.int32))
    assert [text.decode() for text in written.numpy()] == [text for text, _ in known]


def test_unknown_subwords_keep_their_place_in_words(joint):
    """Word positions do not depend on whether a word's subwords are known."""
    import tensorflow as tf

    from t2t_ext.data.text.graph_text_encoder import graph_encoder
    from t2t_ext.translation.alignment import piece_tables, words_of

    (text,) = joint.source.segment(["the ☃☃☃ cat☃ lamp"])
    ids = graph_encoder(joint.source, "encoder").encode_marked(tf.constant([text])).to_tensor()
    words = words_of(ids, piece_tables(joint.source))
    assert words.total.numpy().tolist() == [4]
    word, expected = 0, []
    for piece in text.split(" "):
        expected.append(word)
        word += not piece.endswith("@@")
    assert words.first.numpy()[0, :-1].tolist() == expected


def test_words_are_forgotten_in_time(joint, monkeypatch):
    monkeypatch.setattr(subword_nmt_model, "_MOST_WORDS", 3)
    model = SubwordNmtModel(joint.source.subwords.codes, joint.source.subwords.counts)
    expected = joint.source.subwords.segment("the old cat sees the small lamp often")
    assert model.segment("the old cat sees the small lamp often") == expected
    assert len(model._words) <= 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"subwords": "subwordnmt"}, "Did you mean 'subword_nmt'"),
        ({"subwords": "sentencepiece", "bpe_codes": ("x",)}, "goes with --subwords=subword_nmt"),
        ({"bpe_vocab": ("x",)}, "give them, too"),
        ({"bpe_codes": ("a", "b", "c")}, "names 3 files"),
        ({"source_steps": ("jieba",), "source_language": "en"}, "jieba is for Chinese only"),
    ],
)
def test_wrong_preparations(values, message):
    with pytest.raises(UserError, match=message):
        TextPreparation(**{"subwords": "subword_nmt", **values})
