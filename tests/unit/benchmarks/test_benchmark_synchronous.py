"""Tests of the arithmetic of benchmarks/synchronous.py."""

import importlib
import math
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("name", ["transformer", "synchronous_transformer", "asynchronous_transformer"])
def test_multiplications_are_those_of_the_graph(name):
    """The formula agrees with the products in a forward pass over two pairs of 7 source and 5 target tokens."""
    import tensorflow as tf

    from t2t_ext import registry

    hparams = importlib.import_module("_speed").sized(
        name, "transformer_test", "float32", ffn_activation="swiglu", attention_key_channels=8
    )
    model = registry.model(name)(hparams, source_vocab_size=30, target_vocab_size=30)
    model.build()
    sides = [] if name == "transformer" else [2]
    graph = (
        tf.function(lambda inputs, targets: model(inputs, targets), autograph=False)
        .get_concrete_function(tf.TensorSpec([2, 7], tf.int32), tf.TensorSpec([2, *sides, 5], tf.int32))
        .graph
    )
    counted = 0
    for product in graph.get_operations():
        if product.type in ("MatMul", "BatchMatMulV2"):
            transposed = product.get_attr("transpose_a" if product.type == "MatMul" else "adj_x")
            inner = product.inputs[0].shape[-2 if transposed else -1]
            counted += math.prod(product.outputs[0].shape) * inner
    expected = importlib.import_module("_arithmetic").training(hparams, 30, 7, 5, name)
    assert 2e6 * math.fsum(expected.values()) == pytest.approx(counted)


def test_the_ratio_at_the_benchmarks_size():
    totals = []
    for name in ("transformer", "synchronous_transformer"):
        hparams = importlib.import_module("_speed").sized(name, "transformer_iwslt_4layer", "float32")
        parts = importlib.import_module("_arithmetic").training(hparams, 8000, 16, 16, name)
        totals.append(math.fsum(parts.values()))
    assert totals[0] / totals[1] == pytest.approx(0.62, abs=0.005)


def test_ratios_are_medians_over_the_rounds():
    """A round that is slow affects both times of its ratio."""
    seconds = {"first": [2.0, 90.0, 2.0], "other": [4.0, 180.0, 1.0]}
    assert importlib.import_module("_speed").ratios(seconds, {"first": 1, "other": 1}) == {"first": 1.0, "other": 0.5}
