"""Forbids repeated n-grams of words, while ``rules.NoRepeatedNgrams`` forbids repeated n-grams of tokens.

Paulus et al. 2018 (https://arxiv.org/abs/1705.04304), section 2.5, and OpenNMT block n-grams of tokens that are words.
Applied to subwords, the same rule would forbid a name of three subwords to occur twice.

Legend: B sentences, R directions, K live hypotheses of a direction, T tokens so far, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_ext.data.text.text_encoder import EOS_ID, SubwordEncoder
from t2t_ext.search.rules import Rule, Step, forbid, reorder
from t2t_ext.search.shortlist import columns_of


class Boundaries(NamedTuple):
    """Word boundaries, in the order in which a direction generates.

    Attributes:
      begins: bool [R, V], whether a word always begins with the token, whatever precedes it.
      ends: bool [R, V], whether a word always ends with the token, whatever follows.
    """

    begins: np.ndarray
    ends: np.ndarray


def word_boundaries(encoder: SubwordEncoder, right_to_left: Sequence[bool]) -> Boundaries:
    """Returns where words begin and end in each direction; ``right_to_left`` says how each direction generates.

    In text order, SentencePiece marks the first subword of a word; subword-nmt marks all subwords but the last.
    """
    if encoder.segmented_by_graph:
        first = np.array(encoder.word_starts(), bool)
        first[EOS_ID] = False
        last = np.zeros_like(first)
    else:
        last = np.array([not piece.endswith("@@") for piece in encoder.pieces(range(encoder.vocab_size))], bool)
        first = np.zeros_like(last)
    return Boundaries(
        np.stack([last if turned else first for turned in right_to_left]),
        np.stack([first if turned else last for turned in right_to_left]),
    )


class NoRepeatedWordNgrams(Rule):
    """Forbids repeated n-grams of words in a hypothesis.

    The last subword of a word is forbidden if the word would complete an n-gram that the hypothesis already contains.
    This also forbids longer words that begin with the same subwords. Only the same subwords are forbidden: another
    segmentation of the word is still possible, but a model trained on a single segmentation does not generate it.
    """

    def __init__(self, size: int, boundaries: Boundaries, ignored: Sequence[Sequence[Sequence[int]]] = ()) -> None:
        """Initializes the rule.

        Args:
          size: Number of words of an n-gram, at least 1.
          boundaries: Where words begin and end.
          ignored: Words whose n-grams may be repeated; for each word its ids in every direction, in the direction's
            order of generation.
        """
        self._size = size
        self._begins, self._ends = boundaries
        self._ignored = [np.array(word, np.int32) for word in ignored]

    def start(self, batch: tf.Tensor, live: int) -> dict[str, dict[str, tf.Tensor]]:
        """Returns the state: for every place, how many tokens before it equal the hypothesis's last ones; empty yet."""
        return {"memories": {"same": tf.zeros([batch, len(self._begins), live, 0], tf.int32)}}

    def adjust(self, logits: tf.Tensor, step: Step, state: Any) -> tf.Tensor:
        """Forbids the tokens that would complete a repeated n-gram."""
        past = step.length - 1

        def without_repeats() -> tf.Tensor:
            tokens = step.tokens[..., :past]
            return forbid(
                logits, columns_of(step.columns, tokens), self._completes(tokens, past, state["memories"]["same"])
            )

        changed = tf.cond(past >= self._size, without_repeats, lambda: logits)
        return tf.ensure_shape(changed, logits.shape)

    def update(self, state: Any, parents: tf.Tensor, tokens: tf.Tensor, step: Step) -> Any:
        """Compares every place with the new token and reorders the state with the hypotheses."""
        same = reorder(state["memories"]["same"], parents)
        before = reorder(step.tokens[..., : step.length - 1], parents)
        longer = tf.where(tf.equal(before, tokens[..., tf.newaxis]), same + 1, 0)
        return {"memories": {"same": tf.pad(longer, [[0, 0], [0, 0], [0, 0], [1, 0]])}}

    def _completes(self, tokens: tf.Tensor, past: tf.Tensor, same: tf.Tensor) -> tf.Tensor:
        """Returns for which tokens [B, R, K, T] a copy would complete a repeated n-gram of words, bool [B, R, K, T]."""
        begins, ends = _of_tokens(self._begins, tokens), _of_tokens(self._ends, tokens)
        starts = tf.concat([tf.ones_like(begins[..., :1]), begins[..., 1:] | ends[..., :-1]], axis=3)
        # The last token's word is complete if the same token would begin another word.
        complete = tf.concat([starts[..., 1:], (begins | ends)[..., -1:]], axis=3)
        places = tf.range(past)
        words = tf.cumsum(tf.cast(starts, tf.int32), axis=3)  # up to each place
        first_of_word = tf.sort(tf.where(starts, places, past), axis=3)
        first = tf.gather(first_of_word, tf.maximum(words - self._size, 0), batch_dims=3)
        size = places - first  # tokens of the n-gram before its last one
        # The hypothesis ends with the same tokens, and the first of them begins a word there as well.
        begun = tf.gather(starts, tf.minimum(past - size, past - 1), batch_dims=3)
        begun = tf.where(tf.equal(size, 0), begins | ends[..., -1:], begun)
        found = complete & (words >= self._size) & (same >= size) & begun
        if self._ignored:
            hits = tf.cast(self._is_ignored(tokens, starts, complete), tf.int32)
            up_to = tf.cumsum(hits, axis=3)
            found &= tf.equal(up_to, tf.gather(up_to - hits, first, batch_dims=3))
        return found

    def _is_ignored(self, tokens: tf.Tensor, starts: tf.Tensor, complete: tf.Tensor) -> tf.Tensor:
        """Returns where an ignored word ends, bool [B, R, K, T]."""
        found = tf.zeros_like(starts)
        for word in self._ignored:
            hit = complete
            for back in range(word.shape[1]):
                shifted = _shifted(tokens, back)
                hit &= tf.equal(shifted, word[:, word.shape[1] - 1 - back, np.newaxis, np.newaxis])
            found |= hit & _shifted(starts, word.shape[1] - 1)
        return found


def _of_tokens(table: np.ndarray, tokens: tf.Tensor) -> tf.Tensor:
    """Returns the entries [B, R, K, T] of a table [R, V] for tokens [B, R, K, T]."""
    directions, vocab_size = table.shape
    offsets = np.arange(directions, dtype=np.int32)[:, np.newaxis, np.newaxis] * vocab_size
    return tf.gather(tf.constant(table.reshape(-1)), tokens + offsets)


def _shifted(values: tf.Tensor, by: int) -> tf.Tensor:
    """Returns [B, R, K, T] with each value ``by`` places later, zeros at the beginning."""
    return tf.pad(values, [[0, 0], [0, 0], [0, 0], [by, 0]])[..., : tf.shape(values)[3]] if by else values
