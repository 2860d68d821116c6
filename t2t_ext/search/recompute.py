"""A synchronous search without a cache, for comparison (``sb_decode=recompute``).

A cached search computes the state of a hypothesis at step t once, with the partner that it has at step t. Here, every
step recomputes the whole prefixes of every pair with the present partners, by the model's own pass over whole
sequences. The two searches agree if partners never change: with one live hypothesis per direction and ``next_alive``.

Legend: B sentences, K live hypotheses of a direction, S source positions, T tokens including the one to be chosen now,
D width, V vocabulary. There are two directions.
"""

from typing import Any

import tensorflow as tf

from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID
from t2t_ext.search.beam_search import at_least_wide
from t2t_ext.search.search_state import SearchConfig


class WholePrefixes:
    """Offers ``start`` and ``step`` like a Seq2Seq, but computes them by the model's ``features`` and ``logits``."""

    def __init__(self, model: Any, config: SearchConfig) -> None:
        """Initializes the stepper for a Seq2Seq of two directions, or for an Ensemble of such models."""
        self._model = model
        # If so, rank i is the partner of rank i in both directions, and one pass serves both.
        self._mutual = config.pairing == "rank" and not config.freezes

    def start(self, inputs: tf.Tensor) -> dict[str, Any]:
        """Returns the state before the first step: the source int32 [B, S], and no tokens."""
        return {"inputs": inputs, "memories": {"ids": tf.zeros([tf.shape(inputs)[0], 2, 1, 0, 1], tf.int32)}}

    def step(
        self, ids: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor, parents: tf.Tensor, state: dict[str, Any]
    ) -> tuple[tf.Tensor, dict[str, Any]]:
        """Computes the logits float32 [B, 2, K, V] of the next token from all tokens before it; see Seq2Seq.step."""
        live = ids.shape[2]
        ids = tf.cast(ids, tf.int32)
        fed = tf.concat([state["memories"]["ids"], ids[:, :, tf.newaxis, :, tf.newaxis]], axis=3)
        columns = fed[:, :, 0, :, 0]
        own = _labels(columns, visible, live)
        last = tf.shape(own)[3] - 1
        own = at_least_wide(own)
        if self._mutual:
            pairs = tf.transpose(own, [0, 2, 1, 3])
            features = self._features(state["inputs"], pairs, live)
            logits = tf.stack([self._logits(features, side, last, [live]) for side in (0, 1)], axis=1)
        else:
            partners = at_least_wide(_labels(tf.reverse(columns, axis=[1]), partner_visible, live))
            pairs = tf.stack(
                [tf.stack([own[:, 0], partners[:, 0]], axis=2), tf.stack([partners[:, 1], own[:, 1]], axis=2)], axis=1
            )
            features = self._features(state["inputs"], pairs, 2 * live)
            both = [self._logits(features, side, last, [2, live])[:, side] for side in (0, 1)]
            logits = tf.stack(both, axis=1)
        return logits, {**state, "memories": {"ids": fed}}

    def _features(self, inputs: tf.Tensor, pairs: tf.Tensor, count: int) -> Any:
        """Returns the features [B * count, 2, T, D] of label pairs int32 [B, ..., 2, T], ``count`` per sentence."""
        targets = tf.reshape(pairs, [-1, 2, tf.shape(pairs)[-1]])
        return self._model.features(tf.repeat(inputs, count, axis=0), targets)

    def _logits(self, features: Any, side: int, position: tf.Tensor, shape: list[int]) -> tf.Tensor:
        """Returns the logits float32 [B, *shape, V] of one side at one position."""
        logits = self._model.logits(tf.nest.map_structure(lambda part: part[:, side, position], features))
        return tf.reshape(logits, [-1, *shape, self._model.target_vocab_size])


def _labels(columns: tf.Tensor, visible: tf.Tensor, live: int) -> tf.Tensor:
    """Returns the visible tokens of each hypothesis as labels int32 [B, 2, K, T].

    EOS follows them in place of the token to be chosen next. ``columns`` int32 [B, 2, T * K] are the tokens that were
    fed; ``visible`` bool [B, 2, K, T * K] says which of them a hypothesis sees.
    """
    steps = tf.shape(columns)[2] // live
    shown = tf.where(visible, columns[:, :, tf.newaxis], 0)
    fed = tf.reduce_sum(tf.reshape(shown, [-1, 2, live, steps, live]), axis=4)
    lengths = tf.reduce_sum(tf.cast(visible, tf.int32), axis=3, keepdims=True)
    labels = tf.pad(fed[..., 1:], [[0, 0], [0, 0], [0, 0], [0, 1]])
    places = tf.range(steps)
    return tf.where(places < lengths - 1, labels, tf.where(tf.equal(places, lengths - 1), EOS_ID, PAD_ID))
