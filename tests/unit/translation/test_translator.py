"""How graph functions are traced and reused, from several threads, too."""

import concurrent.futures
import threading

import tensorflow as tf

from t2t_ext.translation import translator

NUMBERS = tf.TensorSpec([None], tf.int32)


def test_a_trace_for_each_choice_of_tensors_and_settings():
    traced = []

    def function(x, y=None, plus=0):
        traced.append((y is not None, plus))
        return {"sum": x + plus if y is None else x + y + plus}

    run = translator.Traced(function, {"x": NUMBERS, "y": NUMBERS})
    for length in (1, 2, 3):
        x = tf.ones([length], tf.int32)
        assert run(x=x)["sum"].numpy().tolist() == [1] * length
        assert run({"plus": 4}, x=x, y=x)["sum"].numpy().tolist() == [6] * length
    assert traced == [(False, 0), (True, 4)]


def test_threads_that_come_at_once_get_the_same_function(monkeypatch):
    barrier, real = threading.Barrier(4), tf.function

    def slow(*args, **kwargs):
        barrier.wait(timeout=60)  # until all have found that there is none yet
        return real(*args, **kwargs)

    monkeypatch.setattr(translator.tf, "function", slow)
    run = translator.Traced(lambda x: {"x": x}, {"x": NUMBERS})
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        functions = list(pool.map(lambda _: run.of("x"), range(4)))
    assert len(set(map(id, functions))) == 1
