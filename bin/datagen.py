"""``t2t_ext-datagen``: makes the data files of problems."""

import argparse

from t2t_ext import registry
from t2t_ext.bin import _flag_groups
from t2t_ext.bin._flags import FlagParser, command
from t2t_ext.errors import UserError

_EXAMPLES = """\
  t2t_ext-datagen --problem=translate_ende_cldr --data_dir=data
  t2t_ext-datagen --problem=translate_deen_multi30k --data_dir=data --tmp_dir=downloads
  t2t_ext-datagen --problem=translate_parallel_text --data_dir=data \\
      --train_source=train.de.gz --train_target=train.en.gz --dev_source=dev.de --dev_target=dev.en \\
      --source_language=de --target_language=en"""


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser(
        "t2t_ext-datagen",
        "Makes the data files of a problem: subword model, shuffled shards of ids, dev and test text, manifest.",
        examples=_EXAMPLES,
    )
    _flag_groups.add_registry_flags(parser)
    _flag_groups.add_problem_flags(parser)
    _flag_groups.add_data_generation_flags(parser, alone=True)
    return parser


@command(build_parser)
def main(args: argparse.Namespace) -> None:
    """Generates the data of every problem that the flags name."""
    names = [name.strip() for name in args.problem.split(",") if name.strip()]
    if not names:
        raise UserError("--problem=NAME says which data to make (several: a,b); --registry_help lists all names.")
    if not args.data_dir:
        raise UserError("--data_dir=DIR says where to put the data files.")
    from t2t_ext.bin._generation import generate_from_flags

    # All problems first: a mistake in the last is found before hours of work on the first.
    problems = [registry.problem(name, **_flag_groups.problem_options(args)) for name in names]
    for problem in problems:
        generate_from_flags(args, problem)


if __name__ == "__main__":
    raise SystemExit(main())
