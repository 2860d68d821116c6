"""Tests of a warm start of a dual-context model from a Transformer: the weights loaded, and the report."""

import numpy as np
import pytest
from random_weights import random_arrays

from t2t_ext import registry
from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunConfig, RunDirectory
from t2t_ext.training import warm_start


def arrays_of(hparams, vocab_size, model="transformer"):
    built = registry.model(model)(hparams, source_vocab_size=vocab_size, target_vocab_size=vocab_size)
    built.build()
    return random_arrays(built, seed=1)


@pytest.fixture(scope="module")
def transformer(tmp_path_factory, tiny_encoder):
    """Returns a run of a Transformer, its arrays and its hparams."""
    hparams = registry.hparams("transformer_test").replace(num_hidden_layers=3)
    config = RunConfig(
        problem="translate_parallel_text",
        model="transformer",
        hparams_set="transformer_test",
        hparams_class="t2t_ext.config.hyperparameters:TransformerHParams",
        hparams=hparams.to_dict(),
        data_dir="data",
        data_digest="0",
        random_seed=1,
    )
    run = RunDirectory.create(tmp_path_factory.mktemp("transformer") / "run", config, tiny_encoder, tiny_encoder)
    arrays = arrays_of(hparams, tiny_encoder.vocab_size)
    checkpoints.save_checkpoint(run.checkpoints_dir, 10, arrays)
    return run, arrays, hparams


def test_all_but_self_attention_and_its_norm_is_taken_over(transformer, tiny_encoder):
    run, old, base = transformer
    hparams = base.replace(dc_encoder_layers="1-2")
    fresh = {name: -value for name, value in arrays_of(hparams, tiny_encoder.vocab_size).items()}
    sides = {"embedding/embeddings": "source"}
    arrays, report = warm_start.warm_start(fresh, (tiny_encoder, tiny_encoder), sides, str(run.path), hparams)
    of_mixers = [f"encoder/layer_{i}/" for i in range(2)]
    for name in old:
        taken = not (name.startswith(tuple(of_mixers)) and "/self_attention" in name)
        assert (name in report.loaded) == taken, name
        assert (name in report.skipped) == (not taken)
        if taken:
            np.testing.assert_array_equal(arrays[name], old[name])
    assert all("/dual_context" in name for name in report.new)
    for name in report.new:
        np.testing.assert_array_equal(arrays[name], fresh[name])
    text = "\n".join(report.lines())
    for part in (
        "hparams of the model that are others than there: dc_encoder_layers '' -> 1-2",
        "encoder/layer_*/dual_context/q_qkv/kernel (2)",
        "encoder/layer_*/dual_context_frame/pre_norm/scale (2)",
        "skipped encoder/layer_*/self_attention/output/kernel (2), encoder/layer_*/self_attention/qkv/kernel (2)",
        "encoder/layer_*/self_attention_frame/pre_norm/scale (2): the new model has no such variable",
    ):
        assert part in text, text


def test_between_runs_with_the_same_modules_all_is_taken_over(transformer, tiny_encoder):
    """A Dec-DC model passes on all weights to one with another kernel size, except W^r, whose shape differs."""
    run, _, base = transformer
    hparams = base.replace(dc_decoder_layers="3", dc_kernel_size=2)
    arrays = arrays_of(hparams, tiny_encoder.vocab_size)
    checkpoints.save_checkpoint(run.path / "other", 20, arrays)
    path = checkpoints.list_checkpoints(run.path / "other")[-1]
    fresh = arrays_of(hparams.replace(dc_kernel_size=3), tiny_encoder.vocab_size)
    _, report = warm_start.warm_start(fresh, (tiny_encoder, tiny_encoder), {}, str(path))
    name = "decoder/layer_2/dual_context/local/convolution/kernel"
    assert report.skipped == {name: "its shape is [32, 32], here [48, 32]"}
    assert report.new == []


def test_other_sizes_are_told(transformer, tiny_encoder):
    run, _, base = transformer
    hparams = base.replace(hidden_size=24, filter_size=12)
    fresh = arrays_of(hparams, tiny_encoder.vocab_size)
    with pytest.raises(UserError) as told:
        warm_start.warm_start(fresh, (tiny_encoder, tiny_encoder), {}, str(run.path), hparams)
    assert "variables have the names of this model's, but other shapes (" in str(told.value)
    assert f"hidden_size is {base.hidden_size} there, 24 here" in str(told.value)
    with pytest.raises(UserError, match=r"does not exist\. Give a run directory or a checkpoint in one"):
        warm_start.warm_start(fresh, (tiny_encoder, tiny_encoder), {}, f"{run.path.parent}/other", hparams)
