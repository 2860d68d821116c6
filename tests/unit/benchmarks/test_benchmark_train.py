"""Tests of the arithmetic of benchmarks/train.py."""

import importlib.util
import json
import os
import pathlib
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("benchmark_train", FOLDER / "train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def window(seconds, rate):
    return {
        "step": 10, "seconds": seconds, "tokens_per_second": rate, "source_tokens_per_step": 60.0,
        "target_tokens_per_step": 40.0, "examples_per_step": 5.0, "fill_rate": 0.9, "loss": 1.0,
    }  # fmt: skip


def test_best_minute_is_of_consecutive_windows(benchmark):
    rows = [{"seconds": 30.0, "r": rate} for rate in (100.0, 500.0, 100.0, 300.0, 320.0)]
    assert benchmark.best_stretch(rows, "r", seconds=60.0) == pytest.approx(310.0)  # a quarter of 150 s: two windows
    rows = [{"seconds": 60.0, "r": rate} for rate in (100.0, 200.0, 100.0, 150.0, 170.0)]
    assert benchmark.best_stretch(rows, "r") == pytest.approx(200.0)


def test_rates_of_windows(benchmark):
    found = benchmark.rates([window(10.0, 1000.0), window(10.0, 3000.0), window(10.0, 2000.0)])
    assert found["tokens_per_second_median"] == 2000.0
    assert found["pairs_per_second_median"] == pytest.approx(100.0)  # 5 pairs per 100 tokens
    assert found["tokens_per_second_best_minute"] == 3000.0


def test_comparison_with_a_report(benchmark, capsys):
    figures = dict.fromkeys(benchmark._FIGURES, 3.0)
    stored = {"configurations": {"float32": dict.fromkeys(benchmark._FIGURES, 2.0)}, "date": "2026-11-21"}
    ratios = benchmark.compare({"float32": figures, "other": figures}, stored, "FILE")
    assert ratios == {"float32": dict.fromkeys(benchmark._FIGURES, 1.5)}
    assert "1.500" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="none of these configurations, only float32"):
        benchmark.check_comparable(["other"], stored, "FILE")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: .*No such file"),
        ("{", "cannot be read"),
        ("[]", "is no report"),
        ('{"configurations": {"mixed_float16": {}}}', "none of these configurations, only mixed_float16"),
    ],
)
def test_a_report_to_compare_with_is_read_before_anything_is_measured(benchmark, tmp_path, monkeypatch, content, told):
    report = tmp_path / "before.json"
    if content is not None:
        report.write_text(content)
    monkeypatch.setattr(benchmark, "_data", lambda *args: pytest.fail("data are generated"))
    monkeypatch.setattr("sys.argv", ["train.py", f"--compare={report}", "--parallel_slices=1"])
    with pytest.raises(SystemExit, match=rf"{report} .*{told}|{told}"):
        benchmark.main()


def test_the_rate_is_set_for_the_default_set_alone(benchmark):
    def hparams(*flags):
        args = benchmark._parser().parse_args([*flags, "--parallel_slices=1"])
        [(_, settings)] = benchmark._configurations(args)
        command = benchmark._command(args, settings, "PROBLEM", FOLDER, FOLDER)
        return next(flag for flag in command if flag.startswith("--hparams="))

    assert "learning_rate_constant=0.6" in hparams()
    assert hparams("--hparams=learning_rate_constant=2,hidden_size=64").endswith(
        "=2,learning_rate_warmup_steps=800,hidden_size=64"
    )
    assert "learning_rate" not in hparams("--hparams_set=transformer_base_v1")  # its schedule takes no such rate
    with pytest.raises(SystemExit):
        hparams("--hparams=hidden_size")


def test_a_trainer_that_is_given_flags(benchmark, tmp_path):
    """Flags of the command, such as --xla_compile, need no value."""
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"kind": "train", **window(1.0, 100.0)}) + "\n")
    told = [sys.executable, "-c", "print('first step after 1.0 s')", "--xla_compile"]
    found = benchmark.measure([*told, f"--output_dir={tmp_path}", "--train_steps=10"], os.environ, 60.0)
    assert found["tokens_per_second_median"] == 100.0
