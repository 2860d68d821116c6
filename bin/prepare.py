"""t2t_ext-prepare: prepares text for a model's graph and restores its output, which a SavedModel cannot do itself."""

import argparse
import itertools

from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command
from t2t_ext.data.corpora import text_lines
from t2t_ext.data.corpora.text_lines import STANDARD, one_line
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.data.text.text_steps import step_class
from t2t_ext.errors import UserError
from t2t_ext.io import outputs
from t2t_ext.runs.run_directory import RunDirectory
from t2t_ext.serving.served_text import ServedText

_LINES_AT_ONCE = 1000
_EXAMPLES = """\
  t2t_ext-prepare --export_dir=EXPORT --side=source < raw.txt > tokens.txt
  t2t_ext-prepare --export_dir=EXPORT --side=target --restore < tokens.txt > raw.txt
  t2t_ext-prepare --export_dir=EXPORT --side=target --phrases < phrases.tsv > constraints.tsv
  t2t_ext-prepare --output_dir=RUN --side=target --words < reference.txt > reference.tok.txt
  t2t_ext-prepare --subword_model=vocab.model --describe
"""
_FLAGS: FlagTable = {
    "Whose text (one of these)": {
        "output_dir=RUN": "Run directory written by t2t_ext-trainer.",
        "export_dir=EXPORT": "Exported model written by t2t_ext-exporter.",
        "subword_model=FILE": "Text encoder file written by t2t_ext-datagen.",
    },
    "Text": {
        "side": Flag(
            "Which preparation steps to use: those of the source or of the target.",
            "source",
            choices=("source", "target"),
        ),
        "restore": "Do the reverse: turn what the graph outputs into ordinary text.",
        "words": "Stop at the words; do not segment them into subwords.",
        "phrases": "Input lines are phrases that translations must contain, separated by tabs; each phrase is prepared "
        "separately.",
        "input=FILE": Flag("Input file, plain or compressed, instead of standard input.", STANDARD),
        "output=FILE": Flag("Output file instead of standard output; the name ends with .gz to compress it.", STANDARD),
    },
    "Information": {
        "describe": Flag("Print what is done to the text, and what cannot be undone, and exit.", information=True),
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    description = (
        "Prepares text in the form that a model's graph takes (Moses tokens, subwords of subword-nmt, ...), or "
        "restores it, line by line from standard input to standard output."
    )
    return FlagParser("t2t_ext-prepare", description, _FLAGS, examples=_EXAMPLES)


@command(build_parser)
def main(flags: argparse.Namespace) -> None:
    """Prepares or restores text as the flags say."""
    if flags.restore and flags.words:
        raise UserError("--words is a place to stop when text is prepared; --restore takes words and subwords alike.")
    if flags.phrases and (flags.restore or flags.words or flags.side != "target"):
        raise UserError("--phrases are of translations, as their graph takes them: --side=target alone goes with it.")
    encoder = _encoder(flags)
    if flags.describe:
        text_lines.write(STANDARD, _description(encoder))
        return
    outputs.check_all([flags.output], [flags.input, flags.subword_model])
    lines = text_lines.stream(flags.input)
    batches = iter(lambda: list(itertools.islice(lines, _LINES_AT_ONCE)), [])
    parts = (_processed(flags, encoder, batch) for batch in batches)
    text_lines.write(flags.output, map(one_line, itertools.chain.from_iterable(parts)))


def _encoder(flags: argparse.Namespace) -> SubwordEncoder:
    """Returns the text encoder that the flags name."""
    given = [name for name in ("output_dir", "export_dir", "subword_model") if getattr(flags, name)]
    if len(given) != 1:
        what = "nothing says" if not given else f"{' and '.join(f'--{name}' for name in given)} both say"
        raise UserError(f"{what} whose text it is: give one of --output_dir, --export_dir, --subword_model.")
    if flags.subword_model:
        return SubwordEncoder.from_file(flags.subword_model)
    if flags.output_dir:
        return ServedText(*RunDirectory.open(flags.output_dir).text_encoders()).side(flags.side)
    text = ServedText.of_export(flags.export_dir)
    if text is None:
        raise UserError(
            f"The model in --export_dir={flags.export_dir} takes text as people write it: there is nothing to prepare "
            "or to restore."
        )
    return text.side(flags.side)


def _processed(flags: argparse.Namespace, encoder: SubwordEncoder, texts: list[str]) -> list[str]:
    if flags.restore:
        return encoder.restore(encoder.join(texts))
    if flags.phrases:
        return encoder.segment_phrases(texts)
    prepared = encoder.prepare(texts)
    return prepared if flags.words else encoder.segment(prepared)


def _description(encoder: SubwordEncoder) -> list[str]:
    record = encoder.record()
    unknown = "not known"
    if any(step_class(step["name"]).assumed_language for step in record["steps"]):
        unknown = "not given: steps use the rules of English"
    lines = [f"language: {record['language'] or unknown}"]
    lines += [f"{step['name']}: {step['meaning']}\n  not restored: {step['not_restored']}" for step in record["steps"]]
    lines += [] if record["steps"] else ["no steps"]
    lines.append(f"subwords: {record['subwords']}, {record['vocabulary']:,} ids")
    lines += [f"tags: {' '.join(record['tags'])}"] if "tags" in record else []
    return [*lines, *(f"made with {name} {version}" for name, version in record["packages"].items())]


if __name__ == "__main__":
    raise SystemExit(main())
