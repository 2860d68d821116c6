"""``t2t_ext-datagen``: makes the data files of problems."""

from collections.abc import Sequence

from t2t_ext.bin import _flag_groups
from t2t_ext.bin._flags import FlagParser, add_flag, at_least, run_main
from t2t_ext.errors import UserError

EXAMPLES = """\
  t2t_ext-datagen --problem=translate_ende_cldr --data_dir=data
  t2t_ext-datagen --problem=translate_deen_multi30k --data_dir=data --tmp_dir=downloads
  t2t_ext-datagen --problem=translate_parallel_text --data_dir=data
      --train_source=train.de.gz --train_target=train.en.gz --dev_source=dev.de --dev_target=dev.en
      --source_language=de --target_language=en"""


def build_parser() -> FlagParser:
    """Returns the parser of the command's flags."""
    parser = FlagParser(
        "t2t_ext-datagen",
        "Makes the data files of a problem: subword model, shuffled shards of ids, dev and test text, manifest.",
        examples=EXAMPLES,
    )
    _flag_groups.add_registry_flags(parser)
    _flag_groups.add_problem_flags(parser)
    _flag_groups.add_data_generation_flags(parser)
    group = parser.group("Data generation")
    add_flag(group, "overwrite", False, "Replace data that are there already.")
    add_flag(
        group,
        "random_seed",
        None,
        "Seed of the shuffling and of the sample that the subword model is trained on; where not given, 429459.",
        kind=at_least(0),
        metavar="N",
    )
    add_flag(
        group,
        "vocab_sample_size",
        0,
        "At most so many pairs, chosen at random, train the subword model; 0 = 500,000.",
        kind=at_least(0),
        metavar="N",
    )
    add_flag(
        group,
        "max_tokens",
        0,
        "Training texts of more subwords are dropped; 0 = none (training has its own max_length).",
        kind=at_least(0),
        metavar="N",
    )
    add_flag(
        group,
        "runner",
        "local",
        "Where it runs: local = on this machine, --num_processes; beam = as Apache Beam pipelines (docs/data.md).",
        choices=("local", "beam"),
    )
    add_flag(
        group,
        "beam_options",
        "",
        "Flags of Apache Beam, with --runner=beam; without a --runner among them, the DirectRunner on this machine.",
        metavar='"--A=1 --B=x"',
    )
    add_flag(
        parser.group("Your own text (--problem=translate_parallel_text)"),
        "dev_lines",
        0,
        "Without --dev_source, so many lines of the training text are held out instead; 0 = 5%, at most 2,000.",
        kind=at_least(0),
        metavar="N",
    )
    return parser


def run(argv: Sequence[str] | None = None) -> None:
    """Generates the data of every problem that the flags name.

    Raises:
      UserError: A flag is missing or wrong, or generating failed.
    """
    args = build_parser().parse_args(argv)
    names = [name.strip() for name in args.problem.split(",") if name.strip()]
    if not names:
        raise UserError("--problem=NAME says which data to make (several: a,b); --registry_help lists all names.")
    if not args.data_dir:
        raise UserError("--data_dir=DIR says where to put the data files.")
    from t2t_ext.bin._generation import generate_from_flags

    for name in names:
        generate_from_flags(args, name, seed=args.random_seed)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return run_main(lambda: run(argv))


if __name__ == "__main__":
    raise SystemExit(main())
