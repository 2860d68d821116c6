"""Groups of flags that several commands share. Names and defaults are T2T's where T2T has the flag."""

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

from t2t_ext.bin._flags import FlagParser, add_flag, add_settings, at_least
from t2t_ext.config import own_text
from t2t_ext.config.generation import GenerationConfig
from t2t_ext.config.own_text import OwnTextOptions
from t2t_ext.config.problem_options import parse as parse_problem_options
from t2t_ext.config.training import TrainConfig, TrainingSettings
from t2t_ext.errors import UserError

# Settings and options that only t2t_ext-datagen has flags for.
_DATAGEN_ALONE = ("seed", "vocab_sample_size", "max_tokens", "overwrite", "runner", "beam_options", "dev_lines")


def add_registry_flags(parser: FlagParser) -> None:
    """Adds ``--t2t_usr_dir`` and ``--registry_help``; ``parse_args`` handles both."""
    add_settings(parser, TrainConfig, ["t2t_usr_dir"])
    parser.group("Information").add_argument(
        "--registry_help",
        action="store_true",
        help="Print the names of all problems, models and hparams sets and exit.",
    )


def add_problem_flags(parser: FlagParser) -> None:
    """Adds ``--problem``, ``--problem_options``, ``--data_dir`` and ``--tmp_dir``."""
    add_settings(parser, TrainConfig, ["problem", "problem_options", "data_dir"], problem_options="")
    add_flag(
        parser.group("Data"), "tmp_dir", "/tmp/t2t_datagen", "Where raw files are, or are downloaded to.", metavar="DIR"
    )


def add_data_generation_flags(parser: FlagParser, *, alone: bool = False) -> None:
    """Adds the flags of data generation and those of ``translate_parallel_text``.

    Args:
      parser: The command's parser.
      alone: Whether generating is all that the command does, so that it has the flags of that alone, too.
    """
    parser.group("Data generation")
    parser.group("Text", 'docs/text.md explains the steps; "none" stands for no steps. By default as the problem says.')
    add_flag(
        parser.group("Text"),
        "text_steps",
        "",
        "Steps that prepare both sides, such as moses_tokenize,lowercase.",
        metavar="A,B",
    )
    skipped = () if alone else _DATAGEN_ALONE
    add_settings(parser, GenerationConfig, [name for name in GenerationConfig.names() if name not in skipped])
    parser.group(
        own_text.GROUP,
        "Lines of text, or SGML or XML with segments; without *_target, tab-separated files or TMX. Plain or "
        "compressed, or ARCHIVE:MEMBER. A,B: several files; of dev and test targets, several references.",
    )
    options = [field.name for field in dataclasses.fields(OwnTextOptions) if field.metadata["group"]]
    add_settings(parser, OwnTextOptions, [name for name in options if name not in skipped])


def generation_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the fields of ``GenerationConfig`` that the flags say something about."""
    given = {}
    alone = hasattr(args, "overwrite")  # elsewhere --random_seed is training's
    for field in dataclasses.fields(GenerationConfig):
        if field.name in _DATAGEN_ALONE and not alone:
            continue
        flag = field.metadata["flag"] or field.name
        value = getattr(args, flag) if flag in args.given else None
        if field.name == "joint_vocab" and value is not None:
            value = not value  # --separate_vocab
        if value or (value is not None and field.name in GenerationConfig.zero_counts):
            given[field.name] = value
    steps = {"source_steps": args.text_steps, "target_steps": args.text_steps} if args.text_steps else {}
    return {**steps, **given}


def generation_flags(args: argparse.Namespace) -> list[str]:
    """Returns the flags that were given and only say how data are generated, without those of the problem."""
    names = {field.metadata["flag"] or field.name for field in dataclasses.fields(GenerationConfig)}
    return sorted(args.given & {*names, "text_steps"} - {"random_seed"})


def problem_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the options for ``registry.problem(args.problem, **options)`` that were given as flags.

    Raises:
      UserError: ``--problem_options`` is malformed, or names an option that has a flag of its own given too.
    """
    named = {name: getattr(args, name) for name in OwnTextOptions.names() if name in args.given}
    options = parse_problem_options(args.problem_options)
    twice = sorted(set(named) & set(options))
    if twice:
        raise UserError(f"{twice[0]} is given both as --{twice[0]} and in --problem_options; leave one out.")
    return {**options, **named}


def add_hparams_flags(parser: FlagParser) -> None:
    """Adds ``--model``, ``--hparams_set``, ``--hparams``, and the flags that explain and describe them."""
    add_settings(parser, TrainConfig, ["model", "hparams_set", "hparams"])
    group = parser.group("Information")
    group.add_argument(
        "--explain", action="store_true", help="Print every hyper-parameter with its meaning and origin and exit."
    )
    group.add_argument(
        "--describe",
        action="store_true",
        help="Print a diagram of the model and its variables with shapes and parameters and exit.",
    )
    add_flag(group, "describe_svg", "", "Draw the diagram of the model as SVG and exit.", metavar="FILE")


def add_training_flags(parser: FlagParser) -> None:
    """Adds the flags of a training run, its evaluation and devices included."""
    names = ["output_dir", "train_steps", "random_seed", "warm_start_from", "warm_start_optimizer"]
    add_settings(parser, TrainConfig, names)
    add_flag(parser.group("Training"), "generate_data", False, "Generate the data first if it is not there yet.")
    add_settings(parser, TrainingSettings, [name for name in TrainingSettings.names() if name not in names])


def add_decode_flags(parser: FlagParser) -> None:
    """Adds ``--decode_hparams``."""
    add_flag(
        parser.group("Decoding"),
        "decode_hparams",
        "",
        'How translations are searched for, such as "beam_size=4,alpha=0.6,batch_size=32".',
        metavar='"A=1,B=x"',
    )


def add_run_flags(parser: FlagParser) -> None:
    """Adds ``--output_dir``, which must be given, ``--checkpoint_path`` and what else names the runs to use."""
    group = parser.group("What")
    add_flag(
        group,
        "output_dir",
        "",
        "The run, as t2t_ext-trainer wrote it; A,B: several, which translate together as an ensemble.",
        metavar="RUN[,RUN]",
        required=True,
    )
    add_flag(
        group,
        "checkpoint_path",
        "",
        "Checkpoint in it, or RUN/best or RUN/averaged; by default the latest. A,B: one for each run, or an ensemble "
        "of several of one run.",
        metavar="DIR[,DIR]",
    )
    add_flag(
        group,
        "ensemble_weights",
        "",
        "Shares of an ensemble's members in the probability; where not given, equal ones.",
        metavar="X,X",
    )
    add_flag(
        group,
        "t2t_usr_dir",
        "",
        "The folder of the run's own modules, where it has moved since training.",
        metavar="DIR",
    )


def add_alignment_flags(parser: FlagParser) -> None:
    """Adds ``--alignment_layer`` and ``--alignment_heads``; ``alignment_settings`` reads them."""
    group = parser.group("Alignments")
    add_flag(
        group,
        "alignment_layer",
        None,
        "Decoder layer whose attention is read, counted from 0, or from the last one, -1; where not given, the last "
        "but one.",
        kind=int,
        metavar="N",
    )
    add_flag(group, "alignment_heads", "", "Its heads, counted from 0; where not given, all.", metavar="N,N")


def alignment_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of ``AlignmentConfig`` that were given as flags.

    Raises:
      UserError: ``--alignment_heads`` is no list of numbers.
    """
    return {"layer": args.alignment_layer, "heads": tuple(_numbers(args, "alignment_heads", int))}


def ensemble_weights(args: argparse.Namespace, members: int) -> tuple[float, ...]:
    """Returns the shares of an ensemble's members, which add up to 1.

    Raises:
      UserError: ``--ensemble_weights`` is no list of a positive number for each.
    """
    from t2t_ext.runs.chosen_runs import normalized_weights

    return normalized_weights(_numbers(args, "ensemble_weights", float) or None, members)


def _numbers(args: argparse.Namespace, name: str, kind: Callable[[str], Any]) -> list[Any]:
    """Returns the numbers of a flag's comma-separated list."""
    text = getattr(args, name)
    try:
        return [kind(part) for part in text.split(",")] if text else []
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise UserError(f"--{name}={text!r} is no list of {what}; write --{name}=1,2.") from None


def add_thread_flags(parser: FlagParser, *, many_batches: bool = False) -> None:
    """Adds the sizes of TensorFlow's thread pools; ``configure_threads`` uses them.

    Args:
      parser: The command's parser.
      many_batches: Whether the command translates several batches at once, so that one thread an operation is best.
    """
    group = parser.group("Machine")
    threads, words = (0, "0 = TensorFlow's choice")
    if many_batches:
        threads, words = (1, "1 is fastest, as several batches are translated at once")
    add_flag(
        group,
        "inter_op_parallelism_threads",
        0,
        "Operations that run side by side; 0 = TensorFlow's choice.",
        kind=at_least(0),
        metavar="N",
    )
    add_flag(
        group,
        "intra_op_parallelism_threads",
        threads,
        f"Threads of one operation; {words}.",
        kind=at_least(0),
        metavar="N",
    )
