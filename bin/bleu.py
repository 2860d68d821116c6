"""t2t_ext-bleu: scores a translation against references, with sacrebleu or as papers do."""

import argparse
import dataclasses
import itertools
import json
import operator
import sys

from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command
from t2t_ext.config.languages import check_language
from t2t_ext.data.corpora import text_lines
from t2t_ext.errors import UserError, suggest
from t2t_ext.evaluation import protocols, scored_files, scores
from t2t_ext.io import log, outputs

_VARIANTS = {
    "both": (("uncased", True), ("cased", False)),
    "uncased": (("uncased", True),),
    "cased": (("cased", False),),
}
_OTHERS = {"chrf": "chrf", "chrf++": "chrf++", "ter": "ter_uc"}  # metric -> protocol
_REPLACED_BY_PROTOCOL = ("metrics", "bleu_variant", "tokenize")
_EXAMPLES = """\
  t2t_ext-bleu --translation=out.txt --reference=ref.txt
  t2t_ext-bleu --translation=out.txt --reference=ref0.txt,ref1.txt --metrics=bleu,chrf,ter --n_bootstrap=1000
  t2t_ext-bleu --translation=out.txt --reference=ref.txt --language=zh
  t2t_ext-bleu --translation=out.tok --reference=ref.tok --protocol=multi_bleu             # tokenized text
  t2t_ext-bleu --translation=out.txt --reference=ref.txt --protocol=t2t_intl               # as tensor2tensor's t2t-bleu
  t2t_ext-bleu --translation=tst.sgm --reference=ref.sgm --source=src.sgm --protocol=mteval_v13a --by_order
"""
_FLAGS: FlagTable = {
    "Input": {
        "translation=FILE": Flag(
            "Translation, one segment per line, or NIST SGML with one or more systems.", required=True
        ),
        "reference=FILE[,FILE]": Flag(
            "Reference, line by line, or SGML; several files give several references for each line.", required=True
        ),
        "source=FILE": "Source; only the number and order of its segments matter.",
    },
    "Scores": {
        "protocol=NAME[,NAME]": "Scoring protocols as used in papers, instead of the three flags below: any of "
        f"{', '.join(protocols.PROTOCOLS)}.",
        "metrics=NAME[,NAME]": Flag("Metrics: any of bleu, chrf, chrf++, ter.", "bleu"),
        "bleu_variant": Flag(
            "BLEU that ignores case (uncased), BLEU that does not (cased), or both.", "both", choices=tuple(_VARIANTS)
        ),
        "tokenize=NAME": "BLEU tokenizer: 13a, intl, zh, char, none, ...; default: that of --language.",
        "language=TAG": "Target language, such as de or zh; selects the tokenizer.",
        "n_bootstrap": Flag(
            "Number of bootstrap samples for the 95% confidence interval, for example 1000; 0 = no interval.",
            0,
            minimum=0,
            maximum=100_000,
        ),
    },
    "Output": {
        "by_order": "Also print BLEU and NIST by order of n-grams, as mteval-v13a does.",
        "json=FILE": "Also write the scores as JSON.",
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    return FlagParser("t2t_ext-bleu", "Scores a translation against references.", _FLAGS, examples=_EXAMPLES)


@command(build_parser)
def main(flags: argparse.Namespace) -> None:
    """Scores as the flags say."""
    check_language(flags.language, "--language")
    outputs.check_all([flags.json], [flags.translation, *flags.reference.split(","), flags.source])
    chosen = _by_protocol(flags) if flags.protocol else _by_metric(flags)
    # Whether to read the words that the model generated from an n-best list.
    tokenized = bool(flags.protocol) and protocols.wants_tokens([protocol for _, protocol in chosen])
    references = flags.reference.split(",")
    files = scored_files.read([flags.translation], references, flags.source, tokenized=tokenized, streamed=True)
    sets = [text.lines for text in files.references]
    results = []
    stream = sys.stderr if outputs.is_standard(flags.json) else sys.stdout
    for text in files.translations:
        if len(files.translations) > 1:
            print(f"system {text.system}", file=stream)
        for named, protocol in chosen:
            doubt = protocols.doubt(protocol, text.lines)
            if doubt:
                log.warning(doubt)
            options = {"language": flags.language, "n_bootstrap": flags.n_bootstrap}
            for score in protocols.score(protocol, text.lines, sets, **options):
                label = named.format(score.name)
                # Scripts around tensor2tensor's t2t-bleu look for BLEU_uncased = %6.2f.
                value = f"{score.value:6.2f}" if label.startswith("BLEU_") else score.format(score.value)
                print(f"{label} = {value}{score.explanation}", file=stream)
                if flags.by_order and (table := _orders(score)):
                    print(*table, sep="\n", file=stream)
                results.append({"system": text.system, "label": label, **dataclasses.asdict(score)})
    if flags.json:
        report = {
            "translation": flags.translation,
            "references": [text.name for text in files.references],
            "segments": len(sets[0]),
            "scores": results,
        }
        text_lines.write(flags.json, [json.dumps(report, ensure_ascii=False, indent=1)])


def _by_protocol(flags: argparse.Namespace) -> list[tuple[str, protocols.Protocol]]:
    """Returns the protocols of --protocol, each with the format of its labels."""
    wrong = [f"--{name}" for name in _REPLACED_BY_PROTOCOL if name in flags.given]
    if wrong:
        raise UserError(
            f"--protocol says all that {' and '.join(wrong)} would say. Leave out one or the other; NAME_uc is NAME "
            "with case ignored."
        )
    chosen = protocols.check_names([name.strip() for name in flags.protocol.split(",")])
    return [(f"{protocol.name} {{}}", protocol) for protocol in chosen]


def _by_metric(flags: argparse.Namespace) -> list[tuple[str, protocols.Protocol]]:
    """Returns the protocols that --metrics, --bleu_variant and --tokenize mean, each with the format of its labels."""
    tokenize = flags.tokenize or scores.default_tokenizer(flags.language)
    found = []
    names = list(dict.fromkeys(name.strip() for name in flags.metrics.split(",")))
    for flag in ("bleu_variant", "tokenize"):
        if flag in flags.given and "bleu" not in names:
            raise UserError(
                f"--{flag} is of BLEU, which --metrics={flags.metrics} leaves out. Leave --{flag} out, too."
            )
    for name in names:
        if name == "bleu":
            for variant, lowercase in _VARIANTS[flags.bleu_variant]:
                found.append((f"BLEU_{variant}", protocols.bleu_with(tokenize, lowercase=lowercase)))
        elif name in _OTHERS:
            found.append(("{}", protocols.protocol(_OTHERS[name])))
        else:
            known = ["bleu", *_OTHERS]
            raise UserError(
                f"--metrics={flags.metrics}: unknown metric {name!r}.{suggest(name, known)} Choose from: "
                f"{', '.join(known)}."
            )
    return found


def _orders(score: scores.Score) -> list[str]:
    """Returns the lines of a table by order of n-grams; none if the metric has no orders."""
    details = score.details
    if score.name.startswith("NIST"):
        single, cumulative = details["by_order"], list(itertools.accumulate(details["by_order"]))
    elif "cumulative" in details:
        single = [value / 100 for value in details["by_order"]]
        cumulative = [value / 100 for value in details["cumulative"]]
    elif "precisions" in details:
        single = [value / 100 for value in details["precisions"]]
        products = enumerate(itertools.accumulate(single, operator.mul), 1)
        cumulative = [details["brevity_penalty"] * product ** (1 / order) for order, product in products]
    else:
        return []
    rows = [("order", [str(order) for order in range(1, len(single) + 1)])]
    rows += [
        (name, [f"{value:.4f}" for value in values])
        for name, values in (("single", single), ("cumulative", cumulative))
    ]
    return [f"  {name:<10}" + "".join(f"{cell:>9}" for cell in cells) for name, cells in rows]


if __name__ == "__main__":
    raise SystemExit(main())
