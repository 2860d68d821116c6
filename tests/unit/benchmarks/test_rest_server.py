"""Tests that the stand-in for TensorFlow Serving's REST API gives answers that can be written as JSON."""

import importlib
import json

import tensorflow as tf


def test_texts_of_lists_of_any_depth_are_plain():
    plain = importlib.import_module("_rest_server")._plain
    answer = plain(tf.constant([["ä", "b"], ["c", "d"]]))
    assert json.loads(json.dumps(answer)) == [["ä", "b"], ["c", "d"]]
    assert plain(tf.constant(["a"])) == ["a"]
    assert plain(tf.constant([[1.5]])) == [[1.5]]
