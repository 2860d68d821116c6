"""Measures how well rare and frequent words are translated: precision, recall and F1 by the frequency of words.

A word's frequency is counted in the training text or, if this is not available, in the references. Words match like
BLEU's unigrams: within a sentence, regardless of order, at most as often as the reference has them. (Neubig et al.
2019, "compare-mt", present systems in this way.)
"""

import bisect
import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

DEFAULT_EDGES = (1, 2, 5, 10, 100, 1000)


@dataclasses.dataclass(frozen=True)
class FrequencyBucket:
    """One system's words within a range of frequencies.

    Attributes:
      label: The number of occurrences: ``0``, ``1``, ``2-4``, ..., ``>=1000``.
      reference_words: Number of such words in the references.
      hypothesis_words: Number of such words in the translations.
      matches: Number of those words in the translations that match.
    """

    label: str
    reference_words: int
    hypothesis_words: int
    matches: int

    @property
    def precision(self) -> float | None:
        """Matching words per 100 words of the translations; None if there are no such words."""
        return 100 * self.matches / self.hypothesis_words if self.hypothesis_words else None

    @property
    def recall(self) -> float | None:
        """Matching words per 100 words of the references; None if there are no such words."""
        return 100 * self.matches / self.reference_words if self.reference_words else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall, in percent; None if neither side has such words."""
        both = self.hypothesis_words + self.reference_words
        return 200 * self.matches / both if both else None


def bucket_labels(edges: Sequence[int] = DEFAULT_EDGES) -> list[str]:
    """Returns the labels of the buckets that begin at 0 and at each edge."""
    starts = [0, *edges]
    labels = [str(low) if high == low + 1 else f"{low}-{high - 1}" for low, high in itertools.pairwise(starts)]
    return [*labels, f">={starts[-1]}"]


def count_words(texts: Iterable[Iterable[str]]) -> Counter[str]:
    """Counts the words of tokenized texts."""
    counts: Counter[str] = Counter()
    for words in texts:
        counts.update(words)
    return counts


def by_frequency(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    frequencies: Counter[str],
    edges: Sequence[int] = DEFAULT_EDGES,
) -> list[FrequencyBucket]:
    """Counts matching words by frequency; returns the buckets from the rarest to the most frequent words.

    With several references, each sentence is compared with the one that shares most words with it, or with the first
    of several such references. An empty reference is used only if all are empty. ``edges`` are the frequencies at which
    the buckets after the first begin.
    """
    totals = [[0, 0, 0] for _ in range(len(edges) + 1)]
    for sentence, hypothesis in enumerate(hypotheses):
        counts = Counter(hypothesis)
        reference = max(
            (Counter(each[sentence]) for each in references),
            key=lambda other: ((counts & other).total(), bool(other)),
        )
        for column, words in enumerate((reference, counts, counts & reference)):
            for word, count in words.items():
                totals[bisect.bisect_right(edges, frequencies[word])][column] += count
    return [FrequencyBucket(label, *each) for label, each in zip(bucket_labels(edges), totals, strict=True)]
