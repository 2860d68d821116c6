"""The flags of the runs that an analysis compares."""

import argparse
import pathlib

from t2t_ext.bin._flag_groups import USER_DIRECTORY
from t2t_ext.bin._flags import FlagParser, FlagTable, expand_home
from t2t_ext.reporting.report import checked_directory

CHECKPOINT = {
    "checkpoint_path=DIR[,DIR]": "Checkpoint of each run: best, averaged or a step; default: the latest. A,B: one for "
    "each run."
}


def add_run_flags(parser: FlagParser, labels: str) -> None:
    """Adds ``--output_dir`` (several), ``--labels`` and ``--t2t_usr_dir``.

    Args:
      parser: The analysis's parser.
      labels: How runs are named if ``--labels`` is not given, for the help.
    """
    parser.take_arguments("more_runs", "further runs.", metavar="RUN")
    parser.group("What").add_argument(
        "--output_dir",
        action="append",
        type=expand_home,
        metavar="RUN[,RUN]",
        help="Run directory written by t2t_ext-trainer. For several runs repeat the flag or give A,B; the others are "
        "compared with the first.",
    )
    parser.add({"What": {"labels=A,B": f"Names of the runs; default: {labels}.", **USER_DIRECTORY}})


def add_analyzed_run_flags(parser: FlagParser, labels: str) -> None:
    """Adds the flags of ``add_run_flags``, ``--checkpoint_path`` and ``--source_tag``."""
    add_run_flags(parser, labels)
    tag = "Tag from --train_tags to put before every sentence."
    parser.add({"What": {**CHECKPOINT, "source_tag=<TAG>": tag}})


def out_dir_flag(analysis: str) -> FlagTable:
    """Returns the flag ``--out_dir`` for the output of the analysis of this name; see ``output_directory``."""
    return {"Output": {"out_dir=DIR": f"Output directory; default: analysis/{analysis} in the first run."}}


def output_directory(flags: argparse.Namespace, first: pathlib.Path, analysis: str) -> pathlib.Path:
    """Returns the directory for output, not made yet: ``--out_dir``, or ``analysis/NAME`` in the first run's directory.

    Raises:
      UserError: The directory cannot be created or written to.
    """
    return checked_directory(flags.out_dir or first / "analysis" / analysis)


def given_runs(flags: argparse.Namespace) -> list[str]:
    """Returns the runs as given by ``--output_dir`` and the arguments."""
    return [*(flags.output_dir or []), *flags.more_runs]
