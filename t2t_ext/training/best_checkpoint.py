"""``RUN/best``: a copy of the best checkpoint's weights. The run's records determine which checkpoint is the best."""

import contextlib
import pathlib

from t2t_ext.io import files
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory
from t2t_ext.training.records import Best, Record, best_weights_of


def find(run: RunDirectory, evaluations: list[Record], metric: str) -> Best | None:
    """Returns the best evaluation whose weights the run still has; None if there is none.

    Of equal ones, it is the one with the lowest loss. If the metric is not the one that the run has watched so far, the
    weights of its best evaluation may be gone.
    """
    folders = (run.checkpoints_dir, run.best_dir)
    there = {path.name for folder in folders for path in checkpoints.list_checkpoints(folder)}
    return best_weights_of([each for each in evaluations if checkpoints.checkpoint_name(each["step"]) in there], metric)


def without_a_best(run: RunDirectory, evaluations: list[Record], metric: str) -> str:
    """Returns a message if no evaluation so far can choose the best by a metric, such as a new one; otherwise ""."""
    if not evaluations or find(run, evaluations, metric) is not None:
        return ""
    kept = [str(checkpoints.checkpoint_step(path)) for path in checkpoints.list_checkpoints(run.best_dir)]
    stays = f"{run.best_dir} keeps step {', '.join(kept)}" if kept else f"{run.best_dir} stays empty"
    return (
        f"best_checkpoint_metric={metric}: no evaluation of a checkpoint that is still there has computed it. {stays} "
        f"until the next evaluation, and only evaluations from then on are compared"
    )


def keep(run: RunDirectory, best: Best, metric: str) -> None:
    """Copies the best checkpoint to ``RUN/best`` if it is not there yet, and removes all others from that folder."""
    name = checkpoints.checkpoint_name(best.step)
    source, kept = run.checkpoints_dir / name, run.best_dir / name
    if not kept.is_dir():
        info = checkpoints.read_info(source)
        groups = {group: checkpoints.load_arrays(source, group) for group in info.groups if group != "training"}
        checkpoints.save_checkpoint(run.best_dir, best.step, **groups, metadata={"metric": metric, metric: best.value})
    for other in checkpoints.list_checkpoints(run.best_dir):
        # They may also be newer, if another metric chose them or the run resumed before them.
        if other != kept:
            _remove(other)


def forget(run: RunDirectory, step: int) -> None:
    """Removes a step from ``RUN/best``, before an evaluation of it is recorded.

    It is there if the run resumed before that step; on a GPU, the weights do not come out the same again.
    """
    _remove(run.best_dir / checkpoints.checkpoint_name(step))


def _remove(path: pathlib.Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        files.remove_directory(path)
