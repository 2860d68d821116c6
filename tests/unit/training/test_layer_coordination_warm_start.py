"""Tests of a warm start of a layer-coordination model from a run of its own kind: weights loaded, and report."""

import numpy as np
import pytest
from random_weights import random_arrays

from t2t_ext import registry
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunConfig, RunDirectory
from t2t_ext.training import warm_start

START = "sos/embeddings"  # of a model with one direction; two directions have their own vectors
EMBEDDED = ["embedding/embeddings", "side_embedding/embeddings", START]
LAST = ["final_norm/bias", "final_norm/scale"]


def built(name, hparams, encoder):
    size = encoder.vocab_size
    model = registry.model(name)(hparams, source_vocab_size=size, target_vocab_size=size)
    model.build()
    return model


@pytest.fixture(scope="module")
def shared(tmp_path_factory, tiny_encoder):
    """Returns a run of one shared stack with a checkpoint, and its weights."""
    hparams = registry.hparams("layer_coordination_test")
    config = RunConfig(
        problem="translate_parallel_text", model="layer_coordination", hparams_set="layer_coordination_test",
        hparams_class="t2t_ext.config.layer_coordination:LayerCoordinationHParams", hparams=hparams.to_dict(),
        data_dir="data", data_digest="0", random_seed=1,
    )  # fmt: skip
    run = RunDirectory.create(tmp_path_factory.mktemp("shared") / "run", config, tiny_encoder, tiny_encoder)
    arrays = random_arrays(built("layer_coordination", hparams, tiny_encoder), seed=4)
    checkpoints.save_checkpoint(run.checkpoints_dir, 10, arrays)
    return run, arrays


def started(shared, tiny_encoder, kind="layer_coordination", **changes):
    """Returns the report of a warm start with changed hparams, and its text; checks it against the arrays."""
    run, old = shared
    hparams = registry.hparams(f"{kind}_test").replace(**changes)
    model = built(kind, hparams, tiny_encoder)
    fresh = {name: np.asarray(value) for name, value in model.named_variables().items()}
    sides = warm_start.vocabulary_sides(model)
    arrays, report = warm_start.warm_start(fresh, (tiny_encoder, tiny_encoder), sides, str(run.path), hparams)
    for loaded in report.loaded:
        np.testing.assert_array_equal(arrays[loaded], old[loaded], err_msg=loaded)
    for new in report.new:
        np.testing.assert_array_equal(arrays[new], fresh[new], err_msg=new)
    return report, "\n".join(report.lines())


def test_two_stacks_take_everything_but_the_layers_from_a_shared_one(shared, tiny_encoder):
    report, text = started(shared, tiny_encoder, lwc_share_weights=False)
    assert sorted(report.loaded) == sorted(EMBEDDED + LAST)
    assert report.new
    assert all(name.startswith(("encoder/layer_", "decoder/layer_")) for name in report.new)
    assert all(name.startswith("layer_") for name in report.skipped)
    assert set(report.skipped) == shared[1].keys() - set(report.loaded)
    assert "5 variables loaded as they are" in text
    assert "lwc_share_weights True -> False" in text
    assert "skipped layer_*/attention/output/kernel (2)" in text
    assert "the new model has no such variable" in text
    assert "decoder/layer_*/attention/qkv/kernel (2)" in text


def test_dual_contextual_modules_are_new_in_a_trained_stack(shared, tiny_encoder):
    report, text = started(shared, tiny_encoder, dc_encoder_layers="2")
    assert all(name.startswith("layer_1/dual_context/") for name in report.new)
    assert set(report.skipped) == {"layer_1/attention/qkv/kernel", "layer_1/attention/output/kernel"}
    assert set(report.loaded) == shared[1].keys() - report.skipped.keys()
    assert "dc_encoder_layers '' -> 2" in text


def test_both_directions_take_everything_from_one(shared, tiny_encoder):
    report, text = started(shared, tiny_encoder, "synchronous_layer_coordination", sb_lambda_trainable="vector")
    assert set(report.loaded) == shared[1].keys() - {START}
    assert list(report.skipped) == [START]
    assert report.new == ["layer_0/attention/lambda", "layer_1/attention/lambda"]
    assert "new, not in the checkpoint: layer_*/attention/lambda (2)" in text
