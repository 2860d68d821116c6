"""Text steps for texts of several sentences: truncation of documents, and tags that separate sentences.

See et al. 2017 (https://aclanthology.org/P17-1099) read the first 400 words of an article. OpenNMT's data put each
sentence of a summary between ``<t>`` and ``</t>``, and the model learns to write these tags. The sentence boundaries,
which ROUGE-Lsum needs, are therefore known, and the tags are removed before people read the text.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from t2t_ext.data.text.step import Stage, Step

OPEN, CLOSE = "<t>", "</t>"
SENTENCE_TAGS = "sentence_tags"

_BOUNDARY = re.compile(r"\s*</?t>\s*")
_FIRST_WORDS = re.compile(r"first_([1-9]\d{0,9})_words")
MOST_FIRST_WORDS = 1_000_000_000  # regular expressions cannot count much further


class SentenceTags(Step):
    """Keeps sentences between ``<t>`` and ``</t>`` apart; later steps process each sentence separately.

    A text without tags counts as one sentence and gets no tags.
    """

    name, stage = SENTENCE_TAGS, Stage.SENTENCES
    meaning = "the steps that follow work on each sentence between <t> and </t>, and the tags are taken out at the end"
    loss = "the tags: a blank is between sentences"


class FirstWords(Step):
    """Truncates a text to its first words."""

    name, stage = "first_N_words", Stage.LENGTH
    meaning = "the first N words"
    loss = "what is behind them"

    def __init__(self, language: str, learned: bytes | None = None, *, count: int) -> None:
        """Creates the step, which keeps ``count`` whitespace-separated words of the output of earlier steps."""
        super().__init__(language, learned)
        self.name = f"first_{count}_words"
        self.meaning = f"the first {count:,} words"
        self._beginning = re.compile(rf"\s*\S+(?:\s+\S+){{{count - 1}}}(?=\s)")

    def prepare(self, text: str) -> str:
        """Returns the first words of the text, or the whole text if it is not longer."""
        found = self._beginning.match(text)
        return found[0] if found else text

    def prepare_open(self, text: str) -> str:
        """Returns the text unchanged: prefixes and phrases that a translation must contain are not truncated."""
        return text


STEPS = (SentenceTags, FirstWords)


def count_in(name: str) -> int:
    """Returns N for the step name ``first_N_words``, and 0 for any other name or too large an N."""
    found = _FIRST_WORDS.fullmatch(name)
    return int(found[1]) if found and int(found[1]) <= MOST_FIRST_WORDS else 0


def general_name(name: str) -> str:
    """Returns ``first_N_words`` for names such as ``first_400_words``; returns any other name unchanged."""
    return FirstWords.name if count_in(name) else name


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text without their tags."""
    return [sentence for sentence in _BOUNDARY.split(text) if sentence.strip()]


def is_tagged(text: str) -> bool:
    """Returns whether a text has sentence tags."""
    return _BOUNDARY.search(text) is not None


def tagged(parts: Iterable[str]) -> str:
    """Returns the sentences as one line, each between tags."""
    return " ".join(f"{OPEN} {part} {CLOSE}" for part in parts)


def sentence_by_sentence(text: str, apply: Callable[[str], str], apply_open: Callable[[str], str]) -> str:
    """Applies ``apply`` to each tagged sentence of a text and keeps the tags.

    ``apply_open`` is used instead for a text without tags and for a last sentence without an end tag.
    """
    if not is_tagged(text):
        return apply_open(text)
    *others, last = sentences(text) or [""]
    last = (apply if _is_closed(text) else apply_open)(last) if last else ""
    return tagged(filter(None, [*map(apply, others), last]))


def left_open(prepared: str, beginning: str) -> str:
    """Removes the end tag of the last sentence of a prepared beginning unless ``beginning`` itself ends with one."""
    return prepared if _is_closed(beginning) else prepared.removesuffix(f" {CLOSE}")


def _is_closed(text: str) -> bool:
    return text.rstrip().endswith(CLOSE)


def symbols(*chains: Sequence[str]) -> tuple[str, ...]:
    """Returns the words that chains of steps add to texts, in SentencePiece's notation; each should be one subword."""
    return (f"\u2581{OPEN}", f"\u2581{CLOSE}") if any(SENTENCE_TAGS in names for names in chains) else ()
