"""``t2t_ext-augment``: training data of training data, by models' translations or in both directions."""

import argparse
import pathlib
from typing import Any

from t2t_ext.bin import _flag_groups
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command, say, start_tensorflow
from t2t_ext.errors import UserError
from t2t_ext.io import log
from t2t_ext.pseudo.augment import METHODS
from t2t_ext.pseudo.work import DEFAULT_CHUNK_PAIRS

_EXIT_STATUS = {"SIGINT": 130, "SIGTERM": 143}
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
            "both_directions: every pair also from target to source. distillation: models' translations in place of "
            "the targets. diversification: models' translations beside the original pairs. back_translation: text in "
            "the target language, and a model's translation of it as source.",
            choices=METHODS,
            required=True,
        ),
        "problem=NAME": Flag("The problem that is to be trained; NAME_rev for its other direction.", required=True),
        'problem_options="A=x,B=y"': "Options of the problem; where not given, those that its data were made with.",
        "data_dir=DIR": Flag(
            "The problem's data, as t2t_ext-datagen wrote them; they stay as they are.", required=True
        ),
        "output_data_dir=DIR": Flag("Where the new data are put: the --data_dir to train with.", required=True),
        "original_copies": Flag(
            "How often the original pairs occur beside the new ones, as where these are many more.", 1, minimum=1
        ),
    },
    "Models": {
        "forward=RUN[,RUN]": "Runs that translate the sources, each by itself; A+B: an ensemble.",
        "backward=RUN[,RUN]": "Runs of the other direction (NAME_rev), which translate targets into sources.",
        "checkpoint_path=NAME": "Checkpoint of all: best, averaged, or a step; by default the latest.",
    },
    "Back-translation": {
        "target_text=FILE[,FILE]": "Text in the target language, a sentence a line, plain or compressed.",
        "untagged": "Leave out the tag that sources of back-translations begin with.",
    },
    "Work": {
        "max_length": Flag(
            "Longer translations, in tokens, count as failed; 0 = the longest that the first run was trained on.",
            0,
            minimum=0,
        ),
        "chunk_pairs": Flag(
            "Pairs that are translated before they are kept: what is lost when the process is killed.",
            DEFAULT_CHUNK_PAIRS,
            minimum=1,
        ),
        "overwrite": "Replace data, or unfinished work, made with other models, settings or data.",
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser(
        "t2t_ext-augment",
        "Makes training data of training data: in both directions, of what trained models translate, or of "
        "back-translated text. The result is data of the same problem in a folder of its own. Killed and started "
        "again, it resumes.",
        examples=_EXAMPLES,
    )
    _flag_groups.add_registry_flags(parser)
    parser.add(_FLAGS, _flag_groups.DECODE_FLAGS, _flag_groups.thread_flags(many_batches=True))
    return parser


@command(build_parser)
def main(flags: argparse.Namespace) -> int:
    """Makes augmented data as the flags say; returns the exit status."""
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.pseudo import checks
    from t2t_ext.pseudo.augment import Augmentation, AugmentConfig

    decode_hparams = _flag_groups.search_for_training_text(flags)
    data_dir = pathlib.Path(flags.data_dir).expanduser()
    problem = _flag_groups.problem_of_data(flags, data_dir)
    data = GeneratedData.open(problem, data_dir)
    models = {**_models(flags, "forward"), **_models(flags, "backward")}
    for name, runs in models.items():
        flag = f"--{name.rstrip('0123456789')}"
        for chosen in runs:
            checks.check_run(flag, chosen.run, problem, data, log.warning, backward=flag == "--backward")
    first = next((runs[0].run.config.hparams for runs in models.values()), {"max_length": 1})
    config = AugmentConfig(
        method=flags.method,
        output_dir=pathlib.Path(flags.output_data_dir).expanduser(),
        decode_hparams=decode_hparams,
        max_length=flags.max_length or first.get("max_length") or first["batch_size"],
        target_text=[pathlib.Path(path.strip()).expanduser() for path in flags.target_text.split(",") if path.strip()],
        tag=not flags.untagged,
        original_copies=flags.original_copies,
        chunk_pairs=flags.chunk_pairs,
        overwrite=flags.overwrite,
    )
    augmentation = Augmentation(data, problem.data_name, models, config, say)
    if models:
        start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
        for name, runs in models.items():
            for chosen in runs:
                checks.check_one_direction(f"--{name.rstrip('0123456789')}", chosen, "generates in one alone")
    return _EXIT_STATUS.get(augmentation.run(), 0)


def _models(flags: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Returns name (``forward1``, ...) -> the chosen run, or the members of an ensemble."""
    from t2t_ext.runs.chosen_runs import choose_runs

    found = {}
    for number, runs in enumerate(filter(None, getattr(flags, kind).split(",")), 1):
        try:
            chosen = choose_runs(runs.replace("+", ","), flags.checkpoint_path or None, warn=log.warning)
            for each in chosen:
                each.run.load_user_code()
        except UserError as error:
            raise UserError(f"--{kind}={runs}: {error}") from error
        found[f"{kind}{number}"] = chosen
    return found


if __name__ == "__main__":
    raise SystemExit(main())
