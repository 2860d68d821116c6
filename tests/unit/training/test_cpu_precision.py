"""Tests of the hint of cpu_precision.py that another precision would make training on CPUs faster."""

import pytest
import tensorflow as tf

from t2t_ext.training import cpu_precision

_LARGE = 2_000_000


@pytest.mark.parametrize(
    ("precision", "float32", "bfloat16", "said"),
    [
        ("mixed_bfloat16", 1.0, 2.0, "2.0 times as long as with precision=float32"),
        ("float32", 2.0, 1.0, "2.0 times as long as with precision=mixed_bfloat16"),
        ("mixed_bfloat16", 1.0, 1.2, ""),
        ("mixed_bfloat16", 2.0, 1.0, ""),
        ("float32", 1.0, 2.0, ""),
    ],
)
def test_the_clearly_faster_precision_is_named(precision: str, float32: float, bfloat16: float, said: str) -> None:
    times = {tf.float32: float32, tf.bfloat16: bfloat16}
    told = cpu_precision.hint(precision, _LARGE, times.__getitem__)
    assert said in told
    assert bool(told) == bool(said)


@pytest.mark.parametrize(("precision", "parameters"), [("mixed_bfloat16", 1000), ("mixed_float16", _LARGE)])
def test_small_models_and_float16_are_not_measured(precision: str, parameters: int) -> None:
    def never(dtype: tf.DType) -> float:
        raise AssertionError(dtype)

    assert cpu_precision.hint(precision, parameters, never) == ""


def test_a_product_takes_time() -> None:
    assert 0 < cpu_precision.product_seconds(tf.float32) < 10
    assert 0 < cpu_precision.product_seconds(tf.bfloat16) < 10
