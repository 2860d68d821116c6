"""Tests of the filters of training pairs, one by one, and of the settings that select them."""

import numpy as np
import pytest

from t2t_ext.data.corpora.readers import ReadReport
from t2t_ext.data.generation import text_checks
from t2t_ext.data.generation.cleaning import REASONS, Cleaning, Column, clean_pairs, unfit_pairs
from t2t_ext.errors import UserError

GOOD = ("Das ist ein Satz mit 3 Zahlen", "This is a sentence with 3 numbers")


def dropped(pairs, languages=("de", "en"), **settings):
    """Returns the reason why each pair is dropped, or "" if it is kept."""
    report, reasons = ReadReport(), []
    for pair in pairs:
        before = report.drops.copy()
        list(clean_pairs([pair], Cleaning.from_settings(settings), languages=languages, report=report))
        reasons.append(next(iter(report.drops - before), ""))
    return reasons


@pytest.mark.parametrize(
    ("settings", "pair", "reason"),
    [
        ({}, ("", "x"), "empty"),
        ({}, ("x", " \u3000"), "empty"),
        ({"min_words": 2}, ("x", "x y"), "too_few_words"),
        ({"max_words": 5}, GOOD, "too_many_words"),
        ({"max_words": 7, "max_word_ratio": 7}, GOOD, ""),
        ({"max_word_ratio": 1.5}, ("a b c", "a b c d e"), "word_ratio"),
        ({"max_word_ratio": 1.5}, ("a b", "c d e"), ""),
        ({"identical": True}, ("the same ", "the same"), "identical"),
        ({"identical": True}, ("the same", "The same"), ""),
        ({"numbers": True}, GOOD, ""),
        ({"numbers": True}, ("1.000,50 Euro am 3. Mai", "3 May: 1,000.50 euros"), ""),
        ({"numbers": True}, ("٣ كتب", "3 books"), ""),
        ({"numbers": True}, ("5 Tage", "6 days"), "numbers"),
        ({"numbers": True}, ("um 10.30 Uhr", "at 10:30"), ""),
        ({"numbers": True}, ("1 000 Euro", "1,000 euros"), ""),
        ({"numbers": True}, ("1.000 Euro", "1000 euros"), ""),
        ({"numbers": True}, ("§ 3,4 und 5", "§ 3, 4 and 5"), ""),
        ({"numbers": True}, ("§ 3,4 und 5", "§ 3, 4 and 6"), "numbers"),
        ({"script": True}, ("Привет всем", "Hello all"), "script"),
        ({"script": True}, ("12 %", "12 %"), ""),
        ({"script": 0.9}, ("Das Wort слово hier", "x"), "script"),
        ({"script": 0.5}, ("Das Wort слово hier", "x"), ""),
    ],
)
def test_filters(settings, pair, reason):
    assert dropped([pair], **settings) == [reason]


@pytest.mark.parametrize(
    "text",
    [
        "Das ist schÃ¶n",
        "donâ€™t",
        "ein \x93Satz\x94",
        "\ufffd",
        "a\x00b",
        "\ue000",
        "Ð\x9fÑ\x80Ð¸Ð²ÐµÑ‚",
        "ä½ å¥½",
        "Â°C",
        "cÅ“ur",
    ],
)
def test_damaged_text_is_found(text):
    assert dropped([(text, "x"), ("x", text)], encoding=True) == ["encoding"] * 2


@pytest.mark.parametrize(
    "text",
    [
        "„Spaß“, „Größe“, „Ä“ und Übel", "«À bientôt», dit-il : «Été»", "ESPAÑA", "São João", "Привет", "你好", "𝒳 😀",
        "tab\there", "\u2028 \u00a0 \u00ad \u200b", "Łódź – “É”", "Ngôn ngữ tiếng Việt", "Îles d’Hyères",
    ],
)  # fmt: skip
def test_sound_text_is_left_alone(text):
    assert dropped([(text, "x")], encoding=True) == [""]


@pytest.mark.parametrize(
    ("language", "text", "share"),
    [
        ("zh", "中文字abc", 0.5),
        ("zh-TW", "中文", 1),
        ("ja", "これは日本", 1),
        ("ko", "한국", 1),
        ("sr", "Здраво", 1),
        ("sr-Latn", "Zdravo", 1),
        ("sr_Latn_RS", "Здраво", 0),
        ("de_AT", "Öl", 1),
        ("", "Öl", 1),
        ("qqq", "Öl", 1),
        ("ru", "...", 1),
    ],
)
def test_scripts_are_those_of_cldr(language, text, share):
    assert text_checks.script_share([text, ""], language).tolist() == [share, 1]


def test_languages_of_two_are_told_apart():
    pytest.importorskip("py3langid")
    german, english = "Das ist ein ganz gewöhnlicher deutscher Satz", "This is quite an ordinary English sentence"
    pairs = [(german, english), (english, german), (german, german), ("kurz", "kurz")]
    assert dropped(pairs, language=True) == ["", "language", "language", ""]
    with pytest.raises(UserError, match="--source_language"):
        dropped([GOOD], languages=("", "en"), language=True)


def test_one_pair_is_counted_once_by_the_first_reason_in_the_documented_order():
    settings = dict.fromkeys(("identical", "script", "numbers", "encoding"), True) | {"min_words": 3, "max_words": 4}
    texts = ["Ã¤ слово 1 2 3", "x", "a b c"]
    columns = [Column(texts, texts, "de"), Column(texts[::-1], texts[::-1], "en")]
    found = [reason for reason, _ in unfit_pairs(Cleaning.from_settings(settings), columns)]
    assert found == [reason for reason in REASONS if reason in found]
    assert len(found) == 7
    assert dropped([(texts[0], texts[0])], **settings) == ["encoding"]


def test_a_text_of_which_the_steps_leave_nothing_is_empty():
    report = ReadReport()
    kept = clean_pairs([("\x01", "a"), ("b", "c")], Cleaning(), prepare=lambda *s: [["", "b"], s[1]], report=report)
    assert list(kept) == [("b", "c")]
    assert dict(report.drops) == {"empty": 1}


def test_words_are_those_of_the_prepared_text():
    def prepare(sources, targets):
        return [text.replace(".", " .") for text in sources], targets

    kept = list(clean_pairs([("a.b.c", "x")], Cleaning(max_words=2), prepare=prepare))
    assert not kept
    assert list(clean_pairs([("a.b.c", "x", "more")], Cleaning(max_words=3), prepare=prepare)) == [
        ("a.b.c", "x", "more")
    ]


def test_the_first_of_each_reason_is_shown():
    report = ReadReport()
    pairs = [GOOD, ("", "nothing"), ("word " * 40, "x"), ("word " * 50, "y")]
    assert list(clean_pairs(iter(pairs), Cleaning(max_words=10), report=report)) == [GOOD]
    assert report.drops == {"empty": 1, "too_many_words": 2}
    assert report.first["empty"] == "pair 2:  ||| nothing"
    assert report.first["too_many_words"].startswith("pair 3: word word")
    assert len(report.first["too_many_words"]) < 100


def test_what_is_asked_for():
    default = {"max_words": 80, "duplicates": True}
    assert Cleaning.parse("", default).given() == {"max_words": 80, "duplicates": "pair"}
    assert Cleaning.parse("max_words=175, script=TRUE", default).given() == {
        "max_words": 175,
        "script": 0.5,
        "duplicates": "pair",
    }
    assert Cleaning.parse("none", default).given() == {}
    assert Cleaning.parse("none,identical=true", default).given() == {"identical": True}
    assert Cleaning.parse("duplicates=false,test_overlap=true", default).given() == {
        "max_words": 80,
        "test_overlap": "either",
    }
    assert Cleaning.from_settings(Cleaning.parse("script=true", default).given()).script == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("duplicate=true", "Did you mean 'duplicates'"),
        ("duplicates=perhaps", "one of no, pair, source, target, either"),
        ("max_words=-1", "at least 0"),
        ("max_words=many", "max_words"),
        ("max_words", "not an assignment"),
        ("script=2", "at most 1"),
    ],
)
def test_mistakes_are_explained(text, message):
    with pytest.raises(UserError, match=message) as raised:
        Cleaning.parse(text, {})
    assert "--cleaning" in str(raised.value)


def test_tables_look_at_every_text_by_itself():
    texts = ["", "ok", "\ufffd", "", "Ã¤", "ok"]
    assert text_checks.has_encoding_trouble(texts).tolist() == [False, False, True, False, True, False]
    assert text_checks.has_encoding_trouble([]).tolist() == []
    assert np.array_equal(text_checks.script_share([], "de"), [])
