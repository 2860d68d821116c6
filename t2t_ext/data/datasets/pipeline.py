"""Turns pairs in memory into padded batches, in TensorFlow's graph.

Once per epoch, ahead of time, Python computes the plan of the epoch's batches
(``t2t_ext.data.datasets.batching``). Splitting, gathering and padding run in ``tf.data`` without Python, except that
Python reads feature vectors. A pipeline can start at any step: nothing before that step is read or made.

If a model learns from two targets per sentence, or from pseudo references, the plan's examples are those of
``t2t_ext.data.datasets.target_variants``. The ids are in memory once for all variants.

Legend: N pairs; rows R, source length S and target length T of a batch.
"""

import copy
import dataclasses
import threading
from typing import Any, Self

import numpy as np
import tensorflow as tf

from t2t_ext.data.datasets import batching, target_variants
from t2t_ext.data.datasets.example_store import ExampleStore

_PARALLEL_BATCHES = 2
_PREFETCHED_BATCHES = 8
_PREFETCHED_FEATURE_BATCHES = 2  # about ten megabytes each
_NO_EXAMPLE = -1
_PLAN_FIELDS = [field.name for field in dataclasses.fields(batching.EpochPlan)]
_PLAN_TYPES = [tf.int32, tf.int64, tf.int64, tf.int32, tf.int32, tf.int32]
# Nothing here branches on tensors, so AutoGraph would read, rewrite and compile the code at every start for nothing.
_as_written = tf.autograph.experimental.do_not_convert


class TrainPipeline:
    """Provides endless training batches whose order depends only on the seed and the step.

    Attributes:
      planner: Groups the examples and plans the batches; its ``locate`` finds the batch of a step.
      examples: Defines what example numbers mean and what the targets are made of.
    """

    def __init__(
        self,
        store: ExampleStore,
        hparams: Any,
        *,
        seed: int,
        num_replicas: int = 1,
        target_sides: int = 1,
        fixed_shapes: bool = False,
    ) -> None:
        """Groups the examples by length and places the ids where the graph can gather them.

        Args:
          store: The training pairs.
          hparams: An ``HParams``; its fields about batches and targets are read.
          seed: Seed of the order.
          num_replicas: Number of replicas that share a global batch, which has at most ``batch_size * num_replicas *
            gradient_accumulation_steps`` tokens.
          target_sides: Number of target sequences per example that the model needs.
          fixed_shapes: Whether batches must have few shapes, as for XLA; if so, parts of ``length_groups`` are merged.

        Raises:
          UserError: No pair is short enough to train on, or pseudo references are missing.
        """
        self.examples = target_variants.examples_of(store, hparams, target_sides)
        self.planner = batching.BatchPlanner(
            self.examples.input_lengths,
            self.examples.target_lengths,
            hparams,
            seed=seed,
            num_replicas=num_replicas,
            left_out=self.examples.left_out,
            identity=self.examples.identity,
            merged=fixed_shapes and hparams.length_groups > 1,
        )
        self._num_replicas = num_replicas
        self._slices = _slices_of_a_part(hparams, self.planner)
        self._gather = _Gather(store, self.examples, reverse_targets=hparams.target_direction == "r2l")
        self._lock = threading.Lock()
        self._plans: dict[int, batching.EpochPlan] = {}

    def with_batches_of(self, hparams: Any) -> Self:
        """Returns a pipeline over the same pairs in memory, with batches planned for other hparams.

        Args:
          hparams: An ``HParams`` that differs only in fields about batches.

        Raises:
          UserError: No pair is short enough.
        """
        other = copy.copy(self)
        other.planner = self.planner.with_batches_of(hparams)
        other._slices = _slices_of_a_part(hparams, other.planner)
        other._lock, other._plans = threading.Lock(), {}
        return other

    @property
    def batches_per_epoch(self) -> int:
        """Number of global batches in every epoch."""
        return self.planner.batches_per_epoch

    @property
    def row_multiple(self) -> int:
        """The number of rows in every part of a global batch is a multiple of this: replicas times slices."""
        return self._num_replicas * self._slices

    @property
    def dropped(self) -> dict[str, int]:
        """Reason -> number of examples left out for it."""
        return self.planner.dropped

    def fill_rate(self) -> float:
        """Returns real tokens of source and all targets divided by all positions of an epoch's batches, 0 to 1."""
        sides, tokens = self.examples.sides, self.examples.target_tokens
        return self.planner.fill_rate(target_sides=sides, target_tokens=tokens, row_multiple=self.row_multiple)

    def shape(self, step: int) -> str:
        """Returns the shape of a step's global batch in words; steps count from 0."""
        return self.planner.shape(step, self.examples.sides, self.row_multiple)

    def dataset(self, first_step: int, replica: int = 0, num_replicas: int | None = None) -> tf.data.Dataset:
        """Makes one replica's share of all batches from a step on.

        Args:
          first_step: The step whose batch comes first; steps count from 0.
          replica: Number of the share, from 0.
          num_replicas: Number of shares of each batch; by default the number that the pipeline was made for.
            It does not change the global batches: with 1, all of them come out whole.

        Returns:
          An endless dataset of ``{"inputs": int32 [R, S], "targets": int32 [R, T]}``. Element i is rows
          ``[replica * R, (replica + 1) * R)`` of the global batch ``first_step + i``. R is a multiple of
          ``gradient_accumulation_steps * parallel_slices``; rows of only PAD (0) fill the batch up.
          If sources are feature vectors of size F, ``inputs`` is float32 [R, S, F], padded with zeros.
          With two targets per sentence, ``targets`` is int32 [R, 2, T], and the second one is reversed before its EOS.
          If only some targets contribute to the loss, ``labels`` equals ``targets`` with PAD in place of the others.
          With ``length_groups`` above 1, elements are tuples of that many parts, each of this form with any number of
          rows, unless shapes are fixed.

        Raises:
          ValueError: There is no such replica.
        """
        num_replicas = num_replicas or self._num_replicas
        if not 0 <= replica < num_replicas:
            raise ValueError(f"replica {replica} of {num_replicas}")
        first_epoch, first_batch = self.planner.locate(first_step)

        @_as_written
        def plan_in_graph(epoch: tf.Tensor) -> list[tf.Tensor]:
            fields = tf.numpy_function(self._plan, [epoch], _PLAN_TYPES, stateful=False)
            for field in fields:
                field.set_shape([None])
            return [epoch, *fields]

        @_as_written
        def batches(epoch: tf.Tensor, *fields: tf.Tensor) -> tf.data.Dataset:
            begin = tf.where(epoch == first_epoch, tf.constant(first_batch, tf.int64), 0)
            numbers = tf.data.Dataset.range(begin, self.batches_per_epoch)
            parts = self.planner.parts
            return numbers.map(
                lambda number: tuple(
                    _cut(fields, number * parts + part, replica, num_replicas, self._slices) for part in range(parts)
                )
            )

        # The next epoch is planned while this one is used.
        epochs = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max).map(plan_in_graph).prefetch(1)
        return _finished(epochs.flat_map(batches), self._gather, keep_numbers=False)

    def _plan(self, epoch: np.ndarray) -> list[np.ndarray]:
        """Returns the fields of an epoch's plan, which the replicas of this process share."""
        with self._lock:
            if int(epoch) not in self._plans:
                if len(self._plans) > 1:
                    del self._plans[next(iter(self._plans))]
                self._plans[int(epoch)] = self.planner.epoch(int(epoch))
            return [getattr(self._plans[int(epoch)], name) for name in _PLAN_FIELDS]


def eval_batches(
    store: ExampleStore, hparams: Any, batch_size: int, examples: target_variants.Examples | None = None
) -> tf.data.Dataset:
    """Makes batches of a whole split in order of length, however long its pairs are.

    Args:
      store: The pairs.
      hparams: An ``HParams``; ``batch_tokens``, ``batch_shapes`` and ``target_direction`` are read.
      batch_size: Maximum number of tokens in a batch, padding included; a longer pair forms a batch of its own.
      examples: Defines what targets are made of; by default the target of every pair is its reference.

    Returns:
      A finite dataset of batches like those of ``TrainPipeline.dataset``, with the example numbers
      ``"index": int32 [R]`` in addition. There may be rows of only PAD, whose number is -1.

    Raises:
      UserError: There are no pairs, or none can be used.
    """
    examples = examples or target_variants.gold_examples(store)
    target_variants.check_any_left(examples)
    usable = np.flatnonzero(examples.usable).astype(np.int32)
    lengths = examples.input_lengths[usable], examples.target_lengths[usable]
    found = batching.plan_everything(*lengths, hparams, batch_size)
    found = dataclasses.replace(found, examples=usable[found.examples])
    with tf.device("CPU:0"):
        fields = [tf.constant(getattr(found, name)) for name in _PLAN_FIELDS]
    numbers = tf.data.Dataset.range(len(found.rows))
    gather = _Gather(store, examples, reverse_targets=hparams.target_direction == "r2l")
    cuts = numbers.map(_as_written(lambda number: (_cut(fields, number, 0, 1, 1),)))
    return _finished(cuts, gather, keep_numbers=True)


class _Gather:
    """Assembles padded batches from example numbers, by index arithmetic in the graph."""

    def __init__(self, store: ExampleStore, examples: target_variants.Examples, *, reverse_targets: bool) -> None:
        fields = examples.fields
        targets = [target_variants.ids_of(store, field) for field in fields]
        ends = np.cumsum([0, *(offsets[-1] for _, offsets in targets)])
        offsets = [of_field[1:] + end for (_, of_field), end in zip(targets, ends[:-1], strict=True)]
        ids = targets[0][0] if len(targets) == 1 else np.concatenate([flat for flat, _ in targets])
        self._num_pairs = examples.num_pairs
        # In memory, sequence f * N + i is field f of pair i.
        self._place = np.array([[fields.index(field) for field in variant] for variant in examples.variants], np.int32)
        self._reversed = (False, True) if examples.sides == 2 else (reverse_targets,)
        self._gold = np.array([[field == target_variants.GOLD for field in variant] for variant in examples.variants])
        self._with_labels = examples.gold_only
        self._features = store.source_features
        self.prefetched = _PREFETCHED_BATCHES if self._features is None else _PREFETCHED_FEATURE_BATCHES
        with tf.device("CPU:0"):
            # Padding gathers position 0, so one id is needed even without examples. Feature vectors: sequence numbers.
            self._inputs = tf.constant(store.inputs if store.inputs.size else np.zeros(1, np.int32))
            self._targets = tf.constant(ids if ids.size else np.zeros(1, np.int32))
            self._input_offsets = tf.constant(store.input_offsets)
            self._target_offsets = tf.constant(np.concatenate([np.zeros(1, np.int64), *offsets]))

    def __call__(self, numbers: tf.Tensor, input_width: tf.Tensor, target_width: tf.Tensor) -> dict[str, tf.Tensor]:
        """Gathers a batch.

        Args:
          numbers: int32 [R], example numbers; -1 means a row of only PAD.
          input_width: int32 scalar, S.
          target_width: int32 scalar, T.

        Returns:
          ``{"inputs": int32 [R, S] or float32 [R, S, F], "targets": int32 [R, T] or [R, 2, T]}``, and ``labels`` if the
          loss is taken on references only.
        """
        real, numbers = numbers >= 0, tf.maximum(numbers, 0)
        variants, pairs = numbers // self._num_pairs, numbers % self._num_pairs
        sides = []
        for side, turned in enumerate(self._reversed):
            sequences = tf.gather(self._place[:, side], variants) * self._num_pairs + pairs
            sequences = tf.where(real, sequences, _NO_EXAMPLE)
            sides.append(_padded(self._targets, self._target_offsets, sequences, target_width, reverse=turned))
        pairs = tf.where(real, pairs, _NO_EXAMPLE)
        batch = {
            "inputs": self._sources(pairs, input_width),
            "targets": tf.stack(sides, axis=1) if len(sides) == 2 else sides[0],
        }
        if self._with_labels:
            gold = tf.gather(self._gold, variants)
            batch["labels"] = tf.where(gold[:, :, tf.newaxis], batch["targets"], 0)
        return batch

    def _sources(self, pairs: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
        """Gathers the sources of pairs int32 [R], -1 for no pair; Python reads feature vectors from their files."""
        features = self._features
        if features is None:
            return _padded(self._inputs, self._input_offsets, pairs, width, reverse=False)
        numbers = tf.cast(tf.gather(self._inputs, tf.maximum(pairs, 0)), tf.int32)
        numbers = tf.where(pairs < 0, _NO_EXAMPLE, numbers)
        vectors = tf.numpy_function(features.padded, [numbers, width], features.dtype, stateful=False)
        vectors.set_shape([None, None, features.depth])
        return tf.cast(vectors, tf.float32)


def _padded(ids: tf.Tensor, offsets: tf.Tensor, numbers: tf.Tensor, width: tf.Tensor, *, reverse: bool) -> tf.Tensor:
    """Returns int32 [R, width]: the numbered sequences, padded with 0; with ``reverse``, reversed before their EOS."""
    rows = tf.maximum(numbers, 0)
    begins = tf.gather(offsets, rows)
    lengths = tf.where(numbers < 0, 0, tf.cast(tf.gather(offsets, rows + 1) - begins, tf.int32))[:, tf.newaxis]
    positions = tf.range(width)[tf.newaxis]
    real = positions < lengths
    if reverse:
        last = lengths - 1
        positions = tf.where(positions < last, last - 1 - positions, positions)
    places = tf.where(real, begins[:, tf.newaxis] + tf.cast(positions, tf.int64), 0)
    return tf.where(real, tf.cast(tf.gather(ids, places), tf.int32), 0)


def _cut(
    fields: Any, number: tf.Tensor, replica: int, num_replicas: int, slices: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Takes one replica's share of one part of a plan.

    Returns:
      int32 [R], example numbers, -1 for empty rows; and the padded lengths S and T, int32 scalars.
    """
    plan = dict(zip(_PLAN_FIELDS, fields, strict=True))
    multiple = num_replicas * slices
    rows = -(-plan["rows"][number] // multiple) * multiple // num_replicas
    begin, end = plan["begins"][number], plan["ends"][number]
    part_begin = tf.minimum(begin + tf.cast(replica * rows, tf.int64), end)
    part_end = tf.minimum(part_begin + tf.cast(rows, tf.int64), end)
    numbers = plan["examples"][part_begin:part_end]
    missing = rows - tf.size(numbers)
    numbers = tf.pad(numbers, [[0, missing]], constant_values=_NO_EXAMPLE)
    return numbers, plan["input_widths"][number], plan["target_widths"][number]


def _slices_of_a_part(hparams: Any, planner: batching.BatchPlanner) -> int:
    """Returns into how many slices a step divides the rows of a part: 1 if a batch has several parts."""
    return 1 if planner.parts > 1 else hparams.gradient_accumulation_steps * hparams.parallel_slices


def _finished(cuts: tf.data.Dataset, gather: _Gather, *, keep_numbers: bool) -> tf.data.Dataset:
    """Gathers the examples that ``_cut`` chose and sets the options; elements stay in order despite parallel work."""

    @_as_written
    def element(*parts: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> Any:
        batches = [gather(*part) | ({"index": part[0]} if keep_numbers else {}) for part in parts]
        return tuple(batches) if len(batches) > 1 else batches[0]

    dataset = cuts.map(element, num_parallel_calls=_PARALLEL_BATCHES, deterministic=True).prefetch(gather.prefetched)
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)
