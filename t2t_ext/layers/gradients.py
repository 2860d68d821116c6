"""Custom gradients of layers, which can be left out of graphs that need no gradients.

For every function with a custom gradient, TensorFlow keeps a node that stands for the gradient. A SavedModel also keeps
the gradient's graph, which is built again when the model is loaded. A search and its export need no gradients.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_forward_only = contextvars.ContextVar("forward_only", default=False)


@contextlib.contextmanager
def forward_only() -> Iterator[None]:
    """Leaves out the custom gradients of all ``custom_gradient`` functions that are called inside.

    TensorFlow can still differentiate such a function op by op, with the same gradient but more memory.
    """
    token = _forward_only.set(True)
    try:
        yield
    finally:
        _forward_only.reset(token)


def custom_gradient(function: Callable[..., tuple[Any, Callable[..., Any]]]) -> Callable[..., Any]:
    """Gives a function the gradient that it returns with its result, like ``tf.custom_gradient``.

    ``tf.custom_gradient`` itself is enough for functions that run only in training, such as dropout.
    """
    differentiable = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*args: tf.Tensor) -> Any:
        return function(*args)[0] if _forward_only.get() else differentiable(*args)

    return call
