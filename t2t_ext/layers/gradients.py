"""Gradients that layers write out themselves, and left out where a graph has none.

Of every function with a gradient of its own, TensorFlow keeps a node that stands for the gradient; a SavedModel keeps
the gradient's graph as well, and whoever loads it builds that again. A search, and what is exported of it, needs none.
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
    """Leaves out the gradients of every ``custom_gradient`` function that is called inside.

    TensorFlow would differentiate such a function op by op: the same gradient, but with more memory.
    """
    token = _forward_only.set(True)
    try:
        yield
    finally:
        _forward_only.reset(token)


def custom_gradient(function: Callable[..., tuple[Any, Callable[..., Any]]]) -> Callable[..., Any]:
    """Gives a function the gradient that it returns with its result, as ``tf.custom_gradient``.

    For what runs in training alone, such as dropout, TensorFlow's own is enough.
    """
    differentiable = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*args: tf.Tensor) -> Any:
        return function(*args)[0] if _forward_only.get() else differentiable(*args)

    return call
