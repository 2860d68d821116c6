"""Tests of t2t_ext-avg-all on runs with too few, already averaged, deleted or damaged checkpoints."""

import subprocess
import sys

import numpy as np
import pytest

from t2t_ext.bin import avg_all
from t2t_ext.io import files
from t2t_ext.runs import averaging, checkpoints
from t2t_ext.runs.checkpoints import save_checkpoint
from t2t_ext.runs.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Returns a run with two checkpoints and nothing else, since the command reads nothing else."""
    run = RunDirectory(tmp_path, None)
    for step in (10, 20):
        save_checkpoint(run.checkpoints_dir, step, {"w": np.full(2, step, np.float32)})
    monkeypatch.setattr(avg_all.RunDirectory, "open", lambda path: run)
    return run


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--n=3"], "warning: --n=3: the run has only 2 checkpoints; all are averaged\n"),
        ([], "warning: --n=8: the run has only 2 checkpoints; all are averaged\n"),
        (["--n=2"], ""),
    ],
)
def test_fewer_checkpoints_than_asked_for_are_said(flags, said, run, capsys):
    assert avg_all.main([f"--output_dir={run.path}", *flags]) == 0
    told = capsys.readouterr()
    assert told.err == said
    assert "average of 2 checkpoints, steps 10, 20" in told.out


def test_averages_of_averages_are_said_to_gain_nothing(run, capsys):
    said = "what was averaged are averages already"
    assert avg_all.main([f"--output_dir={run.path}", "--n=2"]) == 0
    assert said not in capsys.readouterr().err
    arrays = {"w": np.zeros(2, np.float32)}
    for step in (30, 40):
        save_checkpoint(run.checkpoints_dir, step, arrays, ema=arrays)
    assert avg_all.main([f"--output_dir={run.path}", "--n=2"]) == 0
    assert said in capsys.readouterr().err


def test_a_checkpoint_that_a_trainer_deletes_meanwhile_is_not_called_damaged(run, monkeypatch, capsys):
    real = checkpoints.average_arrays

    def meanwhile(paths, group):
        checkpoints.prune(run.checkpoints_dir, 1)
        return real(paths, group)

    monkeypatch.setattr(averaging.checkpoints, "average_arrays", meanwhile)
    assert avg_all.main([f"--output_dir={run.path}", "--n=2"]) == 2
    told = capsys.readouterr().err
    assert f"{checkpoints.checkpoint_name(10)} was deleted while it was read: the trainer" in told
    assert "damaged" not in told
    assert checkpoints.list_checkpoints(run.averaged_dir) == []


def test_damaged_checkpoints_are_said_to_be(run, capsys):
    (next(run.checkpoints_dir.iterdir()) / checkpoints.DESCRIPTION_NAME).write_text("{")
    assert avg_all.main([f"--output_dir={run.path}", "--n=2"]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_what_a_killed_command_left_is_removed(run):
    program = "import os, sys; from t2t_ext.io import files\nwith files.atomic_directory(sys.argv[1]): os._exit(9)"
    target = run.averaged_dir / checkpoints.checkpoint_name(20)
    run.averaged_dir.mkdir()
    assert subprocess.run([sys.executable, "-c", program, str(target)], check=False).returncode == 9
    assert any(files.is_temporary_name(entry.name) for entry in run.averaged_dir.iterdir())
    assert avg_all.main([f"--output_dir={run.path}", "--n=2"]) == 0
    assert [entry.name for entry in run.averaged_dir.iterdir()] == [checkpoints.checkpoint_name(20)]
