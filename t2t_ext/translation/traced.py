"""Graph functions whose arguments are optional: a trace for each choice of them, made when it is first needed."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf


class Traced:
    """A graph function of tensors by name, each of which may be left out."""

    def __init__(self, function: Callable[..., dict[str, tf.Tensor]], specs: Mapping[str, tf.TensorSpec]) -> None:
        """Traces nothing yet.

        Args:
          function: Takes the tensors as keywords, and further settings that are no tensors.
          specs: Name -> what a tensor is, in the order of the graph function's arguments.
        """
        self._function, self._specs = function, dict(specs)
        self._traces: dict[tuple[Any, ...], tf.types.experimental.PolymorphicFunction] = {}

    def of(self, *names: str, **settings: Any) -> tf.types.experimental.PolymorphicFunction:
        """Returns the graph function of these tensors, in the order of the specs, with settings that are no tensors.

        Its ``get_concrete_function()`` traces without running.
        """

        def call(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._function(**dict(zip(names, tensors, strict=True)), **settings)

        key = (names, tuple(sorted(settings.items())))
        if key not in self._traces:
            signature = [self._specs[name] for name in names]
            self._traces[key] = tf.function(call, input_signature=signature, autograph=False)
        return self._traces[key]

    def __call__(self, settings: Mapping[str, Any] | None = None, **tensors: tf.Tensor | None) -> dict[str, tf.Tensor]:
        """Runs the graph function of the tensors that are not None."""
        given = {name: tensors[name] for name in self._specs if tensors.get(name) is not None}
        return self.of(*given, **(settings or {}))(*given.values())
