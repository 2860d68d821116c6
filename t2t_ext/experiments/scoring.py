"""How a sweep and an experiment score translations: by protocols, each with case counted and ignored."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.evaluation import protocols
from t2t_ext.evaluation.scorer import Scorer
from t2t_ext.evaluation.scores import Score

_CASES = {None: "", True: "_uncased", False: "_cased"}


@dataclasses.dataclass(frozen=True)
class Translation:
    """A translation, as ``t2t_ext.translation.translator.Hypothesis``.

    Attributes:
      text: As people read it.
      prepared: As the model wrote it, in the words that the steps of the target text make.
    """

    text: str
    prepared: str


class Scoring:
    """Protocols, references, and what else scores depend on.

    Attributes:
      doubts: What is odd about the texts of the last call, a sentence each.
    """

    def __init__(
        self,
        names: Sequence[str],
        references: Sequence[Sequence[str]],
        target_encoder: SubwordEncoder,
        *,
        language: str = "",
        n_bootstrap: int = 0,
    ) -> None:
        """Notes how to score; the references are prepared when they are first needed.

        Args:
          names: Protocols of ``t2t_ext.evaluation.protocols``, the one that checkpoints are compared by first.
          references: Raw references, one list for each set.
          target_encoder: The target's text encoder, which prepares references.
          language: The target language, a tag or empty.
          n_bootstrap: Bootstrap samples of the 95 % confidence intervals; 0 for none.

        Raises:
          UserError: There is no such protocol.
        """
        self._protocols = [protocols.protocol(name) for name in names]
        self._references = [list(each) for each in references]
        self._encoder, self._language, self._n_bootstrap = target_encoder, language, n_bootstrap
        self.doubts: list[str] = []

    def settings(self) -> dict[str, Any]:
        """Returns all that scores depend on besides the translations; JSON values."""
        return {
            "protocols": [protocol.name for protocol in self._protocols],
            "references": self._references,
            "language": self._language,
            "encoder": self._encoder.sha256,
            "n_bootstrap": self._n_bootstrap,
        }

    def score(self, translations: Sequence[Translation]) -> list[Score]:
        """Scores translations, one for each line of the references.

        Returns:
          The scores of each protocol, then those of its twin that treats case the other way. Names end in ``_cased`` or
          ``_uncased``; where there are several protocols, theirs come first, as in ``multi_bleu.BLEU_cased``.

        Raises:
          UserError: Numbers of lines differ, or a protocol cannot be used here.
        """
        self.doubts = []
        found = []
        for protocol, scorer in self._scorers:
            prefix = f"{protocol.name.removesuffix(protocols.UNCASED)}." if len(self._protocols) > 1 else ""
            for score in scorer.scores(translations):
                name = prefix + label_with_case(protocol.name, score.name)
                found.append(dataclasses.replace(score, name=name))
            self.doubts += scorer.doubts if protocol in self._protocols else []
        return found

    @functools.cached_property
    def _scorers(self) -> list[tuple[protocols.Protocol, Scorer]]:
        chosen = {each.name: each for protocol in self._protocols for each in (protocol, *_other_case(protocol))}
        options = {"language": self._language, "n_bootstrap": self._n_bootstrap}
        return [(each, Scorer([name], self._references, self._encoder, **options)) for name, each in chosen.items()]


def label_with_case(protocol: str, label: str) -> str:
    """Returns the name of a score of a protocol with what the protocol makes of case, such as ``BLEU_uncased``."""
    return label + _CASES[protocols.protocol(protocol).lowercase]


def _other_case(protocol: protocols.Protocol) -> list[protocols.Protocol]:
    """Returns the protocol's twin that treats case the other way, if it has one."""
    stem = protocol.name.removesuffix(protocols.UNCASED)
    twins = [name for name in (stem, stem + protocols.UNCASED) if name != protocol.name]
    return [protocols.PROTOCOLS[name] for name in twins if name in protocols.PROTOCOLS]
