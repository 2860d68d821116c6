"""What the commands that translate share: flags of scores, a run's texts as the flags say, a warning."""

import argparse
from typing import TYPE_CHECKING

from t2t_ext.bin._flags import FlagParser, add_flag, at_least
from t2t_ext.data.corpora import text_lines
from t2t_ext.errors import UserError
from t2t_ext.io import log

if TYPE_CHECKING:
    from t2t_ext.evaluation.run_texts import RunTexts
    from t2t_ext.runs.run_directory import RunDirectory
    from t2t_ext.translation.translator import Translator


def add_score_flags(parser: FlagParser) -> None:
    """Adds ``--decode_reference``, ``--scoring`` and what else says how translations are scored."""
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
        "Protocols that score, such as multi_bleu,chrf; where not given, the problem's own, and of translations chrf "
        "and ter. Those for tokenized text score what the model generated, the others what --decode_to_file gets.",
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


def check_scoring(flags: argparse.Namespace) -> None:
    """Checks the names of protocols and tokenizers before hours of work go into what they would score.

    Raises:
      UserError: One of them is unknown, or flags exclude each other.
    """
    if flags.scoring:
        from t2t_ext.evaluation import protocols

        for name in protocols.names_in(flags.scoring):
            protocols.protocol(name)
    if flags.n_bootstrap == 1:
        raise UserError("--n_bootstrap=1: an interval needs more samples; 1000 is usual, 0 is for none.")
    if flags.tokenize:
        from t2t_ext.evaluation import scores

        if flags.scoring:
            raise UserError("--tokenize chooses the tokenizer of sacrebleu's BLEU, --scoring protocols; give one.")
        scores.check_tokenizer(flags.tokenize)


def run_texts(run: "RunDirectory", flags: argparse.Namespace) -> "RunTexts":
    """Returns the texts of a run as the flags say: ``data_dir``, ``source_tag`` and those of ``add_score_flags``."""
    from t2t_ext.evaluation.run_texts import RunTexts

    names = ("data_dir", "source_tag", "scoring", "tokenize", "n_bootstrap")
    return RunTexts(run, **{name: value for name in names if (value := getattr(flags, name, None))})


def report_truncated_lines(translator: "Translator") -> None:
    """Warns of the lines that the last call of a Translator truncated."""
    if translator.truncated_lines:
        limit = translator.decode_hparams.max_input_length
        lines = text_lines.count_lines(translator.truncated_line_numbers)
        log.warning(f"truncated to max_input_length={limit} {translator.source.unit}: {lines}")
