"""Finds the sentences on which systems differ most, and marks the differing words.

Sentences are ordered by the difference between the systems' highest and lowest chrF (Popović 2015); sentence BLEU is
shown as well. For a single system, its worst sentences are shown instead.
"""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext.evaluation.comparison import segment_statistics


@dataclasses.dataclass(frozen=True)
class Word:
    """A word of a translation.

    Attributes:
      text: The word.
      in_reference: Whether it is part of the sequence of words shared with the closest reference.
      shared: Whether all systems have it, in the same order; always true for a single system.
    """

    text: str
    in_reference: bool
    shared: bool


@dataclasses.dataclass(frozen=True)
class SentenceView:
    """One system's translation of a sentence: its chrF2 and its smoothed BLEU, both 0 to 100, and its words."""

    chrf: float
    bleu: float
    words: tuple[Word, ...]


@dataclasses.dataclass(frozen=True)
class DifferingSentence:
    """A sentence and its translations.

    Attributes:
      number: The line number, from 1.
      source: The source, or None.
      references: The references.
      systems: The translations by name.
      spread: Highest minus lowest chrF.
    """

    number: int
    source: str | None
    references: tuple[str, ...]
    systems: Mapping[str, SentenceView]
    spread: float


def sentence_scores(metric: Any, hypotheses: Sequence[str]) -> list[float]:
    """Returns a metric's score of each sentence; the metric was created with its references."""
    counts = segment_statistics.by_segment(metric, hypotheses)
    return [float(segment_statistics.score_of(metric, counts, [i]).score) for i in range(len(counts))]


def most_differing(chrf: Mapping[str, Sequence[float]], count: int) -> list[int]:
    """Returns the numbers (from 0) of the sentences to show, the largest differences in chrF first.

    Sentences with the same chrF in all systems are not shown. For a single system, they are its worst sentences.
    """
    rows = list(zip(*chrf.values(), strict=True))
    if len(chrf) == 1:
        return sorted(range(len(rows)), key=lambda i: (rows[i][0], i))[:count]
    spreads = [max(row) - min(row) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: (-spreads[i], i))
    return [i for i in order[:count] if spreads[i] > 0]


def differing_sentences(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    chrf: Any,
    bleu: Any,
    source: Sequence[str] | None = None,
    count: int = 20,
) -> list[DifferingSentence]:
    """Returns at most ``count`` sentences that differ most, largest difference first, with their words marked.

    ``chrf`` and ``bleu`` are sacrebleu's metrics or subclasses, created with the references. The words are BLEU's
    tokens.
    """
    chrf_scores = {name: sentence_scores(chrf, lines) for name, lines in systems.items()}
    bleu_counts = {name: segment_statistics.by_segment(bleu, lines) for name, lines in systems.items()}
    shown = []
    for i in most_differing(chrf_scores, count):
        texts = {name: lines[i] for name, lines in systems.items()}
        words = mark_words(bleu, texts, [each[i] for each in references])
        views = {}
        for name in systems:
            score = segment_statistics.sentence_bleu(bleu, bleu_counts[name][i])
            views[name] = SentenceView(chrf_scores[name][i], score, words[name])
        values = [view.chrf for view in views.values()]
        line, spread = None if source is None else source[i], max(values) - min(values)
        shown.append(DifferingSentence(i + 1, line, tuple(each[i] for each in references), views, spread))
    return shown


def mark_words(bleu: Any, texts: Mapping[str, str], references: Sequence[str]) -> dict[str, tuple[Word, ...]]:
    """Returns each system's words of a sentence, marked by whether the reference and all other systems have them.

    The comparison uses BLEU's tokens; the returned words keep their case even if the metric ignores it. Each system is
    compared with the reference that it shares most words with.
    """
    seen = dict(zip(texts, segment_statistics.tokens_of(bleu, texts.values()), strict=True))
    written = dict(zip(texts, segment_statistics.tokens_as_written(bleu, list(texts.values())), strict=True))
    reference_tokens = segment_statistics.tokens_of(bleu, references)
    result = {}
    for name, tokens in seen.items():
        in_reference = max((_common(tokens, other) for other in reference_tokens), key=len, default=set())
        shared = set(range(len(tokens)))
        for other_name, other in seen.items():
            if other_name != name:
                shared &= _common(tokens, other)
        result[name] = tuple(Word(word, i in in_reference, i in shared) for i, word in enumerate(written[name]))
    return result


def _common(words: Sequence[str], others: Sequence[str]) -> set[int]:
    """Returns the positions in ``words`` of the words that both sequences have in the same order."""
    blocks = difflib.SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    return {position for block in blocks for position in range(block.a, block.a + block.size)}
