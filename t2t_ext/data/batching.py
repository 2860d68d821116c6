"""Which examples form which batch: a function of lengths, seed and epoch alone, planned with NumPy.

A batch here is a *global* batch: what one update of the weights sees, over all replicas and
accumulation steps. It is planned as one and cut by rows afterwards, so that four replicas with
``batch_size=B`` and one with ``batch_size=4B`` see the same batches in the same order.

Examples are put into *blocks* of similar length once for the whole run. A block is a whole
number of batches; every epoch shuffles the examples inside each block and then the order of all
batches. So batches differ from epoch to epoch but their number and sizes do not: step s is batch
``s % batches_per_epoch`` of epoch ``s // batches_per_epoch``, and resuming anywhere costs the
planning of one epoch.

Legend: N examples in the store, n of them in the plan, m batches an epoch; S and T are the padded
lengths of a batch's sources and targets, EOS included. This module imports no TensorFlow.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from t2t_ext.errors import UserError

# Chosen on 29,000 pairs of captions (mean length 16 + 15) with 2,048 target tokens a batch, of which 94.0% are real:
# blocks of 1, 2, 3, 4 batches give 95.9, 94.0, 92.1, 90.0%. More batches mix better; with 1, batches never change.
BATCHES_PER_BLOCK = 2
# Lengths are joined into one strip while it has fewer batches than this and they differ by less than a quarter.
BATCHES_PER_STRIP = 12
STRIP_RATIO = 1.25

_SHUFFLE_EXAMPLES, _SHUFFLE_BATCHES = 0, 1


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch, in the order in which they are used.

    Attributes:
      examples: int32 [n], example numbers; a batch is a slice of it.
      begins: int64 [m], where each batch begins in ``examples``.
      ends: int64 [m], where it ends.
      input_widths: int32 [m], padded source length S, tokens.
      target_widths: int32 [m], padded target length T, tokens.
      rows: int32 [m], rows of each batch, empty ones included (there are some only with static shapes).
    """

    examples: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    input_widths: np.ndarray
    target_widths: np.ndarray
    rows: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Blocks:
    """How examples are grouped, the same in every epoch.

    Attributes:
      examples: int32 [n], example numbers, block by block.
      block_starts: int64 [number of blocks + 1], over ``examples``.
      batch_starts: int64 [m + 1], likewise; every block start is among them.
      rows: int32 [m], rows of each batch.
      widths: int32 [m], both sides' padded length if shapes are static; None: as long as each batch's longest.
    """

    examples: np.ndarray
    block_starts: np.ndarray
    batch_starts: np.ndarray
    rows: np.ndarray
    widths: np.ndarray | None


class BatchPlanner:
    """Plans the batches of every epoch.

    Attributes:
      batches_per_epoch: Number of batches m of any epoch.
      num_examples: Number of examples n in the plan.
      dropped: Why examples are left out -> how many.
      budget: Most tokens of a global batch, counted as ``batch_tokens`` says.
    """

    def __init__(
        self, input_lengths: np.ndarray, target_lengths: np.ndarray, hparams: Any, *, seed: int, num_replicas: int = 1
    ) -> None:
        """Groups the examples; the planning of epochs comes later.

        Args:
          input_lengths: int [N], tokens of each source, EOS included.
          target_lengths: int [N], tokens of each target, EOS included.
          hparams: An ``HParams``; its fields about batches are read.
          seed: Seed of the order.
          num_replicas: Replicas that share a global batch. Its budget is ``batch_size`` times
            ``num_replicas`` times ``gradient_accumulation_steps`` tokens.

        Raises:
          UserError: No example is short enough.
        """
        self._lengths = (np.asarray(input_lengths, np.int32), np.asarray(target_lengths, np.int32))
        self._seed = seed
        self._mode = hparams.batch_tokens
        self.budget = hparams.batch_size * num_replicas * hparams.gradient_accumulation_steps
        kept, self.dropped = select_examples(*self._lengths, hparams)
        self.num_examples = len(kept)
        if hparams.batch_shapes == "static":
            boundaries = bucket_boundaries(hparams)
            self._blocks = _static_blocks(kept, *self._lengths, boundaries, self.budget, self._mode)
        else:
            self._blocks = _dynamic_blocks(kept, *self._lengths, self.budget, self._mode)
        self.batches_per_epoch = len(self._blocks.rows)

    def epoch(self, epoch: int) -> EpochPlan:
        """Plans one epoch.

        Args:
          epoch: Number of the epoch, from 0.

        Returns:
          The plan; the same for the same lengths, hparams, seed and epoch, on any machine.
        """
        order = _shuffled_inside(self._blocks.block_starts, self._random(epoch, _SHUFFLE_EXAMPLES, self.num_examples))
        everything = np.array([0, self.batches_per_epoch])
        batches = _shuffled_inside(everything, self._random(epoch, _SHUFFLE_BATCHES, self.batches_per_epoch))
        return _plan(self._blocks, self._lengths, self._blocks.examples[order], batches)

    def locate(self, step: int) -> tuple[int, int]:
        """Returns the epoch of a step's batch and its number in the epoch; steps count from 0."""
        return divmod(step, self.batches_per_epoch)

    def fill_rate(self, epoch: int = 0) -> float:
        """Returns real tokens of both sides divided by all positions of the batches of an epoch, 0 to 1."""
        plan = self.epoch(epoch)
        positions = (plan.rows.astype(np.int64) * (plan.input_widths + plan.target_widths)).sum()
        real = sum(int(lengths[self._blocks.examples].sum(dtype=np.int64)) for lengths in self._lengths)
        return real / int(positions)

    def _random(self, epoch: int, purpose: int, count: int) -> np.ndarray:
        """uint64 [count]. Raw words, since NumPy promises that these stay the same from version to version."""
        sequence = np.random.SeedSequence([self._seed % (1 << 64), epoch, purpose])
        return np.random.PCG64(sequence).random_raw(count)


def plan_everything(input_lengths: np.ndarray, target_lengths: np.ndarray, hparams: Any, batch_size: int) -> EpochPlan:
    """Plans batches for evaluation: by length, every example exactly once, however long.

    Args:
      input_lengths: int [N], tokens, EOS included.
      target_lengths: int [N], likewise.
      hparams: An ``HParams``.
      batch_size: Most tokens of a batch, counted as ``hparams.batch_tokens`` says; a longer pair is a batch alone.

    Returns:
      The plan, shortest first. With static shapes, buckets go on beyond ``max_length`` as far as needed.

    Raises:
      UserError: There are no examples.
    """
    lengths = np.asarray(input_lengths, np.int32), np.asarray(target_lengths, np.int32)
    everything = np.arange(len(lengths[0]), dtype=np.int32)
    if not len(everything):
        raise UserError("There is nothing to evaluate: the split is empty. Choose another split, or generate it again.")
    if hparams.batch_shapes == "static":
        boundaries = bucket_boundaries(hparams, longest=int(max(lengths[0].max(), lengths[1].max())))
        blocks = _static_blocks(everything, *lengths, boundaries, batch_size, hparams.batch_tokens)
    else:
        blocks = _dynamic_blocks(everything, *lengths, batch_size, hparams.batch_tokens)
    return _plan(blocks, lengths, blocks.examples, np.arange(len(blocks.rows)))


def select_examples(
    input_lengths: np.ndarray, target_lengths: np.ndarray, hparams: Any
) -> tuple[np.ndarray, dict[str, int]]:
    """Chooses the examples that are short enough to train on.

    Returns:
      int32 [n], their numbers, ascending; and reason -> number of those left out (an example counts once).

    Raises:
      UserError: None is left.
    """
    limit = hparams.max_length or hparams.batch_size
    long_inputs = input_lengths > limit
    long_targets = ~long_inputs & (target_lengths > limit)
    # Judged by one replica's share: a pair must fit the memory of one device.
    long_pairs = ~(long_inputs | long_targets) & (
        tokens_of(input_lengths, target_lengths, hparams.batch_tokens) > hparams.batch_size
    )
    dropped = {
        f"inputs longer than {limit} tokens": int(long_inputs.sum()),
        f"targets longer than {limit} tokens": int(long_targets.sum()),
        f"pair larger than a batch of {hparams.batch_size} tokens": int(long_pairs.sum()),
    }
    dropped = {reason: count for reason, count in dropped.items() if count}
    kept = np.flatnonzero(~(long_inputs | long_targets | long_pairs)).astype(np.int32)
    if not len(kept):
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        raise UserError(
            f"None of the {len(input_lengths)} training pairs can be used ({reasons or 'there are none'}). "
            "Raise max_length and batch_size in --hparams, or generate other data."
        )
    return kept, dropped


def tokens_of(inputs: Any, targets: Any, mode: str) -> Any:
    """Counts the tokens of pairs, or of one row of a batch, as ``batch_tokens`` says.

    Args:
      inputs: int, any shape; lengths of the sources.
      targets: int, the same shape.
      mode: ``max`` (the longer side, as in T2T), ``sum`` (both) or ``target``.

    Returns:
      int, the same shape.
    """
    if mode == "max":
        return np.maximum(inputs, targets)
    return targets if mode == "target" else inputs + targets


def bucket_boundaries(hparams: Any, longest: int = 0) -> list[int]:
    """Returns the lengths that static shapes are padded to: T2T's, ``x = max(x + 1, int(x * step))``.

    Args:
      hparams: An ``HParams``.
      longest: A length that must fit even if it is more than ``max_length``, tokens.
    """
    limit = max(hparams.max_length or hparams.batch_size, longest)
    boundaries = []
    length = hparams.min_length_bucket
    while length < limit:
        boundaries.append(length)
        length = max(length + 1, int(length * hparams.length_bucket_step))
    return [*boundaries, limit]


def rows_that_fit(budget: int, tokens: int) -> int:
    """Returns how many rows of ``tokens`` tokens a batch has: at least 1, else within the budget.

    Rounded down to a multiple of 8 (from 64 rows on) or 4, so that the usual numbers of replicas
    and slices divide it and the same batches serve any of them.
    """
    rows = max(1, budget // int(tokens))
    multiple = row_multiple(rows)
    return rows // multiple * multiple


def row_multiple(rows: int) -> int:
    """Returns the number that ``rows_that_fit`` rounds to."""
    return 8 if rows >= 64 else 4 if rows >= 4 else 2 if rows >= 2 else 1


def _static_blocks(
    kept: np.ndarray, inputs: np.ndarray, targets: np.ndarray, boundaries: list[int], budget: int, mode: str
) -> _Blocks:
    """One block for each bucket that has examples; the last batch of a bucket may hold empty rows."""
    bucket = np.searchsorted(boundaries, np.maximum(inputs, targets)[kept])
    examples = kept[np.argsort(bucket, kind="stable")]
    counts = np.bincount(bucket, minlength=len(boundaries))
    blocks, batches, rows, widths = [0], [], [], []
    for boundary, count in zip(boundaries, counts, strict=True):
        if count:
            fit = rows_that_fit(budget, tokens_of(boundary, boundary, mode))
            cuts = np.arange(0, count, fit) + blocks[-1]
            batches.append(cuts)
            rows += [fit] * len(cuts)
            widths += [boundary] * len(cuts)
            blocks.append(blocks[-1] + int(count))
    return _Blocks(
        examples,
        np.array(blocks, np.int64),
        np.concatenate([*batches, [len(kept)]]).astype(np.int64),
        np.array(rows, np.int32),
        np.array(widths, np.int32),
    )


def _dynamic_blocks(kept: np.ndarray, inputs: np.ndarray, targets: np.ndarray, budget: int, mode: str) -> _Blocks:
    """Blocks of similar lengths on both sides.

    The length that the budget counts divides the examples into strips; a strip is sorted by how much
    longer the source is than the target, and cut into blocks.
    """
    size = tokens_of(inputs, targets, mode)[kept]
    by_size = _sorted_by(np.zeros_like(size), size)
    strip = np.empty(len(kept), np.int64)
    strip[by_size] = _strips(size[by_size], budget)
    difference = (inputs - targets)[kept]
    examples = kept[_sorted_by(strip, difference)]
    inputs, targets = inputs[examples], targets[examples]
    strip_edges = np.concatenate([[0], np.cumsum(np.bincount(strip))])
    blocks, batches = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
    for begin, end in itertools.pairwise(strip_edges):
        for block_begin, block_end, rows in _cut_strip(inputs, targets, int(begin), int(end), budget, mode):
            blocks.append(np.array([block_end]))
            batches.append(block_begin + _even_cuts(block_end - block_begin, rows)[1:])
    batch_starts = np.concatenate(batches).astype(np.int64)
    return _Blocks(
        examples,
        np.concatenate(blocks).astype(np.int64),
        batch_starts,
        np.diff(batch_starts).astype(np.int32),
        None,
    )


def _sorted_by(major: np.ndarray, minor: np.ndarray) -> np.ndarray:
    """int64 [n]: positions sorted by ``major`` (below 2^15), then ``minor`` (around 0), then position.

    One sort of packed 64-bit words: unique keys, so that any sorting routine gives the same order.
    """
    words = major.astype(np.uint64) << np.uint64(49)
    words |= (np.clip(minor, -(1 << 16), (1 << 16) - 1) + (1 << 16)).astype(np.uint64) << np.uint64(32)
    words |= np.arange(len(major), dtype=np.uint64)
    words.sort()
    return (words & np.uint64((1 << 32) - 1)).astype(np.int64)


def _strips(sizes: np.ndarray, budget: int) -> np.ndarray:
    """int64 [n]: number of the strip of each example, given the sorted sizes."""
    ends = np.append(np.flatnonzero(np.diff(sizes)) + 1, len(sizes))
    strip_of_value = np.zeros(len(ends), np.int64)
    strip, begin, first = 0, 0, int(sizes[0])
    for number, end in enumerate(ends):
        size = int(sizes[end - 1])
        if size > first * STRIP_RATIO + 1 and begin < (ends[number - 1] if number else 0):
            strip, begin, first = strip + 1, int(ends[number - 1]), size
        strip_of_value[number] = strip
        if end - begin >= BATCHES_PER_STRIP * rows_that_fit(budget, size):
            strip, begin = strip + 1, int(end)
            first = int(sizes[end]) if end < len(sizes) else size
    return np.repeat(strip_of_value, np.diff(ends, prepend=0))


def _cut_strip(
    inputs: np.ndarray, targets: np.ndarray, begin: int, end: int, budget: int, mode: str
) -> Iterator[tuple[int, int, int]]:
    """Yields begin, end and rows a batch of each block of the strip ``[begin, end)``."""

    def rows(last: int) -> int:
        return rows_that_fit(budget, tokens_of(int(inputs[begin:last].max()), int(targets[begin:last].max()), mode))

    while begin < end:
        # Rows shrink as a block grows, so that a guess from its first example is never too short.
        fit = rows(min(end, begin + BATCHES_PER_BLOCK * rows(begin + 1)))
        stop = begin + BATCHES_PER_BLOCK * fit
        if end - stop < BATCHES_PER_BLOCK * fit // 2:
            stop = end
        else:
            alike = (inputs[stop - 1] == inputs[stop:end]) & (targets[stop - 1] == targets[stop:end])
            run = len(alike) if alike.all() else int(alike.argmin())
            if run > BATCHES_PER_BLOCK * fit:  # as many as are equally long are mixed
                stop += run
        fit = rows(stop)
        yield begin, stop, fit
        begin = stop


def _even_cuts(count: int, rows: int) -> np.ndarray:
    """Cuts ``count`` examples into the fewest batches of at most ``rows``, equal but for rounding to the row multiple.

    Returns:
      int64 [batches + 1], from 0 to ``count``.
    """
    batches = -(-count // rows)
    multiple = row_multiple(rows)
    cuts = -(-np.arange(batches + 1, dtype=np.int64) * count // (batches * multiple)) * multiple
    cuts[-1] = count
    return cuts


def _plan(
    blocks: _Blocks, lengths: tuple[np.ndarray, np.ndarray], examples: np.ndarray, batches: np.ndarray
) -> EpochPlan:
    """Makes a plan of the examples in their order of this epoch (int32 [n]) and the order of batches (int64 [m])."""
    starts = blocks.batch_starts
    if blocks.widths is None:
        widths = [np.maximum.reduceat(side[examples], starts[:-1]) for side in lengths]
    else:
        widths = [blocks.widths] * 2
    return EpochPlan(
        examples=examples,
        begins=starts[:-1][batches],
        ends=starts[1:][batches],
        input_widths=widths[0][batches],
        target_widths=widths[1][batches],
        rows=blocks.rows[batches],
    )


def _shuffled_inside(starts: np.ndarray, random: np.ndarray) -> np.ndarray:
    """int64 [n]: a permutation of positions that stays inside each of the ranges between ``starts``.

    Args:
      starts: int64 [ranges + 1], from 0 to n.
      random: uint64 [n], uniform words.
    """
    count = len(random)
    position_bits, range_bits = int(count).bit_length(), len(starts).bit_length()
    words = random >> np.uint64(range_bits)
    words &= ~np.uint64((1 << position_bits) - 1)
    words |= np.arange(count, dtype=np.uint64)
    numbers = np.repeat(np.arange(len(starts) - 1, dtype=np.uint64), np.diff(starts))
    words |= numbers << np.uint64(64 - range_bits)
    words.sort()
    return (words & np.uint64((1 << position_bits) - 1)).astype(np.int64)
