"""t2t_ext-analyze divergence: how far local and global attention differ (Ampomah et al. 2021, section 7.2)."""

import argparse

from t2t_ext.analysis.runs import AnalyzedRun, labeled, open_runs
from t2t_ext.bin._analyzed_runs import add_analyzed_run_flags, given_runs, out_dir_flag, output_directory
from t2t_ext.bin._flag_groups import thread_flags
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, start_tensorflow
from t2t_ext.bin._run_text import run_texts
from t2t_ext.data.corpora import text_lines
from t2t_ext.errors import UserError
from t2t_ext.io import log, outputs
from t2t_ext.io.progress import running_total

_NAME = "t2t_ext-analyze divergence"
_EXAMPLES = """\
  t2t_ext-analyze divergence --output_dir=F2,F3,F5,F8 --split=test --sentences=500
  t2t_ext-analyze divergence --output_dir=ENC,FULL --sentence_file=in.txt --reference_file=ref.txt
"""
_FLAGS: FlagTable = {
    "Sentences": {
        "split=NAME": "Split of the first run's data, such as test.",
        "data_dir=DIR": "Data directory of the first run, if the data have moved since training.",
        "sentence_file=FILE": "File of your own sentences, one per line.",
        "reference_file=FILE": "File of their translations, needed to measure decoders.",
        "sentences": Flag("Number of sentences to use, starting with the first; 0 = all.", 0, minimum=0),
        "max_subwords": Flag("Leave out sentences with more subwords than this on either side.", 200, minimum=2),
    },
    "Measure": {
        "heads": Flag(
            "How to reduce all heads of an attention to one: their element-wise maximum, normalized to add up to 1 "
            "(max); their mean (mean); or at every position the head with the largest weight (head).",
            "max",
            choices=("max", "mean", "head"),
        ),
    },
}


def build_parser() -> FlagParser:
    """Returns the flags of the analysis."""
    description = (
        "Measures the Jensen-Shannon divergence between local and global attention of dual contextual modules."
    )
    parser = FlagParser(_NAME, description, examples=_EXAMPLES)
    add_analyzed_run_flags(parser, "the kernel sizes if these differ, otherwise the directories")
    parser.add(_FLAGS, out_dir_flag("divergence"), thread_flags())
    return parser


def run(flags: argparse.Namespace) -> None:
    """Carries out the analysis."""
    # Finds all user errors before models are loaded.
    runs = open_runs(given_runs(flags), _NAME, flags.checkpoint_path, log.warning)
    for each in runs:
        each.directory.require_text(_NAME)
    kernels = [f"f={getattr(each.directory.hparams(), 'dc_kernel_size', 0)}" for each in runs]
    runs = labeled(runs, flags.labels, kernels)
    sources, references = _text(flags, runs[0])
    tagged = [run_texts(each.directory, flags).tagged(sources) for each in runs]
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    from t2t_ext.analysis.divergence import report as divergence_report
    from t2t_ext.analysis.divergence.measure import HEADS
    from t2t_ext.analysis.divergence.runs import check_runs, measure_run

    notes = check_runs(runs, references is not None)
    out_dir = output_directory(flags, runs[0].directory.path, "divergence")
    measured = []
    for each, lines in zip(runs, tagged, strict=True):
        with running_total(each.label, len(lines), "sentences") as update:
            found, more = measure_run(each, lines, references, flags.heads, flags.max_subwords, update)
        measured.append(found)
        notes += more
    for note in notes:
        log.warning(note)
    where = f"the {flags.split} split" if flags.split else flags.sentence_file
    words = f"Divergence of local and global attention, in nats, on {len(sources)} sentences of {where}: "
    words += f"{HEADS[flags.heads]}; means over positions, then over sentences, ± standard error over sentences."
    settings = {name: getattr(flags, name) for name in ("split", "sentence_file", "reference_file")}
    settings |= {"sentences": len(sources), "max_subwords": flags.max_subwords, "heads": flags.heads}
    names = divergence_report.write(out_dir, measured, words, settings, notes)
    outputs.show(divergence_report.build(measured, words).text())
    log.info(f"{', '.join(names[1:])} and the page {out_dir / names[0]}")


def _text(flags: argparse.Namespace, first: AnalyzedRun) -> tuple[list[str], list[str] | None]:
    """Returns the sources and their references (None if there are none)."""
    if bool(flags.split) == bool(flags.sentence_file):
        problem = "exclude each other" if flags.split else "are both missing: there is nothing to measure on"
        raise UserError(f"--split and --sentence_file {problem}; give one of them.")
    if flags.split:
        if flags.reference_file:
            raise UserError("--reference_file goes with --sentence_file; a split has references of its own.")
        sources, sets = run_texts(first.directory, flags).split(flags.split)
        references = sets[0]
    else:
        if "data_dir" in flags.given:
            raise UserError("--data_dir goes with --split=NAME: a file needs no data.")
        source = text_lines.read(flags.sentence_file)
        sources, references = source.lines, None
        if flags.reference_file:
            found = text_lines.read(flags.reference_file)
            text_lines.check_as_many(source, found, "Give a translation for each sentence.")
            references = found.lines
    count = flags.sentences or len(sources)
    sources, references = sources[:count], None if references is None else references[:count]
    if not any(line.strip() for line in sources):
        raise UserError(f"{flags.sentence_file or flags.split} is empty: there is nothing to measure on.")
    return sources, references
