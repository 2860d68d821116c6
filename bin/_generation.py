"""From the flags of data generation to ``generate``, for the commands that generate data."""

import argparse
import pathlib
from typing import Any

from t2t_ext import registry
from t2t_ext.bin._flag_groups import problem_options
from t2t_ext.data.datasets.manifest import Manifest, manifest_path
from t2t_ext.data.datasets.pseudo_references import command
from t2t_ext.data.generation.generate import generate

_TEXT = ("source_steps", "target_steps", "subwords", "num_merges", "vocab_threshold", "bpe_codes", "bpe_vocab")
_SETTINGS = (*_TEXT, "num_shards", "vocab_size", "vocab_sample_size", "max_tokens", "max_length_ratio", "cleaning")


def generate_from_flags(args: argparse.Namespace, problem_name: str, *, seed: int | None = None) -> Manifest:
    """Generates the data of a problem as the flags say, unless they are there.

    Args:
      args: Parsed flags, those of ``add_problem_flags`` and ``add_data_generation_flags`` among them.
      problem_name: The problem.
      seed: Of the shuffling and the sampling, or None where the user said nothing.

    Raises:
      UserError: As ``registry.problem`` and ``generate``.
    """
    options = problem_options(args)
    if "dev_lines" in args.given:
        options["dev_lines"] = args.dev_lines
    problem = registry.problem(problem_name, **options)
    manifest = generate(
        problem,
        args.data_dir,
        args.tmp_dir,
        seed=seed,
        subword_model=args.subword_model,
        vocab_from=args.vocab_from,
        num_processes=args.num_processes,
        runner=getattr(args, "runner", "local"),
        beam_options=getattr(args, "beam_options", ""),
        overwrite=getattr(args, "overwrite", False),
        **generation_settings(args),
    )
    sidecar = manifest_path(pathlib.Path(args.data_dir).expanduser(), problem.name)
    if problem.with_pseudo_references and not sidecar.exists():
        print(
            f"These are the data of {problem.data_name}. What {problem.name} has beside them is made by two runs that "
            f"were trained on {problem.data_name}, the second with --hparams=target_direction=r2l: "
            f"{command(problem.data_name, args.data_dir)}",
            flush=True,
        )
    return manifest


def generation_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the fields of ``GenerationSettings`` that were given as flags, but for the seed."""
    separate = args.separate_vocab
    settings = {name: getattr(args, name) for name in _SETTINGS if name in args.given and _says_something(args, name)}
    if args.text_steps:
        settings = {"source_steps": args.text_steps, "target_steps": args.text_steps} | settings
    return settings | {"joint_vocab": None if separate is None else not separate}


def _says_something(args: argparse.Namespace, name: str) -> bool:
    """Returns whether a flag's value is not its way of saying "as the problem says": 0, but where that is a limit."""
    return bool(getattr(args, name)) or name in ("max_length_ratio", "max_tokens", "vocab_threshold")
