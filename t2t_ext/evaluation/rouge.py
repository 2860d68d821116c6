"""ROUGE (Lin 2004, https://aclanthology.org/W04-1013) by Google's rouge-score, as sacrebleu metrics.

The scores are F-measures of a summary against its reference; with several references, the best one counts. ROUGE-1
compares unigrams, ROUGE-2 bigrams, and ROUGE-L the longest common subsequence of the whole texts. ROUGE-Lsum (section
3.2 of the paper, which ROUGE-1.5.5 and papers call ROUGE-L) compares each sentence of the reference with all sentences
of the summary and takes the union of the matches.

Sentences are separated by line feeds or by the marks of published data: ``<t> ... </t>``, ``<s> ... </s>``, or ``<q>``
between sentences. A text without marks is one sentence.

This module imports sacrebleu and rouge-score, but not TensorFlow. Import it only inside functions.
"""

import functools
import html
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import regex
from rouge_score import rouge_scorer, tokenize

from t2t_ext.evaluation.segment_metrics import MeanOfSegments

LABELS = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeL", "ROUGE-Lsum": "rougeLsum"}
ENGLISH, ENGLISH_UNSTEMMED, ANY_LANGUAGE = "english", "english_unstemmed", "any_language"
_DESCRIBED = {ENGLISH: "rouge-score+porter", ENGLISH_UNSTEMMED: "rouge-score", ANY_LANGUAGE: "unicode-words"}

_MARKS = re.compile(r"\s*(?:</?[ts]>|<q>|\n)\s*")
# Entities written by Moses' tokenizer; rouge-score would take their letters for words.
_ENTITY = re.compile(r"&(?:amp|apos|quot|lt|gt|#124|#91|#93);")
# Scripts without whitespace between words: every character is a word.
_WORD = regex.compile(
    r"[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}"
    r"\p{Script=Myanmar}\p{Script=Tibetan}]\p{M}*|[\p{L}\p{N}][\p{L}\p{N}\p{M}]*",
    regex.V1,
)
_REMEMBERED = 1 << 16


class Words:
    """Splits texts into words for ``RougeScorer``; a text that several metrics use is split only once."""

    def __init__(self, kind: str) -> None:
        """Creates the splitter.

        Args:
          kind: ``ENGLISH``: rouge-score's own words (a to z and digits) with Porter's stemmer, like
            ``ROUGE-1.5.5.pl -m``; ``ENGLISH_UNSTEMMED``: the same without stemming; ``ANY_LANGUAGE``: letters and
            digits of every script, single characters in scripts without whitespace, no stemming.
        """
        self._kind = kind
        self._stemmer = _Stemmer() if kind == ENGLISH else None
        self.tokenize = functools.lru_cache(maxsize=_REMEMBERED)(self._tokenize)

    def _tokenize(self, text: str) -> list[str]:
        text = _ENTITY.sub(lambda found: html.unescape(found[0]), text)
        if self._kind == ANY_LANGUAGE:
            return _WORD.findall(text.lower())
        return tokenize.tokenize(text, self._stemmer)


class _Stemmer:
    """NLTK's Porter stemmer with a cache, in the form that rouge-score takes."""

    def __init__(self) -> None:
        from nltk.stem import porter

        self.stem = functools.lru_cache(maxsize=_REMEMBERED)(porter.PorterStemmer().stem)


class Rouge(MeanOfSegments):
    """One kind of ROUGE, 0 to 100."""

    def __init__(self, label: str, references: Sequence[Sequence[str]], words: Words, described: str) -> None:
        """Creates the metric for one of ``LABELS``; ``described`` is the name of ``words`` in the signature."""
        self._kind, self._separator = LABELS[label], "\n" if label == "ROUGE-Lsum" else " "
        self._scorer = rouge_scorer.RougeScorer([self._kind], tokenizer=words)
        signature = {"case": "lc", "tok": described, "f": "1", "multi": "best", "rouge-score": version("rouge-score")}
        super().__init__(label, references, signature=signature)

    def reference_info(self, references: Sequence[str]) -> list[str]:
        """Returns the references with their sentences separated in the way rouge-score expects."""
        return [self._joined(each) for each in references]

    def segment_score(self, hypothesis: str, info: Any) -> float:
        """Returns the F-measure, 0 to 1, against the best-matching reference."""
        text = self._joined(hypothesis)
        return max(float(self._scorer.score(reference, text)[self._kind].fmeasure) for reference in info)

    def _joined(self, text: str) -> str:
        return self._separator.join(sentences(text))


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text, as separated by marks; a text without marks is one sentence."""
    return [sentence for sentence in _MARKS.split(text) if sentence.strip()]


def metrics(kind: str, references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Returns all four metrics by label; ``kind`` is as for ``Words``."""
    words = Words(kind)
    return {label: Rouge(label, references, words, _DESCRIBED[kind]) for label in LABELS}
