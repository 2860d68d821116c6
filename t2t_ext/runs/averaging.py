"""Averages of the weights of a run's checkpoints (Vaswani et al. 2017, section 6.1), kept in RUN/averaged.

The weights are those that users get of each: themselves averages where training keeps some.
"""

import pathlib
from collections.abc import Sequence

from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory


def average_last(run: RunDirectory, count: int, *, rolling: bool = False) -> list[tuple[pathlib.Path, list[int]]]:
    """Averages the last checkpoints of a run.

    Args:
      run: The run.
      count: Checkpoints in an average; where there are fewer, all are taken.
      rolling: Make an average up to every checkpoint, not only up to the last.

    Returns:
      For each average its path and the steps of the checkpoints in it.

    Raises:
      UserError: There is no checkpoint, or a checkpoint is damaged.
    """
    paths = checkpoints.list_checkpoints(run.checkpoints_dir)
    if not paths:
        checkpoints.resolve_checkpoint(run.path)  # raises what there is to say about a run without checkpoints
        raise UserError(f"The run {run.path} has no checkpoint yet.")
    ends = range(1, len(paths) + 1) if rolling else [len(paths)]
    return [_average(run, paths[max(0, end - count) : end]) for end in ends]


def _average(run: RunDirectory, paths: Sequence[pathlib.Path]) -> tuple[pathlib.Path, list[int]]:
    infos = [checkpoints.read_info(path) for path in paths]
    steps, arrays = [info.step for info in infos], checkpoints.average_arrays(paths, infos[-1].users_group)
    path = checkpoints.save_checkpoint(run.averaged_dir, steps[-1], arrays, metadata={"averaged_steps": steps})
    return path, steps
