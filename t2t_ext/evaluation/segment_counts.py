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

VARIABLE = -1  # what sacrebleu's metrics have as ``num_refs`` where segments have different numbers of references
_SEGMENTS_AT_ONCE = 200


def without_fillers(references: Sequence[Iterable[str | None]]) -> list[list[Any]]:
    """Returns sets of references with None, sacrebleu's word for no reference, for texts that only fill up a set.

    Where segments have different numbers of references, sets are filled up with empty lines. As a reference, one would
    be the closest in length to a short translation, and the one with the fewest edits. Where no set has a text for a
    segment, its empty lines stay: they are all there is to compare with.
    """
    sets: list[list[Any]] = [list(each) for each in references]  # sacrebleu's types do not tell of None
    for number, texts in enumerate(zip(*sets, strict=True) if len(sets) > 1 else ()):
        filled = [text is not None and bool(text.strip()) for text in texts]
        if any(filled) and not all(filled):
            for each, is_filled in zip(sets, filled, strict=True):
                each[number] = each[number] if is_filled else None
    return sets


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

    def __init__(
        self,
        make: Callable[[Sequence[Sequence[str]]], Mapping[str, Any]],
        references: Callable[[Sequence[Iterable[str]]], list[list[Any]]],
    ) -> None:
        """Prepares the scores.

        Args:
          make: Makes the metrics of sets of references, by their labels.
          references: Returns sets of references as these metrics take them.
        """
        self._make, self._references = make, references
        self._metrics: Mapping[str, Any] = {}
        self._counts: dict[str, SegmentCounts] = {}
        self._kept: list[tuple[Any, ...]] = []

    def add(self, hypotheses: Iterable[str], references: Sequence[Iterable[str]]) -> None:
        """Counts further segments; of each set of references there must be as many.

        Raises:
          UserError: The metrics cannot be made.
        """
        rows = zip(hypotheses, *references, strict=True)
        while part := list(itertools.islice(rows, _SEGMENTS_AT_ONCE)):
            translations, *texts = zip(*part, strict=True)
            sets, first = self._references(texts), not self._metrics
            if first:
                self._metrics = self._make(sets)
                self._counts = {label: SegmentCounts() for label in self._metrics}
            if any(getattr(metric, "whole_corpus", False) for metric in self._metrics.values()):
                self._kept += zip(translations, *sets, strict=True)
                continue
            for label, metric in self._metrics.items():
                known = metric.num_refs
                self._counts[label].add(metric._extract_corpus_statistics(translations, None if first else sets))
                metric.num_refs = known if metric.num_refs == known else VARIABLE  # for the signature

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
