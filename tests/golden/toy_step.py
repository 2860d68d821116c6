"""A toy model for the search: a table makes the next token's distribution depend on the whole past.

A prefix is turned into the number ``sum((token_i + 1) * FACTORS[i]) mod rows``, which selects a row of a table of
random logits. In NumPy the prefix is given. In the graph there are two ways to get the number. With "memories", the toy
stores what each step of every hypothesis adds to the number and sums the terms that the mask makes visible. With
"windows", it carries the sum along and gathers it by parent.
"""

import functools

import numpy as np

FACTORS = np.random.default_rng(99).integers(1, 4099, size=64)


class Toy:
    """A toy model with random tables [directions, sentences, rows, V].

    Args:
      sentences: B.
      vocab_size: V.
      seed: seed of the tables.
      scale: standard deviation of the logits.
      eos: added to the logit of EOS; positive values make short outputs.
      directions: R.
      use_partner: whether the distribution also depends on the partner's past.
      rows: number of rows of each table.
      source: S, the number of source positions of the toy's cross-attention, which is random.
    """

    def __init__(
        self, sentences, vocab_size, *, seed=0, scale=2.0, eos=0.0, directions=1, use_partner=False, rows=4099, source=1
    ):
        rng = np.random.default_rng(seed)
        self.rows = rows
        self.table = scale * rng.standard_normal([directions, sentences, rows, vocab_size])
        self.table[..., 1] += eos
        self.attention = rng.dirichlet(np.full([source], 0.3), size=[directions, sentences, rows])
        self.directions, self.use_partner = directions, use_partner

    # --- as a plain function of the prefix ---

    def _number(self, ids):
        return sum((token + 1) * int(factor) for token, factor in zip(ids, FACTORS, strict=False)) % self.rows

    def log_probs(self, sentence, direction=0):
        """Returns a function (prefix, partner's prefix) -> log-probabilities, float64 [V]."""

        def function(own, partner=()):
            number = self._number(own) + (7 * self._number(partner) if self.use_partner else 0)
            return self._row(direction, sentence, number % self.rows)

        return function

    def coverage(self, sentence, ids, direction=0):
        """Returns the sum of the attention distributions of all steps of a sequence, float64 [S]."""
        numbers = [self._number(ids[:t]) for t in range(len(ids))]
        return self.attention[direction, sentence, numbers].sum(axis=0)

    @functools.cache  # noqa: B019
    def _row(self, direction, sentence, number):
        logits = self.table[direction, sentence, number]
        return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()

    # --- as Seq2Seq.step ---

    def start(self, sentences, hypotheses):
        """Returns the state before the first step, for K hypotheses per direction of each sentence."""
        import tensorflow as tf

        return {
            "memories": {"added": tf.zeros([sentences, self.directions, 1, 0, 1], tf.int32)},
            "windows": tf.zeros([sentences, self.directions, hypotheses], tf.int32),
            "sentences": tf.range(sentences),  # the search drops finished sentences from the batch
        }

    def make_step(self, kind="memories", with_attention=False):
        """Returns the step function, which reads a hypothesis's own past from the "memories" or the "windows"."""
        import tensorflow as tf

        def flat(tables):
            return tf.constant(
                np.moveaxis(tables, 0, 1).reshape(-1, tables.shape[-1]), tf.float32
            )  # [B * R * rows, ...]

        table, attention = flat(self.table), flat(self.attention)
        factors = tf.constant(np.concatenate([[0], FACTORS]), tf.int32)

        def step(ids, visible, partner_visible, parents, state):
            position = tf.shape(visible)[3] // ids.shape[2] - 1
            added = (tf.cast(ids, tf.int32) + 1) * factors[position]
            memory = tf.concat([state["memories"]["added"], added[:, :, tf.newaxis, :, tf.newaxis]], axis=3)
            window = (tf.gather(state["windows"], parents, batch_dims=2) + added) % self.rows
            seen = memory[:, :, :, :, 0]  # [B, R, 1, columns]
            number = window if kind == "windows" else tf.reduce_sum(tf.where(visible, seen, 0), axis=3) % self.rows
            if self.use_partner:
                partner = tf.reduce_sum(tf.where(partner_visible, tf.reverse(seen, axis=[1]), 0), axis=3) % self.rows
                number = (number + 7 * partner) % self.rows
            tables = (
                state["sentences"][:, tf.newaxis, tf.newaxis] * self.directions
                + tf.range(self.directions)[:, tf.newaxis]
            )
            row = tables * self.rows + number
            logits = tf.gather(table, row)
            state = {**state, "memories": {"added": memory}, "windows": window}
            return (logits, tf.gather(attention, row), state) if with_attention else (logits, state)

        return step
