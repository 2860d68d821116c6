"""Tests of the shape classes: the least padding for their number, few shapes, and the same ones in every epoch."""

import itertools

import numpy as np
import pytest

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.data.datasets import batching, shape_classes


def cost(classes, inputs, targets, mode, class_cost):
    """Returns the padded positions of all pairs plus the cost of the classes, with the padding of the search."""
    total = 0.0
    for number in np.unique(classes):
        chosen = classes == number
        source, target = inputs[chosen], targets[chosen]
        if mode == "target":
            positions = source.max() + target.max()
        else:
            size = np.maximum(source, target).max() if mode == "max" else (source + target).max()
            rest = source - target
            least, most = rest.min(), rest.max()
            positions = 2 * size + min(most, 0) - max(least, 0) if mode == "max" else size + (most - least) / 2
        total += chosen.sum() * positions + class_cost
    return total


def all_divisions(size, rest):
    """Yields all divisions into ranges of size whose pairs are divided further into ranges of rest."""

    def ranges(values):
        values = np.unique(values)
        for cuts in itertools.product([False, True], repeat=len(values) - 1):
            yield dict(zip(values.tolist(), np.concatenate([[0], np.cumsum(cuts)]).tolist(), strict=True))

    for by_size in ranges(size):
        strips = np.array([by_size[value] for value in size.tolist()])
        each = [list(ranges(rest[strips == strip])) for strip in np.unique(strips)]
        for by_rest in itertools.product(*each):
            yield np.array([100 * strip + by_rest[strip][value] for strip, value in zip(strips, rest, strict=True)])


@pytest.mark.parametrize("mode", ["max", "sum", "target"])
@pytest.mark.parametrize("class_cost", [1.0, 6.0, 30.0])
def test_no_other_division_is_cheaper(mode, class_cost):
    rng = np.random.default_rng(4)
    # The sizes are so close that the limit on the ratio within a class has no effect.
    inputs, targets = rng.integers(20, 23, 12), rng.integers(20, 23, 12)
    size = {"max": np.maximum(inputs, targets), "sum": inputs + targets, "target": targets}[mode]
    rest = inputs if mode == "target" else inputs - targets
    found = shape_classes.choose(inputs, targets, mode, class_cost)
    least = min(cost(other, inputs, targets, mode, class_cost) for other in all_divisions(size, rest))
    assert cost(found, inputs, targets, mode, class_cost) == pytest.approx(least)


def test_only_what_occurs_in_a_range_of_sizes_is_looked_at(monkeypatch):
    inputs = np.arange(40, 1000, 7)
    widest, cut = [], shape_classes._cut_by_rest
    monkeypatch.setattr(shape_classes, "_cut_by_rest", lambda *args: (widest.append(args[0].shape[1]), cut(*args))[1])
    found = shape_classes.choose(inputs, inputs // 4, "sum", 50.0)
    assert sorted(set(found.tolist())) == list(range(found.max() + 1))
    assert max(widest) < len(inputs) / 2


def test_numbers_have_no_gaps_and_one_pair_is_one_class():
    assert shape_classes.choose(np.array([5]), np.array([7]), "max", 10.0).tolist() == [0]
    found = shape_classes.choose(np.array([5, 5, 90, 91]), np.array([7, 7, 80, 5]), "max", 10.0)
    assert sorted(set(found.tolist())) == list(range(found.max() + 1))
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("mode", ["max", "sum", "target"])
@pytest.mark.parametrize(("count", "most"), [(20_000, 100), (300_000, 180)])
def test_shapes_are_few_and_the_same_in_every_epoch(mode, count, most):
    rng = np.random.default_rng(0)
    sources = np.clip(np.round(rng.gamma(9, 16 / 9, count)), 3, 60).astype(np.int32)
    targets = np.clip(np.round(sources * rng.normal(0.97, 0.17, count)), 3, 60).astype(np.int32)
    planner = batching.BatchPlanner(sources, targets, HParams(batch_size=2048, batch_tokens=mode), seed=1)
    first, later = (
        {*zip(plan.rows.tolist(), plan.input_widths.tolist(), plan.target_widths.tolist(), strict=True)}
        for plan in (planner.epoch(0), planner.epoch(3))
    )
    assert first == later
    assert len(first) <= most
    assert planner.fill_rate() > 0.9
