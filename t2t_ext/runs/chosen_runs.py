"""The choice of runs and checkpoints for translation: one, or several as an ensemble. Imports no TensorFlow."""

import dataclasses
import math
import os
import pathlib
from collections.abc import Callable, Sequence

from t2t_ext.data.datasets.pseudo_references import SUFFIX
from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory

Paths = str | os.PathLike | Sequence[str | os.PathLike]


@dataclasses.dataclass(frozen=True)
class ChosenRun:
    """A run and the checkpoint of it that translates.

    Attributes:
      run: The run.
      checkpoint: The checkpoint's directory.
    """

    run: RunDirectory
    checkpoint: pathlib.Path


def choose_runs(
    run_dirs: Paths, checkpoint_paths: Paths | None = None, warn: Callable[[str], None] | None = None
) -> list[ChosenRun]:
    """Finds the runs and checkpoints that a user means, and checks that they can translate together.

    Args:
      run_dirs: A run directory, or several as ``"A,B"`` or a list (``--output_dir``).
      checkpoint_paths: One for all runs (``"averaged"``), one for each run, or several of a single run; see
        ``checkpoints.resolve_checkpoint``. None: the latest of each run.
      warn: Called with a warning for damaged checkpoints that were passed over, and for runs of different problems.

    Returns:
      One entry for each member of the ensemble, at least one.

    Raises:
      UserError: A run or checkpoint does not exist; the numbers of runs and checkpoints do not match; or the runs
        differ in their vocabularies, kind of source or direction of generation.
    """
    dirs = _split(run_dirs, lambda path: pathlib.Path(path).is_dir())
    paths: list = _split(checkpoint_paths or "", lambda path: pathlib.Path(path).exists()) or [""]
    if len(dirs) > 1 and len(paths) > 1 and len(dirs) != len(paths):
        raise UserError(
            f"{len(dirs)} runs (--output_dir) and {len(paths)} checkpoints (--checkpoint_path): give one checkpoint "
            "for each run in the same order, one word for all (best, averaged), or several checkpoints of one run."
        )
    opened = [RunDirectory.open(path) for path in dirs or [""]]
    members = max(len(opened), len(paths))
    chosen = [
        ChosenRun(run, checkpoints.resolve_checkpoint(run.path, path or None, warn=warn))
        for run, path in zip(_spread(opened, members), _spread(paths, members), strict=True)
    ]
    for other in opened[1:]:
        _check_same(opened[0], other, warn)
    return chosen


def normalized_weights(weights: Sequence[float] | None, members: int) -> tuple[float, ...]:
    """Returns the members' shares of the probability, which add up to 1, for weights in any unit; None: equal shares.

    Raises:
      UserError: There is not one weight for each member, or a weight is not positive and finite.
    """
    weights = [1.0] * members if weights is None else [float(weight) for weight in weights]
    shown = ",".join(f"{weight:g}" for weight in weights)
    if len(weights) != members:
        raise UserError(f"--ensemble_weights={shown}: {len(weights)} weights for {members} members; give one for each.")
    if not members or not all(math.isfinite(weight) and weight > 0 for weight in weights):
        raise UserError(f"--ensemble_weights={shown}: every weight must be a positive number; leave a run out instead.")
    return tuple(weight / sum(weights) for weight in weights)


def _split(paths: Paths, exists: Callable[[str], bool]) -> list[str]:
    """Returns the single paths; a string that names an existing path is one path, even if it contains commas."""
    if not isinstance(paths, str | os.PathLike):
        return [os.fspath(path) for path in paths]
    text = os.fspath(paths)
    if isinstance(paths, os.PathLike) or exists(text):
        return [text]
    return [part.strip() for part in text.split(",") if part.strip()]


def _spread(items: list, count: int) -> list:
    return items * count if len(items) == 1 else items


def _check_same(first: RunDirectory, other: RunDirectory, warn: Callable[[str], None] | None) -> None:
    """Checks that two runs can translate together; otherwise raises a UserError."""
    for side in ("target", "source"):
        digests = [run.config.vocabularies[side] for run in (first, other)]
        if digests[0] != digests[1]:
            # The source is encoded once for all members, and its length decides where lines are truncated and how long
            # translations may be.
            raise UserError(
                f"The runs {first.path} and {other.path} have different {side} vocabularies (SHA-256 "
                f"{digests[0][:12]}... and {digests[1][:12]}...); the members of an ensemble must share theirs. Train "
                f"on the same generated data, or on data made with t2t_ext-datagen --vocab_from={first.path}."
            )
    sizes = [run.config.source_feature_size for run in (first, other)]
    if sizes[0] != sizes[1]:
        described = [f"feature vectors of {size} numbers" if size else "text" for size in sizes]
        raise UserError(
            f"The run {first.path} reads {described[0]}, {other.path} reads {described[1]}; the members of an ensemble "
            "must read the same. Train them on the same generated data."
        )
    directions = [run.config.hparams.get("target_direction", "l2r") for run in (first, other)]
    if directions[0] != directions[1]:
        raise UserError(
            f"The run {first.path} generates {directions[0]}, {other.path} generates {directions[1]} "
            "(target_direction): they cannot choose the next word together. Give runs of one direction."
        )
    # The problems NAME and NAME_synchronous have the same text.
    problems = {run.config.problem.removesuffix(SUFFIX) for run in (first, other)}
    if warn is not None and len(problems) > 1:
        warn(
            f"an ensemble of runs of different problems: {first.path} ({first.config.problem}), "
            f"{other.path} ({other.config.problem})"
        )
