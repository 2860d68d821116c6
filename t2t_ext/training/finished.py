"""Detects that a run has already made its steps, before TensorFlow starts. Imports no TensorFlow."""

import os

from t2t_ext.config import user_directory
from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory
from t2t_ext.training import best_checkpoint, records
from t2t_ext.training.setup_run import ResolvedRun

_FOLDERS = ("data_dir", "t2t_usr_dir", "problem_options")  # of a run; may be different when it is resumed


def message(run: ResolvedRun) -> str:
    """Returns a message if a run is at its ``train_steps`` or beyond and nothing is left to do; otherwise "".

    Something is left to do if a setting changes (such as the metric of the best checkpoint), if another folder or other
    modules must be stored, or if the last evaluation, or what follows it, was interrupted.
    """
    stored, settings = run.stored, run.settings
    # Workers of TF_CONFIG must connect first: a single one does not know what the others find.
    if stored is None or os.environ.get("TF_CONFIG"):
        return ""
    now, before = run.config.training, stored.config.training
    if any(now[name] != before.get(name) for name in now if name != "train_steps"):
        return ""
    if run.config.hparams != stored.config_now().hparams:  # such as batches for other devices, which training checks
        return ""
    if any(getattr(run.config, name) != getattr(stored.config, name) for name in _FOLDERS) or _has_other_modules(run):
        return ""
    step = _last_step(stored)
    if step is None or step < settings.train_steps or not _is_complete(run, stored, step):
        return ""
    if step == before.get("train_steps") == settings.train_steps:
        where = f"{run.output_dir} is at step {step} already, its --train_steps"
    else:
        where = f"{run.output_dir} is at step {step} already, and --train_steps={settings.train_steps} ends no later"
    return f"{where}: nothing is left to do. Give a larger --train_steps to go on."


def _has_other_modules(run: ResolvedRun) -> bool:
    """Returns whether the user has named a folder of modules of which the run has no copy, or another one."""
    directory = run.asked.t2t_usr_dir
    if not directory:
        return False
    return user_directory.digest_of_copy(user_directory.absolute(directory)) != run.config.t2t_usr_dir_sha256


def _last_step(run: RunDirectory) -> int | None:
    """Returns the step of the last checkpoint; None if there is none or it is damaged."""
    found = checkpoints.list_checkpoints(run.path)
    if not found:
        return None
    try:
        return checkpoints.verify_checkpoint(found[-1]).step
    except UserError:
        return None  # training says what is wrong with it


def _is_complete(run: ResolvedRun, stored: RunDirectory, step: int) -> bool:
    """Returns whether the last step was evaluated, the best checkpoint kept and old checkpoints deleted."""
    evaluations = [each for each in records.read(stored.metrics_path, step) if each["kind"] == "eval"]
    if not any(each["step"] == step for each in evaluations):
        return False
    best = best_checkpoint.find(stored, evaluations, run.settings.best_checkpoint_metric)
    kept = [checkpoints.checkpoint_step(path) for path in checkpoints.list_checkpoints(stored.best_dir)]
    if best is not None and kept != [best.step]:
        return False
    most = run.settings.keep_checkpoint_max
    return most <= 0 or len(checkpoints.list_checkpoints(stored.checkpoints_dir)) <= most
