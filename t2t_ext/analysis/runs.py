"""Selects the runs that an analysis compares, with their checkpoints and labels. Imports no TensorFlow."""

import collections
import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory


@dataclasses.dataclass(frozen=True)
class AnalyzedRun:
    """A checkpoint of a run.

    Attributes:
      directory: The run.
      checkpoint: The checkpoint's directory, or the run's directory if the analysis reads only training logs.
      label: The name in the report; empty until ``labeled`` assigns one.
    """

    directory: RunDirectory
    checkpoint: pathlib.Path
    label: str = ""


def run_paths(given: Sequence[str], command: str) -> list[str]:
    """Returns the directories of runs, given one by one or separated by commas; ``command`` is for messages.

    Raises:
      UserError: No run is given.
    """
    paths: list[str] = []
    for each in given:
        paths += [each] if pathlib.Path(each).is_dir() else [part.strip() for part in each.split(",") if part.strip()]
    if not paths:
        raise UserError(f"No run was given: {command} --output_dir=RUN [--output_dir=RUN ...].")
    return paths


def open_runs(
    given: Sequence[str], command: str, checkpoint_path: str | None, warn: Callable[[str], None]
) -> list[AnalyzedRun]:
    """Opens runs and finds their checkpoints.

    Args:
      given: The runs, as for ``run_paths``.
      command: The command, for messages.
      checkpoint_path: The checkpoints, as for ``checkpoint_paths``; "": the latest of each run; None: no checkpoint.
      warn: Called with warnings about a checkpoint.

    Returns:
      The runs, without labels.

    Raises:
      UserError: There is no run or no checkpoint, or one is given twice.
    """
    directories = [RunDirectory.open(path) for path in run_paths(given, command)]
    if checkpoint_path is None:
        chosen = [directory.path for directory in directories]
    else:
        paths = checkpoint_paths(checkpoint_path, len(directories))
        chosen = [
            checkpoints.resolve_checkpoint(directory.path, path or None, warn=warn)
            for directory, path in zip(directories, paths, strict=True)
        ]
    twice = [path for path, count in collections.Counter(each.resolve() for each in chosen).items() if count > 1]
    if twice:
        what = "run" if checkpoint_path is None else "checkpoint"
        raise UserError(f"{twice[0]} is given twice: a {what} compared with itself tells nothing.")
    return list(map(AnalyzedRun, directories, chosen))


def labeled(
    runs: Sequence[AnalyzedRun], labels: str, defaults: Sequence[str] = (), *, shared: bool = False
) -> list[AnalyzedRun]:
    """Returns the runs with labels, which are unique unless ``shared`` allows several runs to have the same one.

    Without ``labels`` (``--labels``), it takes the first of these that is unique: ``defaults``, the directories' names,
    their paths, or paths with checkpoints.

    Raises:
      UserError: The number of labels differs from the number of runs, or a label is given twice.
    """
    if labels:
        names = [label.strip() for label in labels.split(",")]
        if len(names) != len(runs) or not all(names):
            raise UserError(f"--labels={labels} has {len(names)} labels for {len(runs)} runs: give one for each.")
        twice = [name for name, count in collections.Counter(names).items() if count > 1]
        if twice and not shared:
            raise UserError(f"--labels={labels}: {twice[0]} is there twice; give every run a label of its own.")
    else:
        candidates = [
            list(defaults) or [""] * len(runs),
            [run.directory.path.resolve().name for run in runs],
            [str(run.directory.path) for run in runs],
            [f"{run.directory.path} {run.checkpoint.name}" for run in runs],
        ]
        names = next(
            (each for each in candidates if all(each) and len(set(each)) == len(each)),
            [str(run.checkpoint) for run in runs],
        )
    return [dataclasses.replace(run, label=name) for run, name in zip(runs, names, strict=True)]


def checkpoint_paths(text: str, count: int) -> list[str]:
    """Returns the checkpoint of each of ``count`` runs; ``text`` gives one for all, or one for each, comma-separated.

    Raises:
      UserError: The number of checkpoints is neither one nor ``count``.
    """
    paths = [text] if pathlib.Path(text).exists() else [part.strip() for part in text.split(",")]
    if len(paths) not in (1, count):
        raise UserError(
            f"{len(paths)} checkpoints (--checkpoint_path) for {count} runs: give one for each, or one word for all."
        )
    return paths * count if len(paths) == 1 else paths


def check_vocabularies(runs: Sequence[AnalyzedRun]) -> None:
    """Checks that all runs can read the batches of the first one.

    Raises:
      UserError: The vocabularies differ.
    """
    first = runs[0].directory
    for each in runs[1:]:
        if each.directory.config.vocabularies != first.config.vocabularies:
            raise UserError(
                f"The runs {first.path} and {each.directory.path} have different vocabularies: a batch of the one "
                "means nothing to the other, so their gradients cannot be compared on the same batches. What they "
                "logged in training can: leave --split out."
            )
