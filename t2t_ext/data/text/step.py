"""The base class of text steps: its place in a chain, what it prepares, and what it cannot restore."""

import enum
from collections.abc import Iterable
from typing import ClassVar


class Stage(enum.IntEnum):
    """The order in which kinds of steps must follow each other; a chain has at most one step of each."""

    SENTENCES = 0
    UNICODE = 1
    PUNCTUATION = 2
    WORDS = 3
    HYPHENS = 4
    LENGTH = 5
    CASE = 6


class Step:
    """One step, for one language. Subclasses are listed in ``step_classes``.

    Class attributes:
      name: What the user calls it.
      stage: Its place in a chain.
      meaning: Its effect, for the documentation and the record. The record is in the files of subword models: other
        words here make other bytes there.
      loss: What ``restore`` cannot restore, for the same; empty where nothing is lost.
      packages: Libraries whose version decides what it does.
      extra: The extra of t2t_ext that installs them; empty where t2t_ext itself does.
      learns: Whether it must learn from training text before it can work.
    """

    name: str
    stage: ClassVar[Stage]
    meaning: str
    loss: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""
    learns: ClassVar[bool] = False

    def __init__(self, language: str, learned: bytes | None = None) -> None:
        """Makes the step for a language of two letters (empty: not known), with what ``learn`` returned."""
        self.language = language
        self.learned = learned

    @classmethod
    def complaint(cls, language: str) -> str:
        """Returns why the step does not go with a language, or an empty string."""
        del language
        return ""

    def learn(self, texts: Iterable[str]) -> bytes:
        """Returns what the step learns from training text, prepared by the steps before it."""
        raise NotImplementedError

    def prepare(self, text: str) -> str:
        """Returns the text after the step."""
        return text

    def prepare_open(self, text: str) -> str:
        """Returns a text of which only a beginning or a phrase is given: as ``prepare``, but its end is no text's."""
        return self.prepare(text)

    def restore(self, text: str) -> str:
        """Returns the text before the step, as far as that is known."""
        return text
