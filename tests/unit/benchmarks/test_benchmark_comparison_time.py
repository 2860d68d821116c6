"""Tests of the remaining time that benchmarks/comparison.py reports."""

import importlib

import pytest
from made_up_results import made_up

CELL = (0.2, 0.0075)


@pytest.fixture
def time(benchmark):
    return importlib.import_module("_comparison_time")


@pytest.fixture
def minutes_left(time, stores, plans):
    """Returns a function (waiting jobs, ...) -> minutes; row a took 9,000 updates in 25 minutes, row b 4,000 in 20."""

    def job(row, seed=2, variant="plain"):
        return plans.Job(row, variant, CELL, seed)

    stored = {
        job("a", 1): {"updates": 9000, "minutes": 25.0, "minutes_before": 0.0, "seconds": 1500},
        job("b", 1): {"updates": 4000, "minutes": 60.0, "minutes_before": 40.0, "seconds": 1200},
        job("rerank", 1): {"updates": 18000, "minutes": 50.0, "minutes_before": 50.0, "seconds": 60},
    }
    records = {each: {**made_up(stores, each, 40.0), **more} for each, more in stored.items()}

    def left(
        *rows, running=None, later=0, slots=1, price=lambda variant: {"best": 2.0}.get(variant, 1.0), of_best=None
    ):
        running = {job(row, 2, of_best or "plain"): time.Progress(*each) for row, each in (running or {}).items()}
        jobs = [*running, *(job(*row) for row in rows)]
        best = job("a", 1, "best")  # three times the updates of the plain recipe, each twice as long
        more = {"updates": 27000, "minutes": 150.0, "minutes_before": 0.0, "seconds": 9000}
        known = {**records, **({best: {**made_up(stores, best, 40.0), **more}} if of_best else {})}
        return time.seconds_left(known, price, jobs, running, later=later, slots=slots) / 60

    return left


def test_nothing_is_said_without_results(time):
    assert time.seconds_left({}, lambda _: 1.0, [], {}, later=3, slots=1) == 0.0


def test_trainings_that_wait_take_what_others_of_their_row_took(minutes_left):
    assert minutes_left(("a",)) == 25.0
    assert minutes_left(("a",), ("b",), ("rerank",)) == 25 + 20 + 1
    assert minutes_left(("a",), ("b",), ("a", 3), slots=2) == (25 + 20 + 25) / 2
    assert minutes_left(("a",), ("rerank",), slots=2) == 25, "the longest one is not divided"
    assert minutes_left(("a", 2, "best")) == 50.0
    assert minutes_left(("no such row",), later=1) == 2 * 20  # as long as most trainings


def test_one_that_runs_goes_on_as_fast_as_until_now(minutes_left):
    # Half as fast as the stored training of its row: 3,000 of 9,000 updates in 50/3 minutes.
    half = {"a": (1000, 3000, 50 / 3)}
    assert minutes_left(running=half) == pytest.approx(100 / 3)
    assert minutes_left(("b",), running=half) == pytest.approx(100 / 3 + 40), "what waits is as slow"
    # It was resumed a minute ago, which changes nothing.
    assert minutes_left(running={"a": (60, 3000, 50 / 3)}) == pytest.approx(100 / 3)


def test_one_that_has_had_as_many_updates_as_others_is_not_at_its_end(minutes_left):
    assert minutes_left(running={"a": (3000, 12000, 100 / 3)}) == pytest.approx(500 * 100 / 3 / 12000)


def test_of_few_updates_nothing_is_concluded(minutes_left):
    assert minutes_left(("b",), running={"a": (300, 100, 4.0)}) == pytest.approx(20 + 20)
    assert minutes_left(running={"rerank": (30, 0, 0.0)}) == pytest.approx(0.5)
    assert minutes_left(running={"rerank": (300, 0, 0.0)}) == 0.0


def test_a_recipe_that_takes_more_updates_takes_more_in_other_rows_too(minutes_left):
    assert minutes_left(("b", 2, "best"), of_best="best") == pytest.approx(3 * 2 * 20)
    assert minutes_left(("a",), of_best="best") == pytest.approx(25), "the plain recipe takes what it took"
    assert minutes_left(running={"b": (600, 3000, 30.0)}, of_best="best") == pytest.approx((12000 - 3000) * 30 / 3000)
