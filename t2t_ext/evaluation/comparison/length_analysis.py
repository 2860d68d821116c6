"""Computes BLEU and translation length by source length, as the papers plot them.

Bins are left-closed: ``10-20`` holds 10 to 19 words. (Ampomah et al. 2021, figure 5: ``<10``, ``10-20``, ...,
``>50`` in subwords; He et al. 2018, Liu et al. 2020, figure 3, and Zhou et al. 2019, figure 9: bins not stated.)
"""

import bisect
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext.errors import UserError
from t2t_ext.evaluation.comparison import segment_statistics

DEFAULT_EDGES = (10, 20, 30, 40, 50)


@dataclasses.dataclass(frozen=True)
class LengthBin:
    """The sentences within a range of source lengths.

    Attributes:
      label: The range: ``<10``, ``10-20``, ..., ``>50``.
      sentences: Number of these sentences.
      bleu: BLEU by system; None if there are no sentences.
      length_ratio: Tokens of the translations divided by tokens of their closest references, by system; None if there
        are no sentences or no reference tokens.
      average_length: Mean number of tokens of a translation, by system; None if there are no sentences.
      average_reference_length: Mean number of tokens of the first system's closest references; None if there are no
        sentences.
    """

    label: str
    sentences: int
    bleu: Mapping[str, float | None]
    length_ratio: Mapping[str, float | None]
    average_length: Mapping[str, float | None]
    average_reference_length: float | None


def bin_labels(edges: Sequence[int]) -> list[str]:
    """Returns the labels of the bins that the edges define.

    Raises:
      UserError: The edges do not increase, or are not positive.
    """
    if not edges or edges[0] < 1 or any(low >= high for low, high in itertools.pairwise(edges)):
        raise UserError(f"Length bins {','.join(map(str, edges))}: give increasing lengths above 0, as 10,20,30,40,50.")
    between = [f"{low}-{high}" for low, high in itertools.pairwise(edges)]
    return [f"<{edges[0]}", *between, f">{edges[-1]}"]


def group_by_length(lengths: Sequence[int], edges: Sequence[int] = DEFAULT_EDGES) -> list[list[int]]:
    """Returns the numbers (from 0) of the sentences in each bin; a length equal to an edge belongs to the next bin."""
    groups: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for sentence, length in enumerate(lengths):
        groups[bisect.bisect_right(edges, length)].append(sentence)
    return groups


def by_length(
    bleu: Any,
    systems: Mapping[str, Sequence[str]],
    lengths: Sequence[int],
    edges: Sequence[int] = DEFAULT_EDGES,
) -> list[LengthBin]:
    """Scores the sentences in bins of source length, from the shortest to the longest.

    ``bleu`` is sacrebleu's BLEU or a subclass, created with its references. ``lengths`` may be in any unit.

    Raises:
      UserError: The edges do not increase, or are not positive.
    """
    labels = bin_labels(edges)
    parts = group_by_length(lengths, edges)
    bins = []
    for label, part, found in zip(
        labels, parts, segment_statistics.results_of_parts(bleu, systems, parts), strict=True
    ):
        bleus = {name: float(each.score) if each else None for name, each in found.items()}
        ratios = {name: each.sys_len / each.ref_len if each and each.ref_len else None for name, each in found.items()}
        averages = {name: each.sys_len / len(part) if each else None for name, each in found.items()}
        first = next(iter(found.values()))
        bins.append(LengthBin(label, len(part), bleus, ratios, averages, first.ref_len / len(part) if first else None))
    return bins
