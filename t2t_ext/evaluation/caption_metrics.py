"""CIDEr and ROUGE-L as the COCO caption toolkit computes them, by pycocoevalcap, as sacrebleu metrics.

* CIDEr (the toolkit's CIDEr-D): Vedantam et al. 2015, https://arxiv.org/abs/1411.5726; n-grams up to 4, sigma 6,
  document frequencies from the given references.
* ROUGE-L: Lin 2004 with beta 1.2; precision and recall are each the best over the references.

The toolkit splits text into words with a Java program. Here a word is a lower-cased run of letters and digits, inner
apostrophes and hyphens included; for captions that are already tokenized the result is the same. METEOR and SPICE are
pure Java programs and are not available here. This module imports sacrebleu and pycocoevalcap: import it only inside
functions.
"""

import re
from collections.abc import Sequence
from typing import Any

from pycocoevalcap.cider.cider_scorer import CiderScorer
from pycocoevalcap.rouge.rouge import Rouge

from t2t_ext.evaluation.segment_metrics import MeanOfSegments

CIDER, ROUGE = "CIDEr", "COCO-ROUGE-L"
_WORD = re.compile(r"\w+(?:['’-]\w+)*")


class Cider(MeanOfSegments):
    """CIDEr-D of a corpus."""

    whole_corpus = True  # an n-gram's weight depends on the number of segments that have it

    def __init__(self, references: Sequence[Sequence[str]]) -> None:
        """Creates the metric; ``references`` is one list per set."""
        super().__init__(CIDER, references, signature={"tok": "words-lc", "n": "4", "sigma": "6"})

    def reference_info(self, references: Sequence[str]) -> list[str]:
        """Returns the words of each reference of a segment."""
        return [_words(each) for each in references]

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: Any) -> list[list[float]]:
        cached = self._cache_references(references) if references else self._ref_cache
        scorer = CiderScorer(n=4, sigma=6.0)
        for hypothesis, kept in zip(hypotheses, cached, strict=True):
            scorer += (_words(hypothesis), kept["info"])
        if not any(each for kept in cached for each in kept["info"]):
            return [[0.0, 1.0] for _ in hypotheses]
        return [[float(score), 1.0] for score in scorer.compute_score()[1]]


class CocoRouge(MeanOfSegments):
    """ROUGE-L of a corpus as the toolkit computes it."""

    def __init__(self, references: Sequence[Sequence[str]]) -> None:
        """Creates the metric; ``references`` is one list per set."""
        self._rouge = Rouge()
        super().__init__(ROUGE, references, signature={"tok": "words-lc", "beta": "1.2"})

    def reference_info(self, references: Sequence[str]) -> list[str]:
        """Returns the words of each reference of a segment."""
        return [_words(each) for each in references]

    def segment_score(self, hypothesis: str, info: list[str]) -> float:
        """Returns the score of a caption, 0 to 1."""
        return float(self._rouge.calc_score([_words(hypothesis)], info))


def metrics(references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Returns both metrics by label."""
    return {CIDER: Cider(references), ROUGE: CocoRouge(references)}


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))
