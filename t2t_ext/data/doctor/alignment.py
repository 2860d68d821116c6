"""Finds blocks of misaligned pairs, in which one side is some lines ahead of the other.

Translations of long sentences are long, and names and numbers occur on both sides. So if the lines in a window of
consecutive pairs belong together, the correlation of their lengths and the share of pairs with a common name or number
are high. If either is much higher when the target is read some lines further down or up, the window is shifted.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

WINDOW = 50  # pairs
_STEP = 25
_OFFSETS = (-3, -2, -1, 1, 2, 3)
# Correlations of 50 unrelated pairs have a standard deviation of 0.14: higher ones in two windows are no accident.
_RELATED, _GAIN = 0.65, 0.35
_LEAST_ANCHORED = 12
_VARIED = 0.25  # minimum standard deviation of the logarithms of lengths; running text has about 0.6
_ANCHOR = re.compile(r"\d+|\b[A-ZÀ-ÞА-Я]\w{3,}")


class Block(NamedTuple):
    """Pairs ``first`` to ``last`` (from 0, both included), whose target is ``offset`` lines further down."""

    first: int
    last: int
    offset: int


def shifted_blocks(first: int, sources: Sequence[str], targets: Sequence[str]) -> list[Block]:
    """Returns the shifted blocks among consecutive pairs, of which the first pair has the number ``first``."""
    starts = np.arange(0, len(sources) - WINDOW + 1, _STEP)
    if not len(starts):
        return []
    rows = starts[:, np.newaxis] + np.arange(WINDOW)
    lengths = [np.log1p(np.fromiter(map(len, side), np.float64, len(side))) for side in (sources, targets)]
    anchors = [[frozenset(_ANCHOR.findall(text)) for text in side] for side in (sources, targets)]
    anchored = np.fromiter(map(bool, anchors[0]), bool, len(sources))[rows].sum(axis=1)

    def related(offset: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns each window's correlation of lengths, and its share of pairs with a common name or number."""
        theirs = np.clip(np.arange(len(sources)) + offset, 0, len(sources) - 1)
        common = np.fromiter((not anchors[0][i].isdisjoint(anchors[1][j]) for i, j in enumerate(theirs)), np.float64)
        return _correlation(lengths[0][rows], lengths[1][theirs][rows]), common[rows].sum(axis=1) / np.maximum(
            anchored, 1
        )

    as_they_are = related(0)
    shifted = [related(offset) for offset in _OFFSETS]
    found = []
    has_anchors = anchored >= _LEAST_ANCHORED
    varied = np.minimum(*(side[rows].std(axis=1) for side in lengths)) > _VARIED
    # If names and numbers agree without a shift, lengths are ignored.
    for kind, usable in ((0, varied & ~(has_anchors & (as_they_are[1] > 0.5))), (1, has_anchors)):
        scores = np.stack([each[kind] for each in shifted])
        best, now = scores.max(axis=0), as_they_are[kind]
        for window in np.flatnonzero(usable & (best > _RELATED) & (best - now > _GAIN)):
            begin = first + int(starts[window])
            found.append(Block(begin, begin + WINDOW - 1, _OFFSETS[int(scores[:, window].argmax())]))
    return found


def joined(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yields blocks longer than one window; blocks of the same offset less than a window apart are joined."""
    whole: Block | None = None
    for block in sorted(set(blocks), key=lambda each: (each.offset, each.first)):
        if whole and block.offset == whole.offset and block.first <= whole.last + WINDOW:
            whole = whole._replace(last=max(block.last, whole.last))
            continue
        if whole and whole.last - whole.first >= WINDOW:
            yield whole
        whole = block
    if whole and whole.last - whole.first >= WINDOW:
        yield whole


def _correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the correlation of each row of two float64 [N, W] arrays; 0 if a row does not vary."""
    a, b = (each - each.mean(axis=1, keepdims=True) for each in (a, b))
    norm = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return np.where(norm > 0, (a * b).sum(axis=1) / np.where(norm > 0, norm, 1), 0.0)
