"""Translations and scores as a Translator returns them. Imports no TensorFlow."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from t2t_ext.data.text.text_encoder import PAD_ID, SubwordEncoder

# A place among the hypotheses with a lower log-probability is empty.
_LEAST_LOG_PROB = -5e8


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A translation of a line.

    Attributes:
      text: The translation, restored for people.
      log_prob: Natural logarithm of its probability, EOS included.
      length: Tokens with EOS.
      score: log_prob divided by the length penalty.
      finished: False if the length limit ended it.
      ids: Its token ids in the order of generation, with EOS where finished.
      unmet_constraints: Phrases that it was to contain and does not; None where no phrases were given.
      prepared: The translation as the model generated it, words as the steps of the target text make them; the same as
        ``text`` where there are no steps.
      direction: In which direction it was generated: ``l2r`` or ``r2l``.
    """

    text: str
    log_prob: float
    length: int
    score: float
    finished: bool
    ids: tuple[int, ...]
    unmet_constraints: int | None = None
    prepared: str = ""
    direction: str = "l2r"


@dataclasses.dataclass(frozen=True)
class PairScore:
    """The model's score of a given translation.

    Attributes:
      log_prob: Natural logarithm of its probability, EOS included.
      length: Tokens with EOS.
      score: log_prob divided by the length penalty.
      token_log_probs: Of each token in text order, EOS last.
    """

    log_prob: float
    length: int
    score: float
    token_log_probs: tuple[float, ...]


def hypotheses_of(found: Mapping[str, np.ndarray], row: int, encoder: SubwordEncoder) -> list[Hypothesis]:
    """Returns the hypotheses of a row of ``Searcher.search``, without empty places; at least one."""
    there = np.flatnonzero(found["log_probs"][row] > _LEAST_LOG_PROB)
    return [_hypothesis(found, (row, int(n)), encoder) for n in (there if len(there) else [0])]


def _hypothesis(found: Mapping[str, np.ndarray], place: tuple[int, int], encoder: SubwordEncoder) -> Hypothesis:
    prepared = encoder.join([found["outputs"][place].decode("utf-8", errors="replace")])
    return Hypothesis(
        text=encoder.restore(prepared)[0],
        prepared=prepared[0],
        log_prob=float(found["log_probs"][place]),
        length=int(found["lengths"][place]),
        score=float(found["scores"][place]),
        finished=bool(found["finished"][place]),
        ids=tuple(int(i) for i in found["ids"][place] if i != PAD_ID),
        unmet_constraints=int(found["unmet_constraints"][place]) if "unmet_constraints" in found else None,
        direction="r2l" if found["directions"][place] else "l2r",
    )


def pair_score(scored: Mapping[str, np.ndarray], row: int) -> PairScore:
    """Returns a row of ``ForcedDecoder.score``."""
    length = int(scored["lengths"][row])
    return PairScore(
        log_prob=float(scored["log_probs"][row]),
        length=length,
        score=float(scored["scores"][row]),
        token_log_probs=tuple(map(float, scored["token_log_probs"][row, :length])),
    )
