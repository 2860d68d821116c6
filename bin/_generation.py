"""From the flags of data generation to ``generate``, for the commands that generate data."""

import argparse

from t2t_ext import registry
from t2t_ext.bin._flag_groups import problem_options
from t2t_ext.data.generate import generate
from t2t_ext.data.manifest import Manifest

_SETTINGS = ("num_shards", "vocab_size", "vocab_sample_size", "max_tokens", "max_length_ratio")


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
    separate = args.separate_vocab
    return generate(
        registry.problem(problem_name, **options),
        args.data_dir,
        args.tmp_dir,
        seed=seed,
        joint_vocab=None if separate is None else not separate,
        subword_model=args.subword_model,
        vocab_from=args.vocab_from,
        num_processes=args.num_processes,
        overwrite=getattr(args, "overwrite", False),
        # 0 is how a flag says "as the problem says"; a length ratio of 0 means that there is no limit.
        **{name: getattr(args, name) for name in _SETTINGS if name in args.given and _says_something(args, name)},
    )


def _says_something(args: argparse.Namespace, name: str) -> bool:
    return bool(getattr(args, name)) or name in ("max_length_ratio", "max_tokens")
