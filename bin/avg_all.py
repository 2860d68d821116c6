"""``t2t_ext-avg-all``: averages the weights of a run's last checkpoints."""

import argparse

from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command
from t2t_ext.io import log
from t2t_ext.runs.run_directory import RunDirectory

_EXAMPLES = """\
  t2t_ext-avg-all --output_dir=RUN --n=8
  t2t_ext-decoder --output_dir=RUN --checkpoint_path=averaged --decode_from_file=in.txt --decode_to_file=out.txt"""
_FLAGS: FlagTable = {
    "What": {
        "output_dir=RUN": Flag("Run directory written by t2t_ext-trainer.", required=True),
        "n": Flag("Number of checkpoints in an average; all if there are fewer.", 8, minimum=1),
        "rolling": "Average n checkpoints up to each checkpoint, not only up to the last one.",
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    description = (
        "Averages the weights of a run's last checkpoints into RUN/averaged; training never resumes from there."
    )
    return FlagParser("t2t_ext-avg-all", description, _FLAGS, examples=_EXAMPLES)


@command(build_parser)
def main(flags: argparse.Namespace) -> None:
    """Averages as the flags say."""
    directory = RunDirectory.open(flags.output_dir)
    from t2t_ext.runs import checkpoints
    from t2t_ext.runs.averaging import average_last

    there = len(checkpoints.list_checkpoints(directory.checkpoints_dir))
    if 0 < there < flags.n:
        log.warning(f"--n={flags.n}: the run has only {there} checkpoint{'s' if there > 1 else ''}; all are averaged")
    for path, steps in average_last(directory, flags.n, rolling=flags.rolling):
        print(f"{path}: average of {len(steps)} checkpoint{'s' * (len(steps) > 1)}, steps {', '.join(map(str, steps))}")
    if checkpoints.read_info(checkpoints.list_checkpoints(directory.checkpoints_dir)[-1]).users_group != "model":
        log.info(
            "what was averaged are averages already, which training keeps (schedule_free_adam_w, ema_decay or "
            "average_last): expect no gain over the last checkpoint"
        )


if __name__ == "__main__":
    raise SystemExit(main())
