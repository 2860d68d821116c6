"""Tests of the arithmetic of benchmarks/train.py."""

import importlib.util
import pathlib

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
        benchmark.compare({"other": figures}, stored, "FILE")
