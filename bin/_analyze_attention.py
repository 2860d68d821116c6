"""t2t_ext-analyze attention: the attention of a model in a sentence (He et al. 2018, section 5.3)."""

import argparse
import pathlib
from typing import Any

from t2t_ext.bin._flag_groups import DECODE_FLAGS, USER_DIRECTORY, thread_flags
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, start_tensorflow
from t2t_ext.bin._run_text import run_texts
from t2t_ext.data.corpora import text_lines
from t2t_ext.errors import UserError, suggest
from t2t_ext.io import log
from t2t_ext.io.progress import running_total

_NAME = "t2t_ext-analyze attention"
_DEFAULT_DIR = ("analysis", "attention")
_EXAMPLES = """\
  t2t_ext-analyze attention --output_dir=RUN --sentence="Ein Mann schläft ."
  t2t_ext-analyze attention --output_dir=RUN --sentence="Ein Mann schläft ." --reference="A man is asleep ." --layers=1
  t2t_ext-analyze attention --output_dir=RUN --sentence_file=in.txt --layers=1,5-6 --heads=all --out_dir=pictures
"""
_FLAGS: FlagTable = {
    "What": {
        "output_dir=RUN": Flag("The run's directory.", required=True),
        "checkpoint_path=DIR": "Checkpoint in it, best or averaged; by default the latest.",
        **USER_DIRECTORY,
    },
    "Sentences": {
        "sentence=TEXT": "The source sentence.",
        "reference=TEXT": "Its translation; where not given, the model's own.",
        "partner=TEXT": "Of a model with two directions: the right-to-left target beside --reference, in text order; "
        "by default the same.",
        "sentence_file=FILE": "Several sentences, one a line.",
        "reference_file=FILE": "Their translations, an empty line for the model's own.",
        "source_tag=<TAG>": "Tag of --train_tags that every sentence begins with.",
        "max_subwords": Flag(
            "Longer sentences and translations are refused: no one could read the picture.", 100, minimum=2
        ),
    },
    "Which attention": {
        "attention=NAME[,NAME]": "source (cross-attention), self (decoder self-attention), mixed, future (of two "
        "directions), backward (to a backward decoder), encoder; by default all but the last.",
        "layers=all|1,3-4": Flag("Layers, from 1.", "all"),
        "heads=mean|all|1,3-4": Flag("Heads, from 1, or their mean.", "mean"),
        "direction": Flag(
            "Of a model with two directions, the one whose attention is shown; by default both.", choices=("l2r", "r2l")
        ),
    },
    "Output": {"out_dir=DIR": "Where files are put; where not given, RUN/analysis/attention."},
}


def build_parser() -> FlagParser:
    """Returns the flags of the analysis."""
    description = "Draws the attention of a run to and in a sentence: PNG files and one page with all of them."
    return FlagParser(_NAME, description, _FLAGS, DECODE_FLAGS, thread_flags(), examples=_EXAMPLES)


def run(flags: argparse.Namespace) -> None:
    """Carries out the analysis."""
    # All mistakes of the user are found before TensorFlow starts and the model is loaded.
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
    out_dir = pathlib.Path(flags.out_dir or directory.path.joinpath(*_DEFAULT_DIR))
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
            # Here already: what this model has not is refused before the other sentences are translated.
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
            print(f"{side}: {text}" if len(each.targets) > 1 else text)
    log.info(f"{total} pictures, {names[1]} and the page {out_dir / names[0]}")


def _sentences(flags: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Returns the sources and their references, empty ones for the model's own translations."""
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
            references = found.lines
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
    """Returns how the model searches for its own translation, and checks flags against the model's directions."""
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
