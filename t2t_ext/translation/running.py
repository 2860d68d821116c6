"""How a Translator runs its graph functions: traced once for each choice of arguments, on batches, on threads."""

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# A batch of long sentences holds fewer of them: attention's memory grows with the square of the length.
_MAX_BATCH_POSITIONS = 16384

Progress = Callable[[int, int], None]


class Traced:
    """A graph function of tensors by name, each of which may be left out: a trace for each choice of them."""

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
            # The first batches come on several threads: all get the same one, which is traced once.
            self._traces.setdefault(key, tf.function(call, input_signature=signature, autograph=False))
        return self._traces[key]

    def __call__(self, settings: Mapping[str, Any] | None = None, **tensors: tf.Tensor | None) -> dict[str, tf.Tensor]:
        """Runs the graph function of the tensors that are not None."""
        given = {name: tensors[name] for name in self._specs if tensors.get(name) is not None}
        return self.of(*given, **(settings or {}))(*given.values())


def similar_lengths(
    lengths: Sequence[int] | np.ndarray,
    batch_size: int,
    apart: Sequence[bool] | None = None,
    positions: int = _MAX_BATCH_POSITIONS,
) -> list[np.ndarray]:
    """Groups sentences of similar lengths, longest first, so that the last batches are the quick ones.

    Args:
      lengths: The length of every sentence.
      batch_size: The most sentences in a batch.
      apart: Which sentences share no batch with the others, and come first.
      positions: The most positions in a batch, padding included.

    Returns:
      The numbers of each batch's sentences, int64.
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
    function: Callable[[np.ndarray], None], batches: Sequence[np.ndarray], threads: int, progress: Progress | None
) -> None:
    """Runs a function on every batch, as many at a time as there are threads; the first error ends it.

    Args:
      function: Takes the numbers of a batch's sentences.
      batches: As from ``similar_lengths``.
      threads: How many.
      progress: Called with (sentences done, sentences in all) after every batch.
    """
    done, total = 0, sum(map(len, batches))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        futures = {pool.submit(function, batch): len(batch) for batch in batches}
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                done += futures[future]
                if progress is not None:
                    progress(done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
