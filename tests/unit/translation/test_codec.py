"""Tests of what counts as an empty text, on the host and in the graph."""

import tensorflow as tf

from t2t_ext.translation.codec import TextCodec


def test_a_line_of_whitespace_alone_is_empty_on_the_host_and_in_the_graph(tiny_encoder):
    codec = TextCodec(tiny_encoder, 10, "inputs")
    texts = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    texts += ["", " \u3000\u00a0\t", "x\u3000", "\u3000x ", "\U0001f642"]
    expected = [not text.strip() for text in texts]
    assert sum(expected) > 25
    assert codec.empty(tf.constant(texts)).numpy().tolist() == expected
    assert codec.read(texts).empty.tolist() == expected
