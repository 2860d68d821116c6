"""``t2t_ext-trainer --describe`` without data: parameters of the published rows, as docs/experiments.md lists them."""

import pathlib
import re

import pytest

from t2t_ext.bin import trainer

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
