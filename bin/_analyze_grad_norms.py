"""t2t_ext-analyze grad_norms: gradient norms of the layers of runs (Liu et al. 2020, section 2.2.2, equation 6)."""

import argparse
from collections.abc import Sequence
from typing import Any

from t2t_ext.analysis.runs import AnalyzedRun, check_vocabularies, labeled, open_runs
from t2t_ext.bin import _analyzed_runs
from t2t_ext.bin._analyzed_runs import given_runs
from t2t_ext.bin._flag_groups import add_thread_flags
from t2t_ext.bin._flags import FlagParser, add_flag, at_least, start_tensorflow
from t2t_ext.bin._run_text import run_texts
from t2t_ext.errors import UserError
from t2t_ext.io import log
from t2t_ext.io.progress import running_total

_NAME = "t2t_ext-analyze grad_norms"
_AT_CHECKPOINTS = ("batches", "batch_size", "checkpoint_path", "data_dir", "precision")
_EXAMPLES = """\
  t2t_ext-analyze grad_norms --output_dir=BASELINE --output_dir=GCA --output_dir=FULL --labels="baseline,hard GCA,full"
  t2t_ext-analyze grad_norms --output_dir=BASELINE --output_dir=GCA --from_step=20000 --out_dir=figures
  t2t_ext-analyze grad_norms --output_dir=BASELINE,GCA --split=dev --batches=20 --checkpoint_path=best
"""


def build_parser() -> FlagParser:
    """Returns the flags of the analysis."""
    parser = FlagParser(
        _NAME,
        "Compares the gradient norms of runs layer by layer: as training logged them, or computed at checkpoints.",
        examples=_EXAMPLES,
    )
    _analyzed_runs.add_run_flags(parser, "as their directories. Runs with one label are one system, such as seeds")
    group = parser.group("Norms that training logged (RUN/gradient_norms.jsonl)")
    add_flag(group, "from_step", 0, "Earlier steps are left out.", kind=at_least(0), metavar="N")
    add_flag(group, "to_step", 0, "Later steps are left out; 0 = none.", kind=at_least(0), metavar="N")
    _add_checkpoint_flags(parser)
    _analyzed_runs.add_out_dir_flag(parser, "grad_norms")
    add_thread_flags(parser)
    return parser


def _add_checkpoint_flags(parser: FlagParser) -> None:
    group = parser.group("Norms at a checkpoint, without dropout, on the same batches for all runs")
    add_flag(group, "split", "", "Split whose batches are taken, such as dev; where not given, those that training "
             "logged are shown.", metavar="NAME")  # fmt: skip
    add_flag(group, "batches", 20, "How many, of all lengths.", kind=at_least(1), metavar="N")
    add_flag(
        group,
        "batch_size",
        0,
        "Most tokens of a batch, padded; 0 = as the first run's batches.",
        kind=at_least(0),
        metavar="N",
    )
    _analyzed_runs.add_checkpoint_flag(group)
    add_flag(group, "data_dir", "", "The first run's data, where they have moved since training.", metavar="DIR")
    add_flag(
        group,
        "precision",
        "float32",
        "What is computed in; another one gives other roundings.",
        choices=("float32", "mixed_bfloat16"),
    )


def run(argv: Sequence[str]) -> None:
    """Carries out the analysis.

    Raises:
      UserError: A flag is wrong, a run has no gradient norms, or runs cannot be compared.
    """
    flags = build_parser().parse_args(argv)
    _check_modes(flags)
    checkpoint_path = flags.checkpoint_path if flags.split else None
    runs = labeled(open_runs(given_runs(flags), _NAME, checkpoint_path, log.warning), flags.labels, shared=True)
    out_dir = _analyzed_runs.output_directory(flags, runs[0].directory.path, "grad_norms")
    from t2t_ext.analysis.gradients import report as gradient_report

    notes: list[str] = []
    if flags.split:
        report = _at_checkpoints(flags, runs)
    else:
        report, notes = gradient_report.logged(runs, flags.from_step, flags.to_step)
    for note in notes:
        log.warning(note)
    names = gradient_report.write(out_dir, report, notes)
    print(gradient_report.build(report).text(), flush=True)
    log.info(f"{', '.join(names[1:])} and the page {out_dir / names[0]}")


def _check_modes(flags: argparse.Namespace) -> None:
    if not flags.split:
        given = [f"--{name}" for name in _AT_CHECKPOINTS if name in flags.given]
        if given:
            raise UserError(f"{given[0]} goes with --split=NAME: without it, what training logged is shown.")
        if flags.to_step and flags.to_step < flags.from_step:
            raise UserError(f"--from_step={flags.from_step} is behind --to_step={flags.to_step}.")
        return
    given = [f"--{name}" for name in ("from_step", "to_step") if name in flags.given]
    if given:
        raise UserError(f"{given[0]} chooses among what training logged; with --split, give --checkpoint_path.")


def _at_checkpoints(flags: argparse.Namespace, runs: Sequence[AnalyzedRun]) -> Any:
    """Returns the report of norms that are computed now."""
    check_vocabularies(runs)
    data = run_texts(runs[0].directory, flags).data()
    if flags.split not in data.splits:
        data.shard_paths(flags.split)  # says which splits there are
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    from t2t_ext.analysis.checkpoint_gradients import compare

    return compare(
        runs, data, flags.split, batches=flags.batches, batch_size=flags.batch_size, precision=flags.precision,
        progress=running_total,
    )  # fmt: skip
