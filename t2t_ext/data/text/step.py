"""Defines the base class of text steps and the order in which steps follow each other."""

import enum
from collections.abc import Iterable
from typing import ClassVar


class Stage(enum.IntEnum):
    """The kinds of steps, in the order that a chain must follow; a chain has at most one step of each kind."""

    SENTENCES = 0
    UNICODE = 1
    PUNCTUATION = 2
    WORDS = 3
    HYPHENS = 4
    LENGTH = 5
    CASE = 6


class Step:
    """One text step for one language. ``text_steps.step_classes`` lists the subclasses.

    Class attributes:
      name: The name by which users select the step.
      stage: The step's place in a chain.
      meaning: The step's effect, for the documentation and the record. The record is part of the text encoder's file,
        so a new wording changes the bytes of that file.
      loss: What ``restore`` cannot restore, for the same readers; empty if nothing is lost.
      packages: The libraries whose versions determine what the step does.
      extra: The extra of t2t_ext that installs these libraries; empty if t2t_ext itself installs them.
      assumed_language: The language whose rules the step uses if none is given; empty if it needs none.
      learns: Whether the step must learn from training text before it can work.
    """

    name: str
    stage: ClassVar[Stage]
    meaning: str
    loss: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""
    assumed_language: ClassVar[str] = ""
    learns: ClassVar[bool] = False

    def __init__(self, language: str, learned: bytes | None = None) -> None:
        """Creates the step for a language such as ``de`` (empty if unknown), with the result of ``learn``, if any."""
        self.language = language
        self.learned = learned

    @classmethod
    def complaint(cls, language: str) -> str:
        """Returns why the step cannot be used for a language, or an empty string if it can."""
        del language
        return ""

    def learn(self, texts: Iterable[str]) -> bytes:
        """Returns what the step learns from training text that the previous steps have prepared."""
        raise NotImplementedError

    def prepare(self, text: str) -> str:
        """Applies the step to a text and returns the result."""
        return text

    def prepare_open(self, text: str) -> str:
        """Applies the step to a beginning or a phrase; unlike in ``prepare``, its end is not the end of a text."""
        return self.prepare(text)

    def restore(self, text: str) -> str:
        """Undoes the step as far as possible and returns the result."""
        return text
