"""t2t_ext-analyze attention: the attention of a model in a sentence (He et al. 2018, section 5.3)."""

import argparse
from typing import Any

from t2t_ext.bin._flag_groups import DECODE_FLAGS, USER_DIRECTORY, thread_flags
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, start_tensorflow
from t2t_ext.bin._run_text import run_texts
from t2t_ext.data.corpora import text_lines
from t2t_ext.errors import UserError, suggest
from t2t_ext.io import log, outputs
from t2t_ext.io.progress import running_total
from t2t_ext.reporting.report import checked_directory

_NAME = "t2t_ext-analyze attention"
_DEFAULT_DIR = ("analysis", "attention")
_EXAMPLES = """\
  t2t_ext-analyze attention --output_dir=RUN --sentence="Ein Mann schläft ."
  t2t_ext-analyze attention --output_dir=RUN --sentence="Ein Mann schläft ." --reference="A man is asleep ." --layers=1
  t2t_ext-analyze attention --output_dir=RUN --sentence_file=in.txt --layers=1,5-6 --heads=all --out_dir=pictures
"""
_FLAGS: FlagTable = {
    "What": {
        "output_dir=RUN": Flag("Run directory written by t2t_ext-trainer.", required=True),
        "checkpoint_path=DIR": "Checkpoint of the run, best or averaged; default: the latest.",
        **USER_DIRECTORY,
    },
    "Sentences": {
        "sentence=TEXT": "Source sentence.",
        "reference=TEXT": "Its translation; default: the model's own.",
        "partner=TEXT": "Models of two directions: the right-to-left target that goes with --reference, in text order; "
        "default: the same text.",
        "sentence_file=FILE": "File of source sentences, one per line.",
        "reference_file=FILE": "File of their translations; an empty line stands for the model's own.",
        "source_tag=<TAG>": "Tag from --train_tags to put before every sentence.",
        "max_subwords": Flag(
            "Maximum length of sentences and translations in subwords; longer ones are refused, because nobody could "
            "read the picture.",
            100,
            minimum=2,
        ),
    },
    "Which attention": {
        "attention=NAME[,NAME]": "Kinds of attention: source (cross-attention), self (decoder self-attention), mixed, "
        "future (to the other direction), backward (to a backward decoder), encoder; default: all but encoder.",
        "layers=all|1,3-4": Flag("Layers, counted from 1.", "all"),
        "heads=mean|all|1,3-4": Flag("Heads, counted from 1, or their mean.", "mean"),
        "direction": Flag(
            "Models of two directions: the direction to show the attention of; default: both.", choices=("l2r", "r2l")
        ),
    },
    "Output": {"out_dir=DIR": "Output directory; default: RUN/analysis/attention."},
}


def build_parser() -> FlagParser:
    """Returns the flags of the analysis."""
    description = "Draws a run's attention in a sentence and its translation: PNG files, and one page with all of them."
    return FlagParser(_NAME, description, _FLAGS, DECODE_FLAGS, thread_flags(), examples=_EXAMPLES)


def run(flags: argparse.Namespace) -> None:
    """Carries out the analysis."""
    # Finds all user errors before TensorFlow starts and the model is loaded.
    sources, references = _sentences(flags)
    choice = _choice(flags)
    from t2t_ext.analysis.attention import report as attention_report
    from t2t_ext.config.hyperparameters import TransformerHParams
    from t2t_ext.runs import checkpoints
    from t2t_ext.runs.run_directory import RunDirectory

    directory = RunDirectory.open(flags.output_dir)
    directory.require_text(_NAME)
    checkpoint = checkpoints.resolve_checkpoint(directory.path, flags.checkpoint_path or None, warn=log.warning)
    hparams = directory.hparams()
    decode_hparams = _decode_hparams(flags, hparams)
    if isinstance(hparams, TransformerHParams):
        choice.check(max(hparams.encoder_layers, hparams.decoder_layers), hparams.num_heads)
    lines = run_texts(directory, flags).tagged(sources)
    out_dir = checked_directory(flags.out_dir or directory.path.joinpath(*_DEFAULT_DIR))
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    from t2t_ext.analysis.attention.sentences import look
    from t2t_ext.translation.translator import Translator

    translator = Translator.load(directory.path, checkpoint, decode_hparams)
    looked, total = [], 0
    with running_total("Attention", len(lines), "sentences") as update:
        for number, (source, reference) in enumerate(zip(lines, references, strict=True), 1):
            try:
                looked.append(look(translator, source, reference, flags.partner, flags.max_subwords))
            except UserError as error:
                if len(lines) == 1:
                    raise
                raise UserError(f"{flags.sentence_file}, line {number}: {error}") from error
            # Checked here, so that a choice that the model lacks is refused before the other sentences are translated.
            total += len(choice.of(looked[-1].maps))
            update(number, len(lines))
    about = [
        ("run", str(directory.path)),
        ("model", f"{directory.config.model}, {directory.config.hparams_set}"),
        ("checkpoint", checkpoint.name),
    ]
    with running_total("Drawing", total, "pictures") as update:
        names = attention_report.write(out_dir, looked, choice, about, update)
    for each in looked:
        for side, text in each.targets.items():
            outputs.show(f"{side}: {text}" if len(each.targets) > 1 else text)
    log.info(f"{total} pictures, {names[1]} and the page {out_dir / names[0]}")


def _sentences(flags: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Returns the sources and their references; an empty one stands for the model's own translation."""
    if bool("sentence" in flags.given) == bool(flags.sentence_file):
        problem = "exclude each other" if flags.sentence_file else "are both missing"
        raise UserError(f"--sentence and --sentence_file {problem}; give one of them.")
    if flags.sentence_file:
        for name in ("reference", "partner"):
            if getattr(flags, name):
                raise UserError(f"--{name} goes with --sentence; for a file give --reference_file=FILE.")
        source = text_lines.read(flags.sentence_file)
        if not source.lines:
            raise UserError(f"{source.name} is empty.")
        references = [""] * len(source.lines)
        if flags.reference_file:
            found = text_lines.read(flags.reference_file)
            advice = "Give a reference for each sentence, an empty line for the model's own translation."
            text_lines.check_as_many(source, found, advice)
            references = [line if line.strip() else "" for line in found.lines]
        return source.lines, references
    if flags.reference_file:
        raise UserError("--reference_file goes with --sentence_file; of one sentence give --reference=TEXT.")
    if not flags.sentence.strip():
        raise UserError("--sentence is empty. Give one with words.")
    if "reference" in flags.given and not flags.reference.strip():
        raise UserError("--reference is empty. Leave it out to see the model's own translation.")
    if flags.partner and not flags.reference:
        raise UserError("--partner goes with --reference: without one the model generates both targets itself.")
    return [flags.sentence], [flags.reference]


def _choice(flags: argparse.Namespace) -> Any:
    from t2t_ext.analysis.attention.maps import KINDS
    from t2t_ext.analysis.attention.report import Choice

    kinds = tuple(dict.fromkeys(name.strip() for name in flags.attention.split(",") if name.strip()))
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"--attention={kind}: there are {', '.join(KINDS)}.{suggest(kind, KINDS)}")
    return Choice(kinds, flags.layers, flags.heads, flags.direction)


def _decode_hparams(flags: argparse.Namespace, hparams: Any) -> Any:
    """Returns the search settings for the model's own translation; checks flags against the model's directions."""
    from t2t_ext.config.decode import resolve_decode_hparams
    from t2t_ext.config.hyperparameters import parse_assignments
    from t2t_ext.search.directions import check_directions, directions_of

    directions = directions_of(hparams)
    if flags.partner and directions == 1:
        raise UserError("--partner is for models with two directions; this one has one.")
    decode_hparams = resolve_decode_hparams(flags.decode_hparams)
    if directions == 2:
        if parse_assignments(flags.decode_hparams, "--decode_hparams").get("beam_size", "2") != "2":
            raise UserError(
                f"--decode_hparams: beam_size={decode_hparams.beam_size}. This model has two directions that "
                "attend to each other; with more than one hypothesis a direction, the partner changes from step to "
                "step, and no picture could show it. Leave it out; it is 2 here."
            )
        decode_hparams = decode_hparams.replace(beam_size=2, num_hypotheses=2)
    check_directions(decode_hparams, directions)
    return decode_hparams
