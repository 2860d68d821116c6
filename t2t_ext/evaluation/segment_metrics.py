"""Metrics whose corpus score is the mean of the segments' scores, written as sacrebleu metrics.

They therefore work with sacrebleu's resampling and paired tests, and with all code here that takes a sacrebleu metric.
This module imports sacrebleu, but not TensorFlow. Import it only inside functions, so that commands start fast.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sacrebleu.metrics.base import Metric, Score, Signature

from t2t_ext.version import __version__


class SegmentSignature(Signature):
    """The settings that a mean over segments depends on besides the texts, in sacrebleu's style."""

    def __init__(self, args: dict[str, Any]) -> None:
        """Fills in the fields from a metric's attributes."""
        super().__init__(args)
        self.info.update({**args["described"], "t2t_ext": __version__})


class MeanOfSegments(Metric):
    """A metric that is 100 times the mean over segments of ``segment_score``, which subclasses define.

    If segments have different numbers of references, the sets are filled up with empty lines. An empty reference
    counts only if its segment has no other.
    """

    _SIGNATURE_TYPE = SegmentSignature

    def __init__(self, label: str, references: Sequence[Sequence[str]], *, signature: Mapping[str, str]) -> None:
        """Creates the metric.

        Args:
          label: The metric's name.
          references: One list per set of references.
          signature: Settings that the score depends on, such as ``{"stem": "porter"}``; values without ``|`` and ``:``.
        """
        super().__init__()
        self.label, self.described = label, dict(signature)
        self._ref_cache = self._cache_references(references)

    def reference_info(self, references: Sequence[str]) -> Any:
        """Returns the information kept about the references of a segment, of which there is at least one."""
        return references

    def segment_score(self, hypothesis: str, info: Any) -> float:
        """Returns the score of a segment, usually 0 to 1; ``info`` is the result of ``reference_info``."""
        raise NotImplementedError

    # === Methods that sacrebleu calls ===

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"info": self.reference_info([each for each in refs if each.strip()] or [""])}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        return [float(self.segment_score(hypothesis, ref_kwargs["info"])), 1.0]

    def _compute_score_from_stats(self, stats: Any) -> Score:
        total, segments = float(stats[0]), float(stats[1])
        return Score(self.label, 100 * total / segments if segments else 0.0)

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])
