"""The flags of the runs that an analysis compares."""

import argparse
import pathlib

from t2t_ext.bin._flags import FlagParser, add_flag


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
    """Returns where an analysis writes: ``--out_dir``, or ``analysis/NAME`` in the first run's directory."""
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
    add_flag(group, "labels", "", f"Their names; by default {labels}.", metavar="A,B")
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


def given_runs(flags: argparse.Namespace) -> list[str]:
    """Returns what ``--output_dir`` and the arguments name."""
    return [*(flags.output_dir or []), *flags.more_runs]
