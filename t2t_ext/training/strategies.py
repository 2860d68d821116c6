"""Distribution strategies: one device, several devices of one machine, several machines, or a TPU."""

import os
import signal
import threading
from typing import Any, TypedDict

import tensorflow as tf

from t2t_ext import compat
from t2t_ext.errors import UserError, first_line, suggest
from t2t_ext.io import stored

_JOIN_SECONDS = 300  # within which all workers must be started
_JOBS = ("chief", "worker")  # types of tasks in TF_CONFIG, in the order of the workers' numbers

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu")


def make_strategy(name: str = "auto", tpu: str = "", worker_timeout: float = 30.0) -> tf.distribute.Strategy:
    """Makes a run's distribution strategy. Multi-worker strategies must be made before any other use of TensorFlow.

    Args:
      name: ``one_device``; ``mirrored`` (all GPUs of this machine, or all logical CPU devices if it has none);
        ``multi_worker_mirrored`` (the workers that the environment variable TF_CONFIG lists); ``tpu``; ``auto``
        (workers if TF_CONFIG lists several, mirrored if there are several GPUs, otherwise one device).
      tpu: Name or address of the TPU; empty for the local one.
      worker_timeout: Seconds without a heartbeat after which a worker counts as lost.

    Returns:
      The strategy; for one device, TensorFlow's default strategy.

    Raises:
      UserError: The name is unknown, TF_CONFIG is missing or wrong, or no TPU answers.
    """
    if name not in STRATEGIES:
        raise UserError(f"Unknown --distribution={name}; choose {', '.join(STRATEGIES)}.{suggest(name, STRATEGIES)}")
    if name == "auto":
        if os.environ.get("TF_CONFIG") and sum(map(len, _tf_config()["cluster"].values())) > 1:
            name = "multi_worker_mirrored"
        else:
            name = "mirrored" if len(tf.config.list_logical_devices("GPU")) > 1 else "one_device"
    if name == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        # A process may train several models, one after the other.
        compat.begin_with_other_collective_keys()
        return tf.distribute.MirroredStrategy([device.name.removeprefix("/device:") for device in devices])
    if name == "multi_worker_mirrored":
        return _multi_worker_strategy(worker_timeout)
    if name == "tpu":
        return _tpu_strategy(tpu)
    return tf.distribute.get_strategy()


def worker_index(strategy: tf.distribute.Strategy) -> int:
    """Returns this process's number among the workers; 0 is the chief, which writes the files."""
    resolver = strategy.cluster_resolver
    if resolver is None or not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0
    has_chief = "chief" in resolver.cluster_spec().jobs
    return (resolver.task_id or 0) + int(has_chief and resolver.task_type != "chief")


def describe(strategy: tf.distribute.Strategy) -> str:
    """Returns a short description of the devices that the run uses."""
    replicas, workers = strategy.num_replicas_in_sync, len(worker_addresses(strategy))
    if replicas == 1:
        return f"one device ({'GPU' if tf.config.list_physical_devices('GPU') else 'CPU'})"
    return f"{replicas} replicas" + (f" on {workers} workers" if workers > 1 else "")


def on_cpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the run computes on CPUs."""
    return not isinstance(strategy, tf.distribute.TPUStrategy) and not tf.config.list_logical_devices("GPU")


def worker_addresses(strategy: tf.distribute.Strategy) -> dict[str, str]:
    """Returns TensorFlow's name -> host and port for all processes that train together, in the order of their numbers.

    The result is empty if there is only one process.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return {}
    spec = strategy.cluster_resolver.cluster_spec()
    return {
        f"/job:{job}/replica:0/task:{task}": spec.task_address(job, task)
        for job in _JOBS
        if job in spec.jobs
        for task in spec.task_indices(job)
    }


class _Task(TypedDict):
    type: str
    index: stored.Count


class _Cluster(TypedDict):
    """The contents of ``TF_CONFIG``."""

    cluster: dict[str, list[str]]
    task: _Task


def _tf_config() -> dict[str, Any]:
    text = os.environ.get("TF_CONFIG", "")
    example = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
    if not text:
        raise UserError(
            "--distribution=multi_worker_mirrored reads the workers from the environment variable TF_CONFIG, "
            f"which is not set. Set it for each process, for example: {example}"
        )
    try:
        config = stored.parse(text, _Cluster)
        kind, index = config["task"]["type"], config["task"]["index"]
        if index >= len(config["cluster"].get(kind, [])):
            raise stored.Damaged(f"task is {kind} {index}, which is not in cluster")
    except stored.Damaged as error:
        raise UserError(f"TF_CONFIG cannot be used: {error}. It must look like: {example}") from None
    return config


def _multi_worker_strategy(worker_timeout: float) -> tf.distribute.Strategy:
    config = _tf_config()
    others = {kind: tasks for kind, tasks in config["cluster"].items() if kind not in _JOBS and tasks}
    if others:
        raise UserError(
            f"TF_CONFIG: the cluster has tasks of the type {', '.join(sorted(others))}. All processes of a run train "
            f"alike: name them {' and '.join(_JOBS)}, leave out parameter servers and evaluators (the chief "
            "evaluates), or give --distribution=one_device."
        )
    addresses = [address for job in _JOBS for address in config["cluster"].get(job, [])]
    spec = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
    compat.configure_workers(spec, join_seconds=_JOIN_SECONDS, timeout_seconds=worker_timeout)
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError) as error:
        raise UserError(
            f"The workers {', '.join(addresses)} could not be joined: {first_line(error)}. Start one process for each "
            "address of TF_CONFIG within a few minutes, and check that the ports are free and reachable."
        ) from error
    handler = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is threading.main_thread() and handler is not None:  # SIG_DFL is 0
        # The coordination service has replaced it by a handler that only records the signal.
        signal.signal(signal.SIGTERM, handler)
    return strategy


def _tpu_strategy(tpu: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu or "local")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"No TPU could be used: {first_line(error)}. Name it with --tpu, or choose another --distribution."
        ) from None
