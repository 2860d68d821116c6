"""t2t_ext-analyze grad_norms: gradient norms of runs, layer by layer (Liu et al. 2020, section 2.2.2, equation 6)."""

import argparse
from collections.abc import Sequence
from typing import Any

from t2t_ext.analysis.runs import AnalyzedRun, check_vocabularies, labeled, open_runs
from t2t_ext.bin._analyzed_runs import CHECKPOINT, add_run_flags, given_runs, out_dir_flag, output_directory
from t2t_ext.bin._flag_groups import thread_flags
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, start_tensorflow
from t2t_ext.bin._run_text import run_texts
from t2t_ext.config.precision import ALIASES
from t2t_ext.errors import UserError
from t2t_ext.io import log, outputs
from t2t_ext.io.progress import running_total

_NAME = "t2t_ext-analyze grad_norms"
_AT_CHECKPOINTS = ("batches", "batch_size", "checkpoint_path", "data_dir", "precision")
_EXAMPLES = """\
  t2t_ext-analyze grad_norms --output_dir=BASELINE --output_dir=GCA --output_dir=FULL --labels="baseline,hard GCA,full"
  t2t_ext-analyze grad_norms --output_dir=BASELINE --output_dir=GCA --from_step=20000 --out_dir=figures
  t2t_ext-analyze grad_norms --output_dir=BASELINE,GCA --split=dev --batches=20 --checkpoint_path=best
"""
_FLAGS: FlagTable = {
    "Norms that training logged (RUN/gradient_norms.jsonl)": {
        "from_step": Flag("Leave out earlier steps.", 0, minimum=0),
        "to_step": Flag("Leave out later steps; 0 = keep all.", 0, minimum=0),
    },
    "Norms at a checkpoint, without dropout, on the same batches for all runs": {
        "split=NAME": "Split to take batches from, such as dev; without it, the norms that training logged are shown.",
        "batches": Flag("Number of batches, of all lengths.", 20, minimum=1),
        "batch_size": Flag(
            "Maximum number of tokens in a batch, padding included; 0 = as in the first run's batches.", 0, minimum=0
        ),
        **CHECKPOINT,
        "data_dir=DIR": "Data directory of the first run, if the data have moved since training.",
        "precision": Flag(
            "Numeric type of the computations (fp32 and bf16 also work); another type rounds differently.",
            "float32",
            choices=("float32", "mixed_bfloat16", "fp32", "bf16", "bfloat16"),
        ),
    },
}


def build_parser() -> FlagParser:
    """Returns the flags of the analysis."""
    description = (
        "Compares the gradient norms of runs layer by layer: as training logged them, or computed at checkpoints."
    )
    parser = FlagParser(_NAME, description, examples=_EXAMPLES)
    add_run_flags(parser, "the directories. Runs with the same label form one system, such as several seeds")
    parser.add(_FLAGS, out_dir_flag("grad_norms"), thread_flags())
    return parser


def run(flags: argparse.Namespace) -> None:
    """Carries out the analysis."""
    _check_modes(flags)
    checkpoint_path = flags.checkpoint_path if flags.split else None
    runs = labeled(open_runs(given_runs(flags), _NAME, checkpoint_path, log.warning), flags.labels, shared=True)
    from t2t_ext.analysis.gradients import report as gradient_report

    notes: list[str] = []
    if flags.split:
        report = _at_checkpoints(flags, runs)
    else:
        report, notes = gradient_report.logged(runs, flags.from_step, flags.to_step)
    for note in notes:
        log.warning(note)
    out_dir = output_directory(flags, runs[0].directory.path, "grad_norms")
    names = gradient_report.write(out_dir, report, notes)
    outputs.show(gradient_report.build(report).text())
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
    """Computes the norms at the checkpoints and returns their report."""
    check_vocabularies(runs)
    data = run_texts(runs[0].directory, flags).data()
    if flags.split not in data.splits:
        data.shard_paths(flags.split)  # raises an error that lists the splits
    output_directory(flags, runs[0].directory.path, "grad_norms")  # raises an error before models are loaded
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    from t2t_ext.analysis.checkpoint_gradients import compare

    precision = ALIASES.get(flags.precision, flags.precision)
    return compare(
        runs, data, flags.split, batches=flags.batches, batch_size=flags.batch_size, precision=precision,
        progress=running_total,
    )  # fmt: skip
