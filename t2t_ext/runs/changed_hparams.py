"""Where a run differs from what its hparams set and flags give now: a set of the user's own may have been edited."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from t2t_ext.config.hyperparameters import AUTO_BATCH_SIZE, HParams
from t2t_ext.config.strict_params import FLAG
from t2t_ext.runs.run_directory import MAY_CHANGE, RunConfig


def changed(stored: RunConfig, now: HParams) -> Iterator[tuple[str, Any, Any]]:
    """Yields name, value in the run and value now of the hparams that are not those of now.

    Hparams that are new since count as their defaults, which do what was done before; those that are no more are not
    compared.
    """
    origins, values = now.origins(), now.to_dict()
    for field in dataclasses.fields(now):
        value = values[field.name]
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        before = stored.hparams.get(field.name, default)
        if before != value and not _chosen_since(field.name, value, origins[field.name], stored):
            yield field.name, before, value


def _chosen_since(name: str, value: Any, origin: str, stored: RunConfig) -> bool:
    """Returns whether the trainer has chosen an hparam of a run, or the user who resumed it elsewhere."""
    before = stored.origins.get(name, "")
    if before.startswith("auto"):
        return value == AUTO_BATCH_SIZE
    return f"hparams.{name}" in MAY_CHANGE and before == FLAG and origin != FLAG
