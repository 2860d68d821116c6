"""t2t_ext-bleu: scores a translation against references, with sacrebleu."""

from collections.abc import Callable, Sequence

from t2t_ext.bin import _text_lines
from t2t_ext.bin._flags import FlagParser, add_flag, run_main
from t2t_ext.errors import UserError, suggest
from t2t_ext.evaluation import scores

_VARIANTS = {
    "both": (("uncased", True), ("cased", False)),
    "uncased": (("uncased", True),),
    "cased": (("cased", False),),
}
_EXAMPLES = """\
  t2t_ext-bleu --translation=out.txt --reference=ref.txt
  t2t_ext-bleu --translation=out.txt --reference=ref0.txt,ref1.txt --metrics=bleu,chrf,ter --n_bootstrap=1000
  t2t_ext-bleu --translation=out.txt --reference=ref.txt --language=zh
  t2t_ext-bleu --translation=out.txt --reference=ref.txt --tokenize=intl        # as tensor2tensor's t2t-bleu
"""


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser("t2t_ext-bleu", "Scores a translation against references.", examples=_EXAMPLES)
    group = parser.group("Input")
    add_flag(group, "translation", "", "The translation, one segment a line.", metavar="FILE", required=True)
    add_flag(
        group,
        "reference",
        "",
        "The reference, line by line; several files are several references of each line.",
        metavar="FILE[,FILE]",
        required=True,
    )
    group = parser.group("Scores")
    add_flag(group, "metrics", "bleu", "Any of bleu, chrf, chrf++, ter.", metavar="NAME[,NAME]")
    add_flag(group, "bleu_variant", "both", "Whether case counts.", choices=tuple(_VARIANTS))
    add_flag(
        group,
        "tokenize",
        "",
        "BLEU's tokenizer: 13a, intl, zh, char, none, ...; where not given, that of --language.",
        metavar="NAME",
    )
    add_flag(group, "language", "", "The target language, such as de or zh: chooses the tokenizer.", metavar="CODE")
    add_flag(
        group, "n_bootstrap", 0, "Samples for the 95% confidence interval, 1000 for example; 0 = none.", metavar="N"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_main(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> None:
    flags = build_parser().parse_args(argv)
    metrics = _metrics(flags.metrics)
    tokenize = flags.tokenize or scores.default_tokenizer(flags.language)
    scores.check_tokenizer(tokenize)
    hypotheses = _text_lines.read(flags.translation)
    references = [_text_lines.read(path) for path in flags.reference.split(",")]
    for reference in references:
        if len(reference.lines) != len(hypotheses.lines):
            raise UserError(
                f"Unequal numbers of lines: {len(hypotheses.lines)} in {hypotheses.name}, {len(reference.lines)} in "
                f"{reference.name}. Check that both belong to the same input; a line ends at LF only."
            )
    texts = hypotheses.lines, [reference.lines for reference in references]
    for metric in metrics:
        if metric != "bleu":
            print(_OTHERS[metric](*texts, n_bootstrap=flags.n_bootstrap))
            continue
        for variant, lowercase in _VARIANTS[flags.bleu_variant]:
            score = scores.corpus_bleu(*texts, tokenize=tokenize, lowercase=lowercase, n_bootstrap=flags.n_bootstrap)
            print(f"BLEU_{variant} = {score.value:6.2f}{score.explanation}")


_OTHERS: dict[str, Callable[..., scores.Score]] = {
    "chrf": scores.corpus_chrf,
    "chrf++": lambda *texts, **options: scores.corpus_chrf(*texts, word_order=2, **options),
    "ter": scores.corpus_ter,
}


def _metrics(text: str) -> list[str]:
    known = ["bleu", *_OTHERS]
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UserError(
                f"--metrics={text}: unknown metric {name!r}.{suggest(name, known)} Choose from: {', '.join(known)}."
            )
    return names


if __name__ == "__main__":
    raise SystemExit(main())
