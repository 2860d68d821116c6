"""Tests of a full disk during datagen, and of damaged data and checkpoints: one clear error line, nothing lost."""

import contextlib
import json
import subprocess

import pytest

from t2t_ext.bin import datagen, trainer
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory

SIDES = ("train_source", "train_target", "dev_source", "dev_target")


@contextlib.contextmanager
def small_disk(directory, kilobytes):
    """Mounts a disk of the given size at a new directory, yields the directory and unmounts it."""
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


# The sizes are such that, in turn, the subword model, a chunk, a shard or the text of dev does not fit.
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


@pytest.mark.slow  # test_trainer.py damages the last checkpoint
def test_a_resumed_run_passes_over_a_damaged_best_checkpoint(flags, tmp_path, capsys):
    assert datagen.main([*flags, f"--data_dir={tmp_path / 'data'}"]) == 0
    train = ["--problem=translate_parallel_text", "--model=transformer", "--hparams_set=transformer_test",
             f"--data_dir={tmp_path / 'data'}", f"--output_dir={tmp_path / 'run'}", "--eval_bleu_sentences=-1",
             "--local_eval_frequency=1", "--best_checkpoint_metric=loss"]  # fmt: skip
    assert trainer.main([*train, "--train_steps=3"]) == 0
    run = RunDirectory.open(tmp_path / "run")
    # Make the first checkpoint the best, as if the run had been killed before copying it.
    records = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    first = next(record for record in records if record["kind"] == "eval")
    first["loss"] = 0.0
    run.metrics_path.write_text("".join(json.dumps(record) + "\n" for record in records))
    damaged = run.checkpoints_dir / checkpoints.checkpoint_name(1)
    (weights,) = damaged.glob("model.data-*")
    weights.write_bytes(weights.read_bytes()[:-1])
    capsys.readouterr()
    assert trainer.main([*train, "--train_steps=4"]) == 0
    lines = capsys.readouterr().err.splitlines()
    (warning,) = [line for line in lines if line.startswith("warning: ") and "learning rate" not in line]
    assert str(damaged) in warning
    assert weights.name in warning
    assert "next best" in warning
    best = checkpoints.resolve_checkpoint(run.path, "best")
    assert checkpoints.checkpoint_step(best) in (2, 3, 4)
    assert f"best checkpoint: step {checkpoints.checkpoint_step(best)}," in lines[-1]
