"""Divides pairs into classes of similar lengths, so that batches have few shapes and little padding.

On a CPU, the kernel library makes new kernels for every new batch shape, which costs time and memory. Classes of wider
ranges cost padding. Dynamic programming finds the division with the least padding plus a fixed cost for each class:
first over the length that the budget counts ("size"), and for each range of sizes over a second length ("rest"): the
source length, or the difference of both lengths.

This module does not import TensorFlow.
"""

import itertools

import numpy as np

# Lengths are rounded up in steps of 1/32 of the power of two below them.
_STEPS_AN_OCTAVE = 32
# Sizes in a class differ by at most about this ratio (very small sizes by more, because of rounding).
_RATIO = 1.35


def choose(inputs: np.ndarray, targets: np.ndarray, mode: str, class_cost: float) -> np.ndarray:
    """Divides pairs into classes.

    Args:
      inputs: int [n], tokens of each source; n > 0.
      targets: int [n], tokens of each target.
      mode: ``batch_tokens``: ``max``, ``sum`` or ``target``, which says what a batch's budget counts.
      class_cost: Padded positions that an additional class must save.

    Returns:
      int64 [n], the class of each pair, numbered from 0 by size, then by rest.
    """
    inputs, targets = (_rounded_up(lengths) for lengths in (inputs, targets))
    if mode == "target":
        size, rest = targets, inputs
    else:
        size = np.maximum(inputs, targets) if mode == "max" else inputs + targets
        rest = inputs - targets
    sizes, size_index = _levels(size)
    rests, rest_index = _levels(rest)
    counts = np.zeros((len(sizes), len(rests)), np.int64)
    np.add.at(counts, (size_index, rest_index), 1)
    return _divided(counts, sizes, rests, mode, class_cost)[size_index, rest_index]


def _levels(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Works as ``np.unique`` with the inverse, for integers of a small range, without sorting millions of them."""
    least = values.min()
    present = np.bincount(values - least) > 0
    return np.flatnonzero(present) + least, (np.cumsum(present) - 1)[values - least]


def _rounded_up(lengths: np.ndarray) -> np.ndarray:
    octave = np.frexp(np.maximum(lengths - 1, 1))[1].astype(np.int64) - 1  # exact on every machine, unlike log2
    step = np.maximum(1, (1 << octave) // _STEPS_AN_OCTAVE)
    return -(-lengths // step) * step


def _divided(counts: np.ndarray, sizes: np.ndarray, rests: np.ndarray, mode: str, class_cost: float) -> np.ndarray:
    """Returns int64 [sizes, rests]: the class of each cell, given the number of pairs in each cell."""
    below = np.concatenate([np.zeros((1, len(rests)), np.int64), np.cumsum(counts, 0)])
    best = np.full(len(sizes) + 1, np.inf)
    best[0] = 0.0
    chosen: list[tuple[int, list[int]]] = [(0, [])]
    for end in range(1, len(sizes) + 1):
        first = int(np.searchsorted(sizes, int(sizes[end - 1] / _RATIO) - 1))
        begins = np.arange(min(first, end - 1), end)
        within = below[end] - below[begins]
        # Few of all rests occur within a range of sizes, and time grows with their square.
        there = np.flatnonzero(within[0])
        costs, cuts = _cut_by_rest(within[:, there], int(sizes[end - 1]), rests[there], mode, class_cost)
        totals = best[begins] + costs
        place = int(totals.argmin())
        best[end] = totals[place]
        chosen.append((int(begins[place]), np.append(there, len(rests))[_edges(cuts[place])].tolist()))
    ranges, end = [], len(sizes)
    while end:
        begin, edges = chosen[end]
        ranges.append((begin, end, edges))
        end = begin
    classes, number = np.zeros(counts.shape, np.int64), 0
    for begin, end, edges in reversed(ranges):
        for left, right in itertools.pairwise(edges):
            if counts[begin:end, left:right].any():
                classes[begin:end, left:right] = number
                number += 1
    return classes


def _cut_by_rest(
    counts: np.ndarray, size: int, rests: np.ndarray, mode: str, class_cost: float
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the best cuts of several ranges of sizes that end at the same size.

    Args:
      counts: int64 [ranges, R], number of pairs with each rest.
      size: The largest size of all ranges.
      rests: int64 [R], ascending.
      mode: ``batch_tokens``.
      class_cost: Cost of a class.

    Returns:
      float64 [ranges], costs; int64 [ranges, R + 1], where the class that ends at each position begins.
    """
    below = np.concatenate([np.zeros((len(counts), 1), np.int64), np.cumsum(counts, 1)], 1)
    costs = np.zeros((len(counts), len(rests) + 1))
    cuts = np.zeros((len(counts), len(rests) + 1), np.int64)
    for end in range(1, len(rests) + 1):
        pairs = below[:, end : end + 1] - below[:, :end]
        padded = pairs * _positions(size, rests[:end], int(rests[end - 1]), mode) + class_cost
        totals = costs[:, :end] + np.where(pairs > 0, padded, 0.0)
        cuts[:, end] = totals.argmin(1)
        costs[:, end] = np.take_along_axis(totals, cuts[:, end : end + 1], 1)[:, 0]
    return costs[:, -1], cuts


def _positions(size: int, least: np.ndarray, most: int, mode: str) -> np.ndarray:
    """Returns the padded positions per pair in classes of one size whose rests range from ``least`` [R] to ``most``."""
    if mode == "target":
        return np.full(len(least), size + most)
    if mode == "max":  # one side is as long as the size, the other shorter by the rest
        return 2 * size + min(most, 0) - np.maximum(least, 0)
    return size + (most - least) / 2


def _edges(cuts: np.ndarray) -> list[int]:
    """Returns the edges of the classes, ascending, from 0 to R."""
    edges = [len(cuts) - 1]
    while edges[-1]:
        edges.append(int(cuts[edges[-1]]))
    return edges[::-1]
