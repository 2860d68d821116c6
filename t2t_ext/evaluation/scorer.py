"""Scores the translations of a ``Translator`` with protocols, each on the form of the text that it needs.

A protocol for tokenized text gets the translations as the model generates them, and the references as the target's text
preparation produces them. A protocol for plain text gets both as people read them. Imports no TensorFlow.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.evaluation import protocols, scores
from t2t_ext.evaluation.scores import Score
from t2t_ext.evaluation.segment_counts import PartByPart

# Steps for raw text that is not in the form that people read: already tokenized, or with tags around its sentences.
_PREPARED_BEFORE = {"tokenized", "segmented", "sentence_tags"}
_CASES = {None: "", True: "_uncased", False: "_cased"}


class Translated(Protocol):
    """A translation, such as ``t2t_ext.translation.translator.Hypothesis``."""

    @property
    def text(self) -> str:
        """The translation as people read it."""

    @property
    def prepared(self) -> str:
        """The translation as the model generated it, in the tokens of the target's text preparation."""


@dataclasses.dataclass(frozen=True)
class Translation:
    """A translation that was read from files; see ``Translated``."""

    text: str
    prepared: str


class Scorer:
    """Scores several translations of the same sentences; the references are prepared and counted only once.

    Attributes:
      doubts: Warnings about the texts of the last call, one sentence each.
    """

    def __init__(
        self,
        names: Sequence[str | protocols.Protocol],
        references: Sequence[Sequence[str]],
        encoder: SubwordEncoder,
        *,
        language: str = "",
        n_bootstrap: int = 0,
        both_cases: bool = False,
    ) -> None:
        """Stores the settings; the references are prepared when they are first needed.

        Args:
          names: Protocols of ``t2t_ext.evaluation.protocols`` or their names.
          references: Raw references, one list for each set.
          encoder: The target's text encoder.
          language: The target language's tag, or "".
          n_bootstrap: Number of bootstrap samples for the 95 % confidence intervals; 0 for none.
          both_cases: Whether each protocol's variant with the opposite case handling is also scored. Then the names of
            scores end in ``_cased`` or ``_uncased``; if several protocols are given, the protocol's name comes first:
            ``multi_bleu.BLEU_cased``.

        Raises:
          UserError: There is no such protocol.
        """
        self._asked = [protocols.protocol(name) if isinstance(name, str) else name for name in names]
        chosen = [each for own in self._asked for each in (own, *_other_case(own))] if both_cases else self._asked
        self._protocols = list({each.name: each for each in chosen}.values())
        self._references = [list(each) for each in references]
        self._encoder, self._language, self._n_bootstrap = encoder, language, n_bootstrap
        self._both_cases = both_cases
        self._forms: dict[bool, list[list[str]]] = {}
        self._metrics: dict[str, dict[str, Any]] = {}
        self.doubts: list[str] = []

    def settings(self) -> dict[str, Any]:
        """Returns everything that scores depend on besides the translations, as JSON values."""
        return {
            "protocols": [protocol.name for protocol in self._asked],
            "references": self._references,
            "language": self._language,
            "encoder": self._encoder.sha256,
            "n_bootstrap": self._n_bootstrap,
        }

    def scores(self, hypotheses: Sequence[Translated]) -> list[Score]:
        """Returns the scores of all protocols in order, the main score of each protocol first.

        Raises:
          UserError: As for ``protocols.score``.
        """
        self.doubts = []
        found: list[Score] = []
        for own, doubts in self.by_protocol(hypotheses):
            found += own
            self.doubts += doubts
        return found

    def by_protocol(self, hypotheses: Sequence[Translated]) -> Iterator[tuple[list[Score], list[str]]]:
        """Yields each protocol's scores in turn, with warnings about the texts that it scored.

        Raises:
          UserError: As for ``protocols.score``.
        """
        for protocol in self._protocols:
            texts = [each.prepared if protocol.tokenized else each.text for each in hypotheses]
            doubt = protocols.doubt(protocol, texts) if protocol in self._asked else ""
            scores.check_segments(texts, self._references)
            found = protocols.score_with(self._metrics_of(protocol), texts, self._n_bootstrap)
            if self._both_cases:
                prefix = f"{protocol.name.removesuffix(protocols.UNCASED)}." if len(self._asked) > 1 else ""
                names = [prefix + label_with_case(protocol.name, score.name) for score in found]
                found = [dataclasses.replace(score, name=name) for score, name in zip(found, names, strict=True)]
            yield found, [doubt] if doubt else []

    def _metrics_of(self, protocol: protocols.Protocol) -> dict[str, Any]:
        tokenized = protocol.tokenized
        if tokenized not in self._forms:
            self._forms[tokenized] = references_of(self._references, self._encoder, tokenized=tokenized)
        if protocol.name not in self._metrics:
            self._metrics[protocol.name] = protocol.metrics(self._forms[tokenized], self._language)
        return self._metrics[protocol.name]


class PartScorer:
    """Scores translations that arrive in parts; usually only their counts are kept. See ``Scorer``."""

    def __init__(self, names: Sequence[str | protocols.Protocol], encoder: SubwordEncoder, *, language: str) -> None:
        """Stores the settings; the arguments are the same as for ``Scorer``.

        Raises:
          UserError: There is no such protocol.
        """
        chosen = [protocols.protocol(name) if isinstance(name, str) else name for name in names]
        self._parts = {
            each: PartByPart(functools.partial(each.metrics, language=language), each.references)
            for each in dict.fromkeys(chosen)
        }
        self._stops = {each: protocols.FullStops() for each in self._parts}
        self._encoder = encoder

    def add(self, hypotheses: Sequence[Translated], references: Sequence[Sequence[str]]) -> None:
        """Counts further segments; ``references`` are raw, and each set has as many as there are hypotheses."""
        scores.check_segments(hypotheses, references)
        forms: dict[bool, list[list[str]]] = {}
        for protocol, parts in self._parts.items():
            if (tokenized := protocol.tokenized) not in forms:
                forms[tokenized] = references_of(references, self._encoder, tokenized=tokenized)
            texts = [each.prepared if tokenized else each.text for each in hypotheses]
            self._stops[protocol].add(texts)
            parts.add(texts, forms[tokenized])

    def by_protocol(self, n_bootstrap: int = 0) -> Iterator[tuple[list[Score], str]]:
        """Yields each protocol's scores in turn, with a warning about the texts that it scored, or "".

        Raises:
          UserError: There are no segments.
        """
        for protocol, parts in self._parts.items():
            yield parts.scores(n_bootstrap), protocols.doubt(protocol, self._stops[protocol])


def references_of(references: Sequence[Sequence[str]], encoder: SubwordEncoder, *, tokenized: bool) -> list[list[str]]:
    """Returns raw references, one list per set, in the form to be scored: tokens, or text as people read it."""
    if tokenized:
        return [encoder.prepare(each) for each in references]
    # If the raw references are not plain text, plain text is restored from them.
    is_plain = not _PREPARED_BEFORE & set(encoder.steps.names)
    return [list(each) if is_plain else encoder.restore(each) for each in references]


def label_with_case(protocol: str, label: str) -> str:
    """Returns a score's name with the protocol's treatment of case, such as ``BLEU_uncased``."""
    return label + _CASES[protocols.protocol(protocol).lowercase]


def _other_case(protocol: protocols.Protocol) -> list[protocols.Protocol]:
    """Returns the protocol's variant with the opposite case handling, if there is one."""
    stem = protocol.name.removesuffix(protocols.UNCASED)
    twin = stem if stem != protocol.name else stem + protocols.UNCASED
    return [protocols.PROTOCOLS[twin]] if twin in protocols.PROTOCOLS else []
