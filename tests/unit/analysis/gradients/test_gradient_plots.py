"""Tests of the figures of gradient norms, without TensorFlow."""

import pathlib

import numpy as np

from t2t_ext.analysis.gradients import plots
from t2t_ext.analysis.gradients.series import Series, System


def test_curves_and_bars_name_layers_and_have_tooltips():
    norms = {"encoder/layer_0": np.array([1.0, 2.0]), "encoder/layer_1": np.array([0.01, 0.03])}
    systems = [System("base", (Series(pathlib.Path("run"), np.array([10, 20]), norms),))]
    for (png, svg), tips in (
        (plots.curves(systems, list(norms)), ["base, step 10: 1", "base, step 20: 0.03"]),
        (plots.bars(systems, [list(norms)]), [f"base, encoder layer {n}" for n in ("1: 1.5 ± 0.5", "2: 0.02 ± 0.01")]),
    ):
        text = svg.decode()
        assert png.startswith(b"\x89PNG")
        shown = [*(f"<title>{tip}</title>" for tip in tips), "encoder layer 1", "encoder layer 2", "gradient norm"]
        assert [words for words in shown if words not in text] == []
