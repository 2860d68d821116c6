"""Computes gradient norms of several runs at their checkpoints, on the same batches."""

from collections.abc import Sequence

import numpy as np

from t2t_ext import registry
from t2t_ext.analysis.gradients import series as gradient_series
from t2t_ext.analysis.gradients.report import GradientComparison
from t2t_ext.analysis.runs import AnalyzedRun
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.errors import UserError
from t2t_ext.io.progress import Progress
from t2t_ext.models.seq2seq import build_model
from t2t_ext.runs import checkpoints
from t2t_ext.training.gradient_norms import fixed_batches, probe


def compare(
    runs: Sequence[AnalyzedRun],
    data: GeneratedData,
    split: str,
    *,
    batches: int,
    batch_size: int,
    precision: str,
    progress: Progress,
) -> GradientComparison:
    """Loads one model after the other and computes its gradient norms on the same batches of a split.

    Runs with the same label form one system. ``data`` are the first run's. There are ``batches`` batches of at most
    ``batch_size`` padded tokens (0: the first run's batch size). ``precision`` is ``float32`` or ``mixed_bfloat16``.

    Raises:
      UserError: The runs learn from different targets, or there are no batches.
    """
    hparams = [each.directory.hparams() for each in runs]
    classes = [registry.model(each.directory.config.model) for each in runs]
    sides = [each.sides(own).target_sides for each, own in zip(classes, hparams, strict=True)]
    kinds = {(count, own.pseudo if count == 2 else "") for count, own in zip(sides, hparams, strict=True)}
    if len(kinds) > 1:
        raise UserError(
            "The runs learn from different targets (one of a sentence, or two, or other pseudo references), so that "
            "there are no batches that all of them could read. Compare what they logged in training: leave --split out."
        )
    store = ExampleStore.load(data, split)
    series, together, losses, count = [], {}, [], 0
    labels = [run.label for run in runs]
    for run, model_class, own in zip(runs, classes, hparams, strict=True):
        # All runs get the same examples in the same batches, each in its own direction.
        planned = hparams[0].replace(target_direction=own.target_direction)
        chosen = fixed_batches(store, planned, batch_size or hparams[0].batch_size, batches, sides[0])
        model = build_model(
            model_class,
            own,
            *run.directory.text_encoders(),
            source_feature_size=store.source_feature_size,
            dtype=precision,
        )
        group = checkpoints.read_info(run.checkpoint).users_group  # the weights that every command uses
        model.assign(checkpoints.load_arrays(run.checkpoint, group), origin=run.checkpoint)
        with progress(run.label, len(chosen), "batches") as update:
            found = probe(model, own, chosen, update)
        step, count = checkpoints.checkpoint_step(run.checkpoint) or 0, len(chosen)
        series.append(gradient_series.Series(run.directory.path, np.full(count, step), dict(found.of_batches)))
        if labels.count(run.label) == 1:
            together[run.label] = dict(found.together)
        losses.append(f"{run.label} step {step}, loss {found.loss:.4f}")
    measured = (
        f"Norms of the gradient of the mean loss of a batch at a checkpoint ({'; '.join(losses)}), without dropout, in "
        f"{precision}; {count} batches of {split}, the same for all. “Together” is of the gradient of all of them at "
        "once."
    )
    return GradientComparison(gradient_series.systems(series, labels), measured, "batch", together)
