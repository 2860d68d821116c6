"""Tests of the batch plan: complete, within the budget, little padding, determined by seed and epoch."""

import subprocess
import sys
import time

import numpy as np
import pytest

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.data.datasets import batching
from t2t_ext.errors import UserError


def caption_lengths(count, seed=0):
    """Returns lengths like those of Multi30k captions with 8,000 subwords: mean 16, at most 60, sides correlated."""
    rng = np.random.default_rng(seed)
    sources = np.clip(np.round(rng.gamma(9, 16 / 9, count)), 3, 60).astype(np.int32)
    targets = np.clip(np.round(sources * rng.normal(0.97, 0.17, count)), 3, 60).astype(np.int32)
    return sources, targets


SOURCES, TARGETS = caption_lengths(20_000)
ALL_MODES = ("max", "sum", "target")


def plan_of(hparams, epoch=0, seed=1, num_replicas=1):
    return batching.BatchPlanner(SOURCES, TARGETS, hparams, seed=seed, num_replicas=num_replicas).epoch(epoch)


def examples_of(plan, number):
    return plan.examples[plan.begins[number] : plan.ends[number]]


@pytest.mark.parametrize("shapes", ["dynamic", "static"])
@pytest.mark.parametrize("mode", ALL_MODES)
def test_every_example_once_and_every_batch_fits(mode, shapes):
    hparams = HParams(batch_size=1500, batch_tokens=mode, batch_shapes=shapes)
    plan = plan_of(hparams)
    used = np.concatenate([examples_of(plan, i) for i in range(len(plan.rows))])
    np.testing.assert_array_equal(np.sort(used), np.arange(len(SOURCES)))
    assert (plan.ends > plan.begins).all()
    assert (plan.rows >= plan.ends - plan.begins).all()
    tokens = plan.rows * batching.tokens_of(plan.input_widths, plan.target_widths, mode)
    assert tokens.max() <= 1500
    for i in range(len(plan.rows)):
        assert SOURCES[examples_of(plan, i)].max() <= plan.input_widths[i]
        assert TARGETS[examples_of(plan, i)].max() <= plan.target_widths[i]


@pytest.mark.parametrize("mode", ALL_MODES)
def test_little_padding_and_full_batches(mode):
    hparams = HParams(batch_size=2048, batch_tokens=mode)
    planner = batching.BatchPlanner(SOURCES, TARGETS, hparams, seed=1)
    assert planner.fill_rate() > 0.9
    plan = planner.epoch(0)
    tokens = plan.rows * batching.tokens_of(plan.input_widths, plan.target_widths, mode)
    assert tokens.mean() > 0.8 * 2048


def test_dynamic_widths_are_no_longer_than_needed():
    plan = plan_of(HParams(batch_size=1500))
    shapes = list(zip(plan.rows.tolist(), plan.input_widths.tolist(), plan.target_widths.tolist(), strict=True))
    for shape in set(shapes):
        # Some batch of each shape needs the full widths.
        examples = np.concatenate([examples_of(plan, i) for i, other in enumerate(shapes) if other == shape])
        assert SOURCES[examples].max() == shape[1]
        assert TARGETS[examples].max() == shape[2]


def test_another_batch_size_for_the_same_examples():
    planner = batching.BatchPlanner(SOURCES, TARGETS, HParams(batch_size=1500), seed=4, num_replicas=2)
    other = planner.with_batches_of(HParams(batch_size=600))
    expected = plan_of(HParams(batch_size=600), seed=4, num_replicas=2, epoch=1)
    np.testing.assert_array_equal(other.epoch(1).examples, expected.examples)
    np.testing.assert_array_equal(other.epoch(1).begins, expected.begins)
    assert other.total_tokens == np.maximum(SOURCES, TARGETS).sum()


@pytest.mark.parametrize("mode", ["max", "sum"])
def test_the_largest_static_batch_holds_the_fullest_bucket(mode):
    hparams = HParams(batch_size=1500, batch_shapes="static", batch_tokens=mode)
    planner = batching.BatchPlanner(SOURCES, TARGETS, hparams, seed=4)
    largest = planner.largest_budget
    assert largest < planner.total_tokens / 4
    buckets = len(set(planner.epoch(0).input_widths.tolist()))
    assert planner.with_batches_of(hparams.replace(batch_size=largest)).batches_per_epoch == buckets
    assert planner.with_batches_of(hparams.replace(batch_size=largest - 1)).batches_per_epoch > buckets
    dynamic = planner.with_batches_of(hparams.replace(batch_shapes="dynamic"))
    assert dynamic.largest_budget == dynamic.total_tokens


def test_shape_of_a_step_in_words():
    planner = batching.BatchPlanner(np.array([9, 9]), np.array([4, 7]), HParams(batch_size=20), seed=1)
    assert planner.shape(5) == "2 rows x 9 + 7 tokens"


@pytest.mark.parametrize("shapes", ["dynamic", "static"])
def test_order_is_a_function_of_seed_and_epoch(shapes):
    hparams = HParams(batch_size=1500, batch_shapes=shapes)
    first, again = plan_of(hparams, epoch=3), plan_of(hparams, epoch=3)
    for one, other in zip(vars(first).values(), vars(again).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    for other in (plan_of(hparams, epoch=4), plan_of(hparams, epoch=3, seed=2)):
        assert len(other.rows) == len(first.rows)
        assert not np.array_equal(first.examples, other.examples)
        assert not np.array_equal(first.begins, other.begins)


def test_order_does_not_depend_on_machine_or_numpy():
    hparams = HParams(batch_size=64)
    plan = batching.BatchPlanner(np.arange(3, 23), np.arange(4, 24), hparams, seed=5).epoch(1)
    batches = [examples_of(plan, i).tolist() for i in range(len(plan.rows))]
    assert batches == [[18, 15], [9], [7, 6, 8, 5], [11], [19], [1, 4, 2, 0, 3], [16, 17], [13, 14], [12, 10]]


def test_batches_change_from_epoch_to_epoch():
    planner = batching.BatchPlanner(SOURCES, TARGETS, HParams(batch_size=2048), seed=1)
    compositions = [
        {frozenset(examples_of(plan, i).tolist()) for i in range(len(plan.rows))}
        for plan in (planner.epoch(0), planner.epoch(1))
    ]
    assert len(compositions[0] & compositions[1]) < 0.1 * planner.batches_per_epoch


@pytest.mark.parametrize("shapes", ["dynamic", "static"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_replicas_share_the_batches_of_one_with_the_whole_budget(shapes, accumulation):
    shared = {"max_length": 60, "batch_shapes": shapes}
    one = plan_of(HParams(batch_size=4096, **shared))
    parts = HParams(batch_size=1024 // accumulation, gradient_accumulation_steps=accumulation, **shared)
    four = plan_of(parts, num_replicas=4)
    for field, other in zip(vars(one).values(), vars(four).values(), strict=True):
        np.testing.assert_array_equal(field, other)


def test_usual_numbers_of_slices_need_no_empty_rows():
    plan = plan_of(HParams(batch_size=2048))
    assert (plan.rows % 4 == 0).mean() > 0.8


def test_parallel_slices_do_not_change_the_plan():
    one, two = plan_of(HParams(batch_size=2048)), plan_of(HParams(batch_size=2048, parallel_slices=2))
    np.testing.assert_array_equal(one.begins, two.begins)


def test_empty_rows_that_fill_batches_of_few_rows_count():
    lengths = np.full(60, 300, np.int32)
    hparams = HParams(batch_size=2048, gradient_accumulation_steps=2, max_length=0)
    planner = batching.BatchPlanner(lengths, lengths, hparams, seed=1, num_replicas=2)
    assert planner.epoch(0).rows.tolist() == [20] * 3  # 8,192 tokens hold 24 rows; all batches are equally full
    assert planner.fill_rate() == planner.fill_rate(row_multiple=4) == 1.0
    assert planner.largest_share(4) == 5 * 300
    assert planner.epoch(0).filled(8).rows.tolist() == [24] * 3
    assert planner.fill_rate(row_multiple=8) == pytest.approx(20 / 24)
    assert planner.largest_share(8) == 3 * 300
    assert planner.shape(0, row_multiple=8) == "24 rows x 300 + 300 tokens"


def test_static_shapes_are_one_a_bucket():
    hparams = HParams(batch_size=1500, batch_shapes="static")
    plan = plan_of(hparams)
    shapes = set(zip(plan.rows.tolist(), plan.input_widths.tolist(), plan.target_widths.tolist(), strict=True))
    boundaries = batching.bucket_boundaries(hparams)
    buckets = set(np.searchsorted(boundaries, np.maximum(SOURCES, TARGETS)).tolist())
    assert {(width, width) for _, width, width in shapes} == {(boundaries[b], boundaries[b]) for b in buckets}
    assert len(shapes) == len(buckets)


def test_boundaries_are_those_of_tensor2tensor():
    expected = [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24, 26, 28, 30]
    assert batching.bucket_boundaries(HParams(max_length=30)) == expected
    assert batching.bucket_boundaries(HParams(max_length=8)) == [8]
    assert batching.bucket_boundaries(HParams(max_length=8), longest=10) == [8, 9, 10]


def test_long_pairs_are_left_out_and_counted():
    sources, targets = np.array([5, 40, 5, 30, 40]), np.array([5, 5, 40, 30, 40])
    hparams = HParams(batch_size=50, max_length=32, batch_tokens="sum")
    planner = batching.BatchPlanner(sources, targets, hparams, seed=1)
    assert planner.dropped == {
        "inputs longer than 32 tokens": 2,
        "targets longer than 32 tokens": 1,
        "pair larger than a batch of 50 tokens": 1,
    }
    assert planner.epoch(0).examples.tolist() == [0]
    planner = batching.BatchPlanner(np.array([5, 30, 30]), np.array([5, 30, 31]), hparams, seed=1)
    assert planner.dropped == {"pairs larger than a batch of 50 tokens": 2}


def test_max_length_zero_is_the_batch_size():
    planner = batching.BatchPlanner(np.array([20, 21]), np.array([1, 1]), HParams(batch_size=20, max_length=0), seed=1)
    assert planner.dropped == {"inputs longer than 20 tokens": 1}


def test_nothing_left_is_an_error():
    with pytest.raises(
        UserError, match=r"None of the 1 training pairs .*1 inputs longer than 8 tokens.*Raise max_length"
    ):
        batching.BatchPlanner(np.array([9]), np.array([2]), HParams(max_length=8), seed=1)
    with pytest.raises(UserError, match="there are none"):
        batching.BatchPlanner(np.array([], int), np.array([], int), HParams(), seed=1)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 17])
@pytest.mark.parametrize("shapes", ["dynamic", "static"])
def test_tiny_corpora(count, shapes):
    hparams = HParams(batch_size=60, max_length=60, batch_shapes=shapes)
    planner = batching.BatchPlanner(*caption_lengths(count), hparams, seed=1)
    assert sorted(planner.epoch(9).examples.tolist()) == list(range(count))
    assert planner.locate(planner.batches_per_epoch * 3 + 0) == (3, 0)


@pytest.mark.parametrize("shapes", ["dynamic", "static"])
def test_evaluation_leaves_nothing_out_and_pads_little(shapes):
    sources, targets = SOURCES.copy(), TARGETS.copy()
    sources[7], targets[11] = 5000, 70_000
    plan = batching.plan_everything(sources, targets, HParams(batch_shapes=shapes), batch_size=2048)
    used = np.concatenate([examples_of(plan, i) for i in range(len(plan.rows))])
    np.testing.assert_array_equal(np.sort(used), np.arange(len(sources)))
    tokens = plan.rows * np.maximum(plan.input_widths, plan.target_widths)
    assert (tokens[plan.rows > 1] <= 2048).all()


def test_millions_of_pairs_are_planned_in_seconds():
    lengths = caption_lengths(1_000_000)
    start = time.process_time()
    planner = batching.BatchPlanner(*lengths, HParams(batch_size=2048), seed=1)
    planner.epoch(5)
    assert time.process_time() - start < 5
    assert planner.fill_rate() > 0.96


def test_imports_no_tensorflow():
    program = (
        "import sys; from t2t_ext.data.datasets import batching, example_store; sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("groups", [2, 4, 7])
@pytest.mark.parametrize("mode", ALL_MODES)
def test_length_groups_give_every_batch_all_lengths(mode, groups):
    hparams = HParams(batch_size=2048, batch_tokens=mode, length_groups=groups)
    planner = batching.BatchPlanner(SOURCES, TARGETS, hparams, seed=1)
    plan = planner.epoch(0)
    assert len(plan.rows) == groups * planner.batches_per_epoch
    used = np.concatenate([examples_of(plan, part) for part in range(len(plan.rows))])
    np.testing.assert_array_equal(np.sort(used), np.arange(len(SOURCES)))
    tokens = plan.rows * batching.tokens_of(plan.input_widths, plan.target_widths, mode)
    assert tokens.max() <= 2048 // groups
    counted = batching.tokens_of(SOURCES, TARGETS, mode)
    spread = []
    for number in range(planner.batches_per_epoch):
        parts = [examples_of(plan, part) for part in range(number * groups, (number + 1) * groups)]
        means = [counted[part].mean() for part in parts if len(part)]
        assert (np.diff(means) > -1).all()  # the means of two parts from one block differ only by chance
        spread.append(means[-1] / means[0])
    assert np.mean(spread) > 1.5
    empty = plan.begins == plan.ends
    assert empty.sum() < groups
    assert (plan.rows[empty] == 1).all()


def test_length_groups_of_captions_are_filled_by_few_shapes():
    hparams = HParams(batch_size=2048, batch_tokens="target", length_groups=4)
    planner = batching.BatchPlanner(*caption_lengths(29_000), hparams, seed=1)
    plan = planner.epoch(0)
    assert planner.fill_rate() > 0.965
    assert len(set(zip(plan.rows, plan.input_widths, plan.target_widths, strict=True))) < 250


@pytest.mark.parametrize("mode", ALL_MODES)
def test_merged_batches_have_the_pairs_of_their_parts_and_few_shapes(mode):
    hparams = HParams(batch_size=2048, batch_tokens=mode, length_groups=4)
    apart = batching.BatchPlanner(SOURCES, TARGETS, hparams, seed=1)
    merged = batching.BatchPlanner(SOURCES, TARGETS, hparams, seed=1, merged=True)
    assert merged.fingerprint == apart.fingerprint
    assert merged.batches_per_epoch == apart.batches_per_epoch
    assert merged.parts == 1
    for epoch in (0, 2):
        plan, parts = merged.epoch(epoch), apart.epoch(epoch)
        assert len(plan.rows) == merged.batches_per_epoch
        for number in range(merged.batches_per_epoch):
            pairs = examples_of(plan, number)
            expected = np.concatenate([examples_of(parts, 4 * number + part) for part in range(4)])
            np.testing.assert_array_equal(pairs, expected)
            assert len(pairs) <= plan.rows[number]
            longest = max(SOURCES[pairs].max(), TARGETS[pairs].max())
            assert longest <= plan.input_widths[number] == plan.target_widths[number]
        assert len(set(plan.rows)) == 1
        assert plan.rows[0] % 8 == 0
        assert set(plan.input_widths) <= {16, 24, 32, 48, 64, 96, 128, 192, 256}
        positions = plan.rows * batching.tokens_of(plan.input_widths, plan.target_widths, mode)
        assert positions.max() <= merged.largest_share(1)
    assert 0 < merged.fill_rate() < apart.fill_rate()
    assert merged.with_batches_of(hparams).merged


def test_merged_widths_round_up():
    lengths = np.array([1, 16, 17, 24, 25, 32, 33, 48, 49, 65, 97, 4000, 5000])
    expected = [16, 16, 24, 24, 32, 32, 48, 48, 64, 96, 128, 4096, 6144]
    assert batching._merged_widths(lengths).tolist() == expected


def test_an_epoch_of_length_groups_differs_from_the_next_and_seeds_do():
    hparams = HParams(batch_size=2048, length_groups=4)
    first, second, other = plan_of(hparams), plan_of(hparams, epoch=1), plan_of(hparams, seed=2)
    assert (first.examples != second.examples).any()
    assert (first.begins != second.begins).any()
    assert (first.begins != other.begins).any()
    np.testing.assert_array_equal(first.begins, plan_of(hparams).begins)
