"""``t2t_ext-avg-all``: averages the weights of a run's last checkpoints."""

from collections.abc import Sequence

from t2t_ext.bin._flags import FlagParser, add_flag, at_least, run_main
from t2t_ext.runs.run_directory import RunDirectory

EXAMPLES = """\
  t2t_ext-avg-all --output_dir=RUN --n=8
  t2t_ext-decoder --output_dir=RUN --checkpoint_path=averaged --decode_from_file=in.txt --decode_to_file=out.txt"""


def build_parser() -> FlagParser:
    """Returns the parser of the command's flags."""
    parser = FlagParser(
        "t2t_ext-avg-all",
        "Averages the weights of a run's last checkpoints into RUN/averaged; training never resumes from there.",
        examples=EXAMPLES,
    )
    group = parser.group("What")
    add_flag(group, "output_dir", "", "The run, as t2t_ext-trainer wrote it.", metavar="RUN", required=True)
    add_flag(group, "n", 8, "Checkpoints in an average.", kind=at_least(1), metavar="N")
    add_flag(group, "rolling", False, "Make an average of n up to every checkpoint, not only up to the last.")
    return parser


def run(argv: Sequence[str] | None = None) -> None:
    """Averages as the flags say.

    Raises:
      UserError: There is no run, no checkpoint, or one is damaged.
    """
    args = build_parser().parse_args(argv)
    directory = RunDirectory.open(args.output_dir)
    from t2t_ext.runs.averaging import average_last

    for path, steps in average_last(directory, args.n, rolling=args.rolling):
        print(f"{path}: average of {len(steps)} checkpoints, steps {', '.join(map(str, steps))}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return run_main(lambda: run(argv))


if __name__ == "__main__":
    raise SystemExit(main())
