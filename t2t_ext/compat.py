"""All that t2t_ext uses of TensorFlow, tensorflow-text and Keras beside their public interface, for want of one.

``tests/unit/test_compat.py`` has a test of each that says what breaks where a new version changes it. Checked with
TensorFlow 2.21 and Keras 3.15.
"""

import contextlib
import ctypes
import pathlib
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.eager import context as eager_context

# DataTypeUnsupportedWarning(const DataType&) of the framework's library, which speaks once in a process.
ONEDNN_NOTE = "_ZN10tensorflow26DataTypeUnsupportedWarningERKNS_8DataTypeE"
_COLLECTIVE_KEYS = 100_000  # of one strategy


def framework_library() -> ctypes.CDLL:
    """Returns TensorFlow's own library.

    Raises:
      OSError: Another build of TensorFlow calls it otherwise.
    """
    return ctypes.CDLL(str(pathlib.Path(tf.__file__).parent / "libtensorflow_framework.so.2"))


def say_what_onednn_lacks() -> None:
    """Makes TensorFlow say now, not at the first such operation, that oneDNN has no int64; else does nothing."""
    with contextlib.suppress(OSError, AttributeError):
        framework_library()[ONEDNN_NOTE](ctypes.byref(ctypes.c_int(tf.int64.as_datatype_enum)))


def check_peer(address: str, milliseconds: int) -> None:
    """Asks another worker's server for a heartbeat.

    Args:
      address: Such as ``/job:worker/replica:0/task:1``.
      milliseconds: How long to wait for it.

    Raises:
      tf.errors.OpError: There is none; ``FailedPreconditionError`` where that worker was started again alone.
    """
    eager_context.context().check_collective_ops_peer_health(address, timeout_in_ms=milliseconds)


def abort_collective_operations(why: str) -> None:
    """Breaks off the collective operations of this process, which then raise ``tf.errors.UnavailableError``."""
    eager_context.context().abort_collective_ops(tf.errors.UNAVAILABLE, why)


def wait_at_barrier(name: str, milliseconds: int) -> None:
    """Waits until all workers wait at the barrier of that name.

    Raises:
      tf.errors.OpError: One did not come in time.
    """
    eager_context.context().wait_at_barrier(name, milliseconds)


def begin_with_other_collective_keys() -> None:
    """Makes the next ``MirroredStrategy`` of this process sum over replicas under other keys than those before it.

    TensorFlow keeps the shapes that it has summed under a key, and every strategy begins with the same keys: the sums
    of another model would end with "Shape mismatch in the collective instance".
    """
    base = getattr(tf.distribute.MirroredStrategy, "_collective_key_base", None)
    if isinstance(base, int):
        tf.distribute.MirroredStrategy._collective_key_base = base + _COLLECTIVE_KEYS


def configure_workers(spec: Any, *, join_seconds: int, timeout_seconds: float) -> None:
    """Sets how long TensorFlow's workers wait for each other; as the strategy does itself, with other times.

    Args:
      spec: The ``tf.train.ClusterSpec``.
      join_seconds: How long workers wait for all to begin.
      timeout_seconds: After how long without a heartbeat a worker counts as lost.
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
    """Returns the handle of a SentencePiece model, the same one for the same name in the whole process.

    Args:
      model: The serialized model.
      name: The resource's name.
    """
    # Only where it is needed: tensorflow-text takes a second to load.
    from tensorflow_text.python.ops import sentencepiece_tokenizer

    return sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(model=model, shared_name=name)


def owners_of_variables(model: Any) -> dict[int, str]:
    """Returns the class of the layer that made each trainable variable of a Keras model: id of the variable -> name."""
    return {
        id(variable): type(layer).__name__
        for layer in model._flatten_layers()
        for variable in layer._trainable_variables
    }
