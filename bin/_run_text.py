"""Parts that the commands that translate share: flags for scores, a run's texts, checks and messages."""

import argparse
import os
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from t2t_ext.bin._flags import Flag, FlagTable
from t2t_ext.data.corpora import text_lines
from t2t_ext.errors import UserError
from t2t_ext.io import log
from t2t_ext.io.outputs import check_all

if TYPE_CHECKING:
    from t2t_ext.config.decode import DecodeHParams
    from t2t_ext.evaluation.run_texts import RunTexts
    from t2t_ext.runs.run_directory import RunDirectory
    from t2t_ext.translation.translator import Translator

SCORE_FLAGS: FlagTable = {
    "Scores": {
        "decode_reference=FILE[,FILE]": "References for --decode_from_file, as ordinary text; with them, scores are "
        "printed.",
        "scoring=NAME[,NAME]": "Scoring protocols, such as multi_bleu,chrf; default: the problem's own and, for "
        "translations, chrf and ter. Protocols for tokenized text score what the model generated; all others score the "
        "text written to --decode_to_file.",
        "n_bootstrap": Flag(
            "Number of bootstrap samples for 95% confidence intervals of the scores, usually 1000; 0 = no intervals.",
            0,
            minimum=0,
            maximum=100_000,
        ),
        "tokenize=NAME": "BLEU tokenizer; default: that of the target language.",
        "data_dir=DIR": "Data directory for --split, if the data have moved since training.",
    },
}


def check_bootstrap(samples: int) -> None:
    """Checks the number of bootstrap samples, and the seed that they are drawn with."""
    if samples == 1:
        raise UserError("--n_bootstrap=1: an interval needs more samples; 1000 is usual, 0 is for none.")
    if samples:
        from t2t_ext.evaluation import scores

        scores.random_seed()


def check_scoring(flags: argparse.Namespace) -> None:
    """Checks the flags for scores, so that a mistake does not come to light after hours of translating."""
    if flags.scoring:
        from t2t_ext.evaluation import protocols

        for name in protocols.names_in(flags.scoring):
            protocols.protocol(name)
    check_bootstrap(flags.n_bootstrap)
    if flags.tokenize:
        from t2t_ext.evaluation import scores

        if flags.scoring:
            raise UserError("--tokenize chooses the tokenizer of sacrebleu's BLEU, --scoring protocols; give one.")
        scores.check_tokenizer(flags.tokenize)
    for name in ("scoring", "n_bootstrap", "tokenize"):
        if getattr(flags, name) and not flags.decode_reference and not flags.split:
            raise UserError(
                f"--{name} is of scores, which need references: give --decode_reference=FILE beside "
                f"--decode_from_file, or --split; or leave --{name} out."
            )


def run_texts(run: "RunDirectory", flags: argparse.Namespace) -> "RunTexts":
    """Returns the texts of a run as the flags say: ``data_dir``, ``source_tag`` and ``SCORE_FLAGS``."""
    from t2t_ext.evaluation.run_texts import RunTexts

    names = ("data_dir", "source_tag", "scoring", "tokenize", "n_bootstrap")
    return RunTexts(run, **{name: value for name in names if (value := getattr(flags, name, None))})


def chosen_text(flags: argparse.Namespace, texts: "RunTexts") -> tuple[str, Collection[Any], Sequence[Collection[str]]]:
    """Returns the name of the text to translate, its lines and its sets of references, from ``split`` or a file.

    Lines of files are read when they are needed.
    """
    if flags.split:
        return flags.split, *texts.split(flags.split)
    from t2t_ext.evaluation.run_texts import read_references

    source = texts.read(flags.decode_from_file)
    return source.name, source.lines, read_references(flags.decode_reference, source)


def check_files(flags: argparse.Namespace, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Checks that all outputs can be written without replacing each other or an input; standard input is read once.

    Args:
      flags: The command's flags.
      inputs: Names of the flags that name files to read.
      outputs: Paths of the files to write; "" for none.

    Raises:
      UserError: An output cannot be written, or a file or standard input is given twice.
    """
    paths = [(name, path) for name in inputs for path in _paths_of(flags, name)]
    check_all(outputs, [path for _, path in paths])
    given = [f"--{name}" for name, path in paths if path == text_lines.STANDARD]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} cannot both be standard input: give files for all but one.")


def _paths_of(flags: argparse.Namespace, name: str) -> list[str]:
    """Returns the paths that a flag gives: several if they are references, else one, which may contain commas."""
    from t2t_ext.evaluation import run_texts

    value = getattr(flags, name)
    return run_texts.reference_paths(value) if name == "decode_reference" else [value]


def check_names_output(source: str) -> None:
    """Raises a UserError if no output can be named after the source, because it is a pipe, not a file or folder."""
    if os.path.exists(source) and not (os.path.isfile(source) or os.path.isdir(source)):
        raise UserError(f"{source} is no file that the output could be named after: give --decode_to_file=FILE.")


def check_shortlist(run: "RunDirectory", hparams: "DecodeHParams") -> None:
    """Checks the shortlist of a search by a run, if it has one, by reading it.

    Raises:
      UserError: It cannot be read, or does not match the run.
    """
    if hparams.shortlist:
        from t2t_ext.data.datasets.shortlist import Shortlist, check_reads_text

        check_reads_text(run.config.source_feature_size)
        Shortlist.read(hparams.shortlist, *run.text_encoders())


def keep_runs(runs: Sequence["RunDirectory"], outputs: Iterable[str]) -> None:
    """Raises a UserError if an output would replace a file of a run."""
    for path in filter(None, outputs):
        for run in runs:
            if path != text_lines.STANDARD and run.holds(path):
                raise UserError(f"{path} is a file of the run {run.path} itself: give the output another name.")


def report_speed(done: str, lines: int, seconds: float, output: str) -> None:
    """Logs how many lines were translated, how fast, and where the output is."""
    where = f" -> {output}" if output not in ("", text_lines.STANDARD) else ""
    log.info(f"{done} {lines:,} lines in {seconds:.1f} s ({lines / max(seconds, 1e-3):,.1f} lines/s){where}")


def report_truncated_lines(translators: Sequence["Translator"], lines: text_lines.LineNumbers) -> None:
    """Warns of the lines that the Translators truncated."""
    if lines.count:
        limits = " or ".join(dict.fromkeys(each.describe_limits() for each in translators))
        log.warning(f"truncated to {limits}: {lines}")
