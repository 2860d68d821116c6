"""Parts shared by the commands whose models translate training text: flags, problem and search settings."""

import argparse
import pathlib
from typing import Any

from t2t_ext import registry
from t2t_ext.bin import _flag_groups
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable
from t2t_ext.config import problem_options
from t2t_ext.config.decode import DecodeHParams, resolve_decode_hparams
from t2t_ext.errors import UserError
from t2t_ext.pseudo.work import DEFAULT_CHUNK_PAIRS

EXIT_STATUS = {"SIGINT": 130, "SIGTERM": 143}
_PROBLEM: FlagTable = {
    "What": {
        "problem=NAME": Flag("Problem; NAME_rev is its other direction.", required=True),
        'problem_options="A=x,B=y"': "Options of the problem; default: those that its data were made with.",
        "data_dir=DIR": Flag("The problem's data, as written by t2t_ext-datagen.", required=True),
    },
}
_WORK: FlagTable = {
    "Work": {
        "max_length": Flag(
            "Maximum length of a translation in tokens; longer ones count as failed. 0 = the maximum length that the "
            "first run was trained on.",
            0,
            minimum=0,
        ),
        "chunk_pairs": Flag(
            "Number of pairs to translate before saving them; a killed process loses the pairs since the last save.",
            DEFAULT_CHUNK_PAIRS,
            minimum=1,
        ),
        "overwrite": "Replace existing results or unfinished work made with other models, settings or data.",
    },
}


def add_flags(parser: FlagParser, own: FlagTable) -> None:
    """Adds the flags of the problem, the command's own, and those of the work, the search and the machine."""
    _flag_groups.add_registry_flags(parser)
    parser.add(_PROBLEM, own, _WORK, _flag_groups.DECODE_FLAGS, _flag_groups.thread_flags(many_batches=True))


def problem_of_data(flags: argparse.Namespace) -> Any:
    """Returns the problem without pseudo references, with the options that its data were made with."""
    from t2t_ext.training.setup_run import options_of_data

    name = flags.problem.removesuffix(registry.SYNCHRONOUS_SUFFIX)
    given = problem_options.parse(flags.problem_options)
    return registry.problem(name, **{**options_of_data(name, given, pathlib.Path(flags.data_dir)), **given})


def decode_hparams(flags: argparse.Namespace) -> DecodeHParams:
    """Returns the search settings for training text; they must give one direction and the same result each time."""
    from t2t_ext.search.directions import check_directions

    found = resolve_decode_hparams(flags.decode_hparams)
    if found.sampling_method != "argmax":
        raise UserError("--decode_hparams: sampling_method=random draws another translation each time; leave it out.")
    check_directions(found, 1)
    return found
