"""Which direction won: the translations of a model that generates in both directions, by the one that was chosen.

Zhou et al. (2019), section 4.7, report the share of the left-to-right direction (58.6%). Here each direction's part of
the text is scored, too, for all systems: a direction that wins easy sentences is not therefore the better one.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext.evaluation.comparison import segment_statistics

DIRECTIONS = ("l2r", "r2l")


@dataclasses.dataclass(frozen=True)
class DirectionPart:
    """The sentences whose translation one direction of a system won.

    Attributes:
      direction: ``l2r`` or ``r2l``.
      sentences: How many there are.
      share: Their share of all sentences that a direction won, 0 to 1.
      bleu: BLEU of these sentences by system; None where there are none.
      average_length: Mean tokens of a translation by system; None likewise.
    """

    direction: str
    sentences: int
    share: float
    bleu: Mapping[str, float | None]
    average_length: Mapping[str, float | None]


def by_direction(bleu: Any, systems: Mapping[str, Sequence[str]], directions: Sequence[str]) -> list[DirectionPart]:
    """Scores the sentences that each direction won.

    Args:
      bleu: sacrebleu's BLEU or a subclass, made with its references.
      systems: Translations by name of the system, one per segment.
      directions: The direction that won each segment, ``l2r`` or ``r2l``; "" where there was nothing to translate.

    Returns:
      A part for each direction.
    """
    statistics = {name: segment_statistics.by_segment(bleu, lines) for name, lines in systems.items()}
    parts = []
    for direction in DIRECTIONS:
        segments = [number for number, won in enumerate(directions) if won == direction]
        results = {
            name: segment_statistics.score_of(bleu, counts, segments) if segments else None
            for name, counts in statistics.items()
        }
        parts.append(
            DirectionPart(
                direction,
                len(segments),
                len(segments) / max(1, sum(map(bool, directions))),
                {name: float(each.score) if each else None for name, each in results.items()},
                {name: each.sys_len / len(segments) if each else None for name, each in results.items()},
            )
        )
    return parts
