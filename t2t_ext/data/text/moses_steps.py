"""Steps of Moses' scripts, by sacremoses: punctuation, words, truecasing.

Koehn et al. 2007, "Moses: Open Source Toolkit for Statistical Machine Translation", https://aclanthology.org/P07-2045.
"""

import functools
import json
import re
from collections.abc import Iterable
from typing import Any, TypedDict

from t2t_ext.data.text.step import Stage, Step
from t2t_ext.errors import UserError
from t2t_ext.io import stored

_PACKAGES = ("sacremoses",)
# How the Stanford NLP group's files for WMT have a hyphen that was split.
_STANFORD_HYPHEN = " ##AT##-##AT## "
_LAST_PERIOD = re.compile(r"(?<=[^\s.])\.$")


@functools.cache
def _moses(kind: str, *language: str) -> Any:
    """Returns an object of sacremoses' class ``Moses<kind>``, made once."""
    import sacremoses

    return getattr(sacremoses, f"Moses{kind}")(*language)


class MosesPunctuation(Step):
    """``normalize-punctuation.perl``."""

    name, stage = "moses_punctuation", Stage.PUNCTUATION
    meaning = "Moses' normalization of punctuation: quotation marks, dashes, blanks around punctuation"
    loss = "the kind of quotation marks, dashes and ellipses, blanks around punctuation"
    packages = _PACKAGES

    def prepare(self, text: str) -> str:
        """Returns the text with normalized punctuation."""
        return _moses("PunctNormalizer", self.language or "en").normalize(text)


class PlainApostrophes(Step):
    """Replaces apostrophes as the usual recipe for IWSLT does in its test sets."""

    name, stage = "plain_apostrophes", Stage.PUNCTUATION
    meaning = "typographic apostrophes (U+2019) become plain ones, which Moses' rules for contractions know"
    loss = "typographic apostrophes and closing single quotation marks"

    def prepare(self, text: str) -> str:
        """Returns the text with plain apostrophes."""
        return text.replace("\u2019", "'")


class MosesTokenize(Step):
    """``tokenizer.perl`` with its escapes (``&apos;``), undone by ``detokenizer.perl``."""

    name, stage = "moses_tokenize", Stage.WORDS
    meaning = "Moses' words, separated by blanks; & < > | [ ] ' \" are escaped as &amp; ..."
    loss = "blanks where the detokenizer's rules for the language put them otherwise, such as around quotation marks"
    packages = _PACKAGES
    _escape = True

    def prepare(self, text: str) -> str:
        """Returns the words, separated by spaces."""
        # tokenizer.perl since 2017, unlike sacremoses: the last word of a line is no abbreviation.
        return _LAST_PERIOD.sub(" .", self.prepare_open(text))

    def prepare_open(self, text: str) -> str:
        """Returns the words, separated by spaces; an abbreviation at the end is one word, as inside a line."""
        return _moses("Tokenizer", self.language or "en").tokenize(text, return_str=True, escape=self._escape)

    def restore(self, text: str) -> str:
        """Returns running text."""
        return _moses("Detokenizer", self.language or "en").detokenize(text.split(), unescape=self._escape)


class MosesTokenizeNoEscape(MosesTokenize):
    """``tokenizer.perl -no-escape``."""

    name = "moses_tokenize_no_escape"
    meaning = "Moses' words, separated by blanks; no character is escaped"
    _escape = False


class Tokenized(MosesTokenize):
    """Text that is Moses tokens already: nothing is done to it but what it is written for."""

    name = "tokenized"
    meaning = "the text is Moses' words already, separated by blanks, escaped or not"

    def prepare(self, text: str) -> str:
        """Returns the text with single spaces."""
        return " ".join(text.split())

    def prepare_open(self, text: str) -> str:
        """Returns the text with single spaces."""
        return self.prepare(text)

    def restore(self, text: str) -> str:
        """Returns running text."""
        return super().restore(text.replace(_STANFORD_HYPHEN, "-"))


class _Learned(TypedDict):
    """What the truecaser has learned: each word in its usual case, and all in any case."""

    best: list[str]
    known: list[str]


class Truecase(Step):
    """``truecase.perl``, undone by ``detruecase.perl``: words in their usual case; learned from training text."""

    name, stage = "truecase", Stage.CASE
    meaning = "words in the case that they have most often in the training text, where it is not their own choice"
    loss = "whether a sentence, or what follows a colon, began with a capital: it does in what is restored"
    packages = _PACKAGES
    learns = True

    def learn(self, texts: Iterable[str]) -> bytes:
        """Returns the best case of every word and the other cases that occur, as ``train-truecaser.perl`` finds them.

        Raises:
          UserError: No word of the text tells its case.
        """
        import sacremoses

        model = sacremoses.MosesTruecaser().train(text.split() for text in texts)
        if not model["best"]:
            raise UserError(
                "truecase has nothing to learn from: no line of the training text has a second word. Use lowercase, or "
                "leave it out."
            )
        content = {"best": sorted(model["best"].values()), "known": sorted(model["known"])}
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()

    def prepare(self, text: str) -> str:
        """Returns the text with each word in its usual case."""
        return self._truecaser.truecase(text, return_str=True, use_known=True)

    def restore(self, text: str) -> str:
        """Returns the text with a capital at the beginning of every sentence, as ``detruecase.perl`` finds them."""
        return _moses("Detruecaser").detruecase(text, return_str=True)

    @functools.cached_property
    def _truecaser(self) -> Any:
        import sacremoses

        if self.learned is None:
            raise ValueError("The truecaser has not learned anything yet.")
        content = stored.parse(self.learned, _Learned)
        truecaser = sacremoses.MosesTruecaser()
        truecaser.model = {
            "best": {word.lower(): word for word in content["best"]},
            "known": frozenset(content["known"]),
        }
        return truecaser

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_truecaser"}


STEPS = (PlainApostrophes, MosesPunctuation, MosesTokenize, MosesTokenizeNoEscape, Tokenized, Truecase)
