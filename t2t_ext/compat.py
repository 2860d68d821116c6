"""Collects all uses of non-public TensorFlow, tensorflow-text and Keras interfaces, for which no public one exists.

``tests/unit/test_compat.py`` tests each of them and says what breaks when a new version changes it. Checked with
TensorFlow 2.21 and Keras 3.15.
"""

import contextlib
import ctypes
import pathlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.eager import context as eager_context

# DataTypeUnsupportedWarning(const DataType&) in TensorFlow's library, which warns once per process.
ONEDNN_NOTE = "_ZN10tensorflow26DataTypeUnsupportedWarningERKNS_8DataTypeE"
_COLLECTIVE_KEYS = 100_000  # reserved for one strategy


def framework_library() -> ctypes.CDLL:
    """Returns TensorFlow's own shared library.

    Raises:
      OSError: The library has another name in this build of TensorFlow.
    """
    return ctypes.CDLL(str(pathlib.Path(tf.__file__).parent / "libtensorflow_framework.so.2"))


def say_what_onednn_lacks() -> None:
    """Makes TensorFlow warn now, not at the first such operation, that oneDNN lacks int64.

    Does nothing if this build of TensorFlow has no such function.
    """
    with contextlib.suppress(OSError, AttributeError):
        framework_library()[ONEDNN_NOTE](ctypes.byref(ctypes.c_int(tf.int64.as_datatype_enum)))


def check_peer(address: str, milliseconds: int) -> None:
    """Asks another worker's server for a heartbeat.

    Args:
      address: The worker's address, such as ``/job:worker/replica:0/task:1``.
      milliseconds: How long to wait for the heartbeat.

    Raises:
      tf.errors.OpError: There is no heartbeat; ``FailedPreconditionError`` if only that worker was restarted.
    """
    eager_context.context().check_collective_ops_peer_health(address, timeout_in_ms=milliseconds)


def abort_collective_operations(why: str) -> None:
    """Aborts the collective operations of this process, which then raise ``tf.errors.UnavailableError``."""
    eager_context.context().abort_collective_ops(tf.errors.UNAVAILABLE, why)


def wait_at_barrier(name: str, milliseconds: int) -> None:
    """Waits until all workers have reached the barrier of that name.

    Raises:
      tf.errors.OpError: A worker did not arrive in time.
    """
    eager_context.context().wait_at_barrier(name, milliseconds)


def begin_with_other_collective_keys() -> None:
    """Makes the next ``MirroredStrategy`` of this process sum over replicas under keys that no earlier one has used.

    TensorFlow remembers the shapes summed under each key, and every strategy begins with the same keys. With these, the
    sums of a second model would fail with "Shape mismatch in the collective instance".
    """
    base = getattr(tf.distribute.MirroredStrategy, "_collective_key_base", None)
    if isinstance(base, int):
        tf.distribute.MirroredStrategy._collective_key_base = base + _COLLECTIVE_KEYS


def configure_workers(spec: Any, *, join_seconds: int, timeout_seconds: float) -> None:
    """Sets how long TensorFlow's workers wait for each other, as the strategy itself does but with other times.

    Args:
      spec: The ``tf.train.ClusterSpec``.
      join_seconds: How long workers wait for all of them to start.
      timeout_seconds: A worker counts as lost after this long without a heartbeat.
    """
    eager_context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=multi_worker_util.coordination_leader(spec),
        cluster_register_timeout_in_ms=1000 * join_seconds,
        heartbeat_timeout_in_ms=int(1000 * timeout_seconds),
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(name=job, num_tasks=spec.num_tasks(job))
            for job in ("chief", "worker")
            if job in spec.jobs
        ],
    )


def sentencepiece_resource(model: bytes, name: str) -> tf.Tensor:
    """Returns the handle of a SentencePiece model; within a process, the same name always gives the same handle.

    Args:
      model: The serialized model.
      name: The resource's name.
    """
    # Imported only when needed, since tensorflow-text takes a second to load.
    from tensorflow_text.python.ops import sentencepiece_tokenizer

    return sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(model=model, shared_name=name)


@contextlib.contextmanager
def layers_counted_anew() -> Iterator[None]:
    """Makes Keras number layers without a name from the first one, not from those that the process has made before."""
    from keras.src.backend.common import global_state  # imported only when needed, as it takes a second

    counts = global_state.get_global_attribute("object_name_uids")
    global_state.set_global_attribute("object_name_uids", None)
    try:
        yield
    finally:
        global_state.set_global_attribute("object_name_uids", counts)


def owners_of_variables(model: Any) -> dict[int, str]:
    """Returns the class name of the layer that made each trainable variable of a Keras model: variable id -> name."""
    return {
        id(variable): type(layer).__name__
        for layer in model._flatten_layers()
        for variable in layer._trainable_variables
    }
