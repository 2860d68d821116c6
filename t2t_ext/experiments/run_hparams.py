"""Whether a run has the hparams that its set and flags give now: a set of the user's own may have been edited."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from t2t_ext import registry
from t2t_ext.config.hyperparameters import AUTO_BATCH_SIZE
from t2t_ext.config.strict_params import FLAG
from t2t_ext.errors import UserError
from t2t_ext.experiments.plan import Stage
from t2t_ext.runs.run_directory import MAY_CHANGE, RunConfig, RunDirectory


def changes(stage: Stage) -> Iterator[str]:
    """Yields, in words, which hparams of a training's run are not those that are asked for now.

    Hparams that are new since count as their defaults, which do what was done before; those that are no more are not
    compared. What keeps the run from being read is said where it is read.
    """
    set_name, overrides = stage.flags["hparams_set"], stage.flags.get("hparams", "")
    try:
        stored = RunDirectory.open(stage.output).config
        now = registry.resolve_hparams(set_name, overrides)
    except UserError:
        return
    origins, values = now.origins(), now.to_dict()
    for field in dataclasses.fields(now):
        value = values[field.name]
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        before = stored.hparams.get(field.name, default)
        if before != value and not _chosen_since(field.name, value, origins[field.name], stored):
            yield f"{field.name} of {set_name}: {before!r} was used, {value!r} is asked for"


def _chosen_since(name: str, value: Any, origin: str, stored: RunConfig) -> bool:
    """Returns whether the trainer has chosen an hparam of a run, or the user who resumed it elsewhere."""
    before = stored.origins.get(name, "")
    if before.startswith("auto"):
        return value == AUTO_BATCH_SIZE
    return f"hparams.{name}" in MAY_CHANGE and before == FLAG and origin != FLAG
