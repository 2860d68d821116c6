"""Tests of checkpoints: they are restored exactly as they were saved, and damage is detected."""

import json
import os
import resource
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest

from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints

ARRAYS = {
    "encoder/layer_0/kernel": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
    "half": np.array([1.5, np.inf], np.float16),
    "brain": np.array([[1.5], [-2.25]], ml_dtypes.bfloat16),
    "steps": np.array(2**40, np.int64),
    "flags": np.array([True, False]),
    "empty": np.zeros((0, 3), np.float64),
}


def save(folder, step, value=1.0, **rest):
    return checkpoints.save_checkpoint(folder, step, model={"w": np.full((2,), value, np.float32)}, **rest)


def flip_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_every_dtype_and_shape_survives(tmp_path):
    path = checkpoints.save_checkpoint(tmp_path, 7, model=ARRAYS)
    loaded = checkpoints.load_arrays(path)
    assert set(loaded) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert loaded[name].dtype == array.dtype, name
        np.testing.assert_array_equal(loaded[name], array)
    assert os.listdir(tmp_path) == ["model.ckpt-00000007"]


def test_groups_are_apart_and_described(tmp_path):
    path = save(tmp_path, 3, training={"m": np.zeros(5)}, ema={"w": np.ones(2)}, metadata={"bleu": 12.5})
    info = checkpoints.read_info(path)
    assert (info.step, info.metadata) == (3, {"bleu": 12.5})
    assert info.groups["training"] == {"m": {"shape": [5], "dtype": "float64"}}
    assert set(checkpoints.load_arrays(path, "training")) == {"m"}
    assert checkpoints.load_arrays(path, "ema")["w"].tolist() == [1, 1]
    with pytest.raises(UserError, match="has no group 'ema'; it has model"):
        checkpoints.load_arrays(save(tmp_path, 4), "ema")


def test_tensorflow_reads_a_bundle_without_us(tmp_path):
    import tensorflow as tf

    path = save(tmp_path, 1, 5.0)
    assert tf.train.load_checkpoint(str(path / "model")).get_tensor("w").tolist() == [5, 5]


@pytest.mark.parametrize("name", ["c[1]", r"c\d", "c*", "c?x", "c[", "G [a]é"])
def test_a_folder_may_be_named_like_a_pattern(tmp_path, monkeypatch, name):
    path = save(tmp_path / name, 1, 5.0)
    assert checkpoints.load_arrays(path)["w"].tolist() == [5, 5]
    monkeypatch.chdir(tmp_path)
    assert checkpoints.load_arrays(path.relative_to(tmp_path))["w"].tolist() == [5, 5]


def test_listing_is_by_step_and_sorts_by_name(tmp_path):
    for step in (1_000_000, 999_999, 5):
        save(tmp_path / "checkpoints", step)
    (tmp_path / "checkpoints" / ".model.ckpt-00000009.tmp-x_1_0").mkdir()
    listed = checkpoints.list_checkpoints(tmp_path)
    assert [checkpoints.checkpoint_step(path) for path in listed] == [5, 999_999, 1_000_000]
    assert listed == sorted(listed)
    assert checkpoints.list_checkpoints(tmp_path / "nowhere") == []


@pytest.mark.parametrize("name", ["model.index", "model.data-00000-of-00001", "training.index", "checkpoint.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damaged_newest_is_reported_and_the_previous_taken(tmp_path, name, damage):
    good = save(tmp_path, 1, training={"m": np.zeros(5)})
    file = save(tmp_path, 2, training={"m": np.zeros(5)}) / name
    if damage == "remove":
        file.unlink()
    elif damage == "cut" or name == "checkpoint.json":
        file.write_bytes(file.read_bytes()[:-5])
    else:
        flip_byte(file)
    warnings = []
    assert checkpoints.latest(tmp_path, warnings.append) == good
    assert len(warnings) == 1
    assert "model.ckpt-00000002 is damaged" in warnings[0]
    assert name in warnings[0]


def test_damaged_checkpoint_is_never_loaded(tmp_path):
    path = save(tmp_path, 1)
    flip_byte(path / "model.data-00000-of-00001")
    with pytest.raises(checkpoints.DamagedCheckpointError, match=r"SHA-256 of model\.data"):
        checkpoints.load_arrays(path)
    with pytest.raises(UserError, match=r"Every checkpoint in .* is damaged"):
        checkpoints.latest(tmp_path)


def test_newer_format_is_no_damage(tmp_path):
    path = save(tmp_path, 1)
    file = path / "checkpoint.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format_version": 99}))
    with pytest.raises(UserError, match="format version 99") as caught:
        checkpoints.latest(tmp_path)
    assert not isinstance(caught.value, checkpoints.DamagedCheckpointError)


def test_prune_keeps_the_newest_and_the_protected(tmp_path):
    paths = [save(tmp_path, step) for step in range(1, 6)]
    assert checkpoints.prune(tmp_path, 0) == []
    assert checkpoints.prune(tmp_path, 2, protect=[paths[0]]) == paths[1:3]
    assert checkpoints.list_checkpoints(tmp_path) == [paths[0], *paths[3:]]
    assert len(os.listdir(tmp_path)) == 3


def test_resolving_what_users_write(tmp_path):
    run = tmp_path / "run"
    first, second = save(run / "checkpoints", 500), save(run / "checkpoints", 1000)
    best, averaged = save(run / "best", 500), save(run / "averaged", 1000)
    expected = {
        None: second,
        "latest": second,
        "best": best,
        "averaged": averaged,
        "500": first,
        "model.ckpt-500": first,
        "checkpoints/model.ckpt-500": first,
        "best/model.ckpt-500": best,
        first.name: first,
        str(run / "model.ckpt-500"): first,
        str(run / "model.ckpt-000500"): first,
        str(first): first,
        str(first / "model.index"): first,
        str(first / "model"): first,
        str(run): second,
        str(run / "best"): best,
    }
    for wanted, path in expected.items():
        assert checkpoints.resolve_checkpoint(run, wanted) == path, wanted


def test_the_home_directory_in_a_path(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = save(tmp_path / "run" / "best", 500)
    assert checkpoints.resolve_checkpoint(tmp_path / "run", "~/run/best") == path


def test_a_checkpoint_that_is_replaced_meanwhile(tmp_path, monkeypatch):
    """Training replaces the best checkpoint while it is verified: the new one is taken, and none is called damaged."""
    first, verify = save(tmp_path / "best", 500), checkpoints.verify_checkpoint

    def replaced(path):
        if path == first:
            save(tmp_path / "best", 1000)
            shutil.rmtree(first, ignore_errors=True)
        return verify(path)

    monkeypatch.setattr(checkpoints, "verify_checkpoint", replaced)
    warnings = []
    found = checkpoints.latest(tmp_path / "best", warnings.append)
    assert (found.name, warnings) == ("model.ckpt-00001000", [])


def test_resolving_fails_with_what_exists(tmp_path):
    with pytest.raises(UserError, match=r"has no checkpoint yet\. Train it first"):
        checkpoints.resolve_checkpoint(tmp_path)
    save(tmp_path / "checkpoints", 500)
    with pytest.raises(UserError, match=r"no checkpoint 'model.ckpt-501'.*It has checkpoints: model.ckpt-00000500"):
        checkpoints.resolve_checkpoint(tmp_path, "model.ckpt-501")
    save(tmp_path / "best", 500)
    with pytest.raises(UserError, match=r"Did you mean 'model.ckpt-00000500'\? It has checkpoints: .*; best: model"):
        checkpoints.resolve_checkpoint(tmp_path, "model.ckpt-501")
    with pytest.raises(UserError, match="t2t_ext-avg-all"):
        checkpoints.resolve_checkpoint(tmp_path, "averaged")
    with pytest.raises(UserError, match="Did you mean 'latest'"):
        checkpoints.resolve_checkpoint(tmp_path, "latset")


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    """A checkpoint of another run is refused: its weights may fit, but mean other subwords or another direction."""
    run, other, copied = tmp_path / "run", tmp_path / "other", tmp_path / "copied"
    mine, theirs, loose = save(run / "best", 5), save(other / "checkpoints", 5), save(copied, 5)
    for each in (run, other):
        (each / "config.json").write_text("{}")
        (each / "vocab.target.model").write_text("x")
    for wanted in (other, other / "checkpoints", theirs, theirs / "model.index"):
        with pytest.raises(UserError, match=rf"is a checkpoint of the run {other}, .*give --output_dir={other}"):
            checkpoints.resolve_checkpoint(run, wanted)
    assert checkpoints.resolve_checkpoint(run, mine) == mine
    assert checkpoints.resolve_checkpoint(run, loose) == loose
    (tmp_path / "link").symlink_to(run)
    assert checkpoints.resolve_checkpoint(tmp_path / "link", mine) == mine
    (run / "checkpoints").symlink_to(other / "checkpoints")  # a link that the user made is intentional
    assert checkpoints.resolve_checkpoint(run) == run / "checkpoints" / theirs.name
    assert checkpoints.resolve_checkpoint(run, run / "checkpoints") == run / "checkpoints" / theirs.name
    (copied / "config.json").write_text("{}")  # a configuration of something that is not a run
    assert checkpoints.resolve_checkpoint(run, loose) == loose


def test_what_is_not_there_is_not_proposed(tmp_path):
    save(tmp_path / "averaged", 5)
    with pytest.raises(UserError, match=r"no checkpoint 'latest' of the run [^?]*\. It has averaged"):
        checkpoints.resolve_checkpoint(tmp_path)


def test_average_is_the_mean_in_float64(tmp_path):
    values = [np.float32(1e8), np.float32(1), np.float32(-1e8)]
    paths = [
        checkpoints.save_checkpoint(
            tmp_path,
            step,
            model={"w": np.array([value]), "b": np.array([step], ml_dtypes.bfloat16), "n": np.array(step)},
        )
        for step, value in enumerate(values)
    ]
    mean = checkpoints.average_arrays(paths)
    assert mean["w"].dtype == np.float32
    np.testing.assert_allclose(mean["w"], [1 / 3], rtol=1e-7)
    assert (mean["b"].dtype.name, float(mean["b"][0]), int(mean["n"])) == ("bfloat16", 1.0, 2)


def test_average_of_different_models_is_refused(tmp_path):
    other = checkpoints.save_checkpoint(tmp_path, 2, model={"w": np.zeros(3, np.float32)})
    with pytest.raises(UserError, match="have different variables"):
        checkpoints.average_arrays([save(tmp_path, 1), other])
    with pytest.raises(UserError, match="no checkpoints"):
        checkpoints.average_arrays([])


def test_saving_the_same_step_again_replaces(tmp_path):
    save(tmp_path, 1, 1.0)
    path = save(tmp_path, 1, 2.0)
    assert checkpoints.load_arrays(path)["w"].tolist() == [2, 2]
    assert os.listdir(tmp_path) == [path.name]


def test_full_disk_keeps_the_older_checkpoint(tmp_path, monkeypatch):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("may not mount a small disk here")
    try:
        first = save(tmp_path, 1)
        big = {"w": np.zeros(400_000, np.float32)}
        with pytest.raises(UserError, match=r"model.ckpt-00000002: 1\.6 MB are needed, 1\.0 MB are left"):
            checkpoints.save_checkpoint(tmp_path, 2, model=big)
        # Another process takes the space after our check, so TensorFlow itself fails.
        monkeypatch.setattr("t2t_ext.io.files.require_space", lambda *_: None)
        with pytest.raises(UserError, match=r"Cannot write .*model.ckpt-00000002"):
            checkpoints.save_checkpoint(tmp_path, 2, model=big)
        assert os.listdir(tmp_path) == [first.name]
        assert checkpoints.latest(tmp_path) == first
    finally:
        subprocess.run(["umount", tmp_path], check=False)


def test_a_limit_of_file_size_is_said(tmp_path):
    first = save(tmp_path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"Cannot write .*model.ckpt-00000002: .* needed, .*size limit"):
            checkpoints.save_checkpoint(tmp_path, 2, model={"w": np.zeros(400_000, np.float32)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == [first.name]
