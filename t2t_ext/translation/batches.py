"""Sentences in batches of similar lengths through graph functions, several batches at a time."""

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# A batch of long sentences holds fewer of them: attention's memory grows with the square of the length.
_MAX_BATCH_POSITIONS = 16384

Progress = Callable[[int, int], None]
# The numbers of a batch's sentences -> their tensors by name
Given = Callable[[np.ndarray], Mapping[str, tf.Tensor | None]]
# (what a batch gave, by name, as lists; row) -> the result of the sentence in that row
Read = Callable[[Mapping[str, list[Any]], int], Any]


class Traced:
    """A graph function of tensors by name, each of which may be left out: a trace for each choice of them."""

    def __init__(self, function: Callable[..., dict[str, tf.Tensor]], specs: Mapping[str, tf.TensorSpec]) -> None:
        """Traces nothing yet; the function takes the tensors as keywords, and further settings that are no tensors."""
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
            # The first batches come on several threads: all get the same one, which is traced once.
            self._traces.setdefault(key, tf.function(call, input_signature=signature, autograph=False))
        return self._traces[key]

    def __call__(self, settings: Mapping[str, Any] | None = None, **tensors: tf.Tensor | None) -> dict[str, tf.Tensor]:
        """Runs the graph function of the tensors that are not None."""
        given = {name: tensors[name] for name in self._specs if tensors.get(name) is not None}
        function = self.of(*given, **(settings or {}))
        if not function.experimental_get_tracing_count():
            # Traced by a call, functions of the same code count as one that is traced often, of which TensorFlow warns.
            function.get_concrete_function()
        return function(*given.values())


def similar_lengths(
    lengths: Sequence[int] | np.ndarray,
    batch_size: int,
    apart: Sequence[bool] | None = None,
    positions: int = _MAX_BATCH_POSITIONS,
) -> list[np.ndarray]:
    """Groups the numbers of sentences of similar lengths, longest first, so that the last batches are the quick ones.

    Sentences that are ``apart`` share no batch with the others, and come first. A batch has at most so many positions,
    padding included.
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
    """Runs a graph function on batches; the first error ends it.

    Args:
      function: The graph function.
      given: Returns the tensors of the sentences of a batch.
      read: Makes a sentence's result of what the function gave, as lists, and its row in them.
      batches: The numbers of the sentences of each batch, every sentence in one.
      parallel: How many run at a time, on threads.
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
