"""t2t_ext-decoder: translates files, a split of the data, or typed lines with a trained run."""

import argparse
import collections
import contextlib
import dataclasses
import itertools
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from t2t_ext.bin._flag_groups import ALIGNMENT_FLAGS, DECODE_FLAGS, RUN_FLAGS, alignment_settings, thread_flags
from t2t_ext.bin._flags import FlagParser, FlagTable, command, start_tensorflow
from t2t_ext.bin._run_text import (
    SCORE_FLAGS,
    check_files,
    check_names_output,
    check_scoring,
    check_shortlist,
    chosen_text,
    keep_runs,
    report_speed,
    report_truncated_lines,
    run_texts,
)
from t2t_ext.data.corpora import text_lines
from t2t_ext.data.corpora.text_lines import STANDARD, one_line
from t2t_ext.errors import UserError
from t2t_ext.io import files, inputs, log, outputs
from t2t_ext.io.progress import running_total
from t2t_ext.pages import page
from t2t_ext.search.directions import (
    check_directions,
    check_prefixes,
    count_winners,
    directions_of,
    refuse_one_side,
    shares_of,
    shown_shares,
)

if TYPE_CHECKING:
    from t2t_ext.translation.hypothesis import Hypothesis
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
_SCORE_SETTINGS = ("alpha", "length_penalty", "batch_size", "max_input_length", "precision")
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
        "decode_from_file=FILE": "File of lines to translate; - = standard input. For a run that reads feature "
        f"vectors, a .npz, .npy or .tsv file or a folder; for the contents see {page('captioning')}.",
        "split=NAME": "Translate dev or a test set of the run's data and score it.",
        "score_file=FILE": "File of lines 'source TAB target' to score instead of translating: writes log-probability, "
        "tokens (EOS included) and score, separated by tabs, one line per pair. For a model that generates in both "
        "directions, lines are 'source TAB target TAB partner': the partner is what the other direction generates, in "
        "text order, and a fourth column l2r (the default) or r2l gives the direction of the target.",
        "decode_interactive": "Translate what is typed; q or Ctrl-D leaves.",
    },
    "With the input": {
        "prefix_file=FILE": "File of prefixes that translations begin with: one line per input line, an empty line for "
        "none. Whitespace at the end of a prefix means that its last word is complete.",
        "constraints_file=FILE": "File of phrases that translations must contain: one line per input line, with "
        "phrases separated by tabs, an empty line for none.",
        "source_tag=<TAG>": "Tag from --train_tags to put before every line, replacing a tag that it has; default: "
        "lines without a tag get the --default_tag of the data.",
    },
    "Output": {
        "decode_to_file=FILE": "Output file of translations (or scores), line by line; - = standard output. Default "
        "for --decode_from_file: a name made from the input's name and the settings.",
        "nbest_file=FILE": "File for all translations kept by the search, with log-probability, length and score, one "
        "JSON object per line.",
        "alignment_file=FILE": "File for word alignments of the translations, read from the model's attention, as "
        "source-target pairs such as 0-0 2-1; one line per translation.",
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
    # Finds all user errors before TensorFlow starts and the model is loaded.
    if mode == "decode_interactive":
        _interactive(run)
    elif mode == "score_file":
        _score_pairs(run, flags)
    else:
        output = flags.decode_to_file
        source = _source(run, flags)
        if mode == "decode_from_file":
            output = output or run.default_output(flags.decode_from_file)
        _translate(run, flags, source, output)


def _mode(flags: argparse.Namespace) -> str:
    """Returns the name of the input flag that is given, and checks the flags that go with it."""
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
    """The run or runs that translate; TensorFlow starts and models are loaded when ``translator`` is called."""

    def __init__(self, flags: argparse.Namespace) -> None:
        from t2t_ext.config.decode import resolve_decode_hparams
        from t2t_ext.config.strict_params import FLAG
        from t2t_ext.runs.chosen_runs import choose_runs, normalized_weights

        self._flags = flags
        self.decode_hparams = resolve_decode_hparams(flags.decode_hparams)
        if flags.constraints_file:
            self.decode_hparams.check_constraints()
        self.written = self.decode_hparams.returned
        self._search = self.decode_hparams
        is_asked_for = self._search.origins()["num_hypotheses"] == FLAG
        if flags.nbest_file and self.written == 1 and not is_asked_for and self._search.sampling_method == "argmax":
            self._search = self._search.replace(num_hypotheses=self._search.beam_size)
        self._chosen = choose_runs(flags.output_dir, flags.checkpoint_path or None, warn=log.warning)
        keep_runs([each.run for each in self._chosen], (flags.decode_to_file, flags.nbest_file, flags.alignment_file))
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
        check_shortlist(self._directory, self.decode_hparams)
        self.text = run_texts(self._directory, flags)
        self.reads_features = bool(self._directory.config.source_feature_size)
        if self.reads_features:
            for name in ("score_file", "decode_interactive", "alignment_file", "source_tag"):
                if getattr(flags, name):
                    instead = "Leave it out; the input is --split=NAME, or --decode_from_file=FILE (feature vectors)."
                    self._directory.require_text(f"--{name}", instead)

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
        """Returns the default name of the output file, formed as in T2T, after checking the outputs."""
        from t2t_ext.translation.hypothesis import output_name

        path = STANDARD
        if source != STANDARD:
            check_names_output(source)
            path = output_name(
                source,
                self._directory.config,
                self.decode_hparams,
                len(self._chosen),
                self._flags.checkpoint_path,
                self._other_settings(),
            )
        outputs.check_all([path, self._flags.nbest_file, self._flags.alignment_file], [source])
        return path

    def _other_settings(self) -> dict[str, Any]:
        """Returns the other given settings that translations depend on, ready for JSON; files by their SHA-256."""
        flags = self._flags
        found: dict[str, Any] = {}
        runs = [str(each.run.path.resolve()) for each in self._chosen]
        if len(set(runs)) > 1:
            found["runs"] = runs
        if flags.ensemble_weights:
            found["ensemble_weights"] = self._weights
        if flags.source_tag:
            found["source_tag"] = flags.source_tag
        for name in ("prefix_file", "constraints_file"):
            if path := getattr(flags, name):
                path = inputs.keep_standard_input() if path == STANDARD else inputs.on_disk(pathlib.Path(path))
                found[name] = files.sha256_of_file(path)
        return found


@dataclasses.dataclass
class _Source:
    """The text to translate.

    Attributes:
      lines: The lines, or sources of feature vectors.
      count: How many there are; None if that is not known before the end.
      references: Sets of references.
      guides: Prefixes and constraints for ``Translator.translate``.
    """

    lines: Iterable[Any]
    count: int | None
    references: Sequence[Iterable[str]] = ()
    guides: dict[str, Iterable[Any]] = dataclasses.field(default_factory=dict)


def _source(run: _Run, flags: argparse.Namespace) -> _Source:
    """Returns the text that the flags ask to translate; files are checked before any model is loaded."""
    run.text.tagged([])  # raises an error if the tag is unknown
    path = flags.decode_from_file
    if path and not (flags.decode_reference or flags.prefix_file or flags.constraints_file or run.reads_features):
        return _Source(text_lines.stream(path), text_lines.count(path))
    name, lines, references = chosen_text(flags, run.text)
    guides: dict[str, Iterable[Any]] = {}
    for guide, path in (("prefixes", flags.prefix_file), ("constraints", flags.constraints_file)):
        if path:
            found = text_lines.stored(path)
            advice = f"Give {guide} for each line of the input, an empty line for none."
            text_lines.check_as_many(text_lines.TextLines(name, lines), found, advice)
            guides[guide] = found.lines
    if flags.constraints_file:
        guides["constraints"] = (line.split("\t") for line in guides["constraints"])
    return _Source(lines, len(lines), references, guides)


def _translate(run: _Run, flags: argparse.Namespace, source: _Source, output: str) -> None:
    """Translates lines, writes the translations to the files asked for, and prints scores if there are references.

    Lines are read, translated, written and scored window by window; only the counts for the scores are kept.
    """
    translator = run.translator()
    notes = _Notes()
    scorer = run.text.scorer(translator.target_encoder) if source.references else None
    references, guides = list(map(iter, source.references)), {name: iter(each) for name, each in source.guides.items()}
    winners: collections.Counter[tuple[str, int]] = collections.Counter()
    done, seconds = 0, 0.0
    what = "Translating and aligning" if flags.alignment_file else "Translating"
    with contextlib.ExitStack() as stack:
        add = stack.enter_context(_outputs(run, flags, output, translator))
        update = stack.enter_context(running_total(what, source.count, "lines"))
        for window in text_lines.windows(source.lines):
            lines = run.text.tagged(window)
            given = {name: list(itertools.islice(each, len(lines))) for name, each in guides.items()}

            def show(now: int, total: int, before: int = done) -> None:
                update(before + now, total)

            started = time.monotonic()
            results = translator.translate(lines, show, **given)
            seconds += time.monotonic() - started
            notes.add(translator, done)
            add(lines, results, done)
            done += len(lines)
            winners += count_winners(hypotheses[0] for hypotheses in results)
            if scorer:
                scorer.add([each[0] for each in results], [list(itertools.islice(s, len(lines))) for s in references])
    for each in (*references, *guides.values()):
        next(each, None)  # a file reports its problems at its end
    notes.report(translator)
    report_speed("Translated", done, seconds, output)
    if translator.two_sided:
        log.info(shown_shares(shares_of(winners)))
    if scorer:
        for score in run.text.scores(scorer):
            taken = any(map(outputs.is_standard, (output, flags.nbest_file)))
            print(score, file=sys.stderr if taken else sys.stdout, flush=True)


@contextlib.contextmanager
def _outputs(
    run: _Run, flags: argparse.Namespace, output: str, translator: "Translator"
) -> Iterator[Callable[[list[Any], list[list["Hypothesis"]], int], None]]:
    """Yields a function that writes (lines, hypotheses of each, number of earlier lines) to all files asked for.

    The files get their names together, at the end of the block.
    """
    from t2t_ext.translation.hypothesis import hypothesis_record, nbest_lines, output_line

    def records(results: list[list["Hypothesis"]], alignments: list[list[str]]) -> Iterator[list[dict[str, Any]]]:
        no_alignments = itertools.repeat(itertools.repeat(None))
        for hypotheses, aligned in zip(results, alignments or no_alignments, strict=False):
            yield [
                hypothesis_record(hypothesis, alignment, with_direction=translator.two_sided)
                for hypothesis, alignment in zip(hypotheses, aligned, strict=False)
            ]

    def add(lines: list[Any], results: list[list["Hypothesis"]], before: int) -> None:
        alignments: list[list[str]] = []
        if write_alignments:
            alignments = translator.align_hypotheses(lines, results)
            write_alignments(itertools.chain.from_iterable(each[: run.written] for each in alignments))
        if write_nbest:
            write_nbest(nbest_lines(lines, records(results, alignments), before + 1))
        if write_output:
            write_output(output_line(hypotheses, run.decode_hparams) for hypotheses in results)

    with text_lines.writers(output, flags.nbest_file, flags.alignment_file) as (
        write_output,
        write_nbest,
        write_alignments,
    ):
        yield add


class _Notes:
    """Collects the numbers of lines to warn of, over all windows."""

    def __init__(self) -> None:
        self._truncated, self._unmet_prefixes, self._unmet_constraints, self._untranslated, self._empty = (
            text_lines.LineNumbers() for _ in range(5)
        )

    def add(self, translator: "Translator", before: int) -> None:
        """Adds those of the translator's last call; ``before`` is the number of lines in earlier calls."""
        for noted, numbers in (
            (self._truncated, translator.truncated_line_numbers),
            (self._unmet_prefixes, translator.unmet_prefix_line_numbers),
            (self._unmet_constraints, translator.unmet_constraint_line_numbers),
            (self._untranslated, translator.untranslated_line_numbers),
            (self._empty, translator.empty_line_numbers),
        ):
            noted.add(before + number for number in numbers)

    def report(self, translator: "Translator") -> None:
        """Logs a warning for each kind of problem, with its lines."""
        from t2t_ext.translation.hypothesis import EMPTY_TRANSLATION, NO_TRANSLATION

        report_truncated_lines([translator], self._truncated)
        for noted, what in (
            (
                self._unmet_prefixes,
                "the length limit or a character outside the vocabulary left only a part of the prefix",
            ),
            (
                self._unmet_constraints,
                "--constraints_file: not all phrases are in the translation, up to the length limit",
            ),
            (self._untranslated, NO_TRANSLATION),
            (self._empty, EMPTY_TRANSLATION),
        ):
            if noted.count:
                log.warning(f"{what}: {noted}")


def _score_pairs(run: _Run, flags: argparse.Namespace) -> None:
    """Writes ``log-probability TAB tokens TAB penalized score`` for each pair of lines."""
    from t2t_ext.translation.hypothesis import parse_pairs

    read = text_lines.stored(flags.score_file)
    first = 1
    for window in text_lines.windows(read.lines):
        parse_pairs(read.name, window, run.directions, first)
        first += len(window)
    run.text.tagged([])  # raises an error if the tag is unknown
    if idle := [name for name in run.decode_hparams.changed() if name not in _SCORE_SETTINGS]:
        log.warning(f"--score_file searches for nothing: {', '.join(idle)} of --decode_hparams change no score")
    translator = run.translator()
    truncated, done = text_lines.LineNumbers(), 0
    what = "Scoring and aligning" if flags.alignment_file else "Scoring"
    paths = flags.decode_to_file or STANDARD, flags.alignment_file
    total = len(read.lines)
    with text_lines.writers(*paths) as (write, align), running_total(what, total, "pairs") as update:
        for window in text_lines.windows(read.lines):
            sources, targets, sides = parse_pairs(read.name, window, run.directions)
            pairs = list(zip(run.text.tagged(sources), targets, strict=True))

            def show(now: int, total: int, before: int = done) -> None:
                update(before + now, total)

            results = translator.score(pairs, show, **sides)
            truncated.add(done + number for number in translator.truncated_line_numbers)
            if write:
                write(f"{row.log_prob:.6f}\t{row.length}\t{row.score:.6f}" for row in results)
            if align:
                align(translator.align(pairs, None, **sides))
            done += len(window)
    report_truncated_lines([translator], truncated)


def _interactive(run: _Run) -> None:
    """Translates typed lines; prints the best translation, or all for ``return_beams`` or ``num_hypotheses``."""
    run.text.tagged([])  # raises an error if the tag is unknown
    translator = run.translator()
    for line in text_lines.typed_lines():
        (hypotheses,) = translator.translate(run.text.tagged([line]))
        notes = _Notes()
        notes.add(translator, 0)
        notes.report(translator)
        if len(hypotheses) == 1 and not run.decode_hparams.write_beam_scores:
            text_lines.write(STANDARD, [one_line(hypotheses[0].text)])
        else:
            text_lines.write(STANDARD, (f"{each.score:.4f}\t{one_line(each.text)}" for each in hypotheses))


if __name__ == "__main__":
    raise SystemExit(main())
