"""``t2t_ext-trainer``: trains a model, or resumes a run."""

import argparse
from collections.abc import Mapping

from t2t_ext import registry
from t2t_ext.bin import _flag_groups
from t2t_ext.bin._describe import describe, print_table
from t2t_ext.bin._flags import FlagParser, command, start_tensorflow
from t2t_ext.config.cores import usable_cores
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.training import TrainConfig
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.errors import UserError
from t2t_ext.io import interruption, log
from t2t_ext.runs.run_directory import RunDirectory
from t2t_ext.training import finished, setup_run

_EXAMPLES = """\
  t2t_ext-trainer --problem=translate_ende_cldr --model=transformer --hparams_set=transformer_small \\
      --hparams="batch_size=2048,learning_rate_warmup_steps=1000" --data_dir=data --output_dir=RUN \\
      --train_steps=2000 --local_eval_frequency=500 --generate_data
  t2t_ext-trainer --output_dir=RUN --train_steps=4000     # resumes with what is stored"""

_EXIT_INTERRUPTED = 130  # after SIGINT, as in shells


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser(
        "t2t_ext-trainer",
        "Trains a model. Started again on the same --output_dir, it resumes where it stopped; flags that are not given "
        "keep the values stored there.",
        examples=_EXAMPLES,
    )
    _flag_groups.add_registry_flags(parser)
    _flag_groups.add_problem_flags(parser)
    _flag_groups.add_hparams_flags(parser)
    _flag_groups.add_training_flags(parser)
    _flag_groups.add_data_generation_flags(parser)
    parser.add(_flag_groups.thread_flags())
    return parser


@command(build_parser)
def main(args: argparse.Namespace) -> int:
    """Trains as the flags say; returns the exit status."""
    if args.explain:
        hparams, origins = _hparams(args)
        rows = hparams.explain(origins)
        print_table([("hparam", "value", "origin", "meaning"), *((r.name, r.value, r.origin, r.help) for r in rows)])
        return 0
    if args.describe or args.describe_svg:
        describe(args, _hparams(args)[0])
        return 0
    without_effect = [f"--{name}" for name in _flag_groups.generation_flags(args)]
    if without_effect and not args.generate_data:
        raise UserError(
            f"{', '.join(without_effect)}: only for generating data. Add --generate_data, or leave out what has no "
            f"effect without it."
        )
    config = train_config(args)
    # Finds all user errors before TensorFlow starts.
    resolved = setup_run.resolve(config)
    with interruption.exiting_at_sigterm(resolved.settings.preempted_exit_code):
        return _run(args, resolved)


def _run(args: argparse.Namespace, resolved: setup_run.ResolvedRun) -> int:
    """Generates the data if requested, and trains; returns the exit status."""
    setup_run.check_checkpoints(resolved)
    setup_run.check_first_weights(resolved)
    if args.generate_data:
        from t2t_ext.bin._generation import generate_from_flags

        args.data_dir = resolved.config.data_dir
        generate_from_flags(args, setup_run.make_problem(resolved))
    generated = GeneratedData.open(setup_run.make_problem(resolved), resolved.config.data_dir)
    setup_run.check_stored(resolved, generated)
    if done := finished.message(resolved):
        log.info(done)
        return 0
    _start_tensorflow(args, resolved.hparams)
    from t2t_ext.training.loop import train

    result = train(resolved)
    if result.finished:
        return 0
    return _EXIT_INTERRUPTED if result.stop_reason == "SIGINT" else resolved.settings.preempted_exit_code


def train_config(args: argparse.Namespace) -> TrainConfig:
    """Returns the settings of the training run that the flags ask for."""
    given = {name: getattr(args, name) for name in TrainConfig.names() if name in args.given}
    given |= {"problem_options": _flag_groups.problem_options(args), "train_command": args.command_line}
    return TrainConfig(**given)


def _start_tensorflow(args: argparse.Namespace, hparams: HParams) -> None:
    inter_op, intra_op = args.inter_op_parallelism_threads, args.intra_op_parallelism_threads
    if (
        hparams.parallel_slices > 1
        and not {"inter_op_parallelism_threads", "intra_op_parallelism_threads"} & args.given
    ):
        # Parallel slices with one thread each use a CPU better than one slice with several threads.
        inter_op, intra_op = max(hparams.parallel_slices, usable_cores()), 1
    start_tensorflow(inter_op, intra_op)


def _hparams(args: argparse.Namespace) -> tuple[HParams, Mapping[str, str]]:
    """Returns the hparams that a run with these flags would have, and their origins."""
    if args.output_dir and RunDirectory.exists(args.output_dir):
        resolved = setup_run.resolve(train_config(args))
        return resolved.hparams, resolved.config.origins
    if args.output_dir and (args.describe or args.describe_svg) and not (args.model and args.hparams_set):
        RunDirectory.open(args.output_dir)  # raises an error that says what it is instead of a run
    if not args.hparams_set:
        raise UserError("Say which hparams: --hparams_set=NAME (--registry_help lists all), or --output_dir=RUN.")
    hparams = registry.resolve_hparams(args.hparams_set, args.hparams)
    return hparams, hparams.origins()


if __name__ == "__main__":
    raise SystemExit(main())
