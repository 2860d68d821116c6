"""t2t_ext-decoder: translates files, a split of the data, or what is typed, with a trained run."""

import argparse
import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from t2t_ext.bin import _text_lines
from t2t_ext.bin._flag_groups import (
    add_alignment_flags,
    add_decode_flags,
    add_run_flags,
    add_thread_flags,
    alignment_settings,
    ensemble_weights,
)
from t2t_ext.bin._flags import FlagParser, add_flag, at_least, run_main, start_tensorflow
from t2t_ext.bin._text_lines import STANDARD, one_line
from t2t_ext.errors import UserError

_MODES = ("decode_from_file", "split", "score_file", "decode_interactive")
_INPUTS = ("decode_from_file", "score_file", "prefix_file", "constraints_file", "decode_reference")
_EXAMPLES = """\
  t2t_ext-decoder --output_dir=RUN --decode_from_file=in.txt --decode_to_file=out.txt --decode_reference=ref.txt
  t2t_ext-decoder --output_dir=RUN --split=test --checkpoint_path=averaged
  t2t_ext-decoder --output_dir=RUN --decode_from_file=in.txt --decode_hparams="beam_size=8,return_beams=true"
  t2t_ext-decoder --output_dir=RUN --score_file=pairs.tsv --decode_to_file=scores.tsv
  t2t_ext-decoder --output_dir=RUN,OTHER --decode_from_file=in.txt --alignment_file=in.align
  cat in.txt | t2t_ext-decoder --output_dir=RUN --decode_from_file=- > out.txt
"""


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser("t2t_ext-decoder", "Translates with a trained run.", examples=_EXAMPLES)
    add_run_flags(parser)
    _add_input_flags(parser)
    group = parser.group("Output")
    add_flag(
        group,
        "decode_to_file",
        "",
        "Translations (or scores), line by line; - is standard output. Where not given, a name made from the input's "
        "and the settings.",
        metavar="FILE",
    )
    add_flag(
        group,
        "nbest_file",
        "",
        "All translations kept by the search with log-probability, length and score, one JSON object a line.",
        metavar="FILE",
    )
    add_flag(
        group,
        "alignment_file",
        "",
        "Word alignments of the translations from the model's attention, source-target pairs such as 0-0 2-1; a line "
        "for each translation.",
        metavar="FILE",
    )
    add_alignment_flags(parser)
    _add_score_flags(parser)
    add_decode_flags(parser)
    add_thread_flags(parser, many_batches=True)
    return parser


def _add_input_flags(parser: FlagParser) -> None:
    group = parser.group("Input (one of these)")
    add_flag(group, "decode_from_file", "", "Lines to translate; - is standard input.", metavar="FILE")
    add_flag(group, "split", "", "Translate dev or a test set of the run's data and score it.", metavar="NAME")
    add_flag(group, "score_file", "", "Lines 'source TAB target' to score instead of translating.", metavar="FILE")
    add_flag(
        group,
        "prefix_file",
        "",
        "How translations begin: a line for each line of the input, an empty one for none; a blank at its end says "
        "that the last word is complete.",
        metavar="FILE",
    )
    add_flag(
        group,
        "constraints_file",
        "",
        "Phrases that translations must hold: a line for each line of the input, phrases separated by tabs, an empty "
        "line for none.",
        metavar="FILE",
    )
    add_flag(
        group,
        "source_tag",
        "",
        "Tag of --train_tags that every line begins with, in place of one that it has; where not given, lines without "
        "any get --default_tag of the data.",
        metavar="<TAG>",
    )
    add_flag(group, "decode_interactive", False, "Translate what is typed; q or Ctrl-D leaves.")


def _add_score_flags(parser: FlagParser) -> None:
    group = parser.group("Scores")
    add_flag(
        group,
        "decode_reference",
        "",
        "References of --decode_from_file, as people read them: scores are printed.",
        metavar="FILE[,FILE]",
    )
    add_flag(
        group,
        "scoring",
        "",
        "Protocols that score, such as multi_bleu,chrf; where not given, the problem's own, chrf and ter. Those for "
        "tokenised text score what the model wrote, the others what --decode_to_file gets.",
        metavar="NAME[,NAME]",
    )
    add_flag(
        group,
        "n_bootstrap",
        0,
        "Bootstrap samples for 95% confidence intervals of the scores, 1000 is usual; 0 = none.",
        kind=at_least(0),
        metavar="N",
    )
    add_flag(group, "tokenize", "", "BLEU's tokenizer; where not given, that of the target language.", metavar="NAME")
    add_flag(group, "data_dir", "", "Data of --split, where they have moved since training.", metavar="DIR")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_main(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> None:
    flags = build_parser().parse_args(argv)
    mode = _mode(flags)
    run = _Run(flags)
    # Everything that the user can have got wrong is found before TensorFlow starts and the model is loaded.
    if mode == "decode_interactive":
        _interactive(run)
    elif mode == "score_file":
        _score_pairs(run, flags.score_file, flags.decode_to_file or STANDARD)
    elif mode == "split":
        sources, references = run.split(flags.split)
        sources = run.tagged(sources)
        guides = _guides(flags, "split", sources)
        _translate(run, sources, references, flags.decode_to_file, guides)
    else:
        source = _text_lines.read(flags.decode_from_file)
        references = _references(flags.decode_reference, source)
        output = flags.decode_to_file or run.default_output(flags.decode_from_file)
        _translate(run, run.tagged(source.lines), references, output, _guides(flags, source.name, source.lines))


def _mode(flags: argparse.Namespace) -> str:
    """Returns which of the input flags is given, and checks the flags that go with it."""
    modes = [name for name in _MODES if getattr(flags, name)]
    if len(modes) != 1:
        every = ", ".join(f"--{name}" for name in _MODES)
        problem = "nothing to do" if not modes else f"{' and '.join(f'--{name}' for name in modes)} exclude each other"
        raise UserError(f"{problem}: give one of {every}.")
    mode = modes[0]
    allowed = {
        "decode_reference": ("decode_from_file",),
        "nbest_file": ("decode_from_file", "split"),
        "alignment_file": ("decode_from_file", "split", "score_file"),
        "decode_to_file": ("decode_from_file", "split", "score_file"),
        "prefix_file": ("decode_from_file", "split"),
        "constraints_file": ("decode_from_file", "split"),
        "data_dir": ("split",),
    }
    for name, modes_of_flag in allowed.items():
        if getattr(flags, name) and mode not in modes_of_flag:
            raise UserError(f"--{name} goes with {' or '.join(f'--{each}' for each in modes_of_flag)}, not --{mode}.")
    _check_scoring(flags)
    _check_files(flags)
    if flags.alignment_file == STANDARD:
        raise UserError("--alignment_file=-: standard output is for translations and scores; give the name of a file.")
    for name in ("alignment_layer", "alignment_heads"):
        if name in flags.given and not flags.alignment_file:
            raise UserError(f"--{name} says how alignments are read; where to write them is --alignment_file=FILE.")
    return mode


def _check_scoring(flags: argparse.Namespace) -> None:
    """Checks the names of protocols and tokenizers before hours of work go into what they would score."""
    if flags.scoring:
        from t2t_ext.evaluation import protocols

        for name in _scoring(flags.scoring):
            protocols.protocol(name)
    if flags.n_bootstrap == 1:
        raise UserError("--n_bootstrap=1: an interval needs more samples; 1000 is usual, 0 is for none.")
    if flags.tokenize:
        from t2t_ext.evaluation import scores

        if flags.scoring:
            raise UserError("--tokenize chooses the tokenizer of sacrebleu's BLEU, --scoring protocols; give one.")
        scores.check_tokenizer(flags.tokenize)


def _scoring(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _check_files(flags: argparse.Namespace) -> None:
    """Checks that outputs can be written, none over another, and that standard input is read once."""
    outputs = [path for path in (flags.decode_to_file, flags.nbest_file, flags.alignment_file) if path]
    for path in outputs:
        _text_lines.check_output(path)
    twice = [path for path in outputs if outputs.count(path) > 1]
    if twice:
        raise UserError(f"{twice[0]} is given for two outputs: give each of them a file of its own.")
    inputs = [f"--{name}" for name in _INPUTS if getattr(flags, name) == STANDARD]
    if len(inputs) > 1:
        raise UserError(f"{' and '.join(inputs)} cannot both be standard input: give files for all but one.")


class _Run:
    """The run that translates, or several; TensorFlow starts and models are loaded when ``translator`` is called."""

    def __init__(self, flags: argparse.Namespace) -> None:
        from t2t_ext.hyperparameters import resolve_decode_hparams
        from t2t_ext.persistence.chosen_runs import choose_runs

        self._flags = flags
        self.nbest_file, self.alignment_file = flags.nbest_file, flags.alignment_file
        self.decode_hparams = resolve_decode_hparams(flags.decode_hparams)
        if flags.constraints_file:
            self.decode_hparams.check_constraints()
        self._written = self.decode_hparams.beam_size if self.decode_hparams.return_beams else 0
        self._written = self._written or self.decode_hparams.num_hypotheses
        if flags.nbest_file and self._written == 1 and self.decode_hparams.sampling_method == "argmax":
            self.decode_hparams = self.decode_hparams.replace(num_hypotheses=self.decode_hparams.beam_size)
        self._chosen = choose_runs(flags.output_dir, flags.checkpoint_path or None, warn=_text_lines.warn)
        self._weights = ensemble_weights(flags, len(self._chosen))
        self._alignment = alignment_settings(flags)
        self._directory = self._chosen[0].run

    def translator(self) -> Any:
        """Returns the Translator of the run or of the ensemble."""
        start_tensorflow(self._flags.inter_op_parallelism_threads, self._flags.intra_op_parallelism_threads)
        from t2t_ext.decoding.alignment import AlignmentConfig
        from t2t_ext.decoding.translator import Translator

        translator = Translator.load(
            [each.run.path for each in self._chosen],
            [each.checkpoint for each in self._chosen],
            self.decode_hparams,
            ensemble_weights=self._weights,
            alignment=AlignmentConfig(**self._alignment),
        )
        if self.alignment_file:
            translator.check_alignment()
        return translator

    def split(self, split: str) -> tuple[list[str], list[list[str]]]:
        """Returns the sources and the sets of references of a split of the run's data."""
        from t2t_ext.data.generated import GeneratedData

        config = self._directory.config
        try:
            data = GeneratedData.open(self._problem(), self._flags.data_dir or config.data_dir)
        except UserError as error:
            if self._flags.data_dir:
                raise
            raise UserError(f"{error} If the data have moved, give --data_dir=DIR.") from error
        if data.digest() != config.data_digest:
            _text_lines.warn(f"the data in {data.data_dir} are not those that the run was trained on")
        return data.texts(split)

    def tagged(self, lines: list[str]) -> list[str]:
        """Returns lines with the tag of the corpus that they are to be translated as, where the data have tags.

        Raises:
          UserError: The data have no such tag as ``--source_tag``.
        """
        from t2t_ext.data import corpora

        tags, default_tag = self._tags
        return corpora.tagged(lines, tags, tag=self._flags.source_tag, default_tag=default_tag)

    @functools.cached_property
    def _tags(self) -> tuple[Sequence[str], str]:
        """The tags that sources may begin with, and the one of text that has none."""
        try:
            problem = self._problem()
        except UserError as error:
            if self._flags.source_tag:
                raise
            _text_lines.warn(f"the run's problem cannot be made, so no line gets a tag: {error}")
            return (), ""
        return problem.tags, problem.default_tag

    def default_output(self, source: str) -> str:
        """Returns the name of the output file, made as T2T makes it."""
        if source == STANDARD:
            return STANDARD
        config, hparams = self._directory.config, self.decode_hparams
        search = f"beam{hparams.beam_size}.alpha{hparams.alpha}"
        if hparams.sampling_method == "random":
            search = f"sample{hparams.sampling_seed}.temp{hparams.sampling_temp}"
        settings = f"{config.model}.{config.hparams_set}.{config.problem}.{search}"
        if len(self._chosen) > 1:
            settings += f".ensemble{len(self._chosen)}"
        path = f"{source}.{settings}.decodes"
        _text_lines.check_output(path)
        return path

    def scores(self, hypotheses: list[Any], references: list[list[str]], encoder: Any) -> Iterator[str]:
        """Yields lines that report scores of the best hypotheses, each when it is known; warns of odd texts."""
        from t2t_ext.evaluation import protocols, scores
        from t2t_ext.evaluation.scorer import Scorer

        flags, problem = self._flags, self._problem()
        if flags.tokenize:
            texts = [hypothesis.text for hypothesis in hypotheses]
            yield str(scores.corpus_bleu(texts, references, tokenize=flags.tokenize, n_bootstrap=flags.n_bootstrap))
            return
        own = getattr(problem, "scoring", protocols.DEFAULT)
        names = _scoring(flags.scoring) or list(dict.fromkeys((own, "chrf", "ter")))
        language = getattr(problem, "target_language", "")
        for name in names:
            scorer = Scorer([name], references, encoder, language=language, n_bootstrap=flags.n_bootstrap)
            found = scorer.scores(hypotheses)
            for doubt in scorer.doubts:
                _text_lines.warn(doubt)
            yield from map(str, found)

    def output_line(self, hypotheses: Sequence[Any]) -> str:
        """Returns the line of the output file for the hypotheses of a line, as the decode hparams say."""
        if not hypotheses[0].length:
            return ""  # nothing was there to translate: an empty line stays one, also among n-best lists
        with_scores = self.decode_hparams.write_beam_scores
        if self._written == 1 and not with_scores:
            return one_line(hypotheses[0].text)
        columns: list[str] = []
        for hypothesis in hypotheses[: self._written]:
            columns.append(one_line(hypothesis.text, tabs=False))
            columns.extend([f"{hypothesis.score:.4f}"] if with_scores else [])
        return "\t".join(columns)

    def alignment_lines(self, alignments: Sequence[Sequence[str]]) -> Iterator[str]:
        """Yields the lines of the alignment file: those of the hypotheses that the output file has."""
        for lines in alignments:
            yield from lines[: self._written]

    def _problem(self) -> Any:
        from t2t_ext import registry

        self._directory.load_user_code()
        return registry.problem(self._directory.config.problem, **self._directory.config.problem_options)


def _references(paths: str, source: _text_lines.TextLines) -> list[list[str]]:
    """Reads ``--decode_reference``; as many lines as the source in each file."""
    references = [_text_lines.read(path) for path in paths.split(",")] if paths else []
    for reference in references:
        if len(reference.lines) != len(source.lines):
            raise UserError(
                f"Unequal numbers of lines: {len(source.lines)} in {source.name}, {len(reference.lines)} in "
                f"{reference.name}. The reference must have one line for each line of the input."
            )
    if references and not source.lines:
        raise UserError(f"{source.name} is empty: there is nothing to score.")
    return [reference.lines for reference in references]


def _parallel(path: str, source: str, lines: list[str], what: str) -> list[str] | None:
    """Reads a file that has a line for each line of the input; None where the path is empty."""
    if not path:
        return None
    found = _text_lines.read(path)
    if len(found.lines) != len(lines):
        raise UserError(
            f"Unequal numbers of lines: {len(lines)} in {source}, {len(found.lines)} {what} in {found.name}. Give a "
            "line for each line of the input, an empty one for none."
        )
    return found.lines


def _guides(flags: argparse.Namespace, source: str, lines: list[str]) -> dict[str, Any]:
    """Reads what translations must begin with and hold; the arguments of ``Translator.translate``."""
    constraints = _parallel(flags.constraints_file, source, lines, "lines of constraints")
    return {
        "prefixes": _parallel(flags.prefix_file, source, lines, "prefixes"),
        "constraints": constraints and [line.split("\t") for line in constraints],
    }


def _translate(run: _Run, lines: list[str], references: list[list[str]], output: str, guides: dict[str, Any]) -> None:
    """Translates lines, writes the translations where asked, and prints scores where there are references."""
    translator = run.translator()
    started = time.monotonic()
    with _progress("Translating", len(lines), "lines") as update:
        results = translator.translate(lines, update, **guides)
    seconds = time.monotonic() - started
    _report_cut_lines(translator)
    if translator.unmet_prefix_line_numbers:
        unmet = _text_lines.count_lines(translator.unmet_prefix_line_numbers)
        _text_lines.warn(
            f"the length limit or a character outside the vocabulary left only a part of the prefix: {unmet}"
        )
    if translator.unmet_constraint_line_numbers:
        unmet = _text_lines.count_lines(translator.unmet_constraint_line_numbers)
        _text_lines.warn(f"--constraints_file: not all phrases are in the translation, up to the length limit: {unmet}")
    alignments: list[list[str]] = [[]] * len(lines)
    if run.alignment_file:
        with _progress("Aligning", len(lines), "lines") as update:
            alignments = translator.align_hypotheses(lines, results, update)
        _text_lines.write(run.alignment_file, run.alignment_lines(alignments))
    if run.nbest_file:
        _text_lines.write(run.nbest_file, map(_json_line, range(1, len(lines) + 1), lines, results, alignments))
    if output:
        _text_lines.write(output, map(run.output_line, results))
    where = f" -> {output}" if output not in ("", STANDARD) else ""
    rate = len(lines) / max(seconds, 1e-3)
    print(f"Translated {len(lines):,} lines in {seconds:.1f} s ({rate:,.1f} lines/s){where}", file=sys.stderr)
    if references:
        for line in run.scores([hypotheses[0] for hypotheses in results], references, translator.target_encoder):
            print(line, file=sys.stderr if output == STANDARD else sys.stdout, flush=True)


def _json_line(number: int, source: str, hypotheses: Sequence[Any], alignments: Sequence[str]) -> str:
    """Returns the hypotheses of a line as JSON, with their alignments where there are any."""
    record = {
        "line": number,
        "source": source,
        "hypotheses": [
            {
                "text": hypothesis.text,
                **({} if hypothesis.prepared == hypothesis.text else {"prepared": hypothesis.prepared}),
                "log_prob": hypothesis.log_prob,
                "length": hypothesis.length,
                "score": hypothesis.score,
                "finished": hypothesis.finished,
            }
            for hypothesis in hypotheses
        ],
    }
    for hypothesis, alignment in zip(record["hypotheses"], alignments, strict=False):  # no alignment, or one each
        hypothesis["alignment"] = alignment
    for entry, hypothesis in zip(record["hypotheses"], hypotheses, strict=True):
        if hypothesis.unmet_constraints is not None:
            entry["unmet_constraints"] = hypothesis.unmet_constraints
    return json.dumps(record, ensure_ascii=False)


def _score_pairs(run: _Run, path: str, output: str) -> None:
    """Writes ``log-probability TAB tokens TAB penalised score`` for each pair of lines."""
    source = _text_lines.read(path)
    pairs = []
    for number, line in enumerate(source.lines, start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise UserError(
                f"{source.name}, line {number}: {len(columns)} tab-separated columns where 'source TAB target' are 2."
            )
        pairs.append((columns[0], columns[1]))
    tagged = run.tagged([source for source, _ in pairs])
    pairs = [(source, target) for source, (_, target) in zip(tagged, pairs, strict=True)]
    translator = run.translator()
    with _progress("Scoring", len(pairs), "pairs") as update:
        results = translator.score(pairs, update)
    _report_cut_lines(translator)
    if run.alignment_file:
        with _progress("Aligning", len(pairs), "pairs") as update:
            alignments = translator.align(pairs, update)
        _text_lines.write(run.alignment_file, alignments)
    _text_lines.write(output, (f"{row.log_prob:.6f}\t{row.length}\t{row.score:.6f}" for row in results))


def _interactive(run: _Run) -> None:
    """Translates lines as they come: the best, or all that ``return_beams`` or ``num_hypotheses`` ask for."""
    translator = run.translator()
    for line in _text_lines.typed_lines():
        (hypotheses,) = translator.translate(run.tagged([line]))
        _report_cut_lines(translator)
        if len(hypotheses) == 1 and not run.decode_hparams.write_beam_scores:
            _text_lines.write(STANDARD, [one_line(hypotheses[0].text)])
        else:
            _text_lines.write(STANDARD, (f"{each.score:.4f}\t{one_line(each.text)}" for each in hypotheses))


def _report_cut_lines(translator: Any) -> None:
    if translator.truncated_lines:
        limit = translator.decode_hparams.max_input_length
        _text_lines.warn(
            f"cut at max_input_length={limit} subwords: {_text_lines.count_lines(translator.truncated_line_numbers)}"
        )


@contextlib.contextmanager
def _progress(description: str, total: int, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Shows progress on standard error; yields what the Translator calls with (done, total)."""
    from t2t_ext.data.progress import progress

    done = 0
    with progress(description, total, unit) as advance:

        def update(now: int, total: int) -> None:
            nonlocal done
            advance(now - done)
            done = now

        yield update


if __name__ == "__main__":
    raise SystemExit(main())
