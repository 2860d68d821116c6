"""Tests of the input pipeline: its batches follow the plan from any step and in any number of parts."""

import itertools
import time

import numpy as np
import pytest

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.pipeline import TrainPipeline, eval_batches


def make_store(count, seed=0):
    """Returns a store whose sequences identify their example: [100 + side, 1000 + number, ...fillers, EOS]."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 30, (2, count))
    sides = [
        [[100 + side, 1000 + i, *rng.integers(10, 99, lengths[side, i] - 3), 1] for i in range(count)]
        for side in range(2)
    ]
    return ExampleStore.from_sequences(*sides)


STORE = make_store(500)
HPARAMS = HParams(batch_size=400)


def take(dataset, count):
    return [{name: value.numpy() for name, value in batch.items()} for batch in itertools.islice(dataset, count)]


def assert_same(batches, others):
    assert len(batches) == len(others)
    for batch, other in zip(batches, others, strict=True):
        assert batch.keys() == other.keys()
        for name, value in batch.items():
            assert value.dtype == np.int32
            np.testing.assert_array_equal(value, other[name])


def numbers_of(batch):
    return [int(row[1]) - 1000 for row in batch["inputs"] if row[0]]


@pytest.mark.parametrize("shapes", ["dynamic", "static"])
def test_an_epoch_holds_every_pair_whole_and_once(shapes):
    pipeline = TrainPipeline(STORE, HPARAMS.replace(batch_shapes=shapes), seed=3)
    seen = []
    for batch in take(pipeline.dataset(0), pipeline.batches_per_epoch):
        assert len(batch["inputs"]) == len(batch["targets"])
        for source, target in zip(batch["inputs"], batch["targets"], strict=True):
            if not source.any():
                assert not target.any()
                continue
            number = int(source[1]) - 1000
            seen.append(number)
            for row, ids in zip((source, target), STORE.example(number), strict=True):
                np.testing.assert_array_equal(row[: len(ids)], ids)
                assert not row[len(ids) :].any()
    assert sorted(seen) == list(range(500))


def flattened(batches):
    return [part for batch in batches for part in batch]


def take_parts(dataset, count):
    return [tuple(take(iter(batch), len(batch))) for batch in itertools.islice(dataset, count)]


def test_length_groups_hold_every_pair_once_from_any_step():
    hparams = HPARAMS.replace(length_groups=3)
    pipeline = TrainPipeline(STORE, hparams, seed=3)
    per_epoch = pipeline.batches_per_epoch
    whole = take_parts(pipeline.dataset(0), 2 * per_epoch)
    assert {len(batch) for batch in whole} == {3}
    for epoch in (whole[:per_epoch], whole[per_epoch:]):
        assert sorted(number for part in flattened(epoch) for number in numbers_of(part)) == list(range(500))
    for first in (1, per_epoch - 1, per_epoch + 2):
        fresh = TrainPipeline(STORE, hparams, seed=3)
        assert_same(flattened(take_parts(fresh.dataset(first), 3)), flattened(whole[first : first + 3]))


def test_length_groups_of_replicas_are_the_global_batch():
    hparams = HPARAMS.replace(length_groups=4, batch_size=200)
    pipeline = TrainPipeline(STORE, hparams, seed=3, num_replicas=2)
    count = pipeline.batches_per_epoch + 1
    whole = flattened(take_parts(pipeline.dataset(0, 0, 1), count))
    halves = [flattened(take_parts(pipeline.dataset(0, replica), count)) for replica in range(2)]
    for part, *pieces in zip(whole, *halves, strict=True):
        assert pieces[0]["inputs"].shape == pieces[1]["inputs"].shape
        for side, value in part.items():
            joined = np.concatenate([piece[side] for piece in pieces])
            np.testing.assert_array_equal(joined[: len(value)], value)
            assert not joined[len(value) :].any()


def test_fixed_shapes_merge_the_parts_and_are_divided_into_replicas_and_slices():
    hparams = HPARAMS.replace(length_groups=4, batch_size=200, gradient_accumulation_steps=2)
    parts = TrainPipeline(STORE, hparams, seed=3, num_replicas=2)
    merged = TrainPipeline(STORE, hparams, seed=3, num_replicas=2, fixed_shapes=True)
    count = parts.batches_per_epoch + 1
    assert merged.batches_per_epoch == parts.batches_per_epoch
    wholes = take(merged.dataset(0, 0, 1), count)
    halves = [take(merged.dataset(0, replica), count) for replica in range(2)]
    for of_parts, whole, *pieces in zip(take_parts(parts.dataset(0, 0, 1), count), wholes, *halves, strict=True):
        assert sorted(numbers_of(whole)) == sorted(number for part in of_parts for number in numbers_of(part))
        for side, value in whole.items():
            assert pieces[0][side].shape == pieces[1][side].shape
            assert len(pieces[0][side]) % 2 == 0
            joined = np.concatenate([piece[side] for piece in pieces])
            np.testing.assert_array_equal(joined[: len(value)], value)
            assert not joined[len(value) :].any()
    assert len({whole["inputs"].shape for whole in wholes}) <= 4


def test_the_plan_is_what_comes_out():
    pipeline = TrainPipeline(STORE, HPARAMS, seed=3)
    plan = pipeline.planner.epoch(1)
    for i, batch in enumerate(take(pipeline.dataset(pipeline.batches_per_epoch), 4)):
        assert numbers_of(batch) == plan.examples[plan.begins[i] : plan.ends[i]].tolist()
        assert batch["inputs"].shape == (plan.rows[i], plan.input_widths[i])
        assert batch["targets"].shape == (plan.rows[i], plan.target_widths[i])


@pytest.mark.parametrize("shapes", ["dynamic", "static"])
def test_starting_at_a_step_is_arriving_there(shapes):
    hparams = HPARAMS.replace(batch_shapes=shapes)
    pipeline = TrainPipeline(STORE, hparams, seed=3)
    per_epoch = pipeline.batches_per_epoch
    whole = take(pipeline.dataset(0), 3 * per_epoch)
    for first in (1, per_epoch - 1, per_epoch, per_epoch + 1, 2 * per_epoch + 5):
        fresh = TrainPipeline(STORE, hparams, seed=3)
        assert_same(take(fresh.dataset(first), 4), whole[first : first + 4])


def test_seeds_and_epochs_differ():
    one, other = TrainPipeline(STORE, HPARAMS, seed=3), TrainPipeline(STORE, HPARAMS, seed=4)
    first = [numbers_of(batch) for batch in take(one.dataset(0), 5)]
    assert first != [numbers_of(batch) for batch in take(other.dataset(0), 5)]
    assert first != [numbers_of(batch) for batch in take(one.dataset(one.batches_per_epoch), 5)]


@pytest.mark.parametrize("shapes", ["dynamic", "static"])
@pytest.mark.parametrize(("replicas", "accumulation", "parallel"), [(2, 1, 1), (4, 1, 2), (3, 2, 1)])
def test_parts_of_replicas_are_the_global_batch(replicas, accumulation, parallel, shapes):
    hparams = HPARAMS.replace(
        gradient_accumulation_steps=accumulation, parallel_slices=parallel, batch_shapes=shapes, batch_size=120
    )
    pipeline = TrainPipeline(STORE, hparams, seed=3, num_replicas=replicas)
    count = pipeline.batches_per_epoch + 2
    whole = take(pipeline.dataset(0, 0, 1), count)
    parts = [take(pipeline.dataset(0, replica, replicas), count) for replica in range(replicas)]
    for i, batch in enumerate(whole):
        pieces = [part[i] for part in parts]
        assert len({piece[side].shape for piece in pieces for side in ["inputs"]}) == 1
        assert len(pieces[0]["inputs"]) % (accumulation * parallel) == 0
        for side, value in batch.items():
            joined = np.concatenate([piece[side] for piece in pieces])
            np.testing.assert_array_equal(joined[: len(value)], value)
            assert not joined[len(value) :].any()


def test_one_replica_with_the_whole_budget_sees_the_same_batches():
    one = TrainPipeline(STORE, HPARAMS.replace(batch_size=480, max_length=100), seed=3)
    four = TrainPipeline(STORE, HPARAMS.replace(batch_size=120, max_length=100), seed=3, num_replicas=4)
    assert_same(take(one.dataset(7), 9), take(four.dataset(7, 0, 1), 9))


def test_right_to_left_turns_targets_before_their_end():
    forward = take(TrainPipeline(STORE, HPARAMS, seed=3).dataset(2), 3)
    backward = take(TrainPipeline(STORE, HPARAMS.replace(target_direction="r2l"), seed=3).dataset(2), 3)
    for one, other in zip(forward, backward, strict=True):
        np.testing.assert_array_equal(one["inputs"], other["inputs"])
        for row, turned in zip(one["targets"], other["targets"], strict=True):
            length = np.count_nonzero(row)
            if length:
                np.testing.assert_array_equal(turned[: length - 1], row[: length - 1][::-1])
                assert turned[length - 1] == 1
            assert not turned[length:].any()


def test_dropped_pairs_are_counted_and_never_seen():
    pipeline = TrainPipeline(STORE, HPARAMS.replace(max_length=20), seed=3)
    assert sum(pipeline.dropped.values()) == int((np.maximum(STORE.input_lengths, STORE.target_lengths) > 20).sum())
    batches = take(pipeline.dataset(0), pipeline.batches_per_epoch)
    assert max(max(b["inputs"].shape[1], b["targets"].shape[1]) for b in batches) <= 20


def test_a_single_pair_is_an_endless_dataset():
    pipeline = TrainPipeline(make_store(1), HPARAMS, seed=3)
    assert pipeline.batches_per_epoch == 1
    assert [numbers_of(batch) for batch in take(pipeline.dataset(5), 3)] == [[0]] * 3


def test_wrong_replica():
    with pytest.raises(ValueError, match="replica 2 of 2"):
        TrainPipeline(STORE, HPARAMS, seed=3, num_replicas=2).dataset(0, 2)


@pytest.mark.parametrize("shapes", ["dynamic", "static"])
def test_evaluation_sees_every_pair_once_under_its_number(shapes):
    store = ExampleStore.from_sequences([[5] * 300 + [1], [1], [6, 1]], [[7, 1], [1], [8, 9, 1]])
    seen = {}
    for batch in eval_batches(store, HPARAMS.replace(batch_shapes=shapes, max_length=100), 50).as_numpy_iterator():
        for number, source, target in zip(batch["index"], batch["inputs"], batch["targets"], strict=True):
            if number >= 0:
                assert number not in seen
                seen[int(number)] = [[i for i in row.tolist() if i] for row in (source, target)]
            else:
                assert not source.any()
                assert not target.any()
    assert seen == {i: [side.tolist() for side in store.example(i)] for i in range(3)}


def test_evaluation_turns_targets_too():
    store = ExampleStore.from_sequences([[5, 1]], [[7, 8, 9, 1]])
    (batch,) = eval_batches(store, HPARAMS.replace(target_direction="r2l"), 50).as_numpy_iterator()
    assert batch["targets"].tolist() == [[9, 8, 7, 1]]


def test_a_far_step_costs_no_more_than_the_first():
    pipeline = TrainPipeline(STORE, HPARAMS, seed=3)
    start = time.monotonic()
    take(pipeline.dataset(10**12), 1)
    assert time.monotonic() - start < 5


def test_throughput():
    pipeline = TrainPipeline(make_store(5000), HParams(batch_size=2048), seed=3)
    iterator = iter(pipeline.dataset(0))
    next(iterator)
    start, tokens = time.process_time(), 0
    for _ in range(200):
        batch = next(iterator)
        tokens += int(np.count_nonzero(batch["inputs"])) + int(np.count_nonzero(batch["targets"]))
    assert tokens / (time.process_time() - start) > 200_000
