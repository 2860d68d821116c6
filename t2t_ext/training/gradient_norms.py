"""Measures the gradient norms of a checkpoint's layers, without dropout, on batches that are the same for all models.

The norms that training logs (``RUN/gradient_norms.jsonl``) come from other weights and batches at every step, and from
passes with dropout. This module compares models at one moment: the loss of each batch, its gradient, and the norms of
the gradient's parts.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_ext.analysis.gradients.groups import groups_of
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.data.datasets import target_variants
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.pipeline import eval_batches
from t2t_ext.errors import UserError
from t2t_ext.io.chatter import retracing_expected
from t2t_ext.models.seq2seq import Seq2Seq
from t2t_ext.training.step import loss_gradients

Batch = dict[str, tf.Tensor]
ALL = "all"


@dataclasses.dataclass(frozen=True)
class ProbedNorms:
    """Norms of d(mean loss of a batch)/d(parameters of a part).

    Attributes:
      of_batches: Part, or ``all``, -> the norm for each batch, float64 [batches].
      together: Part -> the norm of the gradient of the mean loss over all batches at once.
      loss: Mean loss over all labels, in nats.
      labels: Number of labels.
    """

    of_batches: Mapping[str, np.ndarray]
    together: Mapping[str, float]
    loss: float
    labels: int


def fixed_batches(
    store: ExampleStore, hparams: HParams, batch_size: int, count: int, target_sides: int = 1
) -> list[Batch]:
    """Returns batches of a split, always the same ones, of all lengths.

    Args:
      store: The pairs.
      hparams: How batches are planned and what targets are made of.
      batch_size: Maximum number of padded tokens per batch.
      count: How many batches; all of them if there are fewer.
      target_sides: The number of target sides of the model.

    Raises:
      UserError: There are no pairs, or the targets that a model with two sides needs are missing.
    """
    two = target_sides == 2
    examples = target_variants.examples_of(store, hparams, 2) if two else target_variants.gold_examples(store)
    dataset = eval_batches(store, hparams, batch_size, examples)
    total = int(dataset.cardinality())
    if total <= 0:
        raise UserError("There is no pair in this split that a gradient could be taken of.")
    # Batches are sorted by length, so random ones are chosen.
    chosen = set(np.random.default_rng(0).permutation(total)[:count].tolist())
    found = []
    for number, batch in enumerate(dataset):
        if number in chosen:
            found.append({name: value for name, value in batch.items() if name != "index"})
            if len(found) == len(chosen):
                break
    return found


def probe(
    model: Seq2Seq,
    hparams: HParams,
    batches: Sequence[Batch],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ProbedNorms:
    """Computes the gradient norms of a model's parts on batches from ``fixed_batches``; the model stays unchanged.

    ``progress`` is called with (batches done, total batches).
    """
    named = model.named_variables()
    variables = list(named.values())
    groups = groups_of(named)
    computed = tf.function(
        lambda batch: loss_gradients(model, variables, batch, tf.constant(1.0), hparams, training=False),
        autograph=False,
        reduce_retracing=True,
    )
    total = [np.zeros(variable.shape, np.float64) for variable in variables]
    norms: dict[str, list[float]] = {ALL: [], **{group: [] for group in groups}}
    loss, labels = 0.0, 0
    for done, batch in enumerate(batches, 1):
        taken = model.training_labels(batch.get("labels", batch["targets"]))
        count = int(tf.math.count_nonzero(taken))
        with retracing_expected():  # batches differ in shape
            gradients, sums = computed({**batch, "labels": taken})
        gradients = [gradient.numpy().astype(np.float64) for gradient in gradients]
        for name, norm in _norms(gradients, groups).items():
            norms[name].append(norm / max(count, 1))
        total = [before + gradient for before, gradient in zip(total, gradients, strict=True)]
        loss, labels = loss + float(sums[0]), labels + count
        progress(done, len(batches))
    return ProbedNorms(
        {name: np.array(values) for name, values in norms.items()},
        {name: norm / max(labels, 1) for name, norm in _norms(total, groups).items()},
        loss / max(labels, 1),
        labels,
    )


def _norms(gradients: list[np.ndarray], groups: Mapping[str, list[int]]) -> dict[str, float]:
    """Returns the norm of all gradients together and of each group of them."""
    squares: list[Any] = [np.vdot(gradient, gradient) for gradient in gradients]
    sums = {ALL: sum(squares), **{group: sum(squares[i] for i in places) for group, places in groups.items()}}
    return {name: float(np.sqrt(value)) for name, value in sums.items()}
