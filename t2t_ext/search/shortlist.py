"""Search over a part of the vocabulary: a shortlist gives each sentence its own candidate ids.

Logits then have a column for each candidate instead of each id. Hypotheses hold ids; code that reads or changes logits
finds the column of an id with ``columns_of``. Candidates are in ascending order. Special ids come first in every
vocabulary and are always candidates, so they equal their column numbers.

Legend: B sentences, S source positions, C columns, A ids that are always candidates, M candidates of a source id, V
target vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_ext.data.datasets.shortlist import Shortlist
from t2t_ext.data.text.special_ids import PAD_ID
from t2t_ext.search.search_state import NOT_THERE

# Fills the places after a sentence's last candidate.
BEYOND = np.iinfo(np.int32).max
# There are few widths because oneDNN compiles every product for each shape.
_WIDTHS = np.array(sorted({part << power for part in range(8, 16) for power in range(18) if part << power & 7 == 0}))


class Columns(NamedTuple):
    """The candidates of every sentence.

    Attributes:
      ids: int32 [B, C], ascending, followed by BEYOND.
      banned: float32 [B, C], -1e9 where an id is never generated, otherwise 0.
    """

    ids: tf.Tensor
    banned: tf.Tensor


class ShortlistTable(tf.Module):
    """A shortlist inside the graph."""

    def __init__(self, shortlist: Shortlist, vocab_size: int) -> None:
        """Stores a shortlist for a target vocabulary of ``vocab_size`` ids."""
        super().__init__()
        always = np.zeros([vocab_size], bool)
        always[shortlist.always] = True
        # These are variables, because constants of this size would be part of every graph.
        self._always = tf.Variable(always, trainable=False, name="always")
        best = shortlist.best.copy()
        best[PAD_ID] = PAD_ID  # padding of the source has no candidates
        self._best = tf.Variable(best, trainable=False, name="best")
        self._vocab_size = vocab_size

    def columns(self, sources: tf.Tensor, more: Sequence[tf.Tensor], banned: Sequence[int], least: int) -> Columns:
        """Returns the candidates of every sentence; except for C, they do not depend on the rest of the batch.

        Args:
          sources: int32 [B, S].
          more: Tensors int32 [B, ...] of further ids that are candidates of each sentence.
          banned: Ids that are never generated.
          least: The smallest allowed C.
        """
        batch = tf.shape(sources)[0]
        found = tf.gather(tf.convert_to_tensor(self._best), sources)
        ids = tf.concat([tf.reshape(each, [batch, -1]) for each in (found, *more)], axis=1)
        rows = tf.broadcast_to(tf.range(batch)[:, tf.newaxis], tf.shape(ids))
        there = tf.scatter_nd(tf.stack([rows, ids], axis=2), tf.ones_like(ids), [batch, self._vocab_size]) > 0
        places = tf.where(there | self._always)
        ragged = tf.RaggedTensor.from_value_rowids(
            tf.cast(places[:, 1], tf.int32), places[:, 0], tf.cast(batch, tf.int64)
        )
        ids = ragged.to_tensor(BEYOND)
        wanted = tf.maximum(tf.shape(ids)[1], least)
        width = tf.reduce_min(tf.where(wanted <= _WIDTHS, tf.constant(_WIDTHS, tf.int32), BEYOND))
        ids = tf.pad(ids, [[0, 0], [0, width - tf.shape(ids)[1]]], constant_values=BEYOND)
        never = tf.reduce_any(tf.equal(ids[..., tf.newaxis], tf.constant([*banned], tf.int32)), axis=2)
        return Columns(ids, tf.where(never, NOT_THERE, 0.0))


def columns_of(columns: Columns | None, ids: tf.Tensor) -> tf.Tensor:
    """Returns the columns of ids int32 [B, ...]; ids that are not candidates get the column of PAD."""
    if columns is None:
        return ids
    flat = tf.reshape(ids, [tf.shape(columns.ids)[0], -1])
    found = tf.minimum(tf.searchsorted(columns.ids, flat), tf.shape(columns.ids)[1] - 1)
    there = tf.equal(tf.gather(columns.ids, found, batch_dims=1), flat)
    return tf.reshape(tf.where(there, found, PAD_ID), tf.shape(ids))


def ids_of(columns: Columns | None, places: tf.Tensor) -> tf.Tensor:
    """Returns the ids of columns int32 [B, ...]; columns after a sentence's last candidate get PAD."""
    if columns is None:
        return places
    flat = tf.reshape(places, [tf.shape(columns.ids)[0], -1])
    return tf.reshape(known_ids(tf.gather(columns.ids, flat, batch_dims=1)), tf.shape(places))


def known_ids(ids: tf.Tensor) -> tf.Tensor:
    """Returns ids with PAD in place of BEYOND."""
    return tf.where(ids < BEYOND, ids, PAD_ID)


def width_of(logits: tf.Tensor) -> int | tf.Tensor:
    """Returns the number of columns of logits [..., V or C]."""
    return logits.shape[-1] or tf.shape(logits)[-1]
