"""Runs graph functions on sentences in batches of similar lengths, several batches at a time."""

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Batches of long sentences contain fewer sentences: the memory for attention grows with the square of the length.
MAX_BATCH_POSITIONS = 16384

Progress = Callable[[int, int], None]
# (indices of a batch's sentences) -> the batch's tensors by name
Given = Callable[[np.ndarray], Mapping[str, tf.Tensor | None]]
# (a batch's outputs by name, as lists; row) -> the result of the sentence in that row
Read = Callable[[Mapping[str, list[Any]], int], Any]


class Traced:
    """A graph function of named tensors, any of which may be left out; each selection of tensors has its own trace."""

    def __init__(self, function: Callable[..., dict[str, tf.Tensor]], specs: Mapping[str, tf.TensorSpec]) -> None:
        """Stores the function, whose keywords are tensors and settings that are not tensors; traces nothing yet."""
        self._function, self._specs = function, dict(specs)
        self._traces: dict[tuple[Any, ...], tf.types.experimental.PolymorphicFunction] = {}

    def of(self, *names: str, **settings: Any) -> tf.types.experimental.PolymorphicFunction:
        """Returns the graph function of the named tensors, with settings that are not tensors.

        The names must be in the order of the specs. ``get_concrete_function()`` of the result traces without running.
        """

        def call(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._function(**dict(zip(names, tensors, strict=True)), **settings)

        key = (names, tuple(sorted(settings.items())))
        if key not in self._traces:
            signature = [self._specs[name] for name in names]
            # The first batches arrive on several threads; all get the same function, which is traced once.
            self._traces.setdefault(key, tf.function(call, input_signature=signature, autograph=False))
        return self._traces[key]

    def __call__(self, settings: Mapping[str, Any] | None = None, **tensors: tf.Tensor | None) -> dict[str, tf.Tensor]:
        """Runs the graph function of the tensors that are not None."""
        given = {name: tensors[name] for name in self._specs if tensors.get(name) is not None}
        function = self.of(*given, **(settings or {}))
        if not function.experimental_get_tracing_count():
            # If calls traced them, TensorFlow would count functions of the same code as one and warn of retracing.
            function.get_concrete_function()
        return function(*given.values())


def similar_lengths(
    lengths: Sequence[int] | np.ndarray,
    batch_size: int,
    apart: Sequence[bool] | None = None,
    positions: int = MAX_BATCH_POSITIONS,
) -> list[np.ndarray]:
    """Groups sentences of similar lengths into batches, longest first, so that the last batches are the quickest.

    Args:
      lengths: The length of each sentence.
      batch_size: The most sentences of a batch.
      apart: Marks sentences that share no batch with the others and come first; None: no sentence.
      positions: The most positions of a batch, padding included; a single sentence may be longer.

    Returns:
      The indices of the sentences of each batch.
    """
    widths = np.asarray(lengths, np.int64)
    if apart is not None:
        kinds = [np.flatnonzero(apart), np.flatnonzero(~np.asarray(apart, bool))]
        return [kind[batch] for kind in kinds for batch in similar_lengths(widths[kind], batch_size, None, positions)]
    order = np.argsort(-widths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        longest = max(1, int(widths[order[start]]))
        rows = min(batch_size, max(1, positions // longest))
        batches.append(order[start : start + rows])
        start += rows
    return batches


def run_batches(
    function: Callable[..., dict[str, tf.Tensor]],
    given: Given,
    read: Read,
    batches: Sequence[np.ndarray],
    parallel: int,
    progress: Progress | None = None,
) -> list[Any]:
    """Runs a graph function on batches; the first error stops the run and is raised.

    Args:
      function: The graph function.
      given: Returns the tensors for the sentences of a batch.
      read: Makes the result of a sentence from the function's outputs, as lists, and the sentence's row in them.
      batches: The indices of the sentences of each batch; every sentence is in exactly one batch.
      parallel: The number of batches that run at a time, each on a thread.
      progress: Called with (sentences done, sentences in all) after every batch.

    Returns:
      The results in the order of the sentences.
    """
    results: list[Any] = [None] * sum(map(len, batches))

    def run(batch: np.ndarray) -> None:
        found = {name: value.numpy().tolist() for name, value in function(**given(batch)).items()}
        for row, i in enumerate(batch):
            results[i] = read(found, row)

    done = 0
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        futures = {pool.submit(run, batch): len(batch) for batch in batches}
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                done += futures[future]
                if progress is not None:
                    progress(done, len(results))
        finally:
            pool.shutdown(cancel_futures=True)
    return results
