"""Tests of the steps that prepare text: their results, what can be restored, and what is refused."""

import marshal
import pickle
import subprocess
import sys

import pytest

from t2t_ext.data.text.text_steps import TextSteps, check_steps, parse_steps, step_classes
from t2t_ext.errors import UserError

GERMAN = ["Das ist's, „Frau Dr. Müller“!", "E-Mail an a-b: 3.5 % & <mehr> [z.B.] usw.", "", "Und er sagte: Und?"]


def run(names, texts, language="de", **options):
    steps = TextSteps(names, language, **options)
    for name in steps.unlearned:
        steps = steps.with_learned(name, steps.learn(name, steps.until(name).prepare(texts)))
    return steps, steps.prepare(texts)


@pytest.mark.parametrize(
    ("name", "language", "text", "prepared", "restored"),
    [
        ("nfc", "de", "Mu\u0308ller ﬁ", "Müller ﬁ", "Müller ﬁ"),
        ("nfkc", "de", "ﬁ Ａ²", "fi A2", "fi A2"),
        ("moses_punctuation", "de", "„Ja“ – so…", '"Ja" - so...', '"Ja" - so...'),
        ("plain_apostrophes", "de", "geht’s", "geht's", "geht's"),
        ("moses_tokenize", "en", 'He said: "It isn\'t [5%] & <b>."',
         "He said : &quot; It isn &apos;t &#91; 5 % &#93; &amp; &lt; b &gt; . &quot;", None),
        ("moses_tokenize", "en", "It isn't so, is it?", "It isn &apos;t so , is it ?", "It isn't so, is it?"),
        ("moses_tokenize", "de", "Die Liste: A, B, C und D.", "Die Liste : A , B , C und D .",
         "Die Liste: A, B, C und D."),
        ("moses_tokenize_no_escape", "fr", "l'eau & c'est", "l' eau & c' est", "l'eau & c'est"),
        ("tokenized", "en", "it  isn &apos;t so , is it ?", "it isn &apos;t so , is it ?", "it isn't so, is it?"),
        ("tokenized", "de", "ein E ##AT##-##AT## Mail @-@ Konto",
         "ein E ##AT##-##AT## Mail @-@ Konto", "ein E-Mail-Konto"),
        ("lowercase", "de", "Ärger IST", "ärger ist", "ärger ist"),
        ("characters", "zh", "我用 GPU，3.5 次。", "我 用 GPU ， 3.5 次 。", "我用GPU，3.5次。"),
        ("jieba", "zh", "我来到北京清华大学", "我 来到 北京 清华大学", "我来到北京清华大学"),
        ("jieba", "zh", "3,250千赫", "3 , 250 千赫", "3,250千赫"),
        ("jieba", "zh", "“你好……我走了——再见”", "“ 你好 … … 我 走 了 — — 再见 ”", "“你好……我走了——再见”"),
        ("jieba", "zh", "使用“GDP”。在(2021)年", "使用 “ GDP ” 。 在 ( 2021 ) 年", "使用“GDP”。在(2021)年"),
        ("segmented", "zh", "我 来到  北京 清华大学 hello world", "我 来到 北京 清华大学 hello world",
         "我来到北京清华大学hello world"),
    ],
)  # fmt: skip
def test_each_step(name, language, text, prepared, restored):
    steps, (found,) = run([name], [text], language)
    assert found == prepared
    if restored is not None:
        assert steps.restore([found]) == [restored]


def test_hyphens():
    steps, (found,) = run(["moses_tokenize", "hyphen_split"], ["ein E-Mail-Konto - 5-mal"])
    assert found == "ein E @-@ Mail @-@ Konto - 5 @-@ mal"
    assert steps.restore([found]) == ["ein E-Mail-Konto - 5-mal"]


@pytest.mark.parametrize("language", ["de", "en"])
def test_the_last_word_is_no_abbreviation(language):
    """The tokenizer splits a final full stop as tokenizer.perl has done since 2017."""
    _, found = run(["moses_tokenize"], ["He lives in the U.S.", "Dr. No", "So ...", "e.g. this etc."], language)
    assert found[0] == "He lives in the U.S ."
    assert found[1] == "Dr. No"
    assert found[2] == "So ..."
    assert found[3].endswith("etc .")


@pytest.mark.parametrize("step", ["moses_tokenize", "moses_tokenize_no_escape"])
def test_the_last_word_of_a_beginning_or_a_phrase_may_be_an_abbreviation(step):
    """Inside a text, Moses splits the full stop from a word, but not from abbreviations and ordinals."""
    steps = TextSteps([step, "lowercase"], "de")
    parts = ["Dr.", "z.B.", "3.", "Am 3.", "Haus.", "Das Haus. Der Dr.", ""]
    expected = ["dr.", "z.b.", "3.", "am 3.", "haus .", "das haus . der dr.", ""]
    assert steps.prepare(parts, sentences=False) == expected
    assert steps.prepare_beginnings(parts) == expected
    assert steps.prepare(["Der Dr."]) == ["der dr ."]
    assert TextSteps(["tokenized"], "de").prepare_beginnings(["Der  Dr."]) == ["Der Dr."]


def test_truecase_is_learned_and_written_down():
    texts = ["Wir sehen das Haus .", "Da ist das Haus , wir sehen es .", "Das sehen wir ."]
    steps, found = run(["tokenized", "truecase"], texts)
    assert found == ["wir sehen das Haus .", "Da ist das Haus , wir sehen es .", "das sehen wir ."]
    assert steps.restore(found) == ["Wir sehen das Haus.", "Da ist das Haus, wir sehen es.", "Das sehen wir."]
    again = TextSteps.from_record(steps.record(), steps.learned)
    assert again.prepare(texts) == pickle.loads(pickle.dumps(steps)).prepare(texts) == found
    # A phrase does not begin a sentence, so its first word keeps its case.
    assert steps.prepare(["Das Haus"], sentences=False) == ["Das Haus"]


def test_truecase_is_moses():
    """As in train-truecaser.perl and truecase.perl, first words are not counted, and a full stop ends a sentence."""
    steps, found = run(["tokenized", "truecase"], ["a Big dog . Big dogs bark", "the big dog and the big cat"])
    assert found[0] == "a Big dog . big dogs bark"
    assert "best" in steps.learned["truecase"].decode()


def test_a_truecaser_needs_text():
    with pytest.raises(UserError, match="nothing to learn from"):
        run(["tokenized", "truecase"], ["", "a"])


def test_tags_are_left_alone():
    steps, found = run(["moses_tokenize", "lowercase"], ["<2de> Hallo <2de>!", "<2fr> <2de>", "Hallo"], tags=["<2de>"])
    assert found == ["<2de> hallo &lt; 2de &gt; !", "&lt; 2fr &gt; &lt; 2de &gt;", "hallo"]
    assert steps.restore(found)[0] == "<2de> hallo < 2de >!"
    with pytest.raises(UserError, match="not one word"):
        TextSteps((), tags=["<2 de>"])


@pytest.mark.parametrize(
    ("names", "language", "message"),
    [
        (["mosestokenize"], "", "Did you mean 'moses_tokenize'"),
        (["lowercase", "moses_tokenize"], "", "must come before lowercase.*Write moses_tokenize,lowercase"),
        (["nfc", "nfkc"], "", "nfc and nfkc exclude each other"),
        (["moses_tokenize", "jieba"], "", "exclude each other"),
        (["lowercase", "lowercase"], "", "given twice"),
        (["moses_tokenize", "lowercase", "truecase"], "", "lowercase and truecase exclude"),
        (["truecase"], "", "truecase needs words"),
        (["nfc", "hyphen_split"], "", "hyphen_split needs words"),
        (["jieba"], "de", "for the language de: jieba is for Chinese only"),
    ],
)  # fmt: skip
def test_wrong_steps(names, language, message):
    with pytest.raises(UserError, match=message):
        check_steps(names, language, "--source_steps")


def test_flags_value():
    assert parse_steps(" nfc , moses_tokenize ", "--x") == ("nfc", "moses_tokenize")
    assert parse_steps("none", "--x") == ()
    check_steps(["jieba"], "zh-Hant")
    check_steps(list(dict.fromkeys(["nfc", "moses_punctuation", "moses_tokenize", "hyphen_split", "truecase"])), "de")


def test_every_step_says_what_it_loses():
    for kind in step_classes().values():
        assert kind.meaning
        assert kind.loss, f"{kind.name}: if everything comes back, prove it here"


def test_another_version_of_a_library_is_told():
    record = TextSteps(["moses_tokenize"], "de").record()
    record["packages"]["sacremoses"] = "0.0.1"
    with pytest.warns(UserWarning, match=r"prepared with sacremoses 0\.0\.1, but .* is installed"):
        TextSteps.from_record(record, {})


def test_jieba_reads_no_foreign_cache(tmp_path):
    """A cache file that somebody else put into the temporary directory must not change the segmentation."""
    (tmp_path / "jieba.cache").write_bytes(marshal.dumps(({"来到北京": 1000000}, 1000000)))
    program = """
from t2t_ext.data.text.text_steps import TextSteps
print(TextSteps(["jieba"], "zh").prepare(["我来到北京清华大学"])[0])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={"TMPDIR": str(tmp_path), "PYTHONIOENCODING": "utf-8", "PATH": ""},
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == ("我 来到 北京 清华大学", "")
    assert [path.name for path in tmp_path.iterdir()] == ["jieba.cache"]
