"""``t2t_ext-augment``: makes new training data, with models' translations or in both directions."""

import argparse
import os
import pathlib

from t2t_ext.bin import _training_text
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command, say, start_tensorflow
from t2t_ext.errors import UserError
from t2t_ext.io import log
from t2t_ext.pseudo.augment import METHODS

_EXAMPLES = """\
  t2t_ext-augment --method=both_directions --problem=P --data_dir=D --output_data_dir=D2
  t2t_ext-augment --method=distillation --forward=RUN --problem=P --data_dir=D --output_data_dir=D2
  t2t_ext-augment --method=diversification --forward=A,B,C --backward=X,Y,Z --problem=P --data_dir=D ...
  t2t_ext-augment --method=back_translation --backward=X --target_text=news.en.gz --problem=P --data_dir=D ...
  t2t_ext-trainer --problem=P --data_dir=D2 --output_dir=RUN2 ...                # trains on the result
"""
_FLAGS: FlagTable = {
    "What": {
        "method": Flag(
            "both_directions: add every pair from target to source. distillation: replace the targets by models' "
            "translations. diversification: add models' translations to the original pairs. back_translation: add text "
            "in the target language, with a model's translation of it as source.",
            choices=METHODS,
            required=True,
        ),
        "output_data_dir=DIR": Flag("Directory for the new data; train with it as --data_dir.", required=True),
        "original_copies": Flag(
            "How many times to include the original pairs, for example if there are many more new pairs.", 1, minimum=1
        ),
    },
    "Models": {
        "forward=RUN[,RUN]": "Runs that translate the sources, each separately; A+B: an ensemble.",
        "backward=RUN[,RUN]": "Runs of the other direction (NAME_rev), which translate targets into sources.",
        "checkpoint_path=NAME": "Checkpoint of all runs: best, averaged, or a step; default: the latest.",
    },
    "Back-translation": {
        "target_text=FILE[,FILE]": "Text in the target language, one sentence per line, plain or compressed.",
        "untagged": "Leave out the tag at the beginning of back-translated sources.",
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser(
        "t2t_ext-augment",
        "Makes new training data from existing data: in both directions, from models' translations, or from "
        "back-translated text. The result is data of the same problem in a folder of its own. A killed command resumes "
        "when started again.",
        examples=_EXAMPLES,
    )
    _training_text.add_flags(parser, _FLAGS)
    return parser


@command(build_parser)
def main(flags: argparse.Namespace) -> int:
    """Makes augmented data as the flags say; returns the exit status."""
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.pseudo import checks
    from t2t_ext.pseudo.augment import Augmentation, AugmentConfig

    check_flags(flags)
    decode_hparams = _training_text.decode_hparams(flags)
    problem = _training_text.problem_of_data(flags)
    data = GeneratedData.open(problem, flags.data_dir)
    models = {}
    for kind in ("forward", "backward"):
        for number, runs in enumerate(_names(getattr(flags, kind), ","), 1):
            chosen = checks.choose(f"--{kind}={runs}", _names(runs, "+"), flags.checkpoint_path, log.warning)
            for each in chosen:
                checks.check_run(f"--{kind}", each.run, problem, data, log.warning, backward=kind == "backward")
            models[f"{kind}{number}"] = chosen
    config = AugmentConfig(
        method=flags.method,
        output_dir=pathlib.Path(flags.output_data_dir),
        decode_hparams=decode_hparams,
        max_length=flags.max_length or next((checks.max_length(runs) for runs in models.values()), 0),
        target_text=[pathlib.Path(path.strip()) for path in flags.target_text.split(",") if path.strip()],
        tag=not flags.untagged,
        original_copies=flags.original_copies,
        chunk_pairs=flags.chunk_pairs,
        overwrite=flags.overwrite,
    )
    augmentation = Augmentation(data, problem.data_name, models, config, say)
    if models:
        start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
        for name, chosen in models.items():
            for each in chosen:
                checks.check_one_direction(f"--{name.rstrip('0123456789')}", each, "generates in one alone")
    return _training_text.EXIT_STATUS.get(augmentation.run(), 0)


def check_flags(flags: argparse.Namespace) -> None:
    """Refuses flags that have no effect with the method.

    Raises:
      UserError: Such a flag is given.
    """
    unread = set() if flags.method == "back_translation" else {"untagged"}
    if flags.method == "both_directions":
        unread |= {"checkpoint_path", "decode_hparams", "max_length", "chunk_pairs"}
    for name in sorted(unread & set(flags.given)):
        raise UserError(f"--{name} has no effect with --method={flags.method}: leave it out.")


def _names(text: str, separator: str) -> list[str]:
    """Returns the parts of a list of paths; parts that together are an existing path are not separated."""
    parts, names = text.split(separator), []
    while parts:
        joined = {count: separator.join(parts[:count]).strip() for count in range(len(parts), 0, -1)}
        count = next((count for count, name in joined.items() if name and os.path.exists(name)), 1)
        names.append(joined[count])
        del parts[:count]
    return list(filter(None, names))


if __name__ == "__main__":
    raise SystemExit(main())
