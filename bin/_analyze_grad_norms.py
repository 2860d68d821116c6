"""t2t_ext-analyze grad_norms: gradient norms of the layers of runs (Liu et al. 2020, section 2.2.2, equation 6)."""

import argparse
import collections
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from t2t_ext.bin import _analyzed_runs, _text_lines
from t2t_ext.bin._flag_groups import add_thread_flags
from t2t_ext.bin._flags import FlagParser, add_flag, at_least, start_tensorflow
from t2t_ext.bin._run_text import shown_progress
from t2t_ext.errors import UserError

_NAME = "t2t_ext-analyze grad_norms"
_AT_CHECKPOINTS = ("batches", "batch_size", "checkpoint_path", "data_dir", "precision")
_EXAMPLES = """\
  t2t_ext-analyze grad_norms --output_dir=BASELINE --output_dir=GCA --output_dir=FULL --labels="baseline,hard GCA,full"
  t2t_ext-analyze grad_norms --output_dir=BASELINE --output_dir=GCA --from_step=20000 --out_dir=figures
  t2t_ext-analyze grad_norms --output_dir=BASELINE,GCA --split=dev --batches=20 --checkpoint_path=best
"""


def build_parser() -> FlagParser:
    """Returns the flags of the analysis."""
    parser = FlagParser(
        _NAME,
        "Compares the gradient norms of runs layer by layer: as training logged them, or computed at checkpoints.",
        examples=_EXAMPLES,
    )
    _analyzed_runs.add_run_flags(parser, "as their directories. Runs with one label are one system, such as seeds")
    group = parser.group("Norms that training logged (RUN/gradient_norms.jsonl)")
    add_flag(group, "from_step", 0, "Earlier steps are left out.", kind=at_least(0), metavar="N")
    add_flag(group, "to_step", 0, "Later steps are left out; 0 = none.", kind=at_least(0), metavar="N")
    _add_checkpoint_flags(parser)
    _analyzed_runs.add_out_dir_flag(parser, "grad_norms")
    add_thread_flags(parser)
    return parser


def _add_checkpoint_flags(parser: FlagParser) -> None:
    group = parser.group("Norms at a checkpoint, without dropout, on the same batches for all runs")
    add_flag(group, "split", "", "Split whose batches are taken, such as dev; where not given, those that training "
             "logged are shown.", metavar="NAME")  # fmt: skip
    add_flag(group, "batches", 20, "How many, of all lengths.", kind=at_least(1), metavar="N")
    add_flag(
        group,
        "batch_size",
        0,
        "Most tokens of a batch, padded; 0 = as the first run's batches.",
        kind=at_least(0),
        metavar="N",
    )
    _analyzed_runs.add_checkpoint_flag(group)
    add_flag(group, "data_dir", "", "The first run's data, where they have moved since training.", metavar="DIR")
    add_flag(
        group,
        "precision",
        "float32",
        "What is computed in; another one gives other roundings.",
        choices=("float32", "mixed_bfloat16"),
    )


def run(argv: Sequence[str]) -> None:
    """Carries out the analysis.

    Raises:
      UserError: A flag is wrong, a run has no gradient norms, or runs cannot be compared.
    """
    flags = build_parser().parse_args(argv)
    # Everything that the user can have got wrong is found before TensorFlow starts and models are loaded.
    directories = _runs(flags)
    labels = _labels(flags, directories)
    _check_modes(flags)
    out_dir = _analyzed_runs.output_directory(flags, directories[0].path, "grad_norms")
    from t2t_ext.analysis.gradients import report as gradient_report

    notes: list[str] = []
    report = _probed(flags, directories, labels) if flags.split else _logged(flags, directories, labels, notes)
    for note in notes:
        _text_lines.warn(note)
    names = gradient_report.write(out_dir, report, notes)
    print(gradient_report.build(report).text(), flush=True)
    print(f"{', '.join(names[1:])} and the page {out_dir / names[0]}", file=sys.stderr)


def _runs(flags: argparse.Namespace) -> list[Any]:
    """Opens the runs, each given once."""
    from t2t_ext.runs.run_directory import RunDirectory

    paths = _analyzed_runs.run_paths(flags, _NAME)
    twice = [str(path) for path, count in collections.Counter(map(_resolved, paths)).items() if count > 1]
    if twice:
        raise UserError(f"{twice[0]} is given twice: a run compared with itself tells nothing.")
    return [RunDirectory.open(path) for path in paths]


def _resolved(path: str) -> pathlib.Path:
    return pathlib.Path(path).resolve()


def _labels(flags: argparse.Namespace, directories: Sequence[Any]) -> list[str]:
    if flags.labels:
        labels = [label.strip() for label in flags.labels.split(",")]
        if len(labels) != len(directories) or not all(labels):
            raise UserError(
                f"--labels={flags.labels} has {len(labels)} labels for {len(directories)} runs: give one for each."
            )
        return labels
    names = [_resolved(each.path).name for each in directories]
    return names if len(set(names)) == len(names) else [str(each.path) for each in directories]


def _check_modes(flags: argparse.Namespace) -> None:
    if not flags.split:
        given = [f"--{name}" for name in _AT_CHECKPOINTS if name in flags.given]
        if given:
            raise UserError(f"{given[0]} goes with --split=NAME: without it, what training logged is shown.")
        if flags.to_step and flags.to_step < flags.from_step:
            raise UserError(f"--from_step={flags.from_step} is behind --to_step={flags.to_step}.")
        return
    given = [f"--{name}" for name in ("from_step", "to_step") if name in flags.given]
    if given:
        raise UserError(f"{given[0]} chooses among what training logged; with --split, give --checkpoint_path.")


def _logged(flags: argparse.Namespace, directories: Sequence[Any], labels: Sequence[str], notes: list[str]) -> Any:
    """Returns the report of what training logged."""
    from t2t_ext.analysis.gradients import series as gradient_series
    from t2t_ext.analysis.gradients.report import GradientComparison

    series = [gradient_series.read(each, flags.from_step, flags.to_step) for each in directories]
    for each in series:
        if each.damaged:
            notes.append(f"{each.damaged} lines of {each.run}/gradient_norms.jsonl cannot be read and are left out")
    first, last = min(int(each.steps[0]) for each in series), max(int(each.steps[-1]) for each in series)
    if len({(int(each.steps[0]), int(each.steps[-1])) for each in series}) > 1:
        notes.append(
            "the runs logged different steps, so their means are of different steps: give --from_step, --to_step"
        )
    measured = (
        f"Norms of the gradient of the loss in training, before clipping, with dropout; logged points of steps {first} "
        f"to {last}, each a mean over the steps since the one before."
    )
    return GradientComparison(gradient_series.systems(series, labels), measured, "logged point", over_steps=True)


# === At checkpoints ===


def _probed(flags: argparse.Namespace, directories: Sequence[Any], labels: Sequence[str]) -> Any:
    """Returns the report of norms that are computed now."""
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.runs import checkpoints

    paths = _analyzed_runs.checkpoint_paths(flags.checkpoint_path, len(directories))
    chosen = [
        checkpoints.resolve_checkpoint(each.path, path or None, warn=_text_lines.warn)
        for each, path in zip(directories, paths, strict=True)
    ]
    hparams = [each.hparams() for each in directories]
    first = directories[0]
    for each in directories[1:]:
        if each.config.vocabularies != first.config.vocabularies:
            raise UserError(
                f"The runs {first.path} and {each.path} have different vocabularies: a batch of the one means nothing "
                "to the other, so their gradients cannot be compared on the same batches. What they logged in training "
                "can: leave --split out."
            )
    data = GeneratedData.open(_problem(first), flags.data_dir or first.config.data_dir)
    if data.digest() != first.config.data_digest:
        _text_lines.warn(f"the data in {data.data_dir} are not those that {first.path} was trained on")
    if flags.split not in data.splits:
        data.shard_paths(flags.split)  # says which splits there are
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    return _computed(flags, directories, labels, chosen, hparams, data)


def _problem(directory: Any) -> Any:
    from t2t_ext import registry

    directory.load_user_code()
    return registry.problem(directory.config.problem, **directory.config.problem_options)


def _computed(
    flags: argparse.Namespace,
    directories: Sequence[Any],
    labels: Sequence[str],
    chosen: Sequence[pathlib.Path],
    hparams: Sequence[Any],
    data: Any,
) -> Any:
    """Loads one model after the other and computes its norms."""
    import numpy as np

    from t2t_ext import registry
    from t2t_ext.analysis.gradients import series as gradient_series
    from t2t_ext.analysis.gradients.report import GradientComparison
    from t2t_ext.data.datasets.example_store import ExampleStore
    from t2t_ext.models.seq2seq import build_model
    from t2t_ext.runs import checkpoints
    from t2t_ext.training.gradient_norms import fixed_batches, probe

    classes = [registry.model(each.config.model) for each in directories]
    sides = [each.sides(own).target_sides for each, own in zip(classes, hparams, strict=True)]
    kinds = {(count, own.pseudo if count == 2 else "") for count, own in zip(sides, hparams, strict=True)}
    if len(kinds) > 1:
        raise UserError(
            "The runs learn from different targets (one of a sentence, or two, or other pseudo references), so that "
            "there are no batches that all of them could read. Compare what they logged in training: leave --split out."
        )
    store = ExampleStore.load(data, flags.split)
    series, together, losses = [], {}, []
    for directory, model_class, own, checkpoint, label in zip(
        directories, classes, hparams, chosen, labels, strict=True
    ):
        # Of the same examples in the same batches for all, but written in the run's own direction.
        planned = hparams[0].replace(target_direction=own.target_direction)
        size = flags.batch_size or hparams[0].batch_size
        batches = fixed_batches(store, planned, size, flags.batches, sides[0])
        model = build_model(
            model_class,
            own,
            *directory.text_encoders(),
            source_feature_size=store.source_feature_size,
            dtype=flags.precision,
        )
        model.assign(checkpoints.load_arrays(checkpoint, "model"))
        with shown_progress(label, len(batches), "batches") as update:
            found = probe(model, own, batches, update)
        step = checkpoints.checkpoint_step(checkpoint)
        series.append(gradient_series.Series(directory.path, np.full(len(batches), step), dict(found.of_batches)))
        if list(labels).count(label) == 1:
            together[label] = dict(found.together)
        losses.append(f"{label} step {step}, loss {found.loss:.4f}")
    measured = (
        f"Norms of the gradient of the mean loss of a batch at a checkpoint ({'; '.join(losses)}), without dropout, in "
        f"{flags.precision}; {len(batches)} batches of {flags.split}, the same for all. “Together” is of the gradient "
        "of all of them at once."
    )
    return GradientComparison(gradient_series.systems(series, labels), measured, "batch", together)
