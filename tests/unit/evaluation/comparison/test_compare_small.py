"""Tests of comparisons of a few lines: what is shown of words, and of tests that say nothing."""

import pytest

from t2t_ext.bin import compare as command
from t2t_ext.evaluation import protocols
from t2t_ext.evaluation.comparison import segment_statistics
from t2t_ext.reporting import html

FAST = ["--n_bootstrap=50", "--n_trials=50"]


@pytest.fixture
def flags(tmp_path):
    """Returns a function (translations of two systems, references) -> the command's arguments."""

    def write(first, second, reference):
        names = []
        for name, lines in (("first", first), ("second", second), ("reference", reference)):
            (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            names.append(str(tmp_path / f"{name}.txt"))
        return [*names[:2], f"--reference={names[2]}", *FAST]

    return write


@pytest.mark.parametrize("protocol", ["multi_bleu", "multi_bleu_uc"])
def test_words_are_shown_with_their_own_whitespace(flags, capsys, protocol):
    given = flags(["il A\u00a0dit cela hier"], ["il a dit ceci"], ["il a\u2009dit cela"])
    assert command.main([*given, f"--protocol={protocol}"]) == 0
    shown = capsys.readouterr().out
    assert "A\u00a0dit" in shown
    assert not [letter for letter in shown if ord(letter) > 0xFFFF]
    # The metric still takes them for one word.
    metric = protocols.protocol("multi_bleu").metrics([["a b"]])["BLEU"]
    assert list(map(len, segment_statistics.tokens_of(metric, ["a\u00a0b c"]))) == [2]


@pytest.mark.parametrize(("lines", "is_shown"), [(1, False), (9, False), (10, True)])
def test_the_bootstrap_of_a_few_segments_is_left_out(flags, capsys, lines, is_shown):
    given = flags(["a cat sat on the mat"] * lines, ["the dog sat on a mat"] * lines, ["a cat sat on the mat"] * lines)
    assert command.main([*given, "--protocol=chrf"]) == 0
    shown = capsys.readouterr().out
    assert ("note: With fewer than 10 segments the bootstrap says nothing" in shown) is not is_shown
    (row,) = [line.split() for line in shown.splitlines() if line.startswith("second ") and "±" in line]
    assert (row[6] == "-") is not is_shown


def test_a_picture_with_control_characters_is_shown():
    shown = html.drawing(b'<svg xmlns="http://www.w3.org/2000/svg"><text>a\x1b[1mb\n</text></svg>', "described")
    assert "<text>a\ufffd[1mb\n</text>" in shown
