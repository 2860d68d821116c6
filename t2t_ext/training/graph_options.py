"""TensorFlow's graph optimizer options for a training step."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

# Of TensorFlow's graph optimizers (Grappler) those stay that remove nodes and that fuse products with bias and
# activation. The others take seconds on the graph of a Transformer's training step and gain nothing on a CPU.
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
    """Runs functions with the graph optimizers that are worth their time, where there is no GPU.

    Every call of a function must be made with the same options, or it is prepared again.
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
