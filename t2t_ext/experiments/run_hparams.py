"""Checks whether a run was trained with the hparams that its hparams set and flags yield now."""

from collections.abc import Iterator

from t2t_ext import registry
from t2t_ext.errors import UserError
from t2t_ext.experiments.plan import Stage
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
