"""Computes scores from a metric's counts of each segment, so that texts can arrive in parts and need not be kept.

sacrebleu's metrics are sums over segments followed by a formula. The counts of a segment take 16 to 96 bytes. The
n-grams of its references, which sacrebleu keeps for all segments, take several thousand. Imports no TensorFlow.
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

VARIABLE = -1  # ``num_refs`` of sacrebleu's metrics if segments have different numbers of references
_SEGMENTS_AT_ONCE = 200


def without_fillers(references: Sequence[Iterable[str | None]]) -> list[list[Any]]:
    """Returns sets of references in which empty lines that only fill up a set are replaced by None.

    sacrebleu takes None as "no reference". If segments have different numbers of references, sets are filled up with
    empty lines. As a reference, such a line would be closest in length to a short translation and need the fewest
    edits. A segment whose references are all empty keeps them, since there is nothing else to compare with.
    """
    sets: list[list[Any]] = [list(each) for each in references]  # sacrebleu's type annotations do not mention None
    for number, texts in enumerate(zip(*sets, strict=True) if len(sets) > 1 else ()):
        filled = [text is not None and bool(text.strip()) for text in texts]
        if any(filled) and not all(filled):
            for each, is_filled in zip(sets, filled, strict=True):
                each[number] = each[number] if is_filled else None
    return sets


class SegmentCounts(Sequence):
    """A metric's counts of each segment: rows of numbers, stored in arrays."""

    def __init__(self) -> None:
        """Creates an empty sequence."""
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
    """Scores translations with the metrics of a protocol; translations and references arrive in parts.

    All texts are kept if a metric has ``whole_corpus``, because its counts of a segment depend on all other segments.
    """

    def __init__(
        self,
        make: Callable[[Sequence[Sequence[str]]], Mapping[str, Any]],
        references: Callable[[Sequence[Iterable[str]]], list[list[Any]]],
    ) -> None:
        """Stores how to create the metrics.

        Args:
          make: Creates the metrics for sets of references, by label.
          references: Returns sets of references in the form that these metrics take.
        """
        self._make, self._references = make, references
        self._metrics: Mapping[str, Any] = {}
        self._counts: dict[str, SegmentCounts] = {}
        self._kept: list[tuple[Any, ...]] = []

    def add(self, hypotheses: Iterable[str], references: Sequence[Iterable[str]]) -> None:
        """Counts further segments; each set of references must have as many as there are hypotheses.

        Raises:
          UserError: The metrics cannot be created.
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
        """Returns the score of each metric over all segments; ``n_bootstrap`` is as for ``scores.score_with``.

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
