"""Tests of the training step on one device, with a model small enough for a computation by hand."""

import logging
import logging.handlers

import numpy as np
import pytest
import tensorflow as tf
from small_step import Bigrams, batch, make

from t2t_ext.training.schedules import Schedule
from t2t_ext.training.state import WINDOW_FIELDS
from t2t_ext.training.step import TrainStep


def window(state):
    return dict(zip(WINDOW_FIELDS, state.window.numpy(), strict=True))


def test_first_gradient_is_that_of_the_mean_loss_over_tokens():
    model, state, step = make(label_smoothing=0.0)
    one = batch()
    with tf.GradientTape() as tape:
        logits = tf.matmul(model.features(one["inputs"], one["targets"]), model.kernel, transpose_b=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(one["targets"], logits)
        expected = tf.reduce_mean(losses[one["targets"] != 0])
    gradients = tape.gradient(expected, [model.table, model.kernel])
    result = step.run(one)
    assert float(result["loss"]) == pytest.approx(float(expected), rel=1e-5)
    norm = tf.linalg.global_norm([tf.convert_to_tensor(gradient) for gradient in gradients])
    assert float(result["gradient_norm"]) == pytest.approx(float(norm), rel=1e-5)
    beta1 = step._hparams.optimizer_adam_beta1
    for name, gradient in zip(("table", "kernel"), gradients, strict=True):
        first = state.optimizer.slots[f"adam/m/{name}"] / (1 - beta1)
        np.testing.assert_allclose(first, tf.convert_to_tensor(gradient), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(model.unused, [1, 1, 1])


def test_window_sums_what_is_real():
    _, state, step = make()
    step.run(batch(0))
    step.run(batch(1))
    sums = window(state)
    assert sums["target_tokens"] == 2 * (4 * 5 - 3)
    assert sums["source_tokens"] == 2 * 4 * 6
    assert sums["positions"] == 2 * 4 * (5 + 6)
    assert sums["examples"] == 8
    assert sums["steps"] == 2
    assert sums["skipped"] == 0
    assert int(state.step) == 2


@pytest.fixture(scope="module")
def whole():
    """Returns the results of three steps on whole batches with clipping, the training state and the model."""
    model, state, step = make(clip_grad_norm=0.1)
    return [step.run(batch(number)) for number in range(3)], state, model


@pytest.mark.parametrize(("accumulated", "parallel"), [(2, 1), (1, 2), (4, 1), (2, 2)])
def test_slices_of_a_batch_are_the_batch(whole, accumulated, parallel):
    steps, whole_state, whole_model = whole
    model, state, sliced = make(clip_grad_norm=0.1, gradient_accumulation_steps=accumulated, parallel_slices=parallel)
    for number, expected in enumerate(steps):
        result = sliced.run(batch(number))
        np.testing.assert_allclose(result["loss"], expected["loss"], rtol=1e-5)
        np.testing.assert_allclose(result["gradient_norm"], expected["gradient_norm"], rtol=1e-5)
    np.testing.assert_allclose(state.window, whole_state.window, rtol=1e-5)
    np.testing.assert_allclose(model.table, whole_model.table, atol=1e-5)


@pytest.mark.parametrize("parallel", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_parts_of_several_shapes_are_one_batch(whole, parallel):
    steps, whole_state, whole_model = whole
    model, state, grouped = make(clip_grad_norm=0.1, length_groups=4, parallel_slices=parallel)
    padding = {"inputs": tf.zeros([1, 4], tf.int32), "targets": tf.zeros([1, 3], tf.int32)}
    for number, expected in enumerate(steps):
        # The same rows, in parts of their own lengths. Sources keep their length: the model takes the mean over them.
        rows = {name: value.numpy() for name, value in batch(number).items()}
        parts = [
            {"inputs": rows["inputs"][:1], "targets": rows["targets"][:1, :2]},
            {"inputs": rows["inputs"][1:3], "targets": rows["targets"][1:3]},
            {"inputs": rows["inputs"][3:], "targets": rows["targets"][3:]},
            padding,
        ]
        parts = tuple({name: tf.constant(value) for name, value in part.items()} for part in parts)
        result = grouped.run(parts)
        np.testing.assert_allclose(result["loss"], expected["loss"], rtol=1e-5)
        np.testing.assert_allclose(result["gradient_norm"], expected["gradient_norm"], rtol=1e-5)
    for name in ("loss", "nll", "correct", "target_tokens", "labels", "examples", "steps"):
        assert window(state)[name] == pytest.approx(window(whole_state)[name], rel=1e-5), name
    np.testing.assert_allclose(model.table, whole_model.table, atol=1e-5)


def test_masks_of_length_groups_do_not_depend_on_how_many_are_computed_at_a_time():
    def weights(parallel):
        model, _, step = make(rate=0.5, length_groups=4, parallel_slices=parallel)
        step.run(tuple(batch(seed, rows=seed + 1) for seed in range(4)))
        return model.table.numpy()

    expected = weights(1)
    for parallel in (2, 4):
        np.testing.assert_allclose(weights(parallel), expected, atol=1e-6)


def test_clipping_bounds_the_applied_gradient():
    _, state, step = make(clip_grad_norm=0.05)
    norm = float(step.run(batch())["gradient_norm"])
    assert norm > 0.05
    means = [slot / (1 - 0.9) for name, slot in state.optimizer.slots.items() if name.startswith("adam/m")]
    assert float(tf.linalg.global_norm(means)) == pytest.approx(0.05, rel=1e-4)


def test_dropout_is_a_function_of_seed_and_step():
    def losses(seed):
        _, _, step = make(rate=0.5, seed=seed)
        return [float(step.run(batch())["loss"]) for _ in range(2)]

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)
    model, state, step = make(rate=0.5)
    first = float(step.run(batch())["loss"])
    for variable in (model.table, model.kernel):
        variable.assign(getattr(Bigrams(), "table" if variable is model.table else "kernel"))
    assert float(step.run(batch())["loss"]) != first  # another step, another mask
    for variable in (model.table, model.kernel):
        variable.assign(getattr(Bigrams(), "table" if variable is model.table else "kernel"))
    state.step.assign(0)
    assert float(step.run(batch())["loss"]) == first


def test_slices_draw_different_masks():
    same_rows = {name: tf.repeat(value[1:2], 2, axis=0) for name, value in batch().items()}
    _, _, step = make(rate=0.5, parallel_slices=2)
    one_row = {name: value[:1] for name, value in same_rows.items()}
    _, _, alone = make(rate=0.5)
    # With equal masks both slices would have the loss of one.
    assert float(step.run(same_rows)["loss"]) != pytest.approx(float(alone.run(one_row)["loss"]), rel=1e-6)


@pytest.mark.parametrize(
    "changes", [{"ema_decay": 0.5}, {"optimizer": "schedule_free_adam_w"}, {"average_last": 2, "average_every": 2}]
)
def test_steps_that_are_not_finite_change_nothing_but_the_counters(changes):
    model, state, step = make(**changes)
    step.run(batch())
    kept = [*model.named_variables().values(), *state.averages.values(), *state.optimizer.slots.values()]
    kept += state.averaging.slots.values() if state.averaging else []
    before = [v.numpy() for v in kept]
    sums = window(state)
    features, model.features = model.features, lambda *args, **kwargs: features(*args, **kwargs) * np.inf
    _, poisoned = (
        None,
        TrainStep(
            model,
            optimizer=state.optimizer,
            schedule=Schedule(step._hparams, 100),
            state=state,
            hparams=step._hparams,
            strategy=tf.distribute.get_strategy(),
            random_seed=1,
        ),
    )
    for _ in range(2):
        poisoned.run(batch())
    for old, new in zip(before, kept, strict=True):
        np.testing.assert_array_equal(old, new)
    assert (int(state.step), int(state.skipped), int(state.skipped_in_a_row)) == (3, 2, 2)
    assert window(state) == {**sums, "steps": 3, "skipped": 2}
    step.run(batch())
    assert (int(state.skipped), int(state.skipped_in_a_row)) == (2, 0)


def test_moving_averages_follow_the_weights():
    model, state, step = make(ema_decay=0.9)
    expected = model.table.numpy()
    for number in range(3):
        step.run(batch(number))
        decay = min(0.9, (2 + number) / (11 + number))  # the first averages have a shorter memory
        expected = decay * expected + (1 - decay) * model.table.numpy()
    np.testing.assert_allclose(state.averages["table"], expected, rtol=1e-5)
    assert "table" not in state.named_variables()


def test_the_last_snapshots_are_averaged():
    model, state, step = make(average_last=3, average_every=2)
    taken = []
    for number in range(1, 11):
        step.run(batch(number))
        if number % 2 == 0:
            taken.append(model.table.numpy())
        expected = np.mean(taken[-3:], axis=0) if taken else model.table.numpy()
        np.testing.assert_allclose(state.averages["table"], expected, rtol=1e-6, err_msg=str(number))
    assert state.named_variables()["snapshots/last/table"].shape == (3, *model.table.shape)
    assert int(state.named_variables()["snapshots/taken"]) == 5


def test_schedule_free_weights_for_users_are_the_mean_of_all_steps():
    """With a constant rate and almost no bias correction, the averages are the plain mean of the z of all steps."""
    model, state, step = make(optimizer="schedule_free_adam_w", optimizer_adam_beta2=0.0)
    copies = []
    for number in range(4):
        step.run(batch(number))
        copies.append(state.optimizer.slots["schedule_free/z/table"].numpy())
    mean = np.mean(copies, axis=0)
    np.testing.assert_allclose(state.averages["table"], mean, rtol=1e-5)
    np.testing.assert_allclose(model.table, 0.1 * copies[-1] + 0.9 * mean, rtol=1e-5)
    assert "schedule_free/v/table" in state.named_variables()
    state.begin({name: np.ones(variable.shape) for name, variable in model.named_variables().items()})
    for begun in (state.averages["table"], state.optimizer.slots["schedule_free/z/table"]):
        np.testing.assert_array_equal(begun, np.ones(begun.shape))


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "adam", "weight_decay": 0.5, "gradient_accumulation_steps": 2},
        {"optimizer": "adam_w", "weight_decay": 0.5, "ema_decay": 0.9},
        {"optimizer": "adafactor", "average_last": 2, "average_every": 1},
        {"optimizer": "schedule_free_adam_w", "weight_decay": 0.5},
    ],
)
def test_what_is_frozen_stays_and_takes_no_memory(changes):
    """Frozen weights have no optimizer slots, snapshots or copies, do not change, and may be integers."""
    model, state, step = make(learning_rates={"table": 0.0, "unused": 0.0}, unused=1, **changes)
    assert state.frozen == {"table", "unused"}
    assert not [name for name in state.named_variables() if name.endswith(("/table", "/unused"))]
    assert all(average is model.named_variables()[name] for name, average in state.averages.items() if name != "kernel")
    table, kernel = model.table.numpy(), model.kernel.numpy()
    for number in range(2):
        step.run(batch(number))
    np.testing.assert_array_equal(model.table, table)
    assert not np.array_equal(model.kernel, kernel)
    assert state.averages.keys() in (set(), set(model.named_variables()))
    norms = dict(zip(state.gradient_groups, state.gradient_norms.numpy(), strict=False))
    assert norms["table"] == norms["unused"] == 0 < norms["kernel"]
    # Earlier versions stored slots of frozen variables, too.
    stored = {name: variable.numpy() for name, variable in state.named_variables().items()}
    before = {**stored, "adam/m/table": table, "snapshots/last/unused": table, "schedule_free/z/table": table}
    assert state.fitted(before).keys() == stored.keys()
    assert state.fitted({**stored, "other": table}).keys() == stored.keys() | {"other"}
    # A variable that was frozen until then has no moments yet; those of the others stay.
    _, unfrozen, _ = make(learning_rates={"unused": 0.0}, unused=1, **changes)
    resumed = unfrozen.fitted(stored)
    if changes["optimizer"] != "schedule_free_adam_w" and "average_last" not in changes:
        assert resumed.keys() == unfrozen.named_variables().keys()
        assert not resumed["adam/m/table"].any()
        assert resumed["adam/m/kernel"].any()


def test_losses_of_layers_are_part_of_the_gradient():
    """Half of the squared weights, times a factor, is Adam's weight decay by it; it does not change what is frozen."""
    decayed, _, expected = make(optimizer="adam", weight_decay=0.5, learning_rates={"table": 0.0})
    half = lambda model, _: 0.5 * (tf.nn.l2_loss(model.table) + tf.nn.l2_loss(model.kernel))  # noqa: E731
    penalized, state, step = make(optimizer="adam", added_loss=half, learning_rates={"table": 0.0})
    penalty = float(half(penalized, None))
    for number in range(2):
        assert float(step.run(batch(number))["gradient_norm"]) == pytest.approx(
            float(expected.run(batch(number))["gradient_norm"]), rel=1e-6
        )
    np.testing.assert_allclose(penalized.kernel, decayed.kernel, rtol=1e-6)
    np.testing.assert_array_equal(penalized.table, decayed.table)
    sums = window(state)
    assert sums["regularizer"] / sums["labels"] == pytest.approx(penalty, rel=0.1)


def test_losses_of_layers_weigh_by_the_labels_of_a_slice():
    def added(model, targets):
        return tf.reduce_sum(model.kernel) * tf.math.count_nonzero(targets, dtype=tf.float32)

    one, kernel = batch(rows=4, length=5), float(tf.reduce_sum(Bigrams().kernel))
    found = []
    # The two slices have 7 and 10 labels.
    for slices, mean in ((1, 17.0), (2, (7 * 7 + 10 * 10) / 17)):
        _, state, step = make(added_loss=added, gradient_accumulation_steps=slices)
        found.append(step.gradients(one)["gradients"]["kernel"].numpy() - mean)
        step.run(one)
        assert window(state)["regularizer"] == pytest.approx(17 * mean * kernel, rel=1e-5)
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_loss_scale_grows_and_falls():
    _, state, _ = make(precision="mixed_float16")
    state.finite_in_a_row.assign(1999)
    for finite, scale, in_a_row in ((True, 2.0**16, 0), (True, 2.0**16, 1), (False, 2.0**15, 0)):
        state.update_after(tf.constant(finite))
        assert float(state.loss_scale) == scale
        assert int(state.finite_in_a_row) == in_a_row


def test_one_trace_for_all_shapes():
    _, state, step = make()
    shapes = [(4, 5), (6, 3), (2, 9)]

    def batches():
        for rows, length in shapes:
            yield batch(rows=rows, length=length)

    signature = {name: tf.TensorSpec([None, None], tf.int32) for name in ("inputs", "targets")}
    iterator = iter(tf.data.Dataset.from_generator(batches, output_signature=signature))
    for _ in shapes:
        step(iterator)
    assert step.traces == 1
    assert int(state.step) == 3


def test_static_shapes_trace_once_a_shape():
    _, _, step = make(batch_shapes="static")
    batches = [batch(rows=4, length=5), batch(rows=2, length=9), batch(seed=3, rows=4, length=5)]
    iterator = iter(batches)
    for _ in batches:
        step(iterator)
    assert step.traces == 2


def test_graphs_of_static_shapes_are_no_reason_for_a_warning():
    records = logging.handlers.BufferingHandler(1000)
    tf.get_logger().addHandler(records)
    try:
        _, _, step = make(batch_shapes="static")
        iterator = iter([batch(rows=2, length=length) for length in range(3, 10)])
        for _ in range(7):
            step(iterator)
        while_training = [record.getMessage() for record in records.buffer]
        traced = tf.function(lambda x: x, autograph=False)
        for length in range(9):
            traced(tf.zeros([length]))
    finally:
        tf.get_logger().removeHandler(records)
    assert not while_training
    assert records.buffer  # other functions are warned about as before


def test_xla_computes_the_same():
    _, _, plain = make(batch_shapes="static", gradient_accumulation_steps=2)
    model, _, compiled = make(batch_shapes="static", gradient_accumulation_steps=2)
    compiled = TrainStep(
        model,
        optimizer=compiled._optimizer,
        schedule=compiled._schedule,
        state=compiled._state,
        hparams=compiled._hparams,
        strategy=tf.distribute.get_strategy(),
        random_seed=1,
        jit_compile=True,
    )
    np.testing.assert_allclose(compiled.run(batch())["loss"], plain.run(batch())["loss"], rtol=1e-5)
