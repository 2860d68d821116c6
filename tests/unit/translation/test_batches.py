"""Tests of how graph functions are traced and reused, also from several threads."""

import concurrent.futures
import threading

import pytest
import tensorflow as tf

from t2t_ext.translation import batches

NUMBERS = tf.TensorSpec([None], tf.int32)


def test_a_trace_for_each_choice_of_tensors_and_settings():
    traced = []

    def function(x, y=None, plus=0):
        traced.append((y is not None, plus))
        return {"sum": x + plus if y is None else x + y + plus}

    run = batches.Traced(function, {"x": NUMBERS, "y": NUMBERS})
    for length in (1, 2, 3):
        x = tf.ones([length], tf.int32)
        assert run(x=x)["sum"].numpy().tolist() == [1] * length
        assert run({"plus": 4}, x=x, y=x)["sum"].numpy().tolist() == [6] * length
    assert traced == [(False, 0), (True, 4)]


def test_many_functions_are_not_warned_of_as_one_that_is_traced_often(caplog, monkeypatch):
    log = tf.get_logger()
    monkeypatch.setattr(log, "propagate", True)
    for number in range(12):
        run = batches.Traced(lambda x, number=number: {"x": x + number}, {"x": NUMBERS})
        assert run(x=tf.ones([1], tf.int32))["x"].numpy().tolist() == [1 + number]
    assert "retracing" not in caplog.text


def test_threads_that_come_at_once_get_the_same_function(monkeypatch):
    barrier, real = threading.Barrier(4), tf.function

    def slow(*args, **kwargs):
        barrier.wait(timeout=60)  # until all threads have found that no function exists yet
        return real(*args, **kwargs)

    monkeypatch.setattr(batches.tf, "function", slow)
    run = batches.Traced(lambda x: {"x": x}, {"x": NUMBERS})
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        functions = list(pool.map(lambda _: run.of("x"), range(4)))
    assert len(set(map(id, functions))) == 1


def given(batch):
    return {"x": tf.constant(batch, tf.int32)}


def read(arrays, row):
    return int(arrays["double"][row])


def test_results_come_in_the_order_of_the_sentences():
    told = []
    parts = batches.similar_lengths([3, 9, 1, 9, 4, 2, 7], 2)
    assert [list(part) for part in parts] == [[1, 3], [6, 4], [0, 5], [2]]
    double = batches.run_batches(lambda x: {"double": 2 * x}, given, read, parts, 3, lambda *done: told.append(done))
    assert double == [0, 2, 4, 6, 8, 10, 12]
    assert sorted(told)[-1] == (7, 7)
    assert len(told) == len(parts)


def test_the_first_error_ends_all_batches():
    ran = []

    def fails(x):
        ran.append(x)
        raise ValueError("no")

    parts = batches.similar_lengths([1] * 100, 1)
    with pytest.raises(ValueError, match="no"):
        batches.run_batches(fails, given, read, parts, 2)
    assert len(ran) < 100
