"""t2t_ext-translate-all: translates with every checkpoint of a run as it appears, and scores each."""

import argparse
import pathlib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from t2t_ext.bin._flag_groups import DECODE_FLAGS, USER_DIRECTORY, thread_flags
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command, say, start_tensorflow
from t2t_ext.bin._run_text import check_bootstrap, check_files, check_shortlist, chosen_text, keep_runs, run_texts
from t2t_ext.errors import UserError
from t2t_ext.io import log
from t2t_ext.io.progress import running_total

if TYPE_CHECKING:
    from t2t_ext.config.decode import DecodeHParams
    from t2t_ext.evaluation.run_texts import RunTexts

_EXAMPLES = """\
  t2t_ext-translate-all --output_dir=RUN --split=dev          # beside a trainer: continues until training is over
  t2t_ext-translate-all --output_dir=RUN --decode_from_file=in.txt --decode_reference=ref.txt --wait_minutes=0
  t2t_ext-translate-all --output_dir=RUN --split=test --checkpoints=averaged --last_only --scoring=multi_bleu
  t2t_ext-translate-all --output_dir=RUN --split=dev --checkpoints=best --search_grid=alpha=0.6:1.0:1.4
"""
_FLAGS: FlagTable = {
    "What": {
        "output_dir=RUN": Flag("Run directory written by t2t_ext-trainer.", required=True),
        "checkpoints": Flag(
            "Folder of the run to take checkpoints from.", "checkpoints", choices=("checkpoints", "averaged", "best")
        ),
        **USER_DIRECTORY,
    },
    "Input (one of these)": {
        "split=NAME": "Split of the run's data, such as dev; if no input is given, dev.",
        "decode_from_file=FILE": "File of lines to translate.",
    },
    "Scores": {
        "decode_reference=FILE[,FILE]": "References for --decode_from_file, line by line.",
        "scoring=NAME[,NAME]": "Scoring protocols, such as multi_bleu,chrf; default: the problem's own. The first one "
        "decides which checkpoint is best.",
        "n_bootstrap": Flag(
            "Number of bootstrap samples for the 95% confidence interval, for example 1000; 0 = no interval.",
            0,
            minimum=0,
            maximum=100_000,
        ),
        "data_dir=DIR": "Data directory for --split, if the data have moved since training.",
    },
    "Which checkpoints": {
        "wait_minutes": Flag(
            "Minutes to wait for the next checkpoint of an unfinished run; 0 = take only what is there.",
            60.0,
            minimum=0,
            maximum=525_600,  # a year
            kind=float,
        ),
        "min_steps": Flag("Skip checkpoints with fewer steps than this.", 0, minimum=0),
        "every_steps": Flag(
            "Take only checkpoints whose step is a multiple of this, and the run's last one; 0 = all.", 0, minimum=0
        ),
        "last_only": "Take only the last checkpoint that is there.",
    },
    "Which search": {
        "search_grid=NAME=A:B:C,...": "Try every combination of these settings of --decode_hparams with the last "
        "checkpoint that is there, and say which has the best score, for example alpha=0.6:1.0:1.4,beam_size=4:8.",
    },
    "Output": {
        "translations_dir=DIR": "Parent folder of the folder of translations and scores, instead of RUN/translations.",
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    description = (
        "Translates with every checkpoint of a run as it appears and scores each. Writes translations, a table and a "
        "picture to RUN/translations, and curves for TensorBoard. Started again, it continues with the checkpoints "
        "that are not scored yet."
    )
    tables = _FLAGS, DECODE_FLAGS, thread_flags(many_batches=True)
    return FlagParser("t2t_ext-translate-all", description, *tables, examples=_EXAMPLES)


@command(build_parser)
def main(flags: argparse.Namespace) -> None:
    """Translates and scores as the flags say."""
    from t2t_ext.config.decode import resolve_decode_hparams
    from t2t_ext.experiments.sweep import Sweep
    from t2t_ext.runs.run_directory import RunDirectory

    directory = RunDirectory.open(flags.output_dir)
    if flags.search_grid:
        _try_grid(flags, directory)
        return
    sweep = Sweep(directory, _config(flags, directory, [resolve_decode_hparams(flags.decode_hparams)]), say=say)
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    table = sweep.run(running_total)
    best = table.best()
    if best is not None:
        print(f"{table.folder}: translations, scores.tsv, scores.jsonl, scores.png")
        print(f"curves: tensorboard --logdir={shlex.quote(str(directory.path / 'tensorboard'))}")
        name, value = next(iter(best.scores.items()))
        which = "step" if len(table.records) == 1 else f"best of {len(table.records)}: step"
        print(f"{which} {best.step} with {name} {value:.2f} [{best.signatures[name]}]")


def _try_grid(flags: argparse.Namespace, directory: Any) -> None:
    """Tries the settings of ``--search_grid`` and says which are the best."""
    from t2t_ext.experiments import search_grid

    for name in ("every_steps", "wait_minutes"):
        if name in flags.given and (value := getattr(flags, name)):
            raise UserError(
                f"--{name}={value:g} has no effect beside --search_grid, which takes the last checkpoint; leave it out."
            )
    grid = search_grid.combinations(flags.search_grid, flags.decode_hparams)
    config = _config(flags, directory, [each.hparams for each in grid])
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    tried: list[search_grid.Tried] = []
    try:
        tried.extend(search_grid.try_all(directory, config, grid, say, running_total))
    finally:  # also what was tried before an error or Ctrl-C
        if tried:
            print(search_grid.shown(tried))
    best, *_ = search_grid.ranked(tried)
    name, value = next(iter(best.record.scores.items()))
    chosen = shlex.quote(",".join([*filter(None, [flags.decode_hparams]), *best.combination.given]))
    print(f"best of {len(tried)} at step {best.record.step}: --decode_hparams={chosen} with {name} {value:.2f}")
    search_grid.warn(tried, flags.split)


def _config(flags: argparse.Namespace, directory: Any, searches: "Sequence[DecodeHParams]") -> Any:
    """Returns the SweepConfig of the flags with the first of the searches; finds all user errors, of every search."""
    from t2t_ext.evaluation import protocols
    from t2t_ext.evaluation.scorer import Scorer
    from t2t_ext.experiments.sweep import SweepConfig
    from t2t_ext.search.directions import check_directions, directions_of

    texts = run_texts(directory, flags)
    problem = texts.problem
    for each in searches:
        check_directions(each, directions_of(directory.hparams()))
        check_shortlist(directory, each)
    decode_hparams = searches[0]
    # With early_stopping=heuristic, a search for more hypotheses goes on longer, which may change the best one.
    others = () if decode_hparams.early_stopping == "heuristic" else ("num_hypotheses", "return_beams")
    if idle := decode_hparams.changed(*others, "write_beam_scores"):
        log.warning(f"{', '.join(idle)} of --decode_hparams change nothing: only the best translation is written")
    if flags.translations_dir and not pathlib.Path(flags.translations_dir).parent.is_dir():
        parent = pathlib.Path(flags.translations_dir).parent
        raise UserError(f"--translations_dir={flags.translations_dir}: there is no directory {parent}.")
    keep_runs([directory], [flags.translations_dir])
    check_bootstrap(flags.n_bootstrap)
    for name in ("every_steps", "wait_minutes") if flags.last_only else ():
        if name in flags.given and (value := getattr(flags, name)):
            raise UserError(f"--{name}={value:g} has no effect beside --last_only; leave one of them out.")
    names = protocols.names_in(flags.scoring) or protocols.names_in(problem.scoring)
    for name in names:
        protocols.protocol(name)  # checked before texts are read
    name, sources, references = _texts(flags, texts)
    scorer = Scorer(
        names,
        references,
        directory.text_encoders()[1],
        language=getattr(problem, "target_language", ""),
        n_bootstrap=flags.n_bootstrap,
        both_cases=True,
    )
    return SweepConfig(
        name=name,
        sources=sources,
        scorer=scorer,
        decode_hparams=decode_hparams,
        checkpoints=flags.checkpoints,
        wait_minutes=flags.wait_minutes,
        min_steps=flags.min_steps,
        every_steps=flags.every_steps,
        parent=pathlib.Path(flags.translations_dir) if flags.translations_dir else None,
        last_only=flags.last_only,
    )


def _texts(flags: argparse.Namespace, texts: "RunTexts") -> tuple[str, list[str], list[list[str]]]:
    """Returns the name of the text, its lines and the sets of references."""
    if flags.decode_from_file and flags.split:
        raise UserError("--decode_from_file and --split exclude each other: give one of them.")
    if bool(flags.decode_from_file) != bool(flags.decode_reference):
        raise UserError("--decode_from_file=FILE and --decode_reference=FILE go together: checkpoints are scored.")
    if flags.decode_from_file:
        if flags.data_dir:
            raise UserError("--data_dir goes with --split, not --decode_from_file.")
        check_files(flags, ("decode_from_file", "decode_reference"), ())
        _, lines, references = chosen_text(flags, texts)
        return pathlib.Path(flags.decode_from_file).name, texts.tagged(list(lines)), list(map(list, references))
    split = flags.split or "dev"
    return split, *texts.split(split)


if __name__ == "__main__":
    raise SystemExit(main())
