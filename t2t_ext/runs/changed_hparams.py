"""Finds hparams of a run that differ from what its set and flags give now, as the user may have edited the set."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from t2t_ext.config.hyperparameters import AUTO_BATCH_SIZE, HParams
from t2t_ext.config.strict_params import FLAG
from t2t_ext.runs.run_directory import MAY_CHANGE, RunConfig


def changed(stored: RunConfig, now: HParams) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name, the value in the run and the value now of each hparam that has changed.

    An hparam that the run does not know counts as its default, which does what was done before it existed. Hparams that
    no longer exist are not compared.
    """
    origins, values = now.origins(), now.to_dict()
    for field in dataclasses.fields(now):
        value = values[field.name]
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        before = stored.hparams.get(field.name, default)
        if before != value and not _chosen_since(field.name, value, origins[field.name], stored):
            yield field.name, before, value


def _chosen_since(name: str, value: Any, origin: str, stored: RunConfig) -> bool:
    """Returns whether the trainer, or the user when resuming the run elsewhere, chose an hparam's value in the run."""
    before = stored.origins.get(name, "")
    if before.startswith("auto"):
        return value == AUTO_BATCH_SIZE
    return f"hparams.{name}" in MAY_CHANGE and before == FLAG and origin != FLAG
