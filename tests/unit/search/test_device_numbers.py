"""Tests that search steps do no int32 arithmetic on hypotheses: TensorFlow would do it in host memory."""

import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import function_def_to_graph

from t2t_ext import registry
from t2t_ext.search.beam_search import beam_search
from t2t_ext.search.search_state import SearchConfig

VOCAB = 4096  # large enough for the stages of top_k
# Operations that read and write int32 in GPU memory, too. Casts to int32 whose result is unused are pruned later.
ON_DEVICE = {"TopKV2", "Cast", "GatherV2", "ArgMax"}


def loop_bodies(graph):
    """Returns the bodies of the loops of a graph, outer ones first."""
    found = []
    for operation in graph.get_operations():
        if operation.type in ("While", "StatelessWhile"):
            definition = context.context().get_function_def(operation.get_attr("body").name)
            body = function_def_to_graph.function_def_to_graph(definition)
            found += [body, *loop_bodies(body)]
    return found


def of_sentences(tensor):
    """Returns whether a tensor is int32 with a row per sentence; shape tensors, always on the host, do not count."""
    if tensor.dtype != tf.int32:
        return False
    return tensor.shape.rank is None or (tensor.shape.rank > 1 and tensor.shape[0] is None)


@pytest.mark.parametrize(
    ("kind", "hparams_set"),
    [
        ("transformer", "transformer_test"),
        ("synchronous_transformer", "synchronous_transformer_test"),
        ("layer_coordination", "layer_coordination_test"),
        ("dual_context_transformer", "dual_context_test"),
        ("dynamic_conv", "dynamic_conv_test"),
    ],
)
def test_steps_do_not_wait_for_the_host(kind, hparams_set):
    model = registry.model(kind)(
        registry.hparams(hparams_set), source_vocab_size=VOCAB, target_vocab_size=VOCAB, joint_vocabulary=True
    )
    model.build()
    config = SearchConfig(beam_size=4, directions=model.directions, banned=(0, 2, 3))

    @tf.function(autograph=False)
    def search(sources, limits):
        return beam_search(model.step, model.start(sources), limits, config)

    specs = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)
    outer, step = loop_bodies(search.get_concrete_function(*specs).graph)
    waiting = [
        f"{operation.type} {operation.name}"
        for operation in step.get_operations()
        if operation.type not in ON_DEVICE
        and any(of_sentences(tensor) for tensor in (*operation.inputs, *operation.outputs))
    ]
    assert waiting == []
    variables = [tensor for tensor in (*outer.inputs, *step.inputs) if tensor.dtype == tf.int32]
    assert not [tensor.name for tensor in variables if tensor.shape.rank]
