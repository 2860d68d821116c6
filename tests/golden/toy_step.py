"""A toy model for the search: the next token's distribution depends on the whole past, through a table.

A prefix is turned into the number ``sum((token_i + 1) * FACTORS[i]) mod rows`` and that row of a table of
random logits is read. In NumPy the prefix is given; in the graph the toy keeps what a step adds to
the number as a "memory" beside those of all other hypotheses and sums what its mask shows it, or carries the sum in a
"window" that is gathered by parent.
"""

import functools

import numpy as np

FACTORS = np.random.default_rng(99).integers(1, 4099, size=64)


class Toy:
    """Random tables [directions, sentences, rows, V].

    Args:
      sentences: B.
      vocab_size: V.
      seed: of the tables.
      scale: standard deviation of the logits.
      eos: added to the logit of EOS: positive makes short outputs.
      directions: R.
      use_partner: whether the partner's past matters, too.
      rows: of each table.
    """

    def __init__(
        self, sentences, vocab_size, *, seed=0, scale=2.0, eos=0.0, directions=1, use_partner=False, rows=4099
    ):
        rng = np.random.default_rng(seed)
        self.rows = rows
        self.table = scale * rng.standard_normal([directions, sentences, rows, vocab_size])
        self.table[..., 1] += eos
        self.directions, self.use_partner = directions, use_partner

    # --- as a plain function of the prefix ---

    def _number(self, ids):
        return sum((token + 1) * int(factor) for token, factor in zip(ids, FACTORS, strict=False)) % self.rows

    def log_probs(self, sentence, direction=0):
        """Function (prefix, partner's prefix) -> float64 [V]."""

        def function(own, partner=()):
            number = self._number(own) + (7 * self._number(partner) if self.use_partner else 0)
            return self._row(direction, sentence, number % self.rows)

        return function

    @functools.cache  # noqa: B019
    def _row(self, direction, sentence, number):
        logits = self.table[direction, sentence, number]
        return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()

    # --- as Seq2Seq.step ---

    def start(self, sentences, hypotheses):
        """The state before the first step, for K hypotheses of a direction of each sentence."""
        import tensorflow as tf

        return {
            "memories": {"added": tf.zeros([sentences, self.directions, 1, 0, 1], tf.int32)},
            "windows": tf.zeros([sentences, self.directions, hypotheses], tf.int32),
        }

    def make_step(self, kind="memories"):
        """The step function; its own past is read from the "memories" or the "windows"."""
        import tensorflow as tf

        table = tf.constant(np.moveaxis(self.table, 0, 1), tf.float32)  # [B, R, rows, V]
        factors = tf.constant(np.concatenate([[0], FACTORS]), tf.int32)

        def step(ids, visible, partner_visible, parents, state):
            position = tf.shape(visible)[3] // ids.shape[2] - 1
            added = (ids + 1) * factors[position]
            memory = tf.concat([state["memories"]["added"], added[:, :, tf.newaxis, :, tf.newaxis]], axis=3)
            window = (tf.gather(state["windows"], parents, batch_dims=2) + added) % self.rows
            seen = memory[:, :, :, :, 0]  # [B, R, 1, columns]
            number = window if kind == "windows" else tf.reduce_sum(tf.where(visible, seen, 0), axis=3) % self.rows
            if self.use_partner:
                partner = tf.reduce_sum(tf.where(partner_visible, tf.reverse(seen, axis=[1]), 0), axis=3) % self.rows
                number = (number + 7 * partner) % self.rows
            logits = tf.gather(table, number, batch_dims=2)
            return logits, {"memories": {"added": memory}, "windows": window}

        return step
