"""t2t_ext-compare: compares systems that translated the same text."""

import argparse
import itertools
import sys
from collections.abc import Iterator
from typing import Any

from t2t_ext.bin._flag_groups import USER_DIRECTORY
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command
from t2t_ext.config.languages import check_language
from t2t_ext.data.corpora import readers, text_lines
from t2t_ext.errors import UserError
from t2t_ext.evaluation import protocols, scored_files
from t2t_ext.evaluation.comparison import length_analysis, significance
from t2t_ext.io import log, outputs
from t2t_ext.reporting.report import as_json

_EXAMPLES = """\
  t2t_ext-compare --reference=ref.txt base.txt big.txt
  t2t_ext-compare --reference=ref0.txt,ref1.txt --source=src.txt --names=base,big base.txt big.txt --html=report.html
  t2t_ext-compare --reference=ref.tok --protocol=multi_bleu,ter --train_text=train.tok --json=out.json a.tok b.tok
  t2t_ext-compare --output_dir=RUN --split=test --names=l2r,both RUN/translations/test.beam4.alpha0.6 rerank.jsonl
"""
_FLAGS: FlagTable = {
    "Input": {
        "reference=FILE[,FILE]": "Reference, line by line, or SGML; several files give several references for each "
        "line.",
        "source=FILE": "Source, for lengths and for the sentences shown.",
        "output_dir=RUN": "Run whose data give references and source (see --split), instead of --reference and "
        "--source.",
        "split=NAME": "Split of that run's data that was translated.",
        "data_dir=DIR": "Data directory of that run, if the data have moved since training.",
        **USER_DIRECTORY,
        "names=A[,B]": "Names of the systems; default: the file names.",
        "train_text=FILE": "Target side of the training data, for word frequencies; default: the references.",
    },
    "Scores": {
        "protocol=NAME[,NAME]": Flag(f"Scoring protocols: any of {', '.join(protocols.PROTOCOLS)}.", "sacrebleu,chrf"),
        "language=TAG": "Target language, such as de or zh; selects sacrebleu's tokenizer. Default: that of the "
        "--output_dir data.",
        "n_bootstrap": Flag(
            "Number of samples for confidence intervals and the paired bootstrap test; default: "
            f"{significance.DEFAULT_RESAMPLES}, fewer for huge files.",
            None,
            minimum=2,
            maximum=100_000,
        ),
        "n_trials": Flag(
            f"Number of trials of approximate randomization; default: {significance.DEFAULT_TRIALS}, fewer for huge "
            "files.",
            None,
            minimum=1,
            maximum=1_000_000,
        ),
        "test_pairs": Flag(
            "Which systems to test against each other: all, or each against the baseline.",
            "all",
            choices=("all", "baseline"),
        ),
    },
    "Analyses": {
        "length_bins=N[,N]": Flag(
            "Source lengths at which a new bin begins.",
            ",".join(map(str, length_analysis.DEFAULT_EDGES)),
            kind=int,
            many=True,
        ),
        "length_unit": Flag("Unit of the source length.", "words", choices=("words", "subwords", "characters")),
        "subword_model=FILE": "Subword model of the source, for --length_unit=subwords.",
        "sentences": Flag("Number of differing sentences to show.", 20, minimum=0),
    },
    "Output": {
        "json=FILE": "Write everything as JSON.",
        "html=FILE": "Write one HTML page with figures, which needs no network.",
        "sheet=FILE": "Write a CSV sheet for people to count what is translated twice or not at all, with the systems "
        "hidden; FILE.key.csv says which translation is from which system.",
        "sheet_sentences": Flag("Number of sentences in the sheet.", 100, minimum=1),
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser(
        "t2t_ext-compare",
        "Compares systems that translated the same text: scores, paired tests, lengths, ends, words, sentences.",
        examples=_EXAMPLES,
    )
    parser.take_arguments(
        "translations",
        "Translations of the same text, one segment per line, n-best lists (.jsonl) or folders of "
        "t2t_ext-translate-all; the first one is the baseline. A single one is analyzed by itself.",
        metavar="FILE",
    )
    parser.add(_FLAGS)
    return parser


@command(build_parser)
def main(flags: argparse.Namespace) -> None:
    """Compares as the flags say."""
    from t2t_ext.evaluation.comparison import comparison as compare
    from t2t_ext.evaluation.comparison.report import build

    check_language(flags.language, "--language")
    _check_input(flags)
    settings = compare.Settings(
        protocols=[name.strip() for name in flags.protocol.split(",")],
        language=flags.language or _language_of_run(flags),
        resamples=flags.n_bootstrap,
        trials=flags.n_trials,
        length_bins=flags.length_bins,
        length_unit=flags.length_unit,
        sentences=flags.sentences,
        all_pairs=flags.test_pairs == "all",
    )
    chosen = protocols.check_names(settings.protocols)
    length_analysis.bin_labels(settings.length_bins)
    if flags.sheet == text_lines.STANDARD:
        raise UserError("--sheet=-: the sheet and its key are two files; name one: --sheet=FILE.")
    written = (flags.json, flags.html, flags.sheet, flags.sheet and f"{flags.sheet}.key.csv")
    read = (*flags.translations, *flags.reference.split(","), flags.source, flags.train_text, flags.subword_model)
    outputs.check_all(written, read)
    scored_files.check_given_once(flags.translations)
    files = _read(flags, tokenized=protocols.wants_tokens(chosen))
    names = scored_files.system_names(files.translations, flags.names)
    systems = {name: text.lines for name, text in zip(names, files.translations, strict=True)}
    if flags.sheet:
        _write_sheet(flags, systems, files)
    comparison = compare.compare(
        systems,
        [each.lines for each in files.references],
        source=None if files.source is None else files.source.lines,
        source_lengths=scored_files.source_lengths(files.source, flags.length_unit, flags.subword_model),
        train_text=_train_text(flags.train_text),
        directions={
            name: text.directions for name, text in zip(names, files.translations, strict=True) if text.directions
        },
        settings=settings,
        report=_progress,
    )
    found = build(comparison)
    outputs.show(found.text(), sys.stderr if any(map(outputs.is_standard, (flags.json, flags.html))) else sys.stdout)
    if flags.json:
        _write(flags.json, as_json(comparison.as_dict()))
    if flags.html:
        _progress("figures")
        _write(flags.html, found.page())


def _check_input(flags: argparse.Namespace) -> None:
    """Checks that the references are either files or a split of a run's data."""
    if bool(flags.output_dir) != bool(flags.split):
        raise UserError(
            "--output_dir=RUN and --split=NAME go together: the split of the run's data that was translated."
        )
    if bool(flags.reference) == bool(flags.split):
        problem = "exclude each other" if flags.split else "are both missing"
        raise UserError(
            f"--reference and --split {problem}. Give the references' files, or a run and a split of its data."
        )
    if flags.data_dir and not flags.split:
        raise UserError("--data_dir goes with --split.")
    if "sheet_sentences" in flags.given and not flags.sheet:
        raise UserError("--sheet_sentences is the size of the sheet: give --sheet=FILE, or leave it out.")
    if flags.split and flags.source:
        raise UserError("--source goes with --reference: --split gives the source, too.")


def _language_of_run(flags: argparse.Namespace) -> str:
    """Returns the target language of the run's data, which also selects the tokenizer in other commands."""
    if not flags.split:
        return ""
    from t2t_ext.bin._run_text import run_texts
    from t2t_ext.runs.run_directory import RunDirectory

    return getattr(run_texts(RunDirectory.open(flags.output_dir), flags).problem, "target_language", "")


def _read(flags: argparse.Namespace, *, tokenized: bool) -> scored_files.ScoredFiles:
    """Reads translations, references and source, from files or from a split of a run's data."""
    if not flags.split:
        return scored_files.read(flags.translations, flags.reference.split(","), flags.source, tokenized=tokenized)
    from t2t_ext.bin._run_text import run_texts
    from t2t_ext.data.generation.encoding import without_tags
    from t2t_ext.evaluation.scorer import references_of
    from t2t_ext.runs.run_directory import RunDirectory

    directory = RunDirectory.open(flags.output_dir)
    texts = run_texts(directory, flags)
    sources, references = texts.split(flags.split)
    references = references_of(references, directory.text_encoders()[1], tokenized=tokenized)
    # A tag is no word of the sentence: it would count in lengths and on the sheet.
    lines = list(without_tags(list(map(str, sources)), getattr(texts.problem, "tags", ())))
    name = f"{flags.split} of {flags.output_dir}'s data"
    return scored_files.read_beside(flags.translations, lines, references, name, tokenized=tokenized)


def _write_sheet(flags: argparse.Namespace, systems: Any, files: scored_files.ScoredFiles) -> None:
    """Writes the annotation sheet and its key."""
    from t2t_ext.evaluation.comparison.annotation_sheet import make_sheet

    if files.source is None:
        raise UserError("--sheet shows the source to whoever counts its words: give --source=FILE.")
    sheet, key = make_sheet(
        systems, [each.lines for each in files.references], files.source.lines, flags.sheet_sentences
    )
    _write(flags.sheet, sheet)
    _write(f"{flags.sheet}.key.csv", key)


def _train_text(path: str) -> Iterator[str] | None:
    """Returns an iterator over the lines of the training text, which may be many millions."""
    if not path:
        return None
    readers.require_unpacked_files([path], "Give the target side of the training data.")
    lines = readers.read_lines(path)
    first = next(lines, None)
    if first is None:
        raise UserError(f"--train_text={path} is empty: words would all count as unknown. Give the training text.")
    return (line.decode("utf-8", errors="replace") for line in itertools.chain([first], lines))


def _write(path: str, text: str) -> None:
    text_lines.write(path, [text.removesuffix("\n")])


def _progress(message: str) -> None:
    log.info(f"{message} ...")


if __name__ == "__main__":
    raise SystemExit(main())
