"""``t2t_ext-pseudo-references``: makes ``NAME_synchronous`` from translations by two trained runs."""

import argparse
import re

from t2t_ext.bin import _training_text
from t2t_ext.bin._flags import FlagParser, FlagTable, command, say, start_tensorflow
from t2t_ext.errors import UserError
from t2t_ext.io import log

_EXAMPLES = """\
  t2t_ext-pseudo-references --problem=translate_deen_multi30k --l2r=RUN --r2l=RUN_R2L --data_dir=data
  t2t_ext-pseudo-references --problem=... --l2r=RUN --r2l=RUN_R2L --data_dir=data --checkpoint_path=averaged
  t2t_ext-pseudo-references --problem=... --l2r=RUN --r2l=RUN_R2L --data_dir=data --shard=1/4   # on one of 4 machines
  t2t_ext-pseudo-references --problem=... --l2r=RUN --r2l=RUN_R2L --data_dir=data --join        # when all are done
"""
_FLAGS: FlagTable = {
    "Models": {
        "l2r=RUN[,RUN]": "Run that generates left to right. A,B: several, which translate together as an ensemble.",
        "r2l=RUN[,RUN]": "Run with target_direction=r2l. A,B: several, which translate together as an ensemble.",
        "checkpoint_path=NAME": "Checkpoint of both runs: best, averaged, or a step; default: the latest.",
        "l2r_checkpoint_path=DIR[,DIR]": "Checkpoint of --l2r, if it is a different one, in the same form as for "
        "t2t_ext-decoder.",
        "r2l_checkpoint_path=DIR[,DIR]": "The same for --r2l.",
    },
    "Work": {
        "shard=i/n": "Do part i of n, for n machines; --join combines the parts.",
        "join": "Translate nothing; combine finished parts, or report what is missing.",
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser(
        "t2t_ext-pseudo-references",
        "Translates the training and development data of a problem with a run that generates left to right (L2R) and "
        "one that generates right to left (R2L), and adds the translations to the data as the problem "
        "NAME_synchronous. A killed command resumes when started again.",
        examples=_EXAMPLES,
    )
    _training_text.add_flags(parser, _FLAGS)
    return parser


@command(build_parser)
def main(flags: argparse.Namespace) -> int:
    """Makes pseudo references as the flags say; returns the exit status."""
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.pseudo import checks
    from t2t_ext.pseudo.generate import PseudoConfig, PseudoDecoding

    shard = _shard(flags)
    decode_hparams = _training_text.decode_hparams(flags)
    # Finds all user errors before TensorFlow starts.
    teachers = checks.Teachers.choose(
        flags.l2r,
        flags.r2l,
        flags.l2r_checkpoint_path or flags.checkpoint_path,
        flags.r2l_checkpoint_path or flags.checkpoint_path,
        log.warning,
    )
    problem = _training_text.problem_of_data(flags)
    data = GeneratedData.open(problem, flags.data_dir)
    teachers.check(problem, data, log.warning)
    config = PseudoConfig(
        decode_hparams=decode_hparams,
        max_length=flags.max_length or checks.max_length(teachers.l2r),
        chunk_pairs=flags.chunk_pairs,
        shard=shard,
        join=flags.join,
        overwrite=flags.overwrite,
    )
    decoding = PseudoDecoding(data, problem.data_name, teachers, config, say)
    if not flags.join:
        start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
        teachers.check_models()
    return _training_text.EXIT_STATUS.get(decoding.run(), 0)


def _shard(flags: argparse.Namespace) -> tuple[int, int]:
    """Returns the part of the work to do, counted from 0, and the number of parts."""
    if not flags.shard:
        return 0, 1
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", flags.shard.strip())
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"--shard={flags.shard}: write i/n, such as 1/4 for the first of four parts, 4/4 for the last.")
    if flags.join:
        raise UserError("--shard and --join exclude each other: --join puts all parts together.")
    return int(match[1]) - 1, int(match[2])


if __name__ == "__main__":
    raise SystemExit(main())
