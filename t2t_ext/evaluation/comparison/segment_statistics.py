"""Keeps a metric's counts of each segment, so that scores of parts of a corpus cost next to nothing.

sacrebleu's metrics are sums over segments followed by a formula. This module uses the same two methods of a metric as
sacrebleu's paired tests (``_extract_corpus_statistics`` and ``_aggregate_and_compute``).
"""

import collections
import copy
import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t2t_ext.evaluation.protocols import Protocol
from t2t_ext.evaluation.segment_counts import VARIABLE, SegmentCounts

Statistics = Any  # float [segments, counts], an array or lists
_SEGMENTS_AT_ONCE = 200


def metrics_of(
    protocol: Protocol, systems: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]], language: str = ""
) -> dict[str, Any]:
    """Returns a protocol's metrics by label, which can score only these systems, whose counts they already hold.

    References are counted part by part, since their n-grams take several thousand bytes per segment. If a metric has
    ``whole_corpus``, the metrics are created with all references and count when they are called; see ``remember``.
    """
    import numpy as np

    metrics: dict[str, Any] = {}
    counts: dict[tuple[str, str], SegmentCounts] = collections.defaultdict(SegmentCounts)
    segments = len(references[0])
    for start in range(0, segments, _SEGMENTS_AT_ONCE):
        sets = protocol.references([each[start : start + _SEGMENTS_AT_ONCE] for each in references])
        if not metrics:
            metrics = protocol.metrics(sets, language)
            if any(getattr(metric, "whole_corpus", False) for metric in metrics.values()):
                found = protocol.metrics(references, language)
                return {label: remember(metric) for label, metric in found.items()}
        else:
            for metric in metrics.values():
                known = metric.num_refs
                metric._ref_cache = metric._cache_references(sets)
                metric.num_refs = known if metric.num_refs == known else VARIABLE  # for the signature
        for label, metric in metrics.items():
            for name, lines in systems.items():
                part = lines[start : start + _SEGMENTS_AT_ONCE]
                counts[label, name].add(metric._extract_corpus_statistics(part, None))
    for label, metric in metrics.items():
        counted = {name: np.array(counts[label, name], dtype=np.float64) for name in systems}
        metric._extract_corpus_statistics = functools.partial(_counted, systems, counted)
    return metrics


def _counted(
    systems: Mapping[str, Sequence[str]], counted: Mapping[str, Statistics], hypotheses: Sequence[str], references: Any
) -> Statistics:
    (name, *_) = (name for name, lines in systems.items() if lines is hypotheses or list(lines) == list(hypotheses))
    return counted[name]


def remember(metric: Any) -> Any:
    """Makes a metric cache its counts for each system's translations, for tests that need them more than once.

    The metric must have been created with its references; the same metric is returned. The counts become a float64
    array, with which approximate randomization takes half the time.
    """
    import numpy as np

    count, counted = metric._extract_corpus_statistics, {}

    def counted_once(hypotheses: Sequence[str], references: Any) -> Statistics:
        if references is not None:
            return count(hypotheses, references)
        key = tuple(hypotheses)
        if key not in counted:
            counted[key] = np.array(count(hypotheses, None), dtype=np.float64)
        return counted[key]

    metric._extract_corpus_statistics = counted_once
    return metric


def by_segment(metric: Any, hypotheses: Sequence[str]) -> Statistics:
    """Returns a metric's counts, one row per segment."""
    return metric._extract_corpus_statistics(list(hypotheses), None)


def score_of(metric: Any, statistics: Statistics, segments: Iterable[int]) -> Any:
    """Returns sacrebleu's result for some of the segments; there must be at least one."""
    return metric._aggregate_and_compute([statistics[segment] for segment in segments])


def results_of_parts(
    metric: Any, systems: Mapping[str, Sequence[str]], parts: Sequence[Sequence[int]]
) -> list[dict[str, Any]]:
    """Returns sacrebleu's result by system for each part; None for a part without segments.

    A part is a sequence of segment numbers, from 0.
    """
    statistics = {name: by_segment(metric, lines) for name, lines in systems.items()}
    return [
        {name: score_of(metric, counts, part) if part else None for name, counts in statistics.items()}
        for part in parts
    ]


def sentence_bleu(bleu: Any, statistics: Sequence[float]) -> float:
    """Returns smoothed BLEU, 0 to 100, from a segment's counts; only the orders that fit into the segment are used."""
    orders = bleu.max_ngram_order
    counts, totals = list(statistics[2 : 2 + orders])[:4], list(statistics[2 + orders :])[:4]
    lengths = int(statistics[0]), int(statistics[1])
    return float(
        bleu.compute_bleu(counts, totals, *lengths, smooth_method="exp", effective_order=True, max_ngram_order=4).score
    )


def tokens_as_written(metric: Any, texts: Sequence[str]) -> list[list[str]]:
    """Returns the tokens that a metric sees, with the case and the whitespace inside words that the text has."""
    found = tokens_of(metric, texts)
    if getattr(metric, "lowercase", False):
        cased = copy.copy(metric)
        cased.lowercase = False
        written = tokens_of(cased, texts)
        # A letter whose lower-case form has two characters may lead to a different tokenization.
        found = [ours if len(ours) == len(theirs) else theirs for ours, theirs in zip(written, found, strict=True)]
    as_written = getattr(metric, "as_written", None)
    return [list(map(as_written, tokens)) for tokens in found] if as_written else found


def tokens_of(metric: Any, texts: Iterable[str]) -> list[list[str]]:
    """Returns the tokens that a metric sees in each text; equal tokens share one object to save memory."""
    return [list(map(sys.intern, metric._preprocess_segment(text).split())) for text in texts]
