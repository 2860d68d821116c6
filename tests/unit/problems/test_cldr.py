"""Tests of the offline corpus: deterministic, large, unambiguous, properly split, and correct in every language."""

import datetime
import hashlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

from t2t_ext import registry
from t2t_ext.errors import UserError
from t2t_ext.problems import cldr, cldr_corpus
from t2t_ext.problems.cldr_locale import CldrLocale

LANGUAGES = ("de", "fr", "es", "ro", "ru", "vi", "zh")
USUAL = ("zh", "de")  # the last corpus stays in memory for the tests that follow
# A new version of Babel, a new template or atom changes the corpus and this value, and makes old results incomparable.
SHA256_EN_DE = "f6168a014e95aae0e7f12baffec5fe6d9005b387b16f4a443ee53144fe2af7cb"

OTHER_PROCESS = """
import sys
from test_cldr import digest
print(digest())
assert not {"tensorflow", "keras"} & set(sys.modules)
"""


def digest():
    """Returns the SHA-256 digest of the corpus from English to German."""
    problem, found = registry.problem("translate_ende_cldr"), hashlib.sha256()
    for split in problem.splits:
        for sample in problem.samples(split, ""):
            found.update(f"{split}\t{sample['inputs']}\t{sample['targets']}\n".encode())
    return found.hexdigest()


def pairs_of(target, source="en"):
    return [pair for pairs in cldr_corpus.corpus(source, target).values() for pair in pairs]


def composition(pair):
    return pair.template, pair.atoms


def check_corpus(target):
    splits = cldr_corpus.corpus("en", target)
    pairs = pairs_of(target)
    assert len({(pair.source, pair.target) for pair in pairs}) >= 60_000
    assert len({pair.source for pair in pairs}) == len(pairs)
    assert len({pair.target for pair in pairs}) == len(pairs)
    assert 800 <= len(splits["dev"]) <= 1500
    assert 800 <= len(splits["test"]) <= 1500

    train = {composition(pair) for pair in splits["train"]}
    dev = {composition(pair) for pair in splits["dev"]}
    test = {composition(pair) for pair in splits["test"]}
    assert not train & dev
    assert not train & test
    assert not dev & test
    trained = {atom for pair in splits["train"] for atom in pair.atoms}
    assert trained.issuperset(atom for split in ("dev", "test") for pair in splits[split] for atom in pair.atoms)
    assert {pair.template for pair in splits["test"]} <= {pair.template for pair in splits["train"]}

    for pair in pairs:
        for text in (pair.source, pair.target):
            assert text == text.strip()
            assert len(text) < 200
            # No line breaks, odd spaces, soft hyphens, missing-value signs, unfilled patterns, or codes for names.
            assert not re.search(r"[\n\r\t\u00a0\u202f\u2009\u00ad∅{}]|(duration|length|mass)-", text)


@pytest.mark.parametrize("target", USUAL)
def test_corpus_is_large_unambiguous_and_properly_split(target):
    check_corpus(target)


@pytest.mark.slow
@pytest.mark.parametrize("target", sorted(set(LANGUAGES) - set(USUAL)))
def test_every_other_pair_with_english_is_large_unambiguous_and_properly_split(target):
    check_corpus(target)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [("fr", "ru"), ("ja", "ar"), ("fa", "pt"), ("zh_Hant", "sw")])
def test_other_pairs_are_large_enough(source, target):
    assert len(pairs_of(target, source)) >= 60_000


def test_corpus_is_the_same_in_every_process_and_is_the_pinned_one():
    assert digest() == SHA256_EN_DE
    environment = {**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"}
    other = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS],
        env=environment, cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert other.stdout.strip() == SHA256_EN_DE


def test_every_kind_of_content_is_there():
    templates = {pair.template for pair in pairs_of("de")}
    kinds = {kind for pair in pairs_of("de") for kind, _ in pair.atoms}
    assert {"territory", "language", "script", "currency", "unit", "count", "decimal", "percent", "power"} <= kinds
    for leaf in ("full_date", "time", "days", "times", "relative", "money", "money_in_words", "measure", "quarter"):
        assert any(re.search(rf"\b{leaf}\b", template) for template in templates), leaf
    longest = max(len(pair.source.split()) for pair in pairs_of("de"))
    assert 12 <= longest <= 40


def test_held_out_split_does_not_depend_on_the_locales():
    # A composition that is in the test set for one language pair is in no training set of another pair.
    held_out = {composition(pair) for pair in cldr_corpus.corpus("en", "de")["test"]}
    for template, atoms in list(held_out)[:50]:
        assert cldr_corpus.split_of(template, [key for _, key in atoms]) == "test"


def test_samples_come_in_the_base_direction_and_rev_changes_the_languages():
    problem = registry.problem("translate_ende_cldr")
    turned = registry.problem("translate_ende_cldr_rev")
    assert (problem.source_language, problem.target_language) == ("en", "de")
    assert (turned.source_language, turned.target_language) == ("de", "en")
    sample = next(iter(problem.checked_samples("test", "")))
    assert sample == next(iter(turned.base().samples("test", "")))
    assert problem.count("test", "") == sum(1 for _ in problem.samples("test", ""))
    by_source = {pair.source: pair.target for pair in pairs_of("de")}
    assert by_source["Germany"] == "Deutschland"
    assert by_source[sample["inputs"]] == sample["targets"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_pairs_with_english_are_registered(language):
    assert f"translate_en{language}_cldr" in registry.problem_names()
    assert registry.problem(f"translate_en{language}_cldr").target_language == language


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("translate_frru_cldr", ("fr", "ru")),
        ("translate_enfil_cldr", ("en", "fil")),
        ("translate_filen_cldr", ("fil", "en")),
        ("translate_en_zh_hant_cldr", ("en", "zh-Hant")),
        ("translate_zh_hant_hk_de_ch_cldr", ("zh-Hant-HK", "de-CH")),
        ("translate_pt_br_fr_cldr", ("pt-BR", "fr")),
        ("translate_es_419_en_cldr", ("es-419", "en")),
        ("translate_frru_cldr_rev", ("ru", "fr")),
    ],
)
def test_any_two_locales_make_a_problem(name, languages):
    problem = registry.problem(name)
    assert (problem.source_language, problem.target_language) == languages
    assert problem.name == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("translate_encz_cldr", r"no locale 'cz'.*'cs'"),
        ("translate_en_zh_hantt_cldr", r"translate_en_zh"),
        ("translate_en_zh_hans_xx_cldr", r"no locale 'zh_hans_xx'.*'zh_hans"),
        ("translate_qqen_cldr", r"no locale 'qq'"),
        ("translate_dede_cldr", r"into itself"),
    ],
)
def test_unknown_locales_are_explained(name, message):
    with pytest.raises(UserError, match=message):
        registry.problem(name)


def test_names_that_can_be_read_in_two_ways_are_refused():
    # Georgian to Masai, or Kamba to Assamese.
    with pytest.raises(UserError, match=r"two ways.*translate_ka_mas_cldr or translate_kam_as_cldr"):
        cldr.locales_in("translate_kamas_cldr")


def test_locales_that_cldr_knows_too_little_of_are_refused():
    with pytest.raises(UserError, match=r"too little.*60,000"):
        next(iter(registry.problem("translate_enaa_cldr").samples("train", "")))


def test_grammar_of_numbers():
    said = {
        ("ru", "1"): "1 километр",
        ("ru", "3"): "3 километра",
        ("ru", "21"): "21 километр",
        ("ru", "25"): "25 километров",
        ("ro", "21"): "21 de kilometri",
        ("de", "1000"): "1.000 Kilometer",
        ("zh", "3"): "3公里",
        ("fa", "12"): "۱۲ کیلومتر",
    }
    for (language, number), text in said.items():
        assert CldrLocale.of(language).measure(number, "length-kilometer") == text
    assert CldrLocale.of("ru").money("5", "EUR", "name") == "5,00 евро"
    assert CldrLocale.of("de").money("1234.5", "EUR") == "1.234,50 €"
    assert CldrLocale.of("en").money("1234.5", "JPY") == "¥1,234"
    assert CldrLocale.of("zh").compact("12", 6) == "1200万"
    assert CldrLocale.of("fr").percent("25.5") == "25,5 %"


def test_lists_and_glue_follow_the_language():
    assert CldrLocale.of("en").listing("standard", ["A", "B", "C"]) == "A, B, and C"
    assert CldrLocale.of("es").listing("standard", ["Francia", "Italia"]) == "Francia e Italia"
    assert CldrLocale.of("es").listing("standard", ["agua", "hielo"]) == "agua y hielo"
    assert CldrLocale.of("es").listing("or", ["Perú", "Omán"]) == "Perú u Omán"
    assert CldrLocale.of("es").listing("or", ["18", "81"]) == "18 u 81"
    assert CldrLocale.of("he").listing("standard", ["א", "5"]) == "א ו-5"
    assert CldrLocale.of("zh").bracketed("A", ["B", "C"]) == "A（B、C）"
    assert CldrLocale.of("fr").headed("A", "B") == "A : B"
    assert CldrLocale.of("ja").spanned("A", "B") == "A～B"
    assert CldrLocale.of("vi").at("DATE", "TIME") == "TIME DATE"


def test_dates_and_times_follow_the_locale():
    morning, afternoon = datetime.datetime(2021, 3, 5, 9, 30), datetime.datetime(2021, 3, 5, 17, 45)
    later = datetime.datetime(2021, 6, 9)
    assert CldrLocale.of("en").interval("time", morning, afternoon) == "9:30 AM – 5:45 PM"
    assert CldrLocale.of("de").interval("time", morning, afternoon) == "09:30–17:45 Uhr"
    assert CldrLocale.of("fr_CA").clock == "Hm"  # the quoted h in "HH 'h' mm" is text
    assert CldrLocale.of("ru").interval("yMMMMd", afternoon, later) is None  # CLDR has no such interval
    assert CldrLocale.of("ru").interval("yMMMd", afternoon, later) == "5 мар. – 9 июн. 2021 г."
    assert CldrLocale.of("de").interval("yMMMd", later, afternoon) is None  # ends before it starts
    assert CldrLocale.of("ro").relative(21, "day", 1) == "peste 21 de zile"
    assert CldrLocale.of("de").relative(1, "month", -1) == "vor 1 Monat"
    assert CldrLocale.of("en").date("yMd", 5, 3, 2021) == "3/5/2021"
    assert CldrLocale.of("en").time(0, 5) == "12:05 AM"


def test_names_are_real_names_and_none_is_ambiguous():
    english = CldrLocale.of("en")
    assert english.name("territory", "DE") == "Germany"
    assert english.name("territory", "nowhere") is None
    assert english.name("city", "Europe/Isle_of_Man") == "Isle of Man"
    assert CldrLocale.of("el").name("city", "Europe/Nowhere") is None  # has no Greek name and is not written in Latin
    singles = [pair for pair in pairs_of("de") if len(pair.atoms) == 1]
    assert len({pair.atoms for pair in singles}) == len(singles) > 1000
