"""Scores of what a Translator wrote, by protocols, each on the form of the text that it scores.

A protocol for tokenised text gets the translations as the model wrote them and the references as the target's steps
prepare them; one for plain text gets both as people read them. Imports no TensorFlow.
"""

from collections.abc import Sequence
from typing import Protocol

from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.evaluation import protocols
from t2t_ext.evaluation.scores import Score

# Steps for text that is not as people read it: cut into words already, or with its sentences between tags.
_PREPARED_BEFORE = {"tokenized", "segmented", "sentence_tags"}


class Written(Protocol):
    """A translation, as ``t2t_ext.translation.translator.Hypothesis``."""

    text: str
    prepared: str


class Scorer:
    """Scores translations of the same sentences again and again; the references are prepared once.

    Attributes:
      doubts: What is odd about the texts of the last call, a sentence each.
    """

    def __init__(
        self,
        names: Sequence[str],
        references: Sequence[Sequence[str]],
        encoder: SubwordEncoder,
        *,
        language: str = "",
        n_bootstrap: int = 0,
    ) -> None:
        """Prepares the references.

        Args:
          names: Protocols of ``t2t_ext.evaluation.protocols``.
          references: Raw references, one list for each set.
          encoder: The target's text encoder.
          language: The target language, a tag or empty.
          n_bootstrap: Bootstrap samples of the 95 % confidence intervals; 0 for none.

        Raises:
          UserError: There is no such protocol.
        """
        self._protocols = [protocols.protocol(name) for name in names]
        self._references = {
            tokenized: references_of(references, encoder, tokenized=tokenized)
            for tokenized in {False, *(protocol.tokenized for protocol in self._protocols)}
        }
        self._language, self._n_bootstrap = language, n_bootstrap
        self.doubts: list[str] = []

    def scores(self, hypotheses: Sequence[Written]) -> list[Score]:
        """Returns the scores of all protocols in their order, a protocol's main one first.

        Raises:
          UserError: As ``protocols.score``.
        """
        forms = {
            False: [hypothesis.text for hypothesis in hypotheses],
            True: [hypothesis.prepared for hypothesis in hypotheses],
        }
        self.doubts = []
        found: list[Score] = []
        for protocol in self._protocols:
            texts, references = forms[protocol.tokenized], self._references[protocol.tokenized]
            self.doubts += filter(None, [protocols.doubt(protocol, texts)])
            found += protocols.score(
                protocol, texts, references, language=self._language, n_bootstrap=self._n_bootstrap
            )
        return found


def references_of(references: Sequence[Sequence[str]], encoder: SubwordEncoder, *, tokenized: bool) -> list[list[str]]:
    """Returns raw references in the form that protocols score.

    Args:
      references: One list for each set.
      encoder: The target's text encoder.
      tokenized: Whether the protocols want tokens; else they want text as people read it.
    """
    if tokenized:
        return [encoder.prepare(each) for each in references]
    # Of such data nobody's plain text are the references but what they restore to.
    is_plain = not _PREPARED_BEFORE & set(encoder.steps.names)
    return [list(each) if is_plain else encoder.restore(each) for each in references]
