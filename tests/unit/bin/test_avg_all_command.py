"""t2t_ext-avg-all where a run has fewer checkpoints than are asked for."""

import numpy as np
import pytest

from t2t_ext.bin import avg_all
from t2t_ext.runs.checkpoints import save_checkpoint
from t2t_ext.runs.run_directory import RunDirectory


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--n=3"], "warning: --n=3: the run has only 2 checkpoints; all are averaged\n"),
        ([], "warning: --n=8: the run has only 2 checkpoints; all are averaged\n"),
        (["--n=2"], ""),
    ],
)
def test_fewer_checkpoints_than_asked_for_are_said(flags, said, tmp_path, monkeypatch, capsys):
    run = RunDirectory(tmp_path, None)
    for step in (10, 20):
        save_checkpoint(run.checkpoints_dir, step, {"w": np.full(2, step, np.float32)})
    monkeypatch.setattr(avg_all.RunDirectory, "open", lambda path: run)
    assert avg_all.main([f"--output_dir={tmp_path}", *flags]) == 0
    told = capsys.readouterr()
    assert told.err == said
    assert "average of 2 checkpoints, steps 10, 20" in told.out
