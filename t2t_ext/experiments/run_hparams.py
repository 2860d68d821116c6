"""Checks whether a run was trained with the hparams and flags of now, or may go on with them."""

from collections.abc import Iterator, Mapping

from t2t_ext import registry
from t2t_ext.config.hyperparameters import FACTORS_THAT_END
from t2t_ext.errors import UserError
from t2t_ext.evaluation.score_table import digest
from t2t_ext.experiments.plan import EVAL_FREQUENCY, Stage
from t2t_ext.runs.changed_hparams import changed
from t2t_ext.runs.run_directory import RunDirectory


def changes(stage: Stage) -> Iterator[str]:
    """Yields descriptions of the hparams of a training stage's run that differ from the requested ones.

    Yields nothing if the run cannot be read; this is reported where the run is used.
    """
    set_name, overrides = stage.flags["hparams_set"], stage.flags.get("hparams", "")
    try:
        stored = RunDirectory.open(stage.output).config
        now = registry.resolve_hparams(set_name, overrides)
    except UserError:
        return
    for name, before, value in changed(stored, now):
        yield f"{name} of {set_name}: {before!r} was used, {value!r} is asked for"


def is_only_longer(stage: Stage, key: str, flags: Mapping[str, str]) -> bool:
    """Returns whether a training differs from the one that was begun only by a larger ``--train_steps``.

    Such a run continues as if it had been begun with that number. This is not so if its learning rate depends on the
    number, or if it evaluates and saves at its end only because it ends there.

    Args:
      stage: The stage as it is wanted now.
      key: The key of the stage that was begun.
      flags: Its flags that determine the result.
    """
    now = stage.counted_flags()
    if stage.kind != "train" or key == stage.key or {**now, "train_steps": ""} != {**flags, "train_steps": ""}:
        return False
    if key != digest([*(need.key for need in stage.needs), dict(flags)]):
        return False  # something that it is made from has changed
    try:
        before, after = int(flags["train_steps"]), int(now["train_steps"])
        at_its_end = before % int(now.get("local_eval_frequency", EVAL_FREQUENCY)) == 0
        hparams = registry.resolve_hparams(now["hparams_set"], now.get("hparams", ""))
    except (KeyError, ValueError, ZeroDivisionError, UserError):
        return False
    return before < after and at_its_end and not set(FACTORS_THAT_END).intersection(hparams.learning_rate_factors)
