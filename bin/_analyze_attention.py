"""t2t_ext-analyze attention: the attention of a model in a sentence (He et al. 2018, section 5.3)."""

import argparse
import pathlib
from collections.abc import Sequence
from typing import Any

from t2t_ext.bin._flag_groups import add_decode_flags, add_thread_flags
from t2t_ext.bin._flags import FlagParser, add_flag, at_least, start_tensorflow
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


def build_parser() -> FlagParser:
    """Returns the flags of the analysis."""
    parser = FlagParser(
        _NAME,
        "Draws the attention of a run to and in a sentence: PNG files and one page with all of them.",
        examples=_EXAMPLES,
    )
    group = parser.group("What")
    add_flag(group, "output_dir", "", "The run's directory.", metavar="RUN", required=True)
    add_flag(group, "checkpoint_path", "", "Checkpoint in it, best or averaged; by default the latest.", metavar="DIR")
    add_flag(
        group, "t2t_usr_dir", "", "The folder of the run's own modules, where it has moved since training.",
        metavar="DIR",
    )  # fmt: skip
    group = parser.group("Sentences")
    add_flag(group, "sentence", "", "The source sentence.", metavar="TEXT")
    add_flag(group, "reference", "", "Its translation; where not given, the model's own.", metavar="TEXT")
    add_flag(
        group,
        "partner",
        "",
        "Of a model with two directions: the right-to-left target beside --reference, in text order; by default the "
        "same.",
        metavar="TEXT",
    )
    add_flag(group, "sentence_file", "", "Several sentences, one a line.", metavar="FILE")
    add_flag(group, "reference_file", "", "Their translations, an empty line for the model's own.", metavar="FILE")
    add_flag(group, "source_tag", "", "Tag of --train_tags that every sentence begins with.", metavar="<TAG>")
    add_flag(
        group,
        "max_subwords",
        100,
        "Longer sentences and translations are refused: no one could read the picture.",
        kind=at_least(2),
        metavar="N",
    )
    group = parser.group("Which attention")
    add_flag(
        group,
        "attention",
        "",
        "source (cross-attention), self (decoder self-attention), mixed, future (of two directions), backward (to a "
        "backward decoder), encoder; by default all but the last.",
        metavar="NAME[,NAME]",
    )
    add_flag(group, "layers", "all", "Layers, from 1.", metavar="all|1,3-4")
    add_flag(group, "heads", "mean", "Heads, from 1, or their mean.", metavar="mean|all|1,3-4")
    add_flag(
        group,
        "direction",
        "",
        "Of a model with two directions, the one whose attention is shown; by default both.",
        choices=("l2r", "r2l"),
    )
    group = parser.group("Output")
    add_flag(group, "out_dir", "", "Where files are put; where not given, RUN/analysis/attention.", metavar="DIR")
    add_decode_flags(parser)
    add_thread_flags(parser)
    return parser


def run(argv: Sequence[str]) -> None:
    """Carries out the analysis.

    Raises:
      UserError: A flag is invalid, or the run has no such attention.
    """
    flags = build_parser().parse_args(argv)
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
            looked.append(_look(look, translator, source, reference, flags, number if len(lines) > 1 else 0))
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


def _look(look: Any, translator: Any, source: str, reference: str, flags: argparse.Namespace, number: int) -> Any:
    try:
        return look(translator, source, reference, flags.partner, flags.max_subwords)
    except UserError as error:
        if not number:
            raise
        raise UserError(f"{flags.sentence_file}, line {number}: {error}") from error
