"""t2t_ext-analyze divergence: how far local and global attention differ (Ampomah et al. 2021, section 7.2)."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from t2t_ext.bin import _text_lines
from t2t_ext.bin._analyzed_runs import (
    AnalyzedRun,
    add_analyzed_run_flags,
    add_out_dir_flag,
    labelled,
    open_runs,
    output_directory,
)
from t2t_ext.bin._flag_groups import add_thread_flags
from t2t_ext.bin._flags import FlagParser, add_flag, at_least, start_tensorflow
from t2t_ext.bin._run_text import RunText, shown_progress
from t2t_ext.errors import UserError

_NAME = "t2t_ext-analyze divergence"
_JOINED = {
    "max": "the element-wise maximum over the heads, its rows divided by their sums",
    "mean": "the mean over the heads",
    "head": "at every position the head with the largest weight",
}
_EXAMPLES = """\
  t2t_ext-analyze divergence --output_dir=F2,F3,F5,F8 --split=test --sentences=500
  t2t_ext-analyze divergence --output_dir=ENC,FULL --sentence_file=in.txt --reference_file=ref.txt
"""


def build_parser() -> FlagParser:
    """Returns the flags of the analysis."""
    parser = FlagParser(
        _NAME,
        "Measures the Jensen-Shannon divergence between local and global attention of dual contextual modules.",
        examples=_EXAMPLES,
    )
    add_analyzed_run_flags(parser, "by kernel size where these differ, else as their directories")
    group = parser.group("Sentences")
    add_flag(group, "split", "", "Split of the first run's data, such as test.", metavar="NAME")
    add_flag(group, "data_dir", "", "The first run's data, where they have moved since training.", metavar="DIR")
    add_flag(group, "sentence_file", "", "Sentences of your own, one a line.", metavar="FILE")
    add_flag(group, "reference_file", "", "Their translations, which decoders read.", metavar="FILE")
    add_flag(group, "sentences", 0, "How many, from the first on; 0 = all.", kind=at_least(0), metavar="N")
    add_flag(group, "max_subwords", 200, "Sentences with more on either side are left out.", kind=at_least(2),
             metavar="N")  # fmt: skip
    add_flag(
        parser.group("Measure"),
        "heads",
        "max",
        "What stands for all heads of an attention: their element-wise maximum, made to add up to 1; their mean; or at "
        "every position the head with the largest weight.",
        choices=tuple(_JOINED),
    )
    add_out_dir_flag(parser, "divergence")
    add_thread_flags(parser)
    return parser


def run(argv: Sequence[str]) -> None:
    """Carries out the analysis.

    Raises:
      UserError: A flag is wrong, or a run has no dual contextual modules.
    """
    flags = build_parser().parse_args(argv)
    # Everything that the user can have got wrong is found before models are loaded.
    runs = open_runs(flags, _NAME)
    hparams = [each.directory.hparams() for each in runs]
    runs = labelled(runs, flags.labels, [f"f={getattr(each, 'dc_kernel_size', 0)}" for each in hparams])
    sources, references = _text(flags, runs[0])
    tagged = [RunText(each.directory, flags).tagged(sources) for each in runs]
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    from t2t_ext import registry
    from t2t_ext.analysis.divergence import report as divergence_report
    from t2t_ext.analysis.divergence.measure import check_model, stacks_with_modules

    notes: list[str] = []
    for each, own in zip(runs, hparams, strict=True):
        try:
            model_class = registry.model(each.directory.config.model)
            target_sides = model_class.sides(own).target_sides
            stacks = stacks_with_modules(own, references is not None, target_sides)
            check_model(model_class)
        except UserError as error:
            raise UserError(f"{each.directory.path}: {error}") from error
        if own.dual_decoder_layers and "decoder" not in stacks:
            why = "it writes two sides" if target_sides > 1 else "give --reference_file, or --split"
            notes.append(f"{each.label}: the modules of its decoder are not measured: {why}")
    measured = [_measured(flags, each, lines, references, notes) for each, lines in zip(runs, tagged, strict=True)]
    for note in notes:
        _text_lines.warn(note)
    where = f"the {flags.split} split" if flags.split else flags.sentence_file
    words = f"Divergence of local and global attention, in nats, on {len(sources)} sentences of {where}: "
    words += f"{_JOINED[flags.heads]}; means over positions, then over sentences, ± standard error over sentences."
    settings = {"split": flags.split, "sentence_file": flags.sentence_file, "reference_file": flags.reference_file,
                "sentences": len(sources), "max_subwords": flags.max_subwords, "heads": flags.heads}  # fmt: skip
    out_dir = output_directory(flags, runs[0].directory.path, "divergence")
    names = divergence_report.write(out_dir, measured, words, settings, notes)
    print(divergence_report.build(measured, words).text(), flush=True)
    print(f"{', '.join(names[1:])} and the page {out_dir / names[0]}", file=sys.stderr)


def _text(flags: argparse.Namespace, first: AnalyzedRun) -> tuple[list[str], list[str] | None]:
    """Returns the sources and, where there are any, their references."""
    if bool(flags.split) == bool(flags.sentence_file):
        problem = "exclude each other" if flags.split else "are both missing: there is nothing to measure on"
        raise UserError(f"--split and --sentence_file {problem}; give one of them.")
    if flags.split:
        if flags.reference_file:
            raise UserError("--reference_file goes with --sentence_file; a split has references of its own.")
        sources, sets = RunText(first.directory, flags).split(flags.split)
        references = sets[0]
    else:
        if "data_dir" in flags.given:
            raise UserError("--data_dir goes with --split=NAME: a file needs no data.")
        source = _text_lines.read(flags.sentence_file)
        sources, references = source.lines, None
        if flags.reference_file:
            found = _text_lines.read(flags.reference_file)
            if len(found.lines) != len(sources):
                raise UserError(
                    f"Unequal numbers of lines: {len(sources)} in {source.name}, {len(found.lines)} in {found.name}. "
                    "Give a translation for each sentence."
                )
            references = found.lines
    count = flags.sentences or len(sources)
    sources, references = sources[:count], None if references is None else references[:count]
    if not any(line.strip() for line in sources):
        raise UserError(f"{flags.sentence_file or flags.split} is empty: there is nothing to measure on.")
    return sources, references


def _measured(
    flags: argparse.Namespace, run: AnalyzedRun, lines: list[str], references: list[str] | None, notes: list[str]
) -> Any:
    """Loads a run and measures it; sentences that are left out are noted."""
    from t2t_ext.analysis.divergence.measure import measure
    from t2t_ext.analysis.divergence.report import Measured
    from t2t_ext.translation.translator import Translator

    translator = Translator.load(run.directory.path, run.checkpoint, "precision=float32")
    sources = _ids(translator.source_encoder, lines)
    targets = None if references is None else _ids(translator.target_encoder, references)
    if targets is not None and translator.target_direction == "r2l":
        targets = [ids[-2::-1] + ids[-1:] for ids in targets]
    sides = [sources] if targets is None else [sources, targets]
    # Two ids: a word and EOS.
    kept = [i for i, ids in enumerate(zip(*sides, strict=True)) if all(1 < len(each) <= flags.max_subwords
            for each in ids)]  # fmt: skip
    if not kept:
        raise UserError(
            f"{run.directory.path}: no sentence has from 1 to {flags.max_subwords} subwords (--max_subwords) on every "
            "side: there is nothing to measure on."
        )
    if len(kept) < len(lines):
        notes.append(
            f"{run.label}: {len(lines) - len(kept)} of {len(lines)} sentences are empty or have more than "
            f"{flags.max_subwords} subwords on a side and are left out"
        )
    with shown_progress(run.label, len(kept), "sentences") as update:
        chosen = None if targets is None else [targets[i] for i in kept]
        stacks = measure(translator.model, [sources[i] for i in kept], chosen, flags.heads, update)
    hparams = translator.model.hparams
    return Measured(run.label, run.directory.path, run.checkpoint.name, hparams.dc_kernel_size, stacks)


def _ids(encoder: Any, lines: list[str]) -> list[list[int]]:
    return encoder.encode_batch(encoder.prepare(lines), add_eos=True)
