"""Plans which examples form which batch, depending only on the lengths, hparams, seed and epoch; with NumPy.

A batch here is a *global* batch: all examples of one weight update, over all replicas and
accumulation steps. It is planned as a whole, and its rows are divided afterwards. So four replicas
with ``batch_size=B`` and one with ``batch_size=4B`` see the same batches in the same order.

Examples are grouped into *blocks* of similar length once for the whole run. All batches of a block
have the same shape (``t2t_ext.data.datasets.shape_classes`` chooses the blocks). Every epoch shuffles
the examples within each block, and then the order of all batches. So batches differ between epochs,
but their number and sizes do not: step s is batch ``s % batches_per_epoch`` of epoch
``s // batches_per_epoch``. Resuming at any step costs only the planning of one epoch.

With ``length_groups=G`` a batch consists of G *parts*, each from one block. The parts of an epoch are sorted by length
and divided into G equal ranges, and every batch takes one part from each range. So every batch has examples of all
lengths, and there are few shapes. A compiler such as XLA makes a separate program for every shape. For it, the parts of
a batch can be merged into one. The pairs of an update stay the same; all batches have the same number of rows and
differ only in width.

Legend: N examples in the store, n of them in the plan, m batches per epoch, G parts per batch. S and T are the padded
lengths of a part's sources and targets, EOS included. This module does not import TensorFlow.
"""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from t2t_ext.data.datasets import shape_classes
from t2t_ext.errors import UserError

# Padded positions that an additional shape class must save: this share of the real tokens of all pairs, and at least
# this share of a batch. See docs/decisions/0010 for how the values were chosen.
CLASS_SHARE = 0.0003
CLASS_BATCHES = 1 / 6
# The same for batches of several parts. These are small, so the values are lower: 97% of the positions are real even
# for a small corpus.
PARTS_CLASS_SHARE = 0.0001
PARTS_CLASS_BATCHES = 1 / 12

_SHUFFLE_EXAMPLES, _SHUFFLE_BATCHES = 0, 1

# Widths of merged batches: powers of two and the midpoints between them, starting at 16.
_MERGED_WIDTHS = np.array([16, *(width << k for k in range(26) for width in (24, 32))], np.int64)
_MERGED_ROWS = 8  # the number of rows of a merged batch is a multiple of this


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """The parts of the batches of one epoch, in the order in which they are used.

    Attributes:
      examples: int32 [n], example numbers; a part is a slice of it.
      begins: int64 [m * G], where each part begins in ``examples``; batch i consists of the G parts from ``i * G`` on.
      ends: int64 [m * G], where each part ends.
      input_widths: int32 [m * G], padded source length S, tokens.
      target_widths: int32 [m * G], padded target length T, tokens.
      rows: int32 [m * G], rows of each part, empty rows included.
    """

    examples: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    input_widths: np.ndarray
    target_widths: np.ndarray
    rows: np.ndarray

    def filled(self, multiple: int) -> Self:
        """Returns the plan with the rows that are computed: empty rows fill up each part to a multiple of a number."""
        return dataclasses.replace(self, rows=(-(-self.rows // multiple) * multiple).astype(np.int32))


@dataclasses.dataclass(frozen=True)
class _Blocks:
    """The grouping of the examples, the same in every epoch: p parts in total, in order of length.

    Attributes:
      examples: int32 [n], example numbers, block by block.
      block_starts: int64 [number of blocks + 1], where each block starts in ``examples``; the last entry is n.
      batch_starts: int64 [p + 1], the same for parts; every block start is among them.
      rows: int32 [p], rows of each part.
      widths: int32 [p] for each side: padded lengths S and T.
    """

    examples: np.ndarray
    block_starts: np.ndarray
    batch_starts: np.ndarray
    rows: np.ndarray
    widths: tuple[np.ndarray, np.ndarray]


class BatchPlanner:
    """Plans the batches of every epoch.

    Attributes:
      batches_per_epoch: Number of batches m in every epoch.
      num_examples: Number of examples n in the plan.
      dropped: Reason -> number of examples left out for it.
      budget: Maximum number of tokens in a global batch, counted as ``batch_tokens`` says.
      parts: Number of parts in a planned batch: G, or 1 if parts are merged.
      merged: Whether parts are merged.
    """

    def __init__(
        self,
        input_lengths: np.ndarray,
        target_lengths: np.ndarray,
        hparams: Any,
        *,
        seed: int,
        num_replicas: int = 1,
        left_out: Mapping[str, np.ndarray] | None = None,
        identity: str = "",
        merged: bool = False,
    ) -> None:
        """Groups the examples; ``epoch`` plans the epochs later.

        Args:
          input_lengths: int [N], tokens of each source, EOS included.
          target_lengths: int [N], tokens of each target, EOS included; if there are several targets, of the longest.
          hparams: An ``HParams``; its fields about batches are read.
          seed: Seed for the order of examples and batches.
          num_replicas: Number of replicas that share a global batch. The budget of a global batch is
            ``batch_size * num_replicas * gradient_accumulation_steps`` tokens.
          left_out: Reason -> bool [N], examples that are not used whatever their length, each for one reason.
          identity: What the numbers of the examples mean, if they are not those of pairs; part of the fingerprint.
          merged: Whether to merge the ``length_groups`` parts of a batch. The pairs of a batch do not change.

        Raises:
          UserError: No example can be used, because all are too long or left out.
        """
        self._lengths = (np.asarray(input_lengths, np.int32), np.asarray(target_lengths, np.int32))
        self._seed = seed
        self._num_replicas = num_replicas
        self._left_out, self._identity = left_out, identity
        self._mode = hparams.batch_tokens
        self.budget = hparams.batch_size * num_replicas * hparams.gradient_accumulation_steps
        self.merged, self._groups = merged, hparams.length_groups
        self.parts = 1 if merged else self._groups
        kept, self.dropped = select_examples(*self._lengths, hparams, left_out or {})
        self.num_examples = len(kept)
        self._static = hparams.batch_shapes == "static"
        if self._static:
            boundaries = bucket_boundaries(hparams)
            self._blocks = _static_blocks(kept, *self._lengths, boundaries, self.budget, self._mode)
        else:
            self._blocks = _dynamic_blocks(kept, *self._lengths, self.budget, self._mode, self._groups)
        self.batches_per_epoch = -(-len(self._blocks.rows) // self._groups)

    def with_batches_of(self, hparams: Any) -> Self:
        """Returns a planner that makes batches of the same examples for other hparams."""
        return type(self)(
            *self._lengths,
            hparams,
            seed=self._seed,
            num_replicas=self._num_replicas,
            left_out=self._left_out,
            identity=self._identity,
            merged=self.merged,
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of which examples form which batches.

        With equal fingerprints and seeds, the batches are equal from any step on.
        """
        digest = hashlib.sha256(self._identity.encode())
        for array in dataclasses.astuple(self._blocks):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @property
    def total_tokens(self) -> int:
        """Tokens of all examples in the plan, without padding, counted as ``batch_tokens`` says."""
        inputs, targets = (lengths[self._blocks.examples].astype(np.int64) for lengths in self._lengths)
        return int(tokens_of(inputs, targets, self._mode).sum())

    @property
    def largest_budget(self) -> int:
        """Tokens of the largest useful global batch, counted as ``batch_tokens`` says.

        With dynamic shapes, this batch holds all examples. With static shapes, examples of different buckets never
        share a batch, so it holds the bucket with the most positions; a larger batch would only have more empty rows.
        """
        if not self._static:
            return self.total_tokens
        blocks = self._blocks
        counts = np.diff(blocks.block_starts)
        rows = [-(-count // row_multiple(count)) * row_multiple(count) for count in counts.tolist()]
        first = np.searchsorted(blocks.batch_starts, blocks.block_starts[:-1])
        inputs, targets = (widths[first].astype(np.int64) for widths in blocks.widths)
        return int((rows * tokens_of(inputs, targets, self._mode)).max())

    @property
    def sizes(self) -> tuple[int, int]:
        """Tokens of the smallest and the largest example in the plan, counted as ``batch_tokens`` says."""
        inputs, targets = (lengths[self._blocks.examples] for lengths in self._lengths)
        tokens = tokens_of(inputs, targets, self._mode)
        return int(tokens.min()), int(tokens.max())

    def shape(self, step: int, target_sides: int = 1, row_multiple: int = 1) -> str:
        """Returns the shape of a step's global batch in words, as ``describe_shape`` does; steps count from 0."""
        epoch, number = self.locate(step)
        return describe_shape(self.epoch(epoch).filled(row_multiple), number, target_sides, self.parts)

    def largest_share(self, row_multiple: int) -> int:
        """Returns the positions of the largest share when every part is divided into ``row_multiple`` equal shares.

        Positions are counted as ``batch_tokens`` says. A share has at least one row.
        """
        blocks = self._blocks
        if self.merged:
            width = int(_merged_widths(np.maximum(*blocks.widths).max()))
            return -(-self._merged_rows // row_multiple) * int(tokens_of(width, width, self._mode))
        return int((-(-blocks.rows // row_multiple) * tokens_of(*blocks.widths, self._mode)).max())

    def epoch(self, epoch: int) -> EpochPlan:
        """Plans one epoch.

        Args:
          epoch: Number of the epoch, from 0.

        Returns:
          The plan. It is the same on any machine for the same lengths, hparams, seed and epoch.
        """
        order = _shuffled_inside(self._blocks.block_starts, self._random(epoch, _SHUFFLE_EXAMPLES, self.num_examples))
        # A batch takes one part from each range of lengths. Ranges with one part fewer get an empty part.
        count, total = self.batches_per_epoch, self.batches_per_epoch * self._groups
        ranges = [np.pad(part, (0, count - len(part)), constant_values=-1) for part in self._ranges]
        random = self._random(epoch, _SHUFFLE_BATCHES, total)
        parts = np.concatenate(ranges)[_shuffled_inside(np.arange(0, total + 1, count), random)]
        plan = _plan(self._blocks, self._blocks.examples[order], parts.reshape(self._groups, count).T.ravel())
        return _merged(plan, self._groups, self._merged_rows) if self.merged else plan

    @property
    def _ranges(self) -> list[np.ndarray]:
        """The numbers of the parts in each range of lengths."""
        return np.array_split(np.arange(len(self._blocks.rows)), self._groups)

    @property
    def _merged_rows(self) -> int:
        """Number of rows that is enough for every merged batch."""
        most = sum(int(self._blocks.rows[part].max(initial=1)) for part in self._ranges)
        return -(-most // _MERGED_ROWS) * _MERGED_ROWS

    def locate(self, step: int) -> tuple[int, int]:
        """Returns the epoch of a step's batch and the batch's number within the epoch; steps count from 0."""
        return divmod(step, self.batches_per_epoch)

    def fill_rate(
        self,
        epoch: int = 0,
        *,
        target_sides: int = 1,
        target_tokens: np.ndarray | None = None,
        row_multiple: int = 1,
    ) -> float:
        """Returns real tokens divided by all positions of the batches of an epoch, 0 to 1.

        Args:
          epoch: Number of the epoch, from 0.
          target_sides: Number of targets of an example; each is padded to the target length.
          target_tokens: int [N], tokens of all targets of an example; by default the target length.
          row_multiple: Empty rows fill each part up to a multiple of this number of rows.
        """
        plan, used = self.epoch(epoch).filled(row_multiple), self._blocks.examples
        inputs, targets = self._lengths
        tokens = (inputs, targets if target_tokens is None else target_tokens)
        positions = (plan.rows.astype(np.int64) * (plan.input_widths + target_sides * plan.target_widths)).sum()
        return sum(int(of_side[used].sum(dtype=np.int64)) for of_side in tokens) / int(positions)

    def _random(self, epoch: int, purpose: int, count: int) -> np.ndarray:
        """Returns uint64 [count]: raw words, because NumPy guarantees that these are the same in every version."""
        sequence = np.random.SeedSequence([self._seed % (1 << 64), epoch, purpose])
        return np.random.PCG64(sequence).random_raw(count)


def describe_shape(plan: EpochPlan, number: int, target_sides: int = 1, parts: int = 1) -> str:
    """Returns the shape of a batch of ``parts`` parts in words, such as ``96 rows x 22 + 2 x 21 tokens``."""
    sides = f"{target_sides} x " if target_sides > 1 else ""
    return " and ".join(
        f"{plan.rows[part]} rows x {plan.input_widths[part]} + {sides}{plan.target_widths[part]} tokens"
        for part in range(number * parts, (number + 1) * parts)
    )


def plan_everything(input_lengths: np.ndarray, target_lengths: np.ndarray, hparams: Any, batch_size: int) -> EpochPlan:
    """Plans evaluation batches in order of length, with every example exactly once, however long it is.

    Args:
      input_lengths: int [N], tokens, EOS included.
      target_lengths: int [N], the same for targets.
      hparams: An ``HParams``.
      batch_size: Maximum number of tokens in a batch, counted as ``hparams.batch_tokens`` says; a longer pair forms a
        batch of its own.

    Returns:
      The plan, shortest examples first. With static shapes, buckets continue beyond ``max_length`` as far as needed.

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
    return _plan(blocks, blocks.examples, np.arange(len(blocks.rows)))


def select_examples(
    input_lengths: np.ndarray, target_lengths: np.ndarray, hparams: Any, left_out: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, int]]:
    """Chooses the examples that are short enough to train on.

    Args:
      input_lengths: int [N], tokens.
      target_lengths: int [N], tokens.
      hparams: An ``HParams``; ``max_length``, ``batch_size`` and ``batch_tokens`` are read.
      left_out: Reason -> bool [N], examples that are left out already.

    Returns:
      int32 [n], the numbers of the chosen examples, ascending; and reason -> number of examples left out for it (each
      counts once).

    Raises:
      UserError: No example is left.
    """
    limit = hparams.max_length or hparams.batch_size
    usable = np.ones(len(input_lengths), bool)
    for mask in left_out.values():
        usable &= ~mask
    long_inputs = usable & (input_lengths > limit)
    long_targets = usable & ~long_inputs & (target_lengths > limit)
    # Compared with the budget of one replica, since a pair must fit into the memory of one device.
    long_pairs = (usable & ~(long_inputs | long_targets)) & (
        tokens_of(input_lengths, target_lengths, hparams.batch_tokens) > hparams.batch_size
    )
    pairs = "pair" if long_pairs.sum() == 1 else "pairs"
    dropped = {
        **{reason: int(mask.sum()) for reason, mask in left_out.items()},
        f"inputs longer than {limit} tokens": int(long_inputs.sum()),
        f"targets longer than {limit} tokens": int(long_targets.sum()),
        f"{pairs} larger than a batch of {hparams.batch_size} tokens": int(long_pairs.sum()),
    }
    dropped = {reason: count for reason, count in dropped.items() if count}
    kept = np.flatnonzero(usable & ~(long_inputs | long_targets | long_pairs)).astype(np.int32)
    if not len(kept):
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        raise UserError(
            f"None of the {len(input_lengths)} training {'examples' if left_out else 'pairs'} can be used "
            f"({reasons or 'there are none'}). "
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
    """Returns the lengths that static shapes are padded to, as in T2T: ``x = max(x + 1, int(x * step))``.

    Args:
      hparams: An ``HParams``.
      longest: A length in tokens that must fit even if it exceeds ``max_length``.
    """
    limit = max(hparams.max_length or hparams.batch_size, longest)
    boundaries = []
    length = hparams.min_length_bucket
    while length < limit:
        boundaries.append(length)
        length = max(length + 1, int(length * hparams.length_bucket_step))
    return [*boundaries, limit]


def rows_that_fit(budget: int, tokens: int) -> int:
    """Returns how many rows of ``tokens`` tokens fit into the budget, at least 1.

    The number is rounded down to a multiple of 8 (from 64 rows on), 4 (from 4 rows on) or 2. Then the
    usual numbers of replicas and slices divide it, and the same batches serve any of them.
    """
    rows = max(1, budget // int(tokens))
    multiple = row_multiple(rows)
    return rows // multiple * multiple


def row_multiple(rows: int) -> int:
    """Returns the number of rows, 8, 4, 2 or 1, to whose multiple a batch of ``rows`` rows is rounded."""
    return 8 if rows >= 64 else 4 if rows >= 4 else 2 if rows >= 2 else 1


def _static_blocks(
    kept: np.ndarray, inputs: np.ndarray, targets: np.ndarray, boundaries: list[int], budget: int, mode: str
) -> _Blocks:
    """Makes one block for each bucket that has examples; the last batch of a bucket may have empty rows."""
    bucket = np.searchsorted(boundaries, np.maximum(inputs, targets)[kept])
    examples = kept[np.argsort(bucket, kind="stable")]
    counts = np.bincount(bucket, minlength=len(boundaries))
    blocks, batches = [0], []
    rows: list[int] = []
    widths: list[int] = []
    for boundary, count in zip(boundaries, counts, strict=True):
        if count:
            fit = rows_that_fit(budget, tokens_of(boundary, boundary, mode))
            cuts = np.arange(0, count, fit) + blocks[-1]
            batches.append(cuts)
            rows += [fit] * len(cuts)
            widths += [boundary] * len(cuts)
            blocks.append(blocks[-1] + int(count))
    width = np.array(widths, np.int32)
    return _Blocks(
        examples,
        np.array(blocks, np.int64),
        np.concatenate([*batches, [len(kept)]]).astype(np.int64),
        np.array(rows, np.int32),
        (width, width),
    )


def _dynamic_blocks(
    kept: np.ndarray, inputs: np.ndarray, targets: np.ndarray, budget: int, mode: str, parts: int = 1
) -> _Blocks:
    """Makes one block for each shape class; its parts are equally full, but the last one may have empty rows."""
    lengths = inputs[kept], targets[kept]
    budget //= parts
    number = shape_classes.choose(*lengths, mode, _class_cost(lengths, budget, mode, parts))
    order = np.argsort(number, kind="stable")
    examples = kept[order]
    edges = np.concatenate([[0], np.cumsum(np.bincount(number))])
    batches = []
    rows: list[int] = []
    widths: tuple[list[int], list[int]] = ([], [])
    for begin, end in itertools.pairwise(map(int, edges)):
        longest = int(lengths[0][order[begin:end]].max()), int(lengths[1][order[begin:end]].max())
        tokens = tokens_of(*longest, mode)
        fit, multiple = max(1, budget // int(tokens)), 1
        if parts == 1:  # parts are not divided into slices, and rounding would cost small parts many rows
            fit = rows_that_fit(budget, tokens)
            multiple = row_multiple(fit)
        equal = -(-(end - begin) // -(-(end - begin) // fit))
        if equal < end - begin:  # a single batch has its own shape in any case
            equal = -(-equal // multiple) * multiple
        cuts = np.arange(begin, end, equal)
        batches.append(cuts)
        rows += [equal] * len(cuts)
        for side, width in zip(widths, longest, strict=True):
            side.extend([width] * len(cuts))
    return _Blocks(
        examples,
        edges.astype(np.int64),
        np.concatenate([*batches, [len(kept)]]).astype(np.int64),
        np.array(rows, np.int32),
        (np.array(widths[0], np.int32), np.array(widths[1], np.int32)),
    )


def _class_cost(lengths: tuple[np.ndarray, np.ndarray], budget: int, mode: str, parts: int) -> float:
    """Returns how many padded positions an additional shape class must save."""
    real = sum(int(side.sum(dtype=np.int64)) for side in lengths)
    counted = int(tokens_of(lengths[0].astype(np.int64), lengths[1].astype(np.int64), mode).sum())
    share, batches = (CLASS_SHARE, CLASS_BATCHES) if parts == 1 else (PARTS_CLASS_SHARE, PARTS_CLASS_BATCHES)
    return max(share * real, batches * budget * real / max(counted, 1))


def _plan(blocks: _Blocks, examples: np.ndarray, parts: np.ndarray) -> EpochPlan:
    """Makes a plan from an epoch's order of the examples (int32 [n]) and of the parts (int64 [m * G]).

    Part -1 is an empty part: one row of padding, as wide as the shortest part.
    """
    parts, real = np.maximum(parts, 0), parts >= 0
    begins = blocks.batch_starts[:-1][parts]
    return EpochPlan(
        examples=examples,
        begins=begins,
        ends=np.where(real, blocks.batch_starts[1:][parts], begins),
        input_widths=blocks.widths[0][parts],
        target_widths=blocks.widths[1][parts],
        rows=np.where(real, blocks.rows[parts], 1).astype(np.int32),
    )


def _merged(plan: EpochPlan, groups: int, rows: int) -> EpochPlan:
    """Merges every ``groups`` parts of a plan into one of ``rows`` rows, both sides as wide as the longest needs."""
    counts = plan.ends - plan.begins
    order = np.arange(counts.sum()) + np.repeat(plan.begins - (np.cumsum(counts) - counts), counts)
    of_batches = counts.reshape(-1, groups).sum(axis=1)
    ends = np.cumsum(of_batches)
    longest = np.maximum(plan.input_widths, plan.target_widths).reshape(-1, groups).max(axis=1)
    widths = _merged_widths(longest)
    return EpochPlan(
        examples=plan.examples[order],
        begins=ends - of_batches,
        ends=ends,
        input_widths=widths,
        target_widths=widths,
        rows=np.full(len(ends), rows, np.int32),
    )


def _merged_widths(lengths: np.ndarray) -> np.ndarray:
    """Rounds lengths, int of any shape, up to widths of merged batches, int32."""
    return _MERGED_WIDTHS[np.searchsorted(_MERGED_WIDTHS, lengths)].astype(np.int32)


def _shuffled_inside(starts: np.ndarray, random: np.ndarray) -> np.ndarray:
    """Returns int64 [n]: a random permutation of the positions within each of the ranges between ``starts``.

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
