"""Averages of the weights of a run's checkpoints (Vaswani et al. 2017, section 6.1), kept in RUN/averaged.

The averaged weights are those that users get from each checkpoint: the moving averages if training keeps them.
"""

import pathlib

from t2t_ext.errors import UserError
from t2t_ext.io import files
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory


def average_last(run: RunDirectory, count: int, *, rolling: bool = False) -> list[tuple[pathlib.Path, list[int]]]:
    """Averages the last ``count`` checkpoints of a run, or all of them if there are fewer.

    Args:
      run: The run.
      count: Number of checkpoints in an average.
      rolling: Whether to make an average ending at every checkpoint, not only at the last one.

    Returns:
      For each average its path and the steps of the checkpoints in it.

    Raises:
      UserError: There is no checkpoint, or a checkpoint is damaged.
    """
    paths = checkpoints.list_checkpoints(run.checkpoints_dir)
    if not paths:
        checkpoints.resolve_checkpoint(run.path)  # raises the usual error for a run without checkpoints
        raise UserError(f"The run {run.path} has no checkpoint yet.")
    files.remove_leftovers(run.averaged_dir)
    averages = []
    for end in range(1, len(paths) + 1) if rolling else [len(paths)]:
        members = paths[max(0, end - count) : end]
        try:
            infos = [checkpoints.read_info(path) for path in members]
            steps, arrays = [info.step for info in infos], checkpoints.average_arrays(members, infos[-1].users_group)
        except checkpoints.DamagedCheckpointError as error:
            gone = [path.name for path in members if not path.exists()]
            if not gone:
                raise UserError(
                    f"{error.what} Restore it from a backup, or remove its folder: the average is then of the others."
                ) from error
            raise UserError(
                f"{gone[0]} was deleted while it was read: the trainer that is at work in {run.path} keeps only its "
                "newest checkpoints. Repeat the command, with a smaller --n if that happens again."
            ) from None
        path = checkpoints.save_checkpoint(run.averaged_dir, steps[-1], arrays, metadata={"averaged_steps": steps})
        averages.append((path, steps))
    return averages
