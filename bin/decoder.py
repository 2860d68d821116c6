"""t2t_ext-decoder: translates files, a split of the data, or what is typed, with a trained run."""

import argparse
import itertools
import sys
import time
from typing import TYPE_CHECKING, Any

from t2t_ext.bin._flag_groups import ALIGNMENT_FLAGS, DECODE_FLAGS, RUN_FLAGS, alignment_settings, thread_flags
from t2t_ext.bin._flags import FlagParser, FlagTable, command, start_tensorflow
from t2t_ext.bin._run_text import (
    SCORE_FLAGS,
    check_files,
    check_scoring,
    chosen_text,
    report_speed,
    report_truncated_lines,
    run_texts,
)
from t2t_ext.data.corpora import text_lines
from t2t_ext.data.corpora.text_lines import STANDARD, one_line
from t2t_ext.errors import UserError
from t2t_ext.io import log, outputs
from t2t_ext.io.progress import running_total
from t2t_ext.search.directions import (
    check_directions,
    check_prefixes,
    direction_shares,
    directions_of,
    refuse_one_side,
    shown_shares,
)

if TYPE_CHECKING:
    from t2t_ext.translation.translator import Translator

_MODES = ("decode_from_file", "split", "score_file", "decode_interactive")
_GOES_WITH = {
    "decode_reference": ("decode_from_file",),
    "nbest_file": ("decode_from_file", "split"),
    "alignment_file": ("decode_from_file", "split", "score_file"),
    "decode_to_file": ("decode_from_file", "split", "score_file"),
    "prefix_file": ("decode_from_file", "split"),
    "constraints_file": ("decode_from_file", "split"),
    "data_dir": ("split",),
}
_INPUTS = ("decode_from_file", "score_file", "prefix_file", "constraints_file", "decode_reference")
_EXAMPLES = """\
  t2t_ext-decoder --output_dir=RUN --decode_from_file=in.txt --decode_to_file=out.txt --decode_reference=ref.txt
  t2t_ext-decoder --output_dir=RUN --split=test --checkpoint_path=averaged
  t2t_ext-decoder --output_dir=RUN --decode_from_file=in.txt --decode_hparams="beam_size=8,return_beams=true"
  t2t_ext-decoder --output_dir=RUN --score_file=pairs.tsv --decode_to_file=scores.tsv
  t2t_ext-decoder --output_dir=RUN,OTHER --decode_from_file=in.txt --alignment_file=in.align
  t2t_ext-decoder --output_dir=RUN --decode_from_file=images.npz --decode_to_file=captions.txt
  cat in.txt | t2t_ext-decoder --output_dir=RUN --decode_from_file=- > out.txt
"""
_FLAGS: FlagTable = {
    "Input (one of these)": {
        "decode_from_file=FILE": "Lines to translate; - is standard input. Of a run that reads feature vectors, .npz, "
        ".npy, .tsv or a folder (docs/captioning.md).",
        "split=NAME": "Translate dev or a test set of the run's data and score it.",
        "score_file=FILE": "Lines 'source TAB target' to score instead of translating; for a model that generates in "
        "both directions 'source TAB target TAB partner', the partner being what the other direction generates, in "
        "text order.",
        "prefix_file=FILE": "How translations begin: a line for each line of the input, an empty one for none; "
        "whitespace at its end says that the last word is complete.",
        "constraints_file=FILE": "Phrases that translations must hold: a line for each line of the input, phrases "
        "separated by tabs, an empty line for none.",
        "source_tag=<TAG>": "Tag of --train_tags that every line begins with, in place of one that it has; where not "
        "given, lines without any get --default_tag of the data.",
        "decode_interactive": "Translate what is typed; q or Ctrl-D leaves.",
    },
    "Output": {
        "decode_to_file=FILE": "Translations (or scores), line by line; - is standard output. Where not given, a name "
        "made from the input's and the settings.",
        "nbest_file=FILE": "All translations kept by the search with log-probability, length and score, one JSON "
        "object a line.",
        "alignment_file=FILE": "Word alignments of the translations from the model's attention, source-target pairs "
        "such as 0-0 2-1; a line for each translation.",
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    tables = RUN_FLAGS, _FLAGS, ALIGNMENT_FLAGS, SCORE_FLAGS, DECODE_FLAGS, thread_flags(many_batches=True)
    return FlagParser("t2t_ext-decoder", "Translates with a trained run.", *tables, examples=_EXAMPLES)


@command(build_parser)
def main(flags: argparse.Namespace) -> None:
    """Translates or scores as the flags say."""
    mode = _mode(flags)
    run = _Run(flags)
    # Everything that the user can have got wrong is found before TensorFlow starts and the model is loaded.
    if mode == "decode_interactive":
        _interactive(run)
    elif mode == "score_file":
        _score_pairs(run, flags)
    else:
        name, lines, references = chosen_text(flags, run.text)
        output = flags.decode_to_file
        if mode == "decode_from_file":
            output = output or run.default_output(flags.decode_from_file)
        guides: dict[str, Any] = {}
        for guide, path in (("prefixes", flags.prefix_file), ("constraints", flags.constraints_file)):
            if path:
                found = text_lines.read(path)
                advice = f"Give {guide} for each line of the input, an empty line for none."
                text_lines.check_as_many(text_lines.TextLines(name, lines), found, advice)
                guides[guide] = found.lines
        if flags.constraints_file:
            guides["constraints"] = [line.split("\t") for line in guides["constraints"]]
        _translate(run, flags, run.text.tagged(lines), references, output, guides)


def _mode(flags: argparse.Namespace) -> str:
    """Returns which of the input flags is given, and checks the flags that go with it."""
    modes = [name for name in _MODES if getattr(flags, name)]
    if len(modes) != 1:
        every = ", ".join(f"--{name}" for name in _MODES)
        problem = "nothing to do" if not modes else f"{' and '.join(f'--{name}' for name in modes)} exclude each other"
        raise UserError(f"{problem}: give one of {every}.")
    mode = modes[0]
    for name, allowed in _GOES_WITH.items():
        if getattr(flags, name) and mode not in allowed:
            raise UserError(f"--{name} goes with {' or '.join(f'--{each}' for each in allowed)}, not --{mode}.")
    check_scoring(flags)
    check_files(flags, _INPUTS, (flags.decode_to_file, flags.nbest_file, flags.alignment_file))
    if flags.alignment_file == STANDARD:
        raise UserError("--alignment_file=-: standard output is for translations and scores; give the name of a file.")
    for name in ("alignment_layer", "alignment_heads"):
        if name in flags.given and not flags.alignment_file:
            raise UserError(f"--{name} says how alignments are read; where to write them is --alignment_file=FILE.")
    return mode


class _Run:
    """The run that translates, or several; TensorFlow starts and models are loaded when ``translator`` is called."""

    def __init__(self, flags: argparse.Namespace) -> None:
        from t2t_ext.config.decode import resolve_decode_hparams
        from t2t_ext.data.datasets.shortlist import Shortlist
        from t2t_ext.runs.chosen_runs import choose_runs, normalized_weights

        self._flags = flags
        self.decode_hparams = resolve_decode_hparams(flags.decode_hparams)
        if flags.constraints_file:
            self.decode_hparams.check_constraints()
        self.written = self.decode_hparams.returned
        self._search = self.decode_hparams
        if flags.nbest_file and self.written == 1 and self._search.sampling_method == "argmax":
            self._search = self._search.replace(num_hypotheses=self._search.beam_size)
        self._chosen = choose_runs(flags.output_dir, flags.checkpoint_path or None, warn=log.warning)
        self._weights = normalized_weights(flags.ensemble_weights or None, len(self._chosen))
        self._alignment = alignment_settings(flags)
        self._directory = self._chosen[0].run
        hparams = self._directory.hparams()
        self.directions = directions_of(hparams)
        check_directions(self.decode_hparams, self.directions)
        if flags.prefix_file:
            check_prefixes(self.directions, hparams.target_direction)
        if flags.alignment_file and self.directions == 2 and not flags.score_file:
            refuse_one_side("alignment")
        if self.decode_hparams.shortlist:
            Shortlist.read(self.decode_hparams.shortlist, *self._directory.text_encoders())
        self.text = run_texts(self._directory, flags)
        if self._directory.config.source_feature_size:
            for name in ("score_file", "decode_interactive", "alignment_file", "source_tag"):
                if getattr(flags, name):
                    self._directory.require_text(f"--{name}")

    def translator(self) -> "Translator":
        """Returns the Translator of the run or of the ensemble."""
        start_tensorflow(self._flags.inter_op_parallelism_threads, self._flags.intra_op_parallelism_threads)
        from t2t_ext.translation.alignment import AlignmentConfig
        from t2t_ext.translation.translator import Translator

        translator = Translator.of_runs(
            self._chosen, self._search, ensemble_weights=self._weights, alignment=AlignmentConfig(**self._alignment)
        )
        if self._flags.alignment_file:
            translator.check_alignment(with_partners=bool(self._flags.score_file))
        return translator

    def default_output(self, source: str) -> str:
        """Returns the name of the output file, made as T2T makes it."""
        from t2t_ext.translation.hypothesis import output_name

        if source == STANDARD:
            return STANDARD
        path = output_name(source, self._directory.config, self._search, len(self._chosen))
        outputs.check(path)
        return path


def _translate(
    run: _Run,
    flags: argparse.Namespace,
    lines: list[Any],
    references: list[list[str]],
    output: str,
    guides: dict[str, Any],
) -> None:
    """Translates lines, writes the translations where asked, and prints scores where there are references."""
    from t2t_ext.translation.hypothesis import hypothesis_record, nbest_lines, output_line

    translator = run.translator()
    started = time.monotonic()
    with running_total("Translating", len(lines), "lines") as update:
        results = translator.translate(lines, update, **guides)
    seconds = time.monotonic() - started
    report_truncated_lines(translator)
    for numbers, what in (
        (
            translator.unmet_prefix_line_numbers,
            "the length limit or a character outside the vocabulary left only a part of the prefix",
        ),
        (
            translator.unmet_constraint_line_numbers,
            "--constraints_file: not all phrases are in the translation, up to the length limit",
        ),
    ):
        if numbers:
            log.warning(f"{what}: {text_lines.count_lines(numbers)}")
    alignments: list[list[str]] = []
    if flags.alignment_file:
        with running_total("Aligning", sum(map(len, results)), "translations") as update:
            alignments = translator.align_hypotheses(lines, results, update)
        written = itertools.chain.from_iterable(each[: run.written] for each in alignments)
        text_lines.write(flags.alignment_file, written)
    if flags.nbest_file:
        no_alignments = itertools.repeat(itertools.repeat(None))
        records = (
            [
                hypothesis_record(hypothesis, alignment, with_direction=translator.two_sided)
                for hypothesis, alignment in zip(hypotheses, aligned, strict=False)
            ]
            for hypotheses, aligned in zip(results, alignments or no_alignments, strict=False)
        )
        text_lines.write(flags.nbest_file, nbest_lines(lines, records))
    if output:
        text_lines.write(output, (output_line(hypotheses, run.decode_hparams) for hypotheses in results))
    report_speed("Translated", len(lines), seconds, output)
    best = [hypotheses[0] for hypotheses in results]
    if translator.two_sided:
        log.info(shown_shares(direction_shares(best)))
    if references:
        for score in run.text.scores(best, references, translator.target_encoder):
            print(score, file=sys.stderr if output == STANDARD else sys.stdout, flush=True)


def _score_pairs(run: _Run, flags: argparse.Namespace) -> None:
    """Writes ``log-probability TAB tokens TAB penalized score`` for each pair of lines."""
    from t2t_ext.translation.hypothesis import parse_pairs

    read = text_lines.read(flags.score_file)
    sources, targets, sides = parse_pairs(read.name, read.lines, run.directions)
    pairs = list(zip(run.text.tagged(sources), targets, strict=True))
    translator = run.translator()
    with running_total("Scoring", len(pairs), "pairs") as update:
        results = translator.score(pairs, update, **sides)
    report_truncated_lines(translator)
    if flags.alignment_file:
        with running_total("Aligning", len(pairs), "pairs") as update:
            alignments = translator.align(pairs, update, **sides)
        text_lines.write(flags.alignment_file, alignments)
    scores = (f"{row.log_prob:.6f}\t{row.length}\t{row.score:.6f}" for row in results)
    text_lines.write(flags.decode_to_file or STANDARD, scores)


def _interactive(run: _Run) -> None:
    """Translates lines as they come: the best, or all that ``return_beams`` or ``num_hypotheses`` ask for."""
    translator = run.translator()
    for line in text_lines.typed_lines():
        (hypotheses,) = translator.translate(run.text.tagged([line]))
        report_truncated_lines(translator)
        if len(hypotheses) == 1 and not run.decode_hparams.write_beam_scores:
            text_lines.write(STANDARD, [one_line(hypotheses[0].text)])
        else:
            text_lines.write(STANDARD, (f"{each.score:.4f}\t{one_line(each.text)}" for each in hypotheses))


if __name__ == "__main__":
    raise SystemExit(main())
