"""Tests of ``t2t_ext-trainer --describe`` without data: parameters of published rows, as in docs/experiments.md."""

import pathlib
import re
import sys

import pytest

from t2t_ext.bin import trainer
from t2t_ext.bin._describe import print_table

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "experiments.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\|[^|]+\| `(\w+)` \| `(.+)` \| (\d+) \| ([\d.]+)M \| ([\d.]*)M? \|$", PAGE, flags=re.M)
QUICK = ("layer_coordination_small", "synchronous_transformer_big_printed")
UNEXPLAINED = ("lightweight_conv_big",)  # docs/dynamic_conv.md


@pytest.mark.parametrize(
    ("model", "hparams", "size", "here", "published"),
    [pytest.param(*row, marks=() if row[1] in QUICK else pytest.mark.slow) for row in ROWS],
)
def test_parameters_of_a_published_row(model, hparams, size, here, published, capsys):
    flags = f"--describe --model={model} --hparams_set={hparams} --vocab_size={size}"
    assert trainer.main(flags.split()) == 0
    assert f"\nparameters: {here}M\n" in capsys.readouterr().out
    if published and hparams not in UNEXPLAINED:
        assert float(here) == pytest.approx(float(published), rel=1.5e-3)


@pytest.mark.parametrize(("columns", "indent"), [(80, 13), (40, 4)])
def test_a_terminal_gets_long_lines_folded(columns, indent, monkeypatch, capsys):
    rows = [("name", "value", "meaning"), ("a", "1", "What a set of hparams says about training. " * 10)]
    print_table(rows)
    assert len(capsys.readouterr().out.splitlines()) == 2
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_table(rows)
    first, second, *others = capsys.readouterr().out.splitlines()
    assert first == "name  value  meaning"
    assert second.startswith("a     1      What a set")
    assert {len(line) - len(line.lstrip()) for line in others} == {indent}
    assert all(len(line) <= columns for line in (second, *others))
    assert " ".join(" ".join([second, *others]).split()) == f"a 1 {rows[1][2].strip()}"


def test_the_page_has_the_rows_of_every_paper_with_counts():
    assert len(ROWS) == 18


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--model=transformer"],
            "--describe needs --model, and the vocabulary's size: --vocab_size=N or --problem=NAME",
        ),
        (["--vocab_size=100"], "--describe needs --model"),
        (
            ["--model=transformer", "--vocab_size=100", "--data_dir=data"],
            "--vocab_size=100 and --data_dir=data",
        ),
    ],
)
def test_what_is_missing_is_said(flags, message, capsys):
    assert trainer.main(["--describe", "--hparams_set=transformer_test", *flags]) == 2
    assert message in capsys.readouterr().err
