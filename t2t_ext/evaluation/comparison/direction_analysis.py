"""Analyzes the translations of a model that generates in both directions by the direction that won each sentence.

Zhou et al. (2019), section 4.7, report the share of the left-to-right direction (58.6%). Here the sentences won by each
direction are also scored for all systems, since a direction that wins the easy sentences is not necessarily better.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext.evaluation.comparison import segment_statistics

DIRECTIONS = ("l2r", "r2l")


@dataclasses.dataclass(frozen=True)
class DirectionPart:
    """The sentences that one direction of a system won.

    Attributes:
      direction: ``l2r`` or ``r2l``.
      sentences: The number of these sentences.
      share: Their share of all sentences that either direction won, 0 to 1.
      bleu: BLEU of these sentences, by system; None if there are none.
      average_length: Mean number of tokens of their translations, by system; None if there are none.
    """

    direction: str
    sentences: int
    share: float
    bleu: Mapping[str, float | None]
    average_length: Mapping[str, float | None]


def by_direction(bleu: Any, systems: Mapping[str, Sequence[str]], directions: Sequence[str]) -> list[DirectionPart]:
    """Scores the sentences that each direction won.

    ``bleu`` is sacrebleu's BLEU or a subclass, created with its references. ``directions`` gives the winner of each
    sentence: ``l2r``, ``r2l``, or "" if there was nothing to translate.
    """
    parts = [[number for number, won in enumerate(directions) if won == direction] for direction in DIRECTIONS]
    results = segment_statistics.results_of_parts(bleu, systems, parts)
    return [
        DirectionPart(
            direction,
            len(part),
            len(part) / max(1, sum(map(bool, directions))),
            {name: float(each.score) if each else None for name, each in found.items()},
            {name: each.sys_len / len(part) if each else None for name, each in found.items()},
        )
        for direction, part, found in zip(DIRECTIONS, parts, results, strict=True)
    ]
