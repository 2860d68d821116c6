"""The training step, a pure function of (weights, state, batch, random seed).

Every replica, in this order, counts the labels of all replicas (the target tokens, of both targets if an example has
two); computes the gradients of the summed loss divided by that count, slice by slice; sums them over replicas; checks
that they are finite; clips them by the global norm; and applies them. N replicas and any number of slices therefore
compute what one replica computes on the whole batch.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.data.text.text_encoder import PAD_ID
from t2t_ext.io.chatter import retracing_expected
from t2t_ext.layers import dropout
from t2t_ext.layers.masks import real_positions
from t2t_ext.training import handles, losses
from t2t_ext.training.graph_options import collection_paused, few_graph_optimizers
from t2t_ext.training.optimizers import Optimizer
from t2t_ext.training.schedules import Schedule
from t2t_ext.training.state import WINDOW_FIELDS, TrainingState

Batch = dict[str, tf.Tensor]
_SUMS = ("loss", "nll", "correct", "regularizer")
_COUNTS = ("target_tokens", "source_tokens", "positions", "examples", "labels")
_LABELS = _COUNTS.index("labels")  # what the loss is divided by


class TrainStep:
    """One update of the weights from one global batch.

    Attributes:
      traces: Number of graphs made so far: one per run with dynamic shapes, otherwise one for each shape.
    """

    def __init__(
        self,
        model: Any,
        *,
        optimizer: Optimizer,
        schedule: Schedule,
        state: TrainingState,
        hparams: HParams,
        strategy: tf.distribute.Strategy,
        random_seed: int,
        jit_compile: bool = False,
    ) -> None:
        """Prepares the step; graphs are made at the first call.

        Args:
          model: Has ``features_and_losses``, ``training_labels``, ``softmax_weights``, ``named_variables``, ``rates``.
          optimizer: Updates the variables that it was made with; the model's other variables are frozen.
          schedule: The learning-rate schedule.
          state: The training state.
          hparams: Reads label_smoothing, clip_grad_norm, batch_shapes, gradient_accumulation_steps and parallel_slices.
          strategy: The strategy under which model, optimizer and state were made.
          random_seed: Dropout masks are a function of it, the step, the replica and the slice.
          jit_compile: Whether XLA compiles the update (with several replicas, only their gradients); needs few shapes.
        """
        self._model = model
        self._variables = model.named_variables()
        # For a pretrained encoder: frozen variables have no gradients, and others may learn with rates of their own.
        self._learning = {name: self._variables[name] for name in optimizer.variables}
        self._rates = {name: rate for name, rate in model.rates().items() if name in self._learning}
        self._optimizer = optimizer
        self._schedule = schedule
        self._state = state
        self._hparams = hparams
        self._strategy = strategy
        self._random_seed = random_seed
        self._compact = hparams.batch_shapes == "dynamic" and not jit_compile
        self.traces = 0
        # Sums over replicas cannot be inside a compiled function; on TPUs the strategy compiles everything by itself.
        on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        self._fixed_shapes = hparams.batch_shapes == "static" or jit_compile or on_tpu
        compiles = jit_compile and not on_tpu
        self._local_gradients: Callable = (
            tf.function(self._accumulated, autograph=False, jit_compile=True) if compiles else self._accumulated
        )
        # One trace serves all slices, which run as calls: this halves the start-up time. Not with several replicas,
        # whose variables differ.
        self._one_slice: Callable = (
            tf.function(self._slice_gradients, autograph=False, experimental_attributes={"_noinline": True})
            if strategy.num_replicas_in_sync == 1 and not jit_compile
            else self._slice_gradients
        )
        # In dynamic mode the iterator is the argument: its element spec [None, None] gives one trace per run, even
        # for per-replica values, which input_signature does not support. Static batches trace once for each bucket.
        self._from_iterator = tf.function(lambda iterator: self._run(next(iterator)), autograph=False)
        whole = compiles and strategy.num_replicas_in_sync == 1
        self._from_batch = tf.function(self._run, autograph=False, jit_compile=True if whole else None)

    def __call__(self, iterator: Any) -> dict[str, tf.Tensor]:
        """Takes the next batch from an iterator and updates the weights.

        Args:
          iterator: Yields {"inputs": int32 [rows, S] (or feature vectors float32 [rows, S, F]), "targets": int32
            [rows, T] or [rows, 2, T]} or per-replica values of it. The number of rows is a multiple of
            gradient_accumulation_steps * parallel_slices. Optional ``labels``, of the targets' shape, say where loss is
            taken (they are PAD elsewhere); by default it is taken everywhere.

        Returns:
          ``loss`` (label-smoothed, nats per label) and ``gradient_norm`` of the global batch (float32 []).
          Reading them waits for the device.
        """
        with few_graph_optimizers(), collection_paused(when=not self.traces):
            if self._fixed_shapes:
                with retracing_expected():
                    return self._from_batch(next(iterator))
            return self._from_iterator(iterator)

    def run(self, batch: Any) -> dict[str, tf.Tensor]:
        """Updates the weights from one given batch (or per-replica values of it), like ``__call__``."""
        with few_graph_optimizers():
            return self._from_batch(batch)

    def gradients(self, batch: Any) -> dict[str, Any]:
        """Computes the gradients that the next step would compute for a batch, and changes nothing.

        Args:
          batch: As in ``run``.

        Returns:
          ``gradients`` (name -> gradient of the mean loss over all replicas, before clipping; none of frozen
          variables) and ``loss`` (label-smoothed, nats per label).
        """

        def on_replica(batch: Batch) -> dict[str, Any]:
            found, sums, counts = self._global_gradients(batch)
            return {"gradients": found, "loss": sums[0] / tf.maximum(counts[_LABELS], 1.0)}

        return tf.function(functools.partial(self._first_of_replicas, on_replica), autograph=False)(batch)

    def _run(self, batch: Any) -> dict[str, tf.Tensor]:
        self.traces += 1
        return self._first_of_replicas(self._replica_step, batch)

    def _first_of_replicas(self, function: Callable[[Batch], dict[str, Any]], batch: Any) -> dict[str, Any]:
        """Runs a function on every replica and returns the results of this process's first one."""
        results = self._strategy.run(function, args=(batch,))
        return tf.nest.map_structure(lambda value: self._strategy.experimental_local_results(value)[0], results)

    def _replica_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        state, hparams = self._state, self._hparams
        gradients, sums, counts = self._global_gradients(batch)
        gradients = self._optimizer.regularised(gradients)
        # Like tf.linalg.global_norm, but each variable's squares are summed only once, for the total and its group.
        halves = tf.stack([tf.nn.l2_loss(gradients[name]) if name in gradients else 0.0 for name in self._variables])
        groups = [tf.reduce_sum(tf.gather(halves, places)) for places in state.gradient_groups.values()]
        norm, norms = tf.sqrt(tf.reduce_sum(halves) * 2.0), tf.sqrt(tf.stack(groups) * 2.0)
        finite = tf.math.is_finite(norm)
        applied = tf.cast(finite, tf.float32)
        update = handles.read(state.step) - handles.read(state.skipped) + 1
        learning_rate = self._schedule(handles.read(state.step) + 1)

        def apply() -> tf.Tensor:
            clipped, limit = gradients, hparams.clip_grad_norm
            if limit:
                factor = limit / tf.maximum(norm, limit)
                clipped = {name: gradient * factor for name, gradient in gradients.items()}
            before = {name: tf.identity(handles.read(self._variables[name])) for name in self._rates}
            self._optimizer.apply(clipped, learning_rate, update)
            for name, old in before.items():
                new = handles.read(self._variables[name])
                handles.assign(self._variables[name], old + self._rates[name] * (new - old))
            if state.averaging:
                state.averaging.update(update)
            return tf.constant(True)

        # The branch contains no merge call. Every replica sees the same sums, so all take the same branch.
        tf.cond(finite, apply, lambda: tf.constant(False))
        values = tf.math.multiply_no_nan(tf.concat([sums, counts, [norm]], 0), applied)
        names = (*_SUMS, *_COUNTS, "gradient_norm")
        row = dict(zip(names, tf.unstack(values, len(names)), strict=True))
        row |= {"steps": tf.constant(1.0), "skipped": 1.0 - applied}
        handles.assign_add(state.window, tf.stack([row[name] for name in WINDOW_FIELDS]))
        handles.assign_add(state.gradient_norms, tf.math.multiply_no_nan(tf.concat([norms, [1.0]], 0), applied))
        state.update_after(finite)
        return {"loss": sums[0] / tf.maximum(counts[_LABELS], 1.0), "gradient_norm": norm}

    def _global_gradients(self, batch: Batch) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        """Returns the gradients of the mean objective, the sums ``_SUMS`` and the counts, all over all replicas."""
        parts = [
            {**part, "labels": self._model.training_labels(part.get("labels", part["targets"]))}
            for part in (batch if isinstance(batch, tuple) else (batch,))
        ]
        local_counts = [_count(part["inputs"], part["targets"], part["labels"]) for part in parts]
        counts = self._sum_over_replicas(functools.reduce(tf.add, local_counts))
        loss_scale = handles.read(self._state.loss_scale)
        scale = loss_scale / tf.maximum(counts[_LABELS], 1.0)
        gradients, sums = self._local_gradients(parts, scale)
        *gradients, sums = self._sum_over_replicas([*gradients, sums])
        if self._state.uses_loss_scale:
            gradients = [gradient / loss_scale for gradient in gradients]
        return dict(zip(self._learning, gradients, strict=True)), sums, counts

    def _accumulated(self, parts: list[Batch], scale: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Sums gradients and loss sums over the slices of this replica's parts, which also contain ``labels``."""
        step = handles.read(self._state.step)
        sequential = self._hparams.gradient_accumulation_steps
        parallel = self._hparams.parallel_slices
        if len(parts) > 1:
            return self._over_parts(parts, step, scale)
        [batch] = parts
        if sequential * parallel == 1:
            return self._slice_gradients(batch, self._seed(step, 0), scale)
        slices_of = {name: _sliced(ids, sequential, parallel) for name, ids in batch.items()}

        def side_by_side(i: tf.Tensor | int) -> list[tf.Tensor]:
            slices = [
                self._one_slice(
                    {name: ids[i, j] for name, ids in slices_of.items()}, self._seed(step, i * parallel + j), scale
                )
                for j in range(parallel)
            ]
            rows = zip(*([*grads, sums] for grads, sums in slices), strict=True)
            return [functools.reduce(tf.add, values) for values in rows]  # in order, which add_n does not guarantee

        if sequential == 1:
            *gradients, sums = side_by_side(0)
            return gradients, sums
        zeros = [tf.zeros(variable.shape) for variable in self._learning.values()] + [tf.zeros([len(_SUMS)])]
        _, totals = tf.while_loop(
            lambda i, _: i < sequential,
            lambda i, totals: (i + 1, [a + b for a, b in zip(totals, side_by_side(i), strict=True)]),
            (0, zeros),
            parallel_iterations=1,  # the point of accumulation is to hold one slice's activations at a time
        )
        *gradients, sums = totals
        return gradients, sums

    def _over_parts(self, parts: list[Batch], step: tf.Tensor, scale: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Sums gradients and loss sums over parts of different shapes, ``parallel_slices`` of them at a time."""
        parallel = self._hparams.parallel_slices
        totals: list[tf.Tensor] = []
        for begin in range(0, len(parts), parallel):
            rows = [totals] if totals else []
            # The next parts wait for the sums, so that no more of them are in memory than are computed at a time.
            with tf.control_dependencies(totals):
                for number in range(begin, min(begin + parallel, len(parts))):
                    gradients, sums = self._one_slice(parts[number], self._seed(step, number), scale)
                    rows.append([*gradients, sums])
            totals = [functools.reduce(tf.add, values) for values in zip(*rows, strict=True)]
        *gradients, sums = totals
        return gradients, sums

    def _slice_gradients(self, batch: Batch, seed: tf.Tensor, scale: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Returns the gradients of ``scale`` times the summed objective, and the sums ``_SUMS`` (float32)."""
        variables = list(self._learning.values())
        with dropout.seed_scope(seed):
            return loss_gradients(self._model, variables, batch, scale, self._hparams, compact=self._compact)

    def _seed(self, step: tf.Tensor, slice_index: tf.Tensor | int) -> tf.Tensor:
        """Returns int32 [2], a hash of (random seed, step, replica, slice)."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        seed = tf.constant([self._random_seed & 0x7FFFFFFF, self._random_seed >> 31 & 0x7FFFFFFF], tf.int32)
        # The algorithm is named, since XLA would choose another one, which gives other masks.
        for part in (step, replica, slice_index):
            seed = tf.random.experimental.stateless_fold_in(seed, tf.cast(part, tf.int32), alg="philox")
        return tf.random.stateless_uniform([2], seed, minval=None, maxval=None, dtype=tf.int32, alg="philox")

    def _sum_over_replicas(self, values: Any) -> Any:
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync == 1:
            return values
        return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def loss_gradients(
    model: Any,
    variables: list[tf.Variable],
    batch: Batch,
    scale: tf.Tensor,
    hparams: HParams,
    *,
    training: bool = True,
    compact: bool = True,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Computes the gradients of ``scale`` times the summed objective of a batch, within a ``tf.function``.

    The objective is the loss plus, in training, the regularizer of SimCut or R-Drop and what the model's layers add to
    the mean loss. The latter counts once for each label, so that slices weigh by their labels.

    Args:
      model: As in ``TrainStep``.
      variables: The variables of the model to differentiate with respect to.
      batch: Has ``inputs``, ``targets`` and ``labels``.
      scale: float32 [].
      hparams: Reads label_smoothing and, in training, simcut_alpha, simcut_probability and r_drop_alpha.
      training: Whether dropout is applied.
      compact: As in ``softmax_cross_entropy``.

    Returns:
      The gradients, dense and float32, and the sums ``_SUMS``, float32 [4], not scaled.

    Raises:
      RuntimeError: The function is called outside of a graph.
    """
    consistency = losses.Consistency.of(hparams) if training else None
    inputs, targets = batch["inputs"], batch["targets"]
    if consistency is not None:
        # One pass over twice as many rows: its halves get different dropout masks, and matrix products are no less
        # efficient than in two passes.
        inputs, targets = tf.concat([inputs, inputs], 0), tf.concat([targets, targets], 0)
    with dropout.token_cut(hparams.simcut_probability if training and hparams.simcut_alpha else 0.0):
        features, added = (
            model.features_and_losses(inputs, targets)
            if training
            else (model.training_features(inputs, targets, training=False), [])
        )
    kernel, bias = model.softmax_weights()
    sums = losses.softmax_cross_entropy(
        features,
        kernel,
        bias,
        batch["labels"],
        hparams.label_smoothing,
        weights=model.label_weights(batch["labels"]),
        consistency=consistency,
        compact=compact,
    )
    objective, regularizer = sums.objective, sums.regularizer
    if added:
        more = functools.reduce(tf.add, added) * sums.tokens
        objective, regularizer = objective + more, regularizer + more
    gradients = tf.gradients(
        objective * scale,
        variables,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
        # Adds in pairs. An AddN of more terms, as a tape makes it, begins with a term whose memory nothing else holds
        # at that moment, so its order, and with it the last bit of the weights, would depend on the threads' timing.
        aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE,
    )
    # Identity puts each gradient on the replica's device; operations without a device may compute it elsewhere.
    dense = [tf.identity(tf.cast(tf.convert_to_tensor(gradient), tf.float32)) for gradient in gradients]
    return dense, tf.stack([sums.loss, sums.nll, sums.correct, regularizer])


def _sliced(ids: tf.Tensor, sequential: int, parallel: int) -> tf.Tensor:
    """Returns the slices of int32 [rows, ...] as int32 [sequential, parallel, rows per slice, ...]."""
    rows = tf.shape(ids)[0] if ids.shape[0] is None else ids.shape[0]
    others = [tf.shape(ids)[axis] for axis in range(1, ids.shape.rank)]
    return tf.reshape(ids, [sequential, parallel, rows // (sequential * parallel), *others])


def _count(inputs: tf.Tensor, targets: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the sums ``_COUNTS`` of a batch, float32 [5]; filler rows count only as positions."""

    def real(ids: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.not_equal(ids, PAD_ID), tf.float32)

    source = tf.cast(real_positions(inputs), tf.float32)
    target_tokens, source_tokens, num_labels = (tf.reduce_sum(each) for each in (real(targets), source, real(labels)))
    positions = tf.cast(tf.size(source) + tf.size(targets), tf.float32)
    examples = tf.reduce_sum(source[:, 0])
    return tf.stack([target_tokens, source_tokens, positions, examples, num_labels])
