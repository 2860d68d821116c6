"""Search over a part of the vocabulary: each sentence has candidates of its own, by a shortlist.

Logits then have a column for each candidate instead of each id. Hypotheses hold ids; what reads or changes logits
finds an id's column with ``columns_of``. Candidates are ascending, so ids of special meaning, which are the first of
every vocabulary and always candidates, are their own columns.

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

# Behind a sentence's last candidate.
BEYOND = np.iinfo(np.int32).max
# Few widths: oneDNN compiles every product for each shape.
_WIDTHS = np.array(sorted({part << power for part in range(8, 16) for power in range(18) if part << power & 7 == 0}))


class Columns(NamedTuple):
    """The candidates of every sentence.

    Attributes:
      ids: int32 [B, C], ascending, BEYOND behind the last.
      banned: float32 [B, C], -1e9 where an id is never generated, else 0.
    """

    ids: tf.Tensor
    banned: tf.Tensor


class ShortlistTable(tf.Module):
    """A shortlist inside the graph."""

    def __init__(self, shortlist: Shortlist, vocab_size: int) -> None:
        """Holds a shortlist of ``vocab_size`` target ids."""
        super().__init__()
        always = np.zeros([vocab_size], bool)
        always[shortlist.always] = True
        # Variables: constants of this size would be a part of every graph that is made.
        self._always = tf.Variable(always, trainable=False, name="always")
        best = shortlist.best.copy()
        best[PAD_ID] = PAD_ID  # padding of the source has no candidates
        self._best = tf.Variable(best, trainable=False, name="best")
        self._vocab_size = vocab_size

    def columns(self, sources: tf.Tensor, more: Sequence[tf.Tensor], banned: Sequence[int], least: int) -> Columns:
        """Returns the candidates of every sentence: a function of it and not of its batch, but for their number.

        Args:
          sources: int32 [B, S].
          more: Further ids int32 [B, ...] that are candidates of each sentence.
          banned: Ids that are never generated.
          least: The least C.
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
    """Returns the columns of ids int32 [B, ...]; that of PAD for ids that are no candidates."""
    if columns is None:
        return ids
    flat = tf.reshape(ids, [tf.shape(columns.ids)[0], -1])
    found = tf.minimum(tf.searchsorted(columns.ids, flat), tf.shape(columns.ids)[1] - 1)
    there = tf.equal(tf.gather(columns.ids, found, batch_dims=1), flat)
    return tf.reshape(tf.where(there, found, PAD_ID), tf.shape(ids))


def ids_of(columns: Columns | None, places: tf.Tensor) -> tf.Tensor:
    """Returns the ids in columns int32 [B, ...]; PAD behind a sentence's last candidate."""
    if columns is None:
        return places
    flat = tf.reshape(places, [tf.shape(columns.ids)[0], -1])
    return tf.reshape(known_ids(tf.gather(columns.ids, flat, batch_dims=1)), tf.shape(places))


def known_ids(ids: tf.Tensor) -> tf.Tensor:
    """Returns ids with PAD in the place of BEYOND."""
    return tf.where(ids < BEYOND, ids, PAD_ID)


def width_of(logits: tf.Tensor) -> int | tf.Tensor:
    """Returns the number of columns of logits [..., V or C]."""
    return logits.shape[-1] or tf.shape(logits)[-1]
