"""``t2t_ext-pseudo-references``: makes the problem ``NAME_synchronous`` with what two trained runs translate."""

import argparse
import pathlib
import re

from t2t_ext.bin import _flag_groups
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command, say, start_tensorflow
from t2t_ext.errors import UserError
from t2t_ext.io import log
from t2t_ext.pseudo.work import DEFAULT_CHUNK_PAIRS

_EXIT_STATUS = {"SIGINT": 130, "SIGTERM": 143}
_EXAMPLES = """\
  t2t_ext-pseudo-references --problem=translate_deen_multi30k --l2r=RUN --r2l=RUN_R2L --data_dir=data
  t2t_ext-pseudo-references --problem=... --l2r=RUN --r2l=RUN_R2L --data_dir=data --checkpoint_path=averaged
  t2t_ext-pseudo-references --problem=... --l2r=RUN --r2l=RUN_R2L --data_dir=data --shard=1/4   # on one of 4 machines
  t2t_ext-pseudo-references --problem=... --l2r=RUN --r2l=RUN_R2L --data_dir=data --join        # when all are done
"""
_FLAGS: FlagTable = {
    "What": {
        "problem=NAME": Flag("The problem that both runs were trained on.", required=True),
        'problem_options="A=x,B=y"': "Options of the problem; where not given, those that its data were made with.",
        "data_dir=DIR": Flag("The problem's data; the result is put beside them.", required=True),
    },
    "Models": {
        "l2r=RUN[,RUN]": "The run that generates left to right. A,B: several, which translate together as an ensemble.",
        "r2l=RUN[,RUN]": "The run with target_direction=r2l. A,B: several, which translate together as an ensemble.",
        "checkpoint_path=NAME": "Checkpoint of both: best, averaged, or a step; by default the latest.",
        "l2r_checkpoint_path=DIR[,DIR]": "That of --l2r, where it is another one, as the decoder takes it.",
        "r2l_checkpoint_path=DIR[,DIR]": "The same for --r2l.",
    },
    "Work": {
        "max_length": Flag(
            "Longer translations, in tokens, count as failed; 0 = the longest that the L2R run was trained on.",
            0,
            minimum=0,
        ),
        "chunk_pairs": Flag(
            "Pairs that are translated before they are kept: what is lost when the process is killed.",
            DEFAULT_CHUNK_PAIRS,
            minimum=1,
        ),
        "shard=i/n": "Do the i-th of n parts, for n machines; --join puts them together.",
        "join": "Translate nothing: put finished parts together, or say what is missing.",
        "overwrite": "Replace finished pseudo references, or unfinished work, made with other models, settings or "
        "data.",
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser(
        "t2t_ext-pseudo-references",
        "Translates the training and development data of a problem with a run that generates left to right (L2R) and "
        "one that generates right to left (R2L), and puts the translations beside the data: the problem "
        "NAME_synchronous. Killed and started again, it resumes.",
        examples=_EXAMPLES,
    )
    _flag_groups.add_registry_flags(parser)
    parser.add(_FLAGS, _flag_groups.DECODE_FLAGS, _flag_groups.thread_flags(many_batches=True))
    return parser


@command(build_parser)
def main(flags: argparse.Namespace) -> int:
    """Makes pseudo references as the flags say; returns the exit status."""
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.pseudo.checks import Teachers
    from t2t_ext.pseudo.generate import PseudoConfig, PseudoDecoding

    shard = _shard(flags)
    decode_hparams = _flag_groups.search_for_training_text(flags)
    # All mistakes of the user are found before TensorFlow starts.
    teachers = Teachers.choose(
        flags.l2r,
        flags.r2l,
        flags.l2r_checkpoint_path or flags.checkpoint_path,
        flags.r2l_checkpoint_path or flags.checkpoint_path,
        log.warning,
    )
    data_dir = pathlib.Path(flags.data_dir).expanduser()
    problem = _flag_groups.problem_of_data(flags, data_dir)
    data = GeneratedData.open(problem, data_dir)
    teachers.check(problem, data, log.warning)
    config = PseudoConfig(
        decode_hparams=decode_hparams,
        max_length=flags.max_length or teachers.max_length,
        chunk_pairs=flags.chunk_pairs,
        shard=shard,
        join=flags.join,
        overwrite=flags.overwrite,
    )
    decoding = PseudoDecoding(data, problem.data_name, teachers, config, say)
    if not flags.join:
        start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
        teachers.check_models()
    return _EXIT_STATUS.get(decoding.run(), 0)


def _shard(flags: argparse.Namespace) -> tuple[int, int]:
    """Returns which part of the work is meant, from 0, and of how many."""
    if not flags.shard:
        return 0, 1
    match = re.fullmatch(r"(\d+)/(\d+)", flags.shard.strip())
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"--shard={flags.shard}: write i/n, such as 1/4 for the first of four parts, 4/4 for the last.")
    if flags.join:
        raise UserError("--shard and --join exclude each other: --join puts all parts together.")
    return int(match[1]) - 1, int(match[2])


if __name__ == "__main__":
    raise SystemExit(main())
