"""The sentences on which systems differ most, with their differing words marked.

Sentences are ordered by the range of the systems' chrF (Popović 2015) of the sentence; sentence BLEU is shown beside
it. A single system's worst sentences are shown instead.
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
      in_reference: Whether it is part of the longest common sequence with the closest reference.
      shared: Whether all systems have it, in the same sequence; always true where there is one system.
    """

    text: str
    in_reference: bool
    shared: bool


@dataclasses.dataclass(frozen=True)
class SentenceView:
    """One system's translation of a sentence.

    Attributes:
      chrf: chrF2 of the sentence, 0 to 100.
      bleu: BLEU of the sentence, smoothed, 0 to 100.
      words: Its words.
    """

    chrf: float
    bleu: float
    words: tuple[Word, ...]


@dataclasses.dataclass(frozen=True)
class DifferingSentence:
    """A sentence and its translations.

    Attributes:
      number: The line, from 1.
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
    """Returns a metric's score of each sentence; the metric is made with its references."""
    counts = segment_statistics.by_segment(metric, hypotheses)
    return [float(segment_statistics.score_of(metric, counts, [i]).score) for i in range(len(counts))]


def most_differing(chrf: Mapping[str, Sequence[float]], count: int) -> list[int]:
    """Returns the numbers (from 0) of the sentences to show, the greatest differences first.

    Args:
      chrf: chrF of each sentence by system. With one system: its worst sentences.
      count: How many are shown at the most. Sentences on which all systems are equally good are not shown.
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
    """Finds the sentences that differ most and marks their words.

    Args:
      systems: Translations by name, one per segment.
      references: One list per set of references.
      chrf: sacrebleu's CHRF, made with the references.
      bleu: sacrebleu's BLEU or a subclass, made with the references; its tokens are what is marked.
      source: The source's lines where they are known.
      count: How many sentences at the most.

    Returns:
      The sentences, the greatest difference first.
    """
    chrf_scores = {name: sentence_scores(chrf, lines) for name, lines in systems.items()}
    bleu_counts = {name: segment_statistics.by_segment(bleu, lines) for name, lines in systems.items()}
    shown = []
    for i in most_differing(chrf_scores, count):
        texts = {name: lines[i] for name, lines in systems.items()}
        words = mark_words(bleu, texts, [each[i] for each in references])
        views = {
            name: SentenceView(
                chrf_scores[name][i], segment_statistics.sentence_bleu(bleu, bleu_counts[name][i]), words[name]
            )
            for name in systems
        }
        values = [view.chrf for view in views.values()]
        shown.append(
            DifferingSentence(
                i + 1,
                source[i] if source is not None else None,
                tuple(each[i] for each in references),
                views,
                max(values) - min(values),
            )
        )
    return shown


def mark_words(bleu: Any, texts: Mapping[str, str], references: Sequence[str]) -> dict[str, tuple[Word, ...]]:
    """Marks each system's words: are they in the reference, do all systems have them?

    Args:
      bleu: The metric whose tokens are compared; what is shown keeps its case where the metric ignores it.
      texts: The translations of one sentence by system.
      references: Its references; each system is compared with the one it shares most with.

    Returns:
      The words by system.
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
    """Returns the positions of the words that both have, in the same order."""
    blocks = difflib.SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    return {position for block in blocks for position in range(block.a, block.a + block.size)}
