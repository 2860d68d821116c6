"""Tests of the gradient norms of layers: their groups, their sums in the training step, reading, and comparison."""

import json
import math
import types

import numpy as np
import pytest
import tensorflow as tf
from small_step import batch, make

from t2t_ext.analysis.gradients import report as gradient_report
from t2t_ext.analysis.gradients import series as gradient_series
from t2t_ext.analysis.gradients.groups import encoder_layers, group_of, groups_of
from t2t_ext.errors import UserError
from t2t_ext.training.state import WINDOW_FIELDS, with_all_sums


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("encoder/layer_3/self_attention/qkv/kernel", "encoder/layer_3"),
        ("decoder/layer_10/source_attention_frame/norm/scale", "decoder/layer_10"),
        ("backward_decoder/layer_0/feed_forward/hidden/kernel", "backward_decoder/layer_0"),
        ("layer_5/attention/qkv/kernel", "layer_5"),
        ("decoder/source_views/layer_2/norm/scale", "decoder/source_views/layer_2"),
        ("encoder/final_norm/bias", "encoder/final_norm"),
        ("embedding/embeddings", "embedding"),
        ("kernel", "kernel"),
    ],
)
def test_groups(name, group):
    assert group_of(name) == group


def test_layers_are_in_order_and_together():
    names = ["embedding/e", "encoder/layer_10/k", "encoder/layer_2/k", "decoder/layer_0/k", "encoder/layer_2/b"]
    found = groups_of(names)
    assert found == {
        "embedding": [0],
        "encoder/layer_2": [2, 4],
        "encoder/layer_10": [1],
        "decoder/layer_0": [3],
    }
    assert list(found)[1:3] == ["encoder/layer_2", "encoder/layer_10"]
    assert encoder_layers(list(found)) == ["encoder/layer_2", "encoder/layer_10"]
    assert encoder_layers(["embedding", "layer_0", "layer_1"]) == ["layer_0", "layer_1"]
    assert encoder_layers(["embedding"]) == []


@pytest.mark.parametrize("slices", [{}, {"gradient_accumulation_steps": 2, "parallel_slices": 2}])
def test_the_step_sums_the_norms_of_the_whole_gradient_before_clipping(slices):
    _, state, step = make(clip_grad_norm=0.05, **slices)
    assert list(state.gradient_groups) == ["table", "kernel", "unused"]
    expected = step.gradients(batch())["gradients"]
    norm = float(step.run(batch())["gradient_norm"])
    assert norm == pytest.approx(float(tf.linalg.global_norm(list(expected.values()))), rel=1e-6)
    assert norm > 0.05  # large enough to be clipped
    np.testing.assert_allclose(state.gradient_norms, [*(tf.norm(each) for each in expected.values()), 1], rtol=1e-5)
    before = state.gradient_norms.numpy()
    step.run(batch(1))
    more = state.gradient_norms.numpy() - before
    assert (more[:2] > 0).all()
    assert more[2:].tolist() == [0, 1]  # an unused variable has no gradient


def test_earlier_checkpoints_resume_without_sums():
    old = {"metrics/window": np.ones(len(WINDOW_FIELDS), np.float32)}
    np.testing.assert_array_equal(with_all_sums(old, 3)["metrics/gradient_norms"], [0, 0, 0, 0])
    new = {**old, "metrics/gradient_norms": np.ones(4, np.float32)}
    np.testing.assert_array_equal(with_all_sums(new, 3)["metrics/gradient_norms"], [1, 1, 1, 1])


def run_of(path, lines):
    path.mkdir()
    (path / "gradient_norms.jsonl").write_text("".join(line + "\n" for line in lines))
    return types.SimpleNamespace(path=path, gradient_norms_path=path / "gradient_norms.jsonl")


def line(step, **norms):
    named = {name.replace("_layer", "/layer"): norm for name, norm in norms.items()}
    return json.dumps({"kind": "gradient_norms", "step": step, "steps": 10, "norms": named})


@pytest.fixture
def systems(tmp_path):
    one = run_of(
        tmp_path / "one",
        [line(10, all=4.0, encoder_layer_0=1.0, encoder_layer_1=2.0), '{"step": 2',
         line(20, all=4.0, encoder_layer_0=1.0, encoder_layer_1=3.0), line(30, all=2.0, encoder_layer_0=9.0,
                                                                          encoder_layer_1=9.0)],
    )  # fmt: skip
    other = run_of(tmp_path / "other", [line(step, all=1.0, encoder_layer_0=0.5) for step in (10, 20)])
    series = [gradient_series.read(each, 10, 20) for each in (one, other)]
    assert [each.damaged for each in series] == [1, 0]
    return gradient_series.systems(series, ["base", "thin"])


def test_means_errors_shares_and_ratios(systems):
    base, thin = systems
    top = base.mean(gradient_series.TOP)
    assert (top.value, top.count) == (2.5, 2)
    assert top.error == pytest.approx(math.sqrt(0.5) / math.sqrt(2))
    assert base.share(gradient_series.TOP) == pytest.approx(2.5 / 4)
    assert thin.mean(gradient_series.TOP).value == 0.5  # the first layer is its top layer
    assert thin.mean("encoder/layer_1") is None
    report = gradient_report.GradientComparison(systems, "Measured.", "logged point", over_steps=True)
    assert report.parts == ["top encoder layer", "encoder/layer_0", "encoder/layer_1", "all"]
    assert report.ratio(thin, gradient_series.TOP) == pytest.approx(0.2)
    assert "thin: norm of dLoss/d(encoder layer 1) = 0.5 ± 0, 50.0% of" in gradient_report.build(report).text()
    rows = [row.split("\t") for row in gradient_report.records(report).tsv().splitlines()]
    values = {(row[0], row[1]): row for row in rows[1:]}
    assert values["base", "top encoder layer"][2:4] == ["encoder/layer_1", "2.5"]
    assert ("thin", "encoder/layer_1") not in values


def test_runs_with_one_label_are_one_system(systems):
    (both,) = gradient_series.systems([each.series[0] for each in systems], ["x", "x"])
    mean = both.mean("encoder/layer_0")
    assert (mean.value, mean.count) == (0.75, 2)
    assert mean.error == pytest.approx(0.25)


def test_runs_without_what_is_asked_for(tmp_path):
    empty = run_of(tmp_path / "empty", ["nonsense"])
    with pytest.raises(UserError, match="no line that can be read"):
        gradient_series.read(empty)
    late = run_of(tmp_path / "late", [line(10, all=1.0)])
    with pytest.raises(UserError, match="nothing from step 20 on: its 1 lines are of steps 10 to 10"):
        gradient_series.read(late, 20)
    late.gradient_norms_path.unlink()
    with pytest.raises(UserError, match=r"has no gradient_norms\.jsonl.* --split=dev"):
        gradient_series.read(late)


def test_models_of_different_kinds_with_one_label(tmp_path):
    """They have no common layer, so their top layers are compared with no lowest one."""
    one = run_of(tmp_path / "one", [line(step, all=4.0, encoder_layer_0=1.0, encoder_layer_1=2.0) for step in (1, 2)])
    other = run_of(tmp_path / "other", [line(step, all=1.0, layer_0=0.5) for step in (1, 2)])
    systems = gradient_series.systems([gradient_series.read(each) for each in (one, other)], ["x", "x"])
    text = gradient_report.build(gradient_report.GradientComparison(systems, "M.", "point", over_steps=True)).text()
    assert "x: norm of dLoss/d(" in text
    assert "of the lowest layer's" not in text
