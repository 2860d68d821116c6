"""Saves time and memory when the graph of a training step is made: graph optimizers, garbage, free pages."""

import contextlib
import ctypes
import gc
from collections.abc import Iterator

import tensorflow as tf

# These graph optimizers of TensorFlow (Grappler) take seconds on the graph of a Transformer's training step and gain
# nothing on a CPU. The others stay on: they remove nodes, or fuse products with bias and activation.
_OPTIONS = {
    name: False
    for name in (
        "arithmetic_optimization",
        "constant_folding",
        "function_optimization",
        "implementation_selector",
        "layout_optimizer",
        "loop_optimization",
        "shape_optimization",
    )
}


@contextlib.contextmanager
def few_graph_optimizers() -> Iterator[None]:
    """Runs functions with only the graph optimizers that are worth their time, unless there is a GPU.

    Every call to a function must use the same options; otherwise TensorFlow prepares the function again.
    """
    if tf.config.list_physical_devices("GPU"):
        yield
        return
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({**before, **_OPTIONS})
    try:
        yield
    finally:
        defaults = dict.fromkeys(_OPTIONS, True)
        tf.config.optimizer.set_experimental_options({**defaults, **before})


@contextlib.contextmanager
def collection_paused(when: bool) -> Iterator[None]:
    """Pauses garbage collection, which takes a tenth of the time while a graph is made and finds almost nothing."""
    pauses = when and gc.isenabled()
    if pauses:
        gc.disable()
    try:
        yield
    finally:
        if pauses:
            gc.enable()


def release_unused() -> None:
    """Collects garbage and returns the allocator's free pages (glibc only; elsewhere only the garbage is collected).

    Tracing and preparing a graph leaves 150 MB of free pages between blocks that stay in use; glibc would keep them.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
