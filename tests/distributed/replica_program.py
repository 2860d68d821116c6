"""Trains a tiny model for some steps on N replicas and writes the results; run by test_replicas.py.

A case with ``inf_at`` also writes the weights and the state before and after that step.

python replica_program.py OUT_DIR '{"case": {"replicas": 2, "hparams": "...", "steps": 3, "inf_at": [step, replica]}}'

All cases of a call must have the same number of replicas; with TF_CONFIG set, it counts the replicas of all workers.
"""

import json
import os
import pathlib
import sys

import numpy as np
import tensorflow as tf


def logical_devices(count):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


def global_batch(step, sides=1, rows=8, length=9, vocab_size=50):
    """Returns one of two batches with sentences of different lengths and, like short batches, a last row of padding.

    With two targets per sentence, half of the rows have labels only for one of them.
    """
    rng = np.random.default_rng(step % 2)
    batch = {}
    for name in ("inputs", *[f"targets_{side}" for side in range(sides)]):
        ids = rng.integers(5, vocab_size, (rows, length)).astype(np.int32)
        lengths = rng.integers(2, length + 1, rows)
        ids[np.arange(length) >= lengths[:, None]] = 0
        ids[np.arange(rows), lengths - 1] = 1
        ids[rows - 1] = 0
        batch[name] = ids
    targets = [batch.pop(f"targets_{side}") for side in range(sides)]
    if sides == 1:
        return {**batch, "targets": targets[0]}
    labels = np.stack(targets, axis=1)
    labels[::2, step % 2] = 0
    return {**batch, "targets": np.stack(targets, axis=1), "labels": labels}


def make_strategy(replicas):
    from t2t_ext.training import strategies

    if "TF_CONFIG" in os.environ:
        return strategies.make_strategy("multi_worker_mirrored")
    if replicas == 1:
        return strategies.make_strategy("one_device")
    return strategies.make_strategy("mirrored")


def train(strategy, out, case):
    """Trains with a case's settings and writes first gradients, losses, norms, weights and state to ``out``."""
    import keras

    from t2t_ext import registry
    from t2t_ext.training.optimizers import make_optimizer
    from t2t_ext.training.schedules import Schedule
    from t2t_ext.training.state import TrainingState
    from t2t_ext.training.step import TrainStep

    replicas = strategy.num_replicas_in_sync
    assert replicas == case["replicas"]
    base = "num_hidden_layers=1,layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0,"
    base += "learning_rate_warmup_steps=5,learning_rate_constant=0.2,"
    base += case.get("schedule", "learning_rate_schedule=constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size")
    kind = case.get("model", "transformer")
    hparams = registry.hparams(f"{kind}_test").override(",".join(filter(None, [base, case.get("hparams")])))
    keras.utils.set_random_seed(1)
    made = penalized(registry.model(kind)) if case.get("penalties") else registry.model(kind)
    with strategy.scope():
        model = made(hparams, source_vocab_size=50, target_vocab_size=50)
        model.build()
        variables = model.named_variables()
        optimizer = make_optimizer(hparams, variables)
        state = TrainingState(hparams, variables, optimizer)
    rng = np.random.default_rng(0)
    model.assign({n: rng.standard_normal(v.shape).astype(np.float32) * 0.2 for n, v in variables.items()})
    state.begin(variables)
    at_step, at_replica = case.get("inf_at", (-1, -1))
    inject(model, state, at_step, at_replica)
    around_inf = {at_step: "before", at_step + 1: "after"} if at_step >= 0 else {}
    step = TrainStep(
        model, optimizer=optimizer, schedule=Schedule(hparams, 100), state=state,
        hparams=hparams, strategy=strategy, random_seed=7,
    )  # fmt: skip

    def part(context, number):
        rows = 8 // replicas
        first = context.replica_id_in_sync_group * rows
        return of_groups(
            {name: ids[first : first + rows] for name, ids in global_batch(number, model.target_sides).items()}
        )

    def of_groups(batch):
        groups = hparams.length_groups
        parts = tuple({name: tf.constant(ids[i::groups]) for name, ids in batch.items()} for i in range(groups))
        return parts if groups > 1 else parts[0]

    def batch_of(number):
        if replicas == 1:
            return of_groups(global_batch(number, model.target_sides))
        return strategy.experimental_distribute_values_from_function(lambda context: part(context, number))

    def values(group, named):
        return {f"{group}/{name}": tf.convert_to_tensor(value).numpy() for name, value in named.items()}

    arrays, results = {}, []
    for number in range(case["steps"]):
        if number in around_inf:
            arrays |= values(f"{around_inf[number]}/weight", variables)
            arrays |= values(f"{around_inf[number]}/state", state.named_variables())
        results.append(step.run(batch_of(number)))
        if number == 0:  # Adam's mean is now the first gradient times 1 - beta1
            arrays |= values("gradient", {n: v for n, v in optimizer.slots.items() if n.startswith("adam/m/")})
    arrays |= values("weight", variables) | values("ema", state.averages) | values("state", state.named_variables())
    arrays["losses"] = np.array([result["loss"].numpy() for result in results])
    arrays["norms"] = np.array([result["gradient_norm"].numpy() for result in results])
    for variable in variables.values():
        components = [np.asarray(part) for part in strategy.experimental_local_results(variable)]
        assert all(np.array_equal(components[0], other) for other in components), "replicas differ"
    np.savez(out, **arrays)


def penalized(base):
    """Returns a subclass that adds to the loss the mean square of the features, and that of a matrix."""

    class Penalized(base):
        def training_features(self, inputs, targets, training=False):
            features = super().training_features(inputs, targets, training=training)
            real = tf.cast(tf.not_equal(self.training_labels(targets), 0), features.dtype)
            self.add_loss(tf.reduce_sum(real[..., None] * tf.square(features)) / tf.reduce_sum(real))
            self.add_loss(tf.reduce_sum(tf.square(self.softmax_weights()[0])))
            return features

    return Penalized


def inject(model, state, at_step, at_replica):
    """Makes the features of one replica infinite at one step."""
    features = model.training_features

    def poisoned(inputs, targets, training=False):
        here = tf.distribute.get_replica_context().replica_id_in_sync_group
        bad = tf.logical_and(tf.equal(tf.cast(state.step, tf.int32), at_step), tf.equal(here, at_replica))
        return features(inputs, targets, training=training) * tf.cast(tf.where(bad, np.inf, 1.0), model.compute_dtype)

    if at_step >= 0:
        model.training_features = poisoned


def main():
    out, cases = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
    if "TF_CONFIG" not in os.environ:
        logical_devices(next(iter(cases.values()))["replicas"])
    for name, case in cases.items():
        train(make_strategy(case["replicas"]), out / f"{name}.npz", case)


if __name__ == "__main__":
    main()
