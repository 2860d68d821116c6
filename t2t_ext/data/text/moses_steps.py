"""Text steps that apply Moses' scripts through sacremoses: punctuation, tokenization, truecasing.

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
# How the Stanford NLP group's WMT files mark a hyphen that was split off.
_STANFORD_HYPHEN = " ##AT##-##AT## "
_LAST_PERIOD = re.compile(r"(?<=[^\s.])\.$")


@functools.cache
def _moses(kind: str, *language: str) -> Any:
    """Returns an instance of sacremoses' class ``Moses<kind>``, which is created only once."""
    import sacremoses

    return getattr(sacremoses, f"Moses{kind}")(*language)


class MosesPunctuation(Step):
    """Normalizes punctuation as ``normalize-punctuation.perl`` does."""

    name, stage = "moses_punctuation", Stage.PUNCTUATION
    meaning = "Moses' normalization of punctuation: quotation marks, dashes, blanks around punctuation"
    loss = "the kind of quotation marks, dashes and ellipses, blanks around punctuation"
    packages = _PACKAGES
    assumed_language = "en"

    def prepare(self, text: str) -> str:
        """Returns the text with normalized punctuation."""
        return _moses("PunctNormalizer", self.language or self.assumed_language).normalize(text)


class PlainApostrophes(Step):
    """Replaces typographic apostrophes, as the usual recipe for IWSLT does in the test sets."""

    name, stage = "plain_apostrophes", Stage.PUNCTUATION
    meaning = "typographic apostrophes (U+2019) become plain ones, which Moses' rules for contractions know"
    loss = "typographic apostrophes and closing single quotation marks"

    def prepare(self, text: str) -> str:
        """Returns the text with plain apostrophes."""
        return text.replace("\u2019", "'")


class MosesTokenize(Step):
    """Tokenizes text as ``tokenizer.perl`` does, with escapes (``&apos;``); ``detokenizer.perl`` restores it."""

    name, stage = "moses_tokenize", Stage.WORDS
    meaning = "Moses' words, separated by blanks; & < > | [ ] ' \" are escaped as &amp; ..."
    loss = "blanks where the detokenizer's rules for the language put them otherwise, such as around quotation marks"
    packages = _PACKAGES
    assumed_language = "en"
    _escape = True

    def prepare(self, text: str) -> str:
        """Returns the tokens of the text, separated by spaces."""
        # Since 2017, tokenizer.perl splits off the period at the end of a line even after an abbreviation; sacremoses
        # does not.
        return _LAST_PERIOD.sub(" .", self.prepare_open(text))

    @property
    def _language(self) -> str:
        return self.language or self.assumed_language

    def prepare_open(self, text: str) -> str:
        """Returns the tokens, separated by spaces; an abbreviation at the end remains one token, as inside a line."""
        return _moses("Tokenizer", self._language).tokenize(text, return_str=True, escape=self._escape)

    def restore(self, text: str) -> str:
        """Returns the detokenized text."""
        return _moses("Detokenizer", self._language).detokenize(text.split(), unescape=self._escape)


class MosesTokenizeNoEscape(MosesTokenize):
    """Tokenizes text as ``tokenizer.perl -no-escape`` does."""

    name = "moses_tokenize_no_escape"
    meaning = "Moses' words, separated by blanks; no character is escaped"
    _escape = False


class Tokenized(MosesTokenize):
    """Accepts text that Moses has already tokenized; it is only detokenized when it is restored."""

    name = "tokenized"
    meaning = "the text is Moses' words already, separated by blanks, escaped or not"

    def prepare(self, text: str) -> str:
        """Returns the text with single spaces."""
        return " ".join(text.split())

    def prepare_open(self, text: str) -> str:
        """Returns the text with single spaces."""
        return self.prepare(text)

    def restore(self, text: str) -> str:
        """Returns the detokenized text."""
        return super().restore(text.replace(_STANFORD_HYPHEN, "-"))


class _Learned(TypedDict):
    """What the truecaser has learned: the best casing of each word, and every casing that occurs."""

    best: list[str]
    known: list[str]


class Truecase(Step):
    """Writes words in their usual case, learned from training text (``truecase.perl``, ``detruecase.perl``)."""

    name, stage = "truecase", Stage.CASE
    meaning = "words in the case that they have most often in the training text, where it is not their own choice"
    loss = "whether a sentence, or what follows a colon, began with a capital: it does in what is restored"
    packages = _PACKAGES
    learns = True

    def learn(self, texts: Iterable[str]) -> bytes:
        """Returns the best casing of each word and all casings that occur, as ``train-truecaser.perl`` finds them.

        Raises:
          UserError: No word of the text shows its usual case.
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
        """Returns the text with a capital at the beginning of each sentence, as ``detruecase.perl`` does it."""
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
