"""Tests of language tags and of the commands that take them."""

import pytest

from t2t_ext.bin import bleu, compare, datagen
from t2t_ext.config.languages import base_language, check_language
from t2t_ext.data.generation.text_checks import scripts_of
from t2t_ext.data.text.text_steps import check_steps
from t2t_ext.errors import UserError
from t2t_ext.evaluation import scores


@pytest.mark.parametrize("tag", ["", "de", "zh_CN", "pt-BR", "zh-Hant-TW", "gsw", "zho", "EN", "es-419"])
def test_tags_are_taken(tag):
    check_language(tag, "--language")


@pytest.mark.parametrize("name", ["chinese", "Chinese", "CHINESE"])
def test_a_name_of_a_language_gives_its_tag(name):
    with pytest.raises(UserError) as error:
        check_language(name, "--language")
    assert str(error.value) == f"--language={name}: a language tag such as zh is expected. Did you mean 'zh'?"


@pytest.mark.parametrize(("name", "tag"), [("japanese", "ja"), ("korean", "ko"), ("Low German", "nds")])
def test_names_of_other_languages(name, tag):
    with pytest.raises(UserError, match=f"Did you mean '{tag}'"):
        check_language(name, "--target_language")


@pytest.mark.parametrize("text", ["x", "12", "zh CN", "zh_", "nonsense", "de,en", "de.txt", "ｚｈ", "d3"])
def test_what_is_no_tag_is_refused(text):
    with pytest.raises(UserError, match="two or three letters") as error:
        check_language(text, "--source_language")
    assert str(error.value).startswith(f"--source_language={text}: a language tag such as de is expected")


def test_codes_of_three_letters_choose_as_those_of_two():
    for codes in (["zh", "zho", "chi", "cmn", "ZHO_TW"], ["ja", "jpn"], ["ko", "kor"], ["th", "tha"], ["my", "bur"]):
        assert {base_language(code) for code in codes} == {codes[0]}
        assert len({scores.default_tokenizer(code) for code in codes}) == 1
    assert scores.default_tokenizer("zho") == "zh"
    assert scores.default_tokenizer("jpn") != "13a"
    assert scripts_of("jpn") == scripts_of("ja") != ()
    check_steps(["jieba"], "zho")


def test_commands_refuse_what_is_no_tag(tmp_path, capsys):
    (tmp_path / "a").write_text("x\n")
    paths = [f"--translation={tmp_path / 'a'}", f"--reference={tmp_path / 'a'}"]
    assert bleu.main([*paths, "--language=chinese"]) == 2
    assert "--language=chinese: a language tag such as zh" in capsys.readouterr().err
    assert compare.main([str(tmp_path / "a"), paths[1], "--language=chinese"]) == 2
    assert "--language=chinese: a language tag such as zh" in capsys.readouterr().err
    problem = ["--problem=translate_parallel_text", f"--data_dir={tmp_path / 'data'}"]
    assert datagen.main([*problem, "--target_language=korean"]) == 2
    assert "--target_language=korean: a language tag such as ko" in capsys.readouterr().err
    assert datagen.main([*problem, "--problem_options=source_language=12"]) == 2
    assert "--source_language=12: a language tag such as de" in capsys.readouterr().err
