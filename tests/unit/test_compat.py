"""Tests of the private TensorFlow and Keras interfaces in t2t_ext/compat.py, and what breaks if they change."""

import inspect
import pathlib
import re
import sys

import pytest

import t2t_ext

PRIVATE = re.compile(
    r"tensorflow(_text)?\.(python|compiler)\b|keras\.src\b|\._flatten_layers\b|\._trainable_variables\b|_collective_key_base\b"
)


def test_nothing_else_uses_what_is_private():
    root = pathlib.Path(t2t_ext.__file__).parent
    found = [str(path) for path in sorted(root.rglob("*.py")) if PRIVATE.search(path.read_text(encoding="utf-8"))]
    assert found == [str(root / "compat.py")], "put it into t2t_ext/compat.py, with a test here"


@pytest.mark.parametrize(
    ("method", "parameters", "what"),
    [
        ("check_collective_ops_peer_health", ("task", "timeout_in_ms"), "a worker that is gone is not noticed"),
        ("abort_collective_ops", ("code", "message"), "workers wait for a lost one until they are killed"),
        ("wait_at_barrier", ("barrier_id", "timeout_in_ms"), "a worker may leave while another needs it"),
        (
            "configure_coordination_service",
            (
                "service_type",
                "service_leader",
                "cluster_register_timeout_in_ms",
                "heartbeat_timeout_in_ms",
                "coordinated_jobs",
            ),
            "--worker_timeout has no effect",
        ),
    ],
)
def test_the_context_of_collective_operations(method, parameters, what):
    from tensorflow.python.eager import context

    found = inspect.signature(getattr(context.context(), method)).parameters
    assert set(parameters) <= set(found), what


def test_mirrored_strategies_of_a_process_have_keys_of_their_own():
    import tensorflow as tf

    from t2t_ext.training import strategies

    def first_key():
        return strategies.make_strategy("mirrored").extended._collective_key_base

    found = [first_key() for _ in range(2)]
    assert found[1] > found[0], "the second model that a process trains on several replicas ends with Shape mismatch"
    assert isinstance(tf.distribute.MirroredStrategy._collective_key_base, int)


def test_the_leader_of_workers_is_the_chief():
    import tensorflow as tf
    from tensorflow.python.distribute import multi_worker_util

    spec = tf.train.ClusterSpec({"chief": ["a:1"], "worker": ["b:1", "c:1"]})
    assert multi_worker_util.coordination_leader(spec) == "/job:chief/replica:0/task:0", "no worker leads the others"


def test_a_subword_model_is_a_resource_of_a_name():
    """Without a shared name, a Translator loses its subword model when training beside it clears the kernels."""
    from tensorflow_text.python.ops import sentencepiece_tokenizer

    operation = sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op
    assert {"model", "shared_name"} <= set(inspect.signature(operation).parameters)


def test_variables_know_the_layer_that_made_them():
    """``--describe`` needs the owners of variables to name the parts of a model."""
    import keras

    from t2t_ext import compat

    model = keras.Sequential([keras.layers.Dense(2), keras.layers.LayerNormalization()])
    model.build((None, 3))
    owners = compat.owners_of_variables(model)
    assert [owners[id(variable)] for variable in model.trainable_variables] == [
        "Dense",
        "Dense",
        "LayerNormalization",
        "LayerNormalization",
    ]


def test_layers_are_counted_anew_for_a_while():
    """Names of variables in checkpoints hold the names that Keras gives to layers without one."""
    import keras

    from t2t_ext import compat

    before = keras.layers.Dense(1).name
    for _ in range(2):
        with compat.layers_counted_anew():
            assert [keras.layers.Dense(1).name for _ in range(2)] == ["dense", "dense_1"]
    assert keras.layers.Dense(1).name not in (before, "dense")


def test_peers_and_barriers_raise_errors_of_tensorflow():
    """Without other workers the check of a peer must fail with an error that the trainer catches."""
    import tensorflow as tf

    from t2t_ext import compat

    with pytest.raises((tf.errors.OpError, RuntimeError)):
        compat.check_peer("/job:worker/replica:0/task:7", 100)


@pytest.mark.skipif(sys.platform != "linux", reason="TensorFlow's library has another name")
def test_the_note_about_onednn_is_a_function_of_the_library():
    """Without this function, ``oneDNN supports DT_INT64 only on ...`` would interrupt progress bars."""
    from t2t_ext import compat

    assert compat.framework_library()[compat.ONEDNN_NOTE]
