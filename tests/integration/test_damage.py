"""A full disk while data are made, and damaged data at the start of training: one clear line, nothing lost."""

import contextlib
import subprocess

import pytest

from t2t_ext.bin import datagen, trainer
from t2t_ext.runs.run_directory import RunDirectory

SIDES = ("train_source", "train_target", "dev_source", "dev_target")


@contextlib.contextmanager
def small_disk(directory, kilobytes):
    """Mounts a disk of a given size at a directory."""
    directory.mkdir()
    options = f"size={kilobytes}k"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("may not mount a small disk here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


@pytest.fixture
def flags(toy_corpus):
    return ["--problem=translate_parallel_text", *(f"--{side}={getattr(toy_corpus, side)}" for side in SIDES),
            "--vocab_size=340", "--num_processes=1"]  # fmt: skip


# The subword model, a chunk, a shard and the text of dev are what does not fit, in turn.
@pytest.mark.parametrize("kilobytes", [8, 20, 44, 60, 76, 84])
def test_datagen_on_a_full_disk(flags, tmp_path, capsys, kilobytes):
    with small_disk(tmp_path / "disk", kilobytes) as disk:
        data_dir = f"--data_dir={disk / 'data'}"
        status = datagen.main([*flags, data_dir])
        if not status:
            pytest.fail("it fits; give less")
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert status == 2
        assert error.startswith("error: ")
        assert str(disk) in error
        assert not (disk / "data").exists()
        subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
        assert datagen.main([*flags, data_dir]) == 0


def test_a_damaged_shard_stops_the_trainer(flags, tmp_path, capsys):
    assert datagen.main([*flags, f"--data_dir={tmp_path / 'data'}", "--num_shards=2"]) == 0
    shard = tmp_path / "data" / "translate_parallel_text-train-00001-of-00002.npz"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 4
    shard.write_bytes(content)
    run = tmp_path / "run"
    status = trainer.main(["--problem=translate_parallel_text", "--model=transformer", "--hparams_set=transformer_test",
                           f"--data_dir={tmp_path / 'data'}", f"--output_dir={run}", "--train_steps=1"])  # fmt: skip
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert status == 2
    assert error.startswith(f"error: The data shard {shard} is damaged")
    assert "t2t_ext-datagen" in error
    assert not RunDirectory.exists(run)
