"""Tests that a run resumes with another number of replicas only if the global batches stay the same."""

import pytest

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints
from t2t_ext.training import global_batches

BEFORE = {"replicas": 4, "batch_size": 1024, "gradient_accumulation_steps": 1, "pairs": 100, "batches": "abc"}


def sizes(now, hparams=None, pairs=lambda size: 100, batches=lambda size: "abc"):
    """Returns a function (batch_size, accumulated) -> the checkpoint metadata that a session would plan with them."""

    def with_sizes(size, accumulated):
        (hparams or HParams()).replace(batch_size=size, gradient_accumulation_steps=accumulated)
        changed = {"batch_size": size, "gradient_accumulation_steps": accumulated}
        return {**BEFORE, **now, **changed, "pairs": pairs(size), "batches": batches(size)}

    return with_sizes


@pytest.fixture
def path(tmp_path):
    return checkpoints.save_checkpoint(tmp_path, 7, {"a": 1.0}, metadata=BEFORE)


@pytest.mark.parametrize(
    "now",
    [
        {"replicas": 2, "gradient_accumulation_steps": 2},
        {"replicas": 2, "batch_size": 2048},
        {"replicas": 8, "batch_size": 512},
    ],
)
def test_equal_products_resume(path, now):
    said = []
    global_batches.check(path, {**BEFORE, **now}, sizes(now), said.append)
    assert len(said) == 1
    assert f"had 4 replicas, now {now['replicas']}: the global batches are the same (4,096 tokens" in said[0]


def test_nothing_is_said_where_nothing_changed(path):
    global_batches.check(path, BEFORE, sizes({}), pytest.fail)


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ({"replicas": 2}, r"now they would have 2,048 tokens \(2 replicas x batch_size 1024 x 1 accumulated\)"),
        ({"replicas": 2}, '--hparams="batch_size=1024,gradient_accumulation_steps=2"'),
        ({"replicas": 2}, '--hparams="batch_size=2048,gradient_accumulation_steps=1"'),
        ({"replicas": 3}, "Use 4 replicas again, or another number that divides 4, with batch_size=1024"),
        ({"replicas": 2}, "--warm_start_from="),
        ({"replicas": 8, "batch_size": 512, "pairs": 90}, "trained on 100 pairs; now it would train on 90"),
        ({"replicas": 8, "batch_size": 512, "batches": "abd"}, "with 512 pairs would be grouped otherwise"),
    ],
)
def test_other_batches_are_refused(path, now, message):
    with pytest.raises(UserError, match=message):
        global_batches.check(path, {**BEFORE, **now}, sizes(now), pytest.fail)


@pytest.mark.parametrize(("groups", "slices"), [(4, 4), (3, 1)])
def test_what_length_groups_forbid_is_not_proposed(path, groups, slices):
    """Numbers of slices that do not fit length_groups are not proposed: slices consist of whole length groups."""
    hparams, now = HParams(length_groups=groups, parallel_slices=slices), {"replicas": 2}
    with pytest.raises(UserError) as error:
        global_batches.check(path, {**BEFORE, **now}, sizes(now, hparams), pytest.fail)
    assert '--hparams="batch_size=2048,gradient_accumulation_steps=1"' in str(error.value)
    assert "gradient_accumulation_steps=2" not in str(error.value)


def test_what_would_be_refused_next_is_not_proposed(path):
    """Sizes that would change the pairs or the batches are not proposed.

    With 8 replicas a batch has 512 tokens, so that longer pairs would be left out, and the buckets would differ.
    """
    now = {"replicas": 8}
    for other in ({"pairs": lambda size: 100 if size >= 700 else 90}, {"batches": str}):
        with pytest.raises(UserError, match="Use 4 replicas again, or another number that divides 4, with batch_size"):
            global_batches.check(path, {**BEFORE, **now}, sizes(now, **other), pytest.fail)
    now = {"replicas": 2}
    with pytest.raises(UserError) as error:
        global_batches.check(path, {**BEFORE, **now}, sizes(now, pairs=lambda size: 100 + (size > 1024)), pytest.fail)
    assert '--hparams="batch_size=1024,gradient_accumulation_steps=2"' in str(error.value)
    assert "batch_size=2048" not in str(error.value), "pairs that were too long until now would come in"


def test_another_plan_of_the_same_batches_is_pointed_out(path):
    said = []
    global_batches.check(path, {**BEFORE, "batches": "abd"}, sizes({}), said.append)
    assert "the order is another" in said[0]
