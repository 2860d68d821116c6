"""Groups of flags that several commands share. Names and defaults are T2T's if T2T has the flag."""

import argparse
import dataclasses
from collections.abc import Collection
from typing import Any

from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, add_settings
from t2t_ext.config import own_text
from t2t_ext.config.decode import DecodeHParams
from t2t_ext.config.generation import GenerationConfig, prepared_twice
from t2t_ext.config.languages import check_language
from t2t_ext.config.own_text import OwnTextOptions
from t2t_ext.config.problem_options import parse as parse_problem_options
from t2t_ext.config.training import TrainConfig, TrainingSettings
from t2t_ext.errors import UserError
from t2t_ext.pages import page

# Settings and options that only t2t_ext-datagen has flags for.
_DATAGEN_ALONE = ("seed", "vocab_sample_size", "max_tokens", "overwrite", "runner", "beam_options", "dev_lines")
_SHOWN_DECODE_HPARAMS = ("beam_size", "alpha", "batch_size")

USER_DIRECTORY = {"t2t_usr_dir=DIR": "Folder of your own modules, used instead of the copies stored in runs."}
# The runs to use; --output_dir must be given.
RUN_FLAGS: FlagTable = {
    "What": {
        "output_dir=RUN[,RUN]": Flag(
            "Run directory written by t2t_ext-trainer; A,B: several runs, which translate together as an ensemble.",
            required=True,
        ),
        "checkpoint_path=NAME[,NAME]": "Checkpoint of the run: best, averaged, a step or a path; by default the "
        "latest. A,B: one for each run, or several of one run as an ensemble.",
        "ensemble_weights=X,X": Flag(
            "Weights of the ensemble members' probabilities, one for each member; default: equal weights.",
            kind=float,
            many=True,
        ),
        **USER_DIRECTORY,
    },
}


def decode_flags(**defaults: Any) -> FlagTable:
    """Returns the flag ``--decode_hparams``.

    Args:
      **defaults: Defaults to show in the help, where the command differs from ``DecodeHParams``.
    """
    hparams = DecodeHParams()
    shown = ",".join(f"{name}={defaults.get(name, getattr(hparams, name))}" for name in _SHOWN_DECODE_HPARAMS)
    return {
        "Decoding": {
            'decode_hparams="A=1,B=x"': 'Search settings, such as "beam_size=8,alpha=1"; the defaults include '
            f'"{shown}". For all names see {page("decoding")}.',
        },
    }


DECODE_FLAGS = decode_flags()
# ``alignment_settings`` reads them.
ALIGNMENT_FLAGS: FlagTable = {
    "Alignments": {
        "alignment_layer": Flag(
            "Decoder layer to read attention from, counted from 0, or backwards from the last one, -1; default: the "
            "last but one.",
            None,
            kind=int,
        ),
        "alignment_heads=N,N": Flag("Attention heads to read, counted from 0; default: all.", kind=int, many=True),
    },
}


def thread_flags(*, many_batches: bool = False) -> FlagTable:
    """Returns the flags for the sizes of TensorFlow's thread pools; ``configure_threads`` uses them.

    Args:
      many_batches: Whether the command translates several batches at once, so that one thread per operation is best.
    """
    choice = "0 = TensorFlow's choice"
    threads, words = (
        (1, "1 is fastest, because several batches are translated at once") if many_batches else (0, choice)
    )
    return {
        "Machine": {
            "inter_op_parallelism_threads": Flag(
                f"Number of operations to run in parallel; {choice}.", 0, minimum=0, maximum=4096
            ),
            "intra_op_parallelism_threads": Flag(
                f"Number of threads per operation; {words}.", threads, minimum=0, maximum=4096
            ),
        },
    }


def add_registry_flags(parser: FlagParser) -> None:
    """Adds ``--t2t_usr_dir`` and ``--registry_help``; ``parse_args`` handles both."""
    add_settings(parser, TrainConfig, ["t2t_usr_dir"])
    words = "Print the names of all problems, models and hparams sets and exit."
    parser.add({"Information": {"registry_help": Flag(words, information=True)}})


def add_problem_flags(parser: FlagParser) -> None:
    """Adds ``--problem``, ``--problem_options``, ``--data_dir`` and ``--tmp_dir``."""
    add_settings(parser, TrainConfig, ["problem", "problem_options", "data_dir"], problem_options="")
    own = "a private folder in the system's temporary directory"
    parser.add({"Data": {"tmp_dir=DIR": f"Folder of raw files, which are downloaded to it if needed; default: {own}."}})


def add_data_generation_flags(parser: FlagParser, *, alone: bool = False, without: Collection[str] = ()) -> None:
    """Adds the flags of data generation and of the problem ``translate_parallel_text``.

    Args:
      parser: The command's parser.
      alone: Whether the command does nothing but generate data; it then also has the flags in ``_DATAGEN_ALONE``.
      without: Settings that have no effect on what the command does.
    """
    parser.group("Data generation")
    explained = f"For the steps see {page('text')}"
    parser.group("Text", f'{explained}; "none" means no steps. Default: as the problem defines it.')
    steps = "Steps that prepare both sides, such as moses_tokenize,lowercase."
    parser.add({"Text": {"text_steps=A,B": steps}})
    skipped = {*(() if alone else _DATAGEN_ALONE), *without}
    add_settings(parser, GenerationConfig, [name for name in GenerationConfig.names() if name not in skipped])
    parser.group(
        own_text.GROUP,
        "Files with lines of text, or SGML or XML with segments; without *_target, tab-separated files, TMX, Parquet "
        "or JSON lines. Plain or compressed, or ARCHIVE:MEMBER. A,B: several files; for dev and test targets, several "
        "references.",
    )
    options = [field.name for field in dataclasses.fields(OwnTextOptions) if field.metadata["group"]]
    add_settings(parser, OwnTextOptions, [name for name in options if name not in skipped])


def add_hparams_flags(parser: FlagParser) -> None:
    """Adds ``--model``, ``--hparams_set``, ``--hparams``, and the flags that explain and describe them."""
    add_settings(parser, TrainConfig, ["model", "hparams_set", "hparams"])
    explain = "Print every hyper-parameter with its value, origin and meaning, and exit."
    describe = "Print a diagram of the model and a table of its variables with shapes and parameters, and exit."
    parser.add(
        {
            "Information": {
                "explain": Flag(explain, information=True),
                "describe": Flag(describe, information=True),
                "describe_svg=FILE": "Draw the diagram of the model as SVG and exit.",
            }
        }
    )


def add_training_flags(parser: FlagParser) -> None:
    """Adds the flags of a training run, including those of its evaluation and devices."""
    names = ["output_dir", "train_steps", "random_seed", "warm_start_from", "warm_start_optimizer"]
    add_settings(parser, TrainConfig, names)
    parser.add({"Training": {"generate_data": "Generate the data first if it is not there yet."}})
    add_settings(parser, TrainingSettings, [name for name in TrainingSettings.names() if name not in names])


def generation_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the fields of ``GenerationConfig`` that the flags set: name -> value."""
    given = {}
    alone = hasattr(args, "overwrite")  # in other commands --random_seed is the seed of training
    for field in dataclasses.fields(GenerationConfig):
        if field.name in _DATAGEN_ALONE and not alone:
            continue
        flag = field.metadata["flag"] or field.name
        value = getattr(args, flag) if flag in args.given else None
        if value == "" and field.metadata["metavar"] == "FILE":
            raise UserError(f"--{flag}= names no file. Give one, or leave the flag out.")
        if field.name == "joint_vocab" and value is not None:
            value = not value  # --separate_vocab
        if value or (value is not None and field.name in GenerationConfig.zero_counts):
            given[field.name] = value
    steps = {}
    if args.text_steps:
        from t2t_ext.data.text.text_steps import parse_steps

        # Checked here, since later messages would name a flag that was not given.
        parse_steps(args.text_steps, "--text_steps")
        if given.get("subword_model") or given.get("vocab_from"):
            raise UserError(prepared_twice("text_steps"))
        steps = {"source_steps": args.text_steps, "target_steps": args.text_steps}
    return {**steps, **given}


def generation_flags(args: argparse.Namespace) -> list[str]:
    """Returns the names of the given flags that only affect how data are generated, without the problem's own."""
    names = {field.metadata["flag"] or field.name for field in dataclasses.fields(GenerationConfig)}
    return sorted(args.given & {*names, "text_steps"} - {"random_seed"})


def problem_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the options for ``registry.problem(args.problem, **options)`` that were given as flags."""
    named = {name: getattr(args, name) for name in OwnTextOptions.names() if name in args.given}
    options = parse_problem_options(args.problem_options)
    twice = sorted(set(named) & set(options))
    if twice:
        raise UserError(f"{twice[0]} is given both as --{twice[0]} and in --problem_options; leave one out.")
    options = {**options, **named}
    for name in ("source_language", "target_language"):
        check_language(options.get(name, ""), f"--{name}")
    return options


def alignment_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of ``AlignmentConfig`` that the flags give."""
    return {"layer": args.alignment_layer, "heads": args.alignment_heads}
