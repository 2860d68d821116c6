"""Steps for texts of several sentences: the beginning of a document, and sentences that are kept apart by tags.

See et al. 2017 (https://aclanthology.org/P17-1099) read the first 400 words of an article. OpenNMT's data have each
sentence of a summary between ``<t>`` and ``</t>``, which the model learns to write: so the sentences are known, which
ROUGE-Lsum asks for, and readers need not see the tags.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from t2t_ext.data.text.step import Stage, Step

OPEN, CLOSE = "<t>", "</t>"
SENTENCE_TAGS = "sentence_tags"

_BOUNDARY = re.compile(r"\s*</?t>\s*")
_FIRST_WORDS = re.compile(r"first_([1-9]\d*)_words")


class SentenceTags(Step):
    """Keeps sentences between ``<t>`` and ``</t>`` apart; the steps after it see each sentence by itself.

    A text without tags is one sentence that stays without them.
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
        """Makes the step; ``count`` words are kept, separated by whitespace after the steps before. See ``Step``."""
        super().__init__(language, learned)
        self.name = f"first_{count}_words"
        self.meaning = f"the first {count:,} words"
        self._beginning = re.compile(rf"\s*\S+(?:\s+\S+){{{count - 1}}}(?=\s)")

    def prepare(self, text: str) -> str:
        """Returns the text where it is not longer, else its beginning."""
        found = self._beginning.match(text)
        return found[0] if found else text

    def prepare_open(self, text: str) -> str:
        """Returns the text: what a translation must begin with or hold is not truncated."""
        return text


STEPS = (SentenceTags, FirstWords)


def count_in(name: str) -> int:
    """Returns N of ``first_N_words``; 0 of any other name."""
    found = _FIRST_WORDS.fullmatch(name)
    return int(found[1]) if found else 0


def general_name(name: str) -> str:
    """Returns ``first_N_words`` of ``first_400_words``; any other name as it is."""
    return FirstWords.name if count_in(name) else name


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text, without their tags."""
    return [sentence for sentence in _BOUNDARY.split(text) if sentence.strip()]


def is_tagged(text: str) -> bool:
    """Says whether sentences of a text stand between tags."""
    return _BOUNDARY.search(text) is not None


def tagged(parts: Iterable[str]) -> str:
    """Returns sentences between tags, as one line."""
    return " ".join(f"{OPEN} {part} {CLOSE}" for part in parts)


def sentence_by_sentence(text: str, apply: Callable[[str], str], apply_open: Callable[[str], str]) -> str:
    """Returns a text of which each tagged sentence has gone through ``apply``; its tags stay.

    A last sentence without an end tag goes through ``apply_open`` instead.
    """
    if not is_tagged(text):
        return apply_open(text)
    *others, last = sentences(text) or [""]
    last = (apply if _is_closed(text) else apply_open)(last) if last else ""
    return tagged(filter(None, [*map(apply, others), last]))


def left_open(prepared: str, beginning: str) -> str:
    """Returns the prepared beginning of a text: its last sentence has an end tag only where ``beginning`` has."""
    return prepared if _is_closed(beginning) else prepared.removesuffix(f" {CLOSE}")


def _is_closed(text: str) -> bool:
    return text.rstrip().endswith(CLOSE)


def symbols(*chains: Sequence[str]) -> tuple[str, ...]:
    """Returns the words that chains of steps put into texts, as SentencePiece has them; each should be one subword."""
    return (f"\u2581{OPEN}", f"\u2581{CLOSE}") if any(SENTENCE_TAGS in names for names in chains) else ()
