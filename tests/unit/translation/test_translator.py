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


def test_it_says_what_it_is(make_translator, tiny_model):
    from t2t_ext.models.ensemble import Ensemble

    one = make_translator(beam_size=8, num_hypotheses=2)
    model = f"Transformer of {tiny_model.count_params():,} parameters"
    subwords = f"{one.source_encoder.vocab_size} subwords"
    assert (
        repr(one) == f"<Translator: {model}, {subwords} to {subwords}, l2r, beam_size=8, alpha=0.6, num_hypotheses=2>"
    )
    encoder = one.source_encoder
    assert f"{model} + {model}," in repr(translator.Translator(Ensemble([tiny_model] * 2), encoder, encoder))
