"""Tests of the divergence of local and global attention: equations 10 to 13 against NumPy, layers, and the report."""

import json
import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from random_weights import random_arrays

from t2t_ext import registry
from t2t_ext.analysis.divergence import measure as divergence
from t2t_ext.analysis.divergence import report as divergence_report
from t2t_ext.analysis.divergence.report import Divergences, Measured
from t2t_ext.analysis.divergence.runs import usable
from t2t_ext.errors import UserError

SOURCES = [[20, 21, 22, 23, 1], [24, 25, 1], [26, 1]]
TARGETS = [[30, 31, 1], [32, 33, 34, 35, 36, 37, 38, 1], [39, 1]]


def distributions(*shape, seed=0):
    found = np.random.default_rng(seed).gamma(0.5, size=shape)
    return (found / found.sum(axis=-1, keepdims=True)).astype(np.float32)


def numpy_divergence(p, q):
    """Returns equations 11 and 12 as printed, for one pair of distributions, with 0 log 0 = 0."""

    def kl(one, other):
        return sum(x * math.log(x) - x * math.log(y) for x, y in zip(one, other, strict=True) if x > 0)

    m = [(x + y) / 2 for x, y in zip(p, q, strict=True)]
    return kl(p, m) / 2 + kl(q, m) / 2


def numpy_joined(weights, heads):
    """Returns equation 10 for weights [H, Q, K], with rows normalized to a sum of 1."""
    rows = []
    for q in range(weights.shape[1]):
        if heads == "max":
            row = [max(weights[h, q, k] for h in range(len(weights))) for k in range(weights.shape[2])]
        elif heads == "mean":
            row = list(weights[:, q].mean(axis=0))
        else:
            row = list(max(weights[:, q], key=max))
        rows.append(np.array(row) / sum(row))
    return rows


def test_the_divergence_is_that_of_the_equations():
    p, q = distributions(4, 3, 7, seed=1), distributions(4, 3, 7, seed=2)
    found = divergence.jensen_shannon(p, q).numpy()
    expected = [[numpy_divergence(p[i, j], q[i, j]) for j in range(3)] for i in range(4)]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found, divergence.jensen_shannon(q, p), atol=1e-6)
    assert found.min() > 0
    assert found.max() < math.log(2)


def test_the_divergence_is_zero_of_equals_and_ln_2_of_what_has_nothing_in_common():
    p = distributions(5, 9)
    np.testing.assert_allclose(divergence.jensen_shannon(p, p), np.zeros(5), atol=1e-7)
    one, other = np.eye(4, dtype=np.float32)[:2]
    assert float(divergence.jensen_shannon(one, other)) == pytest.approx(math.log(2))
    assert float(divergence.jensen_shannon(one, one)) == 0


@pytest.mark.parametrize("heads", divergence.HEADS)
def test_heads_are_joined_to_one_distribution(heads):
    weights = distributions(2, 3, 4, 6)
    found = divergence.joined_heads(tf.constant(weights), heads).numpy()
    np.testing.assert_allclose(found, [numpy_joined(each, heads) for each in weights], atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-6)


@pytest.fixture(scope="module")
def model():
    hparams = registry.hparams("dual_context_test").override("dc_decoder_layers=2")
    built = registry.model("dual_context_transformer")(hparams, source_vocab_size=40, target_vocab_size=40)
    built.build()
    built.assign(random_arrays(built, seed=5, scale=3.0))
    return built


@pytest.mark.parametrize("heads", divergence.HEADS)
def test_modules_of_a_model_sentence_by_sentence(model, heads):
    found = divergence.measure(model, SOURCES, TARGETS, heads)
    assert {stack: each.layers for stack, each in found.items()} == {"encoder": (0, 1), "decoder": (1,)}
    for number, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        weights = model.attention_weights(np.array([source], np.int32), np.array([target], np.int32))
        for stack, layer in (("encoder", 0), ("encoder", 1), ("decoder", 1)):
            local, globally = np.split(weights[f"{stack}/layer_{layer}/dual_context"].numpy()[0], 2)
            pairs = zip(numpy_joined(local, heads), numpy_joined(globally, heads), strict=True)
            expected = np.mean([numpy_divergence(p, q) for p, q in pairs])
            each = found[stack]
            assert each.values[number, each.layers.index(layer)] == pytest.approx(expected, abs=2e-6), (stack, number)
    alone = divergence.measure(model, SOURCES, heads=heads)
    assert list(alone) == ["encoder"]
    np.testing.assert_allclose(alone["encoder"].values, found["encoder"].values, atol=1e-6)


def test_stacks_that_can_be_measured():
    def stacks(encoder, decoder, **more):
        hparams = registry.hparams("transformer_test").replace(dc_encoder_layers=encoder, dc_decoder_layers=decoder)
        return divergence.stacks_with_modules(hparams, **{"with_targets": True, **more})

    assert stacks("1", "all") == ["encoder", "decoder"]
    assert stacks("1", "all", with_targets=False) == ["encoder"]
    assert stacks("1", "all", target_sides=2) == ["encoder"]
    for arguments, message in (
        ({"encoder": "", "decoder": ""}, "it has no dual contextual module"),
        ({"encoder": "", "decoder": "2", "with_targets": False}, "reads translations: give --reference_file"),
        ({"encoder": "", "decoder": "2", "target_sides": 2}, "generates two targets"),
    ):
        with pytest.raises(UserError, match=message):
            stacks(**arguments)


def test_models_that_can_be_measured():
    for name in ("dual_context_transformer", "cross_view_transformer", "dynamic_conv"):
        divergence.check_model(registry.model(name))
    with pytest.raises(UserError, match="LayerCoordination has no encoder and decoder whose layers"):
        divergence.check_model(registry.model("layer_coordination"))


def test_the_end_of_a_sentence_is_no_subword_of_it():
    sides = [*SOURCES, [1]], [*TARGETS, [40, 1]]
    assert usable(sides, 4) == [0, 2]
    assert usable(sides, 1) == [2]
    assert usable(sides[:1], 3) == [1, 2]


def test_means_and_standard_errors_are_over_sentences():
    found = Divergences((0, 2), np.array([[0.1, 0.3], [0.2, 0.6]]))
    assert found.layer(2) == (pytest.approx(0.45), pytest.approx(0.15))
    assert found.layer(1) is None
    assert found.overall == (pytest.approx(0.3), pytest.approx(0.1))
    value, error = Divergences((0,), np.array([[0.5]])).overall
    assert (value, math.isnan(error)) == (0.5, True)


def test_report(tmp_path):
    small = Divergences((0, 1), np.array([[0.2, 0.4], [0.3, 0.5], [0.1, 0.3]]))
    large = Divergences((1,), np.array([[0.25], [0.15]]))
    runs = [
        Measured("f=2", pathlib.Path("A"), "model.ckpt-00000001", 2, {"encoder": small, "decoder": large}),
        Measured("f=5", pathlib.Path("B"), "model.ckpt-00000002", 5, {"encoder": large}),
    ]
    names = divergence_report.write(tmp_path / "new", runs, "Measured so.", {"heads": "max"}, ["A <note>."])
    assert sorted(names) == sorted(path.name for path in (tmp_path / "new").iterdir())
    rows = [line.split("\t") for line in (tmp_path / "new" / "divergence.tsv").read_text().splitlines()]
    values = {tuple(row[:4]): row[4:] for row in rows[1:]}
    assert values["f=2", "2", "encoder", "1"] == ["0.2", "0.057735", "3"]
    assert values["f=2", "2", "encoder", "E_d"][0] == "0.3"
    assert values["f=5", "5", "encoder", "E_d"] == values["f=5", "5", "encoder", "2"] == ["0.2", "0.05", "2"]
    content = json.loads((tmp_path / "new" / "divergence.json").read_text())
    assert content["settings"] == {"heads": "max"}
    assert content["runs"][0]["stacks"]["decoder"]["E_d"]["mean"] == pytest.approx(0.2)
    page = (tmp_path / "new" / "divergence.html").read_text()
    assert "A &lt;note&gt;." in page
    assert page.count("<svg ") == 1
    assert "f=5, kernel size 5: 0.2000 ± 0.0500</title>" in page
    assert tf.image.decode_png((tmp_path / "new" / "divergence.png").read_bytes()).shape[2] == 4
    table = divergence_report.build(runs, "Measured so.").text()
    (row,) = (line for line in table.splitlines() if line.startswith("f=5"))
    assert row.split() == ["f=5", "5", *["0.2000", "±", "0.0500"] * 2, "2"]  # has no values for layer 1
