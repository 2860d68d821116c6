"""Gradients that layers write out themselves, and left out where a graph has none.

Of every function with a gradient of its own, TensorFlow keeps a node that stands for the gradient; a SavedModel keeps
the gradient's graph as well, and whoever loads it builds that again. A search, and what is exported of it, needs none.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


class _Scopes(threading.local):
    """The scopes of one thread: replicas are traced on threads of their own."""

    def __init__(self) -> None:
        self.forward_only = 0


_scopes = _Scopes()


@contextlib.contextmanager
def forward_only() -> Iterator[None]:
    """Leaves out the gradients of every ``custom_gradient`` function that is called inside.

    TensorFlow would differentiate such a function op by op: the same gradient, but with more memory.
    """
    _scopes.forward_only += 1
    try:
        yield
    finally:
        _scopes.forward_only -= 1


def custom_gradient(function: Callable[..., tuple[Any, Callable[..., Any]]]) -> Callable[..., Any]:
    """Gives a function the gradient that it returns with its result, as ``tf.custom_gradient``.

    Args:
      function: Tensors -> the result, and a function of the result's gradient that returns those of the tensors.

    Returns:
      Tensors -> the result.
    """
    differentiable = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*args: tf.Tensor) -> Any:
        return function(*args)[0] if _scopes.forward_only else differentiable(*args)

    return call
