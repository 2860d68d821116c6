"""Tests of t2t_ext-prepare --phrases, which keeps the tabs that any other preparation would lose."""

import pytest

from t2t_ext.bin import prepare
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.data.text.text_steps import TextSteps

LINES = "New York\tBerlin's\n\n \tTür\n"


@pytest.fixture
def command(tiny_encoder, tmp_path, capsys):
    """Returns t2t_ext-prepare as a function (flags...) -> (status, standard output, standard error)."""
    encoder = SubwordEncoder.make(TextSteps(["moses_tokenize", "lowercase"], "en"), tiny_encoder.subwords)
    encoder.save(tmp_path / "vocab.model")
    (tmp_path / "in").write_text(LINES, encoding="utf-8")

    def run(*flags):
        status = prepare.main([f"--subword_model={tmp_path / 'vocab.model'}", f"--input={tmp_path / 'in'}", *flags])
        return status, *capsys.readouterr()

    return run


def test_each_phrase_is_prepared_by_itself(command):
    assert command("--side=target", "--phrases")[:2] == (0, "new york\tberlin &apos;s\n\n\ttür\n")


@pytest.mark.parametrize("flags", [(), ("--side=target", "--restore"), ("--side=target", "--words")])
def test_what_phrases_exclude(command, flags):
    status, _, error = command("--phrases", *flags)
    assert (status, "--side=target alone goes with it" in error) == (2, True)
