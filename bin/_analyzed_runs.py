"""The runs that an analysis compares: their flags, checkpoints and labels."""

import argparse
import collections
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from t2t_ext.bin import _text_lines
from t2t_ext.bin._flags import FlagParser, add_flag
from t2t_ext.errors import UserError


@dataclasses.dataclass(frozen=True)
class AnalyzedRun:
    """A checkpoint of a run.

    Attributes:
      directory: The ``RunDirectory``.
      checkpoint: The checkpoint's directory.
      label: What it is called; empty until ``labelled`` has named it.
    """

    directory: Any
    checkpoint: pathlib.Path
    label: str = ""

    @property
    def name(self) -> str:
        """The run's and the checkpoint's name, for messages."""
        return f"{self.directory.path} ({self.checkpoint.name})"


def add_analyzed_run_flags(parser: FlagParser, labels: str) -> None:
    """Adds ``--output_dir`` (several), ``--checkpoint_path``, ``--labels``, ``--t2t_usr_dir`` and ``--source_tag``.

    Args:
      parser: The analysis's.
      labels: What runs are called where ``--labels`` is not given, for the help.
    """
    group = add_run_flags(parser, labels)
    add_checkpoint_flag(group)
    add_flag(group, "source_tag", "", "Tag of --train_tags that every sentence begins with.", metavar="<TAG>")


def add_out_dir_flag(parser: FlagParser, analysis: str) -> None:
    """Adds ``--out_dir``, where an analysis of this name puts its files; see ``output_directory``."""
    words = f"Where files are put; where not given, analysis/{analysis} in the first run."
    add_flag(parser.group("Output"), "out_dir", "", words, metavar="DIR")


def output_directory(flags: argparse.Namespace, first: pathlib.Path, analysis: str) -> pathlib.Path:
    """Returns where an analysis puts its files: ``--out_dir``, or ``analysis/NAME`` in the first run's directory."""
    return pathlib.Path(flags.out_dir or first / "analysis" / analysis)


def add_run_flags(parser: FlagParser, labels: str) -> argparse._ArgumentGroup:
    """Adds ``--output_dir`` (several), ``--labels`` and ``--t2t_usr_dir``, and returns their group.

    Args:
      parser: The analysis's.
      labels: What runs are called where ``--labels`` is not given, for the help.
    """
    parser.take_arguments("more_runs", "further runs.", metavar="RUN")
    group = parser.group("What")
    group.add_argument(
        "--output_dir",
        action="append",
        metavar="RUN[,RUN]",
        help="A run, as t2t_ext-trainer wrote it; given again, or A,B: several, the first being what the others are "
        "compared with.",
    )
    add_flag(group, "labels", "", f"What they are called; where not given, {labels}.", metavar="A,B")
    add_flag(
        group, "t2t_usr_dir", "", "The folder of the runs' own modules, where it has moved since training.",
        metavar="DIR",
    )  # fmt: skip
    return group


def add_checkpoint_flag(group: argparse._ArgumentGroup) -> None:
    """Adds ``--checkpoint_path`` of several runs."""
    add_flag(
        group,
        "checkpoint_path",
        "",
        "Checkpoint of each run, best, averaged or a step; by default the latest. A,B: one for each run.",
        metavar="DIR[,DIR]",
    )


def run_paths(flags: argparse.Namespace, command: str) -> list[str]:
    """Returns the runs that the flags name.

    Raises:
      UserError: There is none.
    """
    paths: list[str] = []
    for given in [*(flags.output_dir or []), *flags.more_runs]:
        whole = pathlib.Path(given).is_dir()
        paths += [given] if whole else [part.strip() for part in given.split(",") if part.strip()]
    if not paths:
        raise UserError(f"No run was given: {command} --output_dir=RUN [--output_dir=RUN ...].")
    return paths


def open_runs(flags: argparse.Namespace, command: str) -> list[AnalyzedRun]:
    """Opens the runs that the flags name and finds their checkpoints.

    Args:
      flags: With those of ``add_analyzed_run_flags``.
      command: The command, for messages.

    Raises:
      UserError: There is no run, no checkpoint, the same is given twice, or a run reads no text.
    """
    from t2t_ext.runs import checkpoints
    from t2t_ext.runs.run_directory import RunDirectory

    paths = run_paths(flags, command)
    directories = [RunDirectory.open(path) for path in paths]
    for directory in directories:
        directory.require_text(command)
    chosen = [
        checkpoints.resolve_checkpoint(directory.path, path or None, warn=_text_lines.warn)
        for directory, path in zip(directories, checkpoint_paths(flags.checkpoint_path, len(paths)), strict=True)
    ]
    twice = [path for path, count in collections.Counter(each.resolve() for each in chosen).items() if count > 1]
    if twice:
        raise UserError(f"{twice[0]} is given twice: a checkpoint compared with itself tells nothing.")
    return [AnalyzedRun(*pair) for pair in zip(directories, chosen, strict=True)]


def labelled(runs: Sequence[AnalyzedRun], labels: str, defaults: Sequence[str] = ()) -> list[AnalyzedRun]:
    """Gives every run a label of its own.

    Args:
      runs: As from ``open_runs``.
      labels: ``--labels``; empty: ``defaults`` where they differ, else the directories' names, their paths, or paths
        with checkpoints.
      defaults: A label for each.

    Raises:
      UserError: The labels are not as many as the runs, or not different.
    """
    if labels:
        names = [label.strip() for label in labels.split(",")]
        if len(names) != len(runs) or not all(names):
            raise UserError(f"--labels={labels} has {len(names)} labels for {len(runs)} runs: give one for each.")
        twice = [name for name, count in collections.Counter(names).items() if count > 1]
        if twice:
            raise UserError(f"--labels={labels}: {twice[0]} stands twice; give every run a label of its own.")
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
    """Returns what ``--checkpoint_path`` names for each of so many runs.

    Raises:
      UserError: It names as many as neither one nor all of them.
    """
    paths = [text] if pathlib.Path(text).exists() else [part.strip() for part in text.split(",")]
    if len(paths) not in (1, count):
        raise UserError(
            f"{len(paths)} checkpoints (--checkpoint_path) for {count} runs: give one for each, or one word for all."
        )
    return paths * count if len(paths) == 1 else paths
