"""Scores from what a metric counts in each segment: texts come in parts and are not kept.

sacrebleu's metrics are sums over segments followed by a formula. A segment's counts are 16 to 96 bytes; the n-grams of
its references, which sacrebleu keeps of all segments, are several thousand. This module imports no TensorFlow.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_ext.errors import UserError
from t2t_ext.evaluation import scores

if TYPE_CHECKING:
    import numpy as np

_SEGMENTS_AT_ONCE = 200


class SegmentCounts(Sequence):
    """What a metric counted in each segment: rows of numbers, in arrays."""

    def __init__(self) -> None:
        """There is none yet."""
        self._parts: list[np.ndarray] = []
        self._starts = [0]

    def add(self, rows: Sequence[Sequence[float]]) -> None:
        """Adds the counts of further segments."""
        import numpy as np

        part = np.array(rows)
        self._parts.append(part.astype(np.int32) if part.dtype.kind == "i" and part.max() < 2**31 else part)
        self._starts.append(self._starts[-1] + len(part))

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[list[float]]:
        return itertools.chain.from_iterable(part.tolist() for part in self._parts)

    def __getitem__(self, index: Any) -> Any:
        number = bisect.bisect_right(self._starts, index) - 1
        return self._parts[number][index - self._starts[number]].tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "np.ndarray":
        import numpy as np

        return np.concatenate(self._parts, dtype=dtype, casting="unsafe")


class PartByPart:
    """Scores translations with the metrics of a protocol; translations and references come in parts.

    A metric that says ``whole_corpus``, since what a segment counts depends on all others, has all texts kept.
    """

    def __init__(self, make: Callable[[Sequence[Sequence[str]]], Mapping[str, Any]]) -> None:
        """Prepares the scores; ``make`` makes the metrics of sets of references, by their labels."""
        self._make = make
        self._metrics: Mapping[str, Any] = {}
        self._counts: dict[str, SegmentCounts] = {}
        self._kept: list[tuple[str, ...]] = []

    def add(self, hypotheses: Iterable[str], references: Sequence[Iterable[str]]) -> None:
        """Counts further segments; of each set of references there must be as many.

        Raises:
          UserError: The metrics cannot be made.
        """
        rows = zip(hypotheses, *references, strict=True)
        while part := list(itertools.islice(rows, _SEGMENTS_AT_ONCE)):
            translations, *sets = zip(*part, strict=True)
            first = not self._metrics
            if first:
                self._metrics = self._make(sets)
                self._counts = {label: SegmentCounts() for label in self._metrics}
            if any(getattr(metric, "whole_corpus", False) for metric in self._metrics.values()):
                self._kept += part
                continue
            for label, metric in self._metrics.items():
                self._counts[label].add(metric._extract_corpus_statistics(translations, None if first else sets))

    def scores(self, n_bootstrap: int = 0) -> list[scores.Score]:
        """Returns the score of each metric over all segments; the rest is as for ``scores.score_with``.

        Raises:
          UserError: There are no segments.
        """
        if not self._metrics:
            raise UserError("There is nothing to score: 0 translations, 0 references.")
        found = []
        if self._kept:
            translations, *sets = zip(*self._kept, strict=True)
            self._metrics = self._make(sets)
        for label, metric in self._metrics.items():
            counts = metric._extract_corpus_statistics(translations, None) if self._kept else self._counts[label]
            found.append(dataclasses.replace(scores.score_of_counts(metric, counts, n_bootstrap), name=label))
        return found
