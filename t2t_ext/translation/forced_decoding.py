"""Forced decoding: the probability of given translations, and the alignment of their words with the source.

A model of one direction needs only the translation. If a model generates in two directions that attend to each other,
the probability of a translation depends on its partner, which the other direction generates: both must be given.

Legend: B sentences, S source positions, T target positions.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID
from t2t_ext.errors import UserError
from t2t_ext.layers.gradients import forward_only
from t2t_ext.models.ensemble import Ensemble
from t2t_ext.models.seq2seq import Seq2Seq
from t2t_ext.search.beam_search import at_least_wide
from t2t_ext.search.directions import refuse_one_side
from t2t_ext.search.search_state import length_penalty
from t2t_ext.translation.alignment import AlignmentConfig, align_words, piece_tables, source_attention, words_of
from t2t_ext.translation.codec import FeatureCodec, TextCodec

# Positions whose logits are computed at once: enough rows for a fast product, few enough to stay in the CPU's cache.
_CHUNK_POSITIONS = 256


class Given(NamedTuple):
    """Translations as a model generates them.

    Attributes:
      ids: int32 [B, T] in the order of generation, with or without EOS, padded with PAD.
      lengths: int32 [B], tokens without EOS.
      right_to_left: bool [B], whether they are generated right to left.
      both: For a model of two directions, what L2R and R2L generate, int32 [B, 2, T]; otherwise None.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    right_to_left: tf.Tensor
    both: tf.Tensor | None


class ForcedDecoder:
    """Scores and aligns given translations, inside the graph."""

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        source: TextCodec | FeatureCodec,
        target: TextCodec,
        decode_hparams: DecodeHParams,
        target_direction: str,
        alignment: AlignmentConfig,
    ) -> None:
        """Takes a built model or an ensemble, and its codecs; the decode hparams give the scores' length penalty."""
        self._model, self._source, self._target = model, source, target
        self._hparams, self._alignment = decode_hparams, alignment
        self._target_direction = target_direction

    def score(
        self,
        sources: tf.Tensor,
        targets: tf.Tensor,
        partners: tf.Tensor | None = None,
        right_to_left: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Scores translations.

        Args:
          sources: Ids int32 [B, S] with EOS, padded with PAD, or features float32 [B, S, F].
          targets: Ids int32 [B, T] in text order, padded with PAD; without EOS if truncated at the length limit.
          partners: Only for a model of two directions, which needs them: what the other direction generates, in the
            same form as the targets.
          right_to_left: Only with partners: bool [B], whether a target is generated right to left; None: none is.

        Returns:
          ``log_probs`` float32 [B], ``lengths`` int32 [B] (tokens, including EOS), ``scores`` float32 [B]
          (log-probability over length penalty) and ``token_log_probs`` float32 [B, T] in text order, 0 after the end.

        Raises:
          UserError: Partners are missing for a model of two directions, or are given for a model of one.
        """
        given = self._given("score", targets, partners, right_to_left)
        scored = self._score(sources, given)
        by_token = _reversed_where(scored["token_log_probs"], given.lengths, given.right_to_left)
        return {**scored, "token_log_probs": by_token}

    def score_both(self, sources: tf.Tensor, both: tf.Tensor, right_to_left: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores the output of one of two directions.

        Args:
          sources: As for ``score``.
          both: int32 [B, 2, T], the left-to-right and the right-to-left output in the order of generation, with EOS,
            padded with PAD.
          right_to_left: bool [B], whether the right-to-left output is scored.

        Returns:
          The same as ``score``, but ``token_log_probs`` are in the order of generation.

        Raises:
          UserError: The model generates in one direction.
        """
        self._check_two_sided()
        own = tf.where(right_to_left[:, tf.newaxis], both[:, 1], both[:, 0])
        return self._score(sources, Given(own, _spoken(own), right_to_left, both))

    @forward_only()
    def align(
        self,
        sources: tf.Tensor,
        targets: tf.Tensor,
        partners: tf.Tensor | None = None,
        right_to_left: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Aligns the words of translations with those of the source.

        The arguments are those of ``score``; ids may contain the marks of ``GraphTokenEncoder.encode_marked``.

        Returns:
          ``alignments`` string [B], ``source-target`` pairs of words in the order of the target words; see
          ``t2t_ext.translation.alignment``.

        Raises:
          UserError: As for ``score``; or the source has no words, or the model lacks the chosen attention.
        """
        if isinstance(self._source, FeatureCodec):
            raise UserError(
                "There is no word alignment with a source of feature vectors, which has no words: leave the alignments "
                "out. Which regions a word attends to is in the model's attention_weights."
            )
        given = self._given("alignment", targets, partners, right_to_left)
        ids = at_least_wide(given.ids)
        sources = at_least_wide(sources)
        attention = source_attention(
            self._model,
            self._source.unmarked(sources),
            self._target.unmarked(ids if given.both is None else at_least_wide(given.both)),
            self._alignment,
            given.right_to_left if self.two_sided else None,
        )  # [B, T, S]
        source_words = words_of(sources, piece_tables(self._source.encoder))
        in_text_order = _reversed_where(ids, given.lengths, given.right_to_left)
        target_words = words_of(in_text_order, piece_tables(self._target.encoder))
        attention = _reversed_where(attention, given.lengths, given.right_to_left)
        return {"alignments": align_words(attention, source_words, target_words)}

    @property
    def two_sided(self) -> bool:
        """Whether the model generates in two directions at once, each of which attends to the other."""
        return self._model.directions == 2

    def _check_two_sided(self) -> None:
        if not self.two_sided:
            raise UserError(
                "Partners are what the other direction of a synchronous model generates, but this model generates in "
                "one direction: leave them out."
            )

    def _given(
        self, what: str, targets: tf.Tensor, partners: tf.Tensor | None, right_to_left: tf.Tensor | None
    ) -> Given:
        """Returns translations, given in text order, as the model generates them; ``what`` is used in messages."""
        lengths = _spoken(targets)
        if partners is None:
            if self.two_sided:
                refuse_one_side(what, f"{'score' if what == 'score' else 'align'}(pairs, partners=...)")
            right_to_left = tf.fill(tf.shape(lengths), self._target_direction == "r2l")
            return Given(_reversed_where(targets, lengths, right_to_left), lengths, right_to_left, None)
        self._check_two_sided()
        if right_to_left is None:
            right_to_left = tf.zeros(tf.shape(lengths), tf.bool)
        width = tf.maximum(tf.shape(targets)[1], tf.shape(partners)[1])
        own, other = (tf.pad(side, [[0, 0], [0, width - tf.shape(side)[1]]]) for side in (targets, partners))
        which = right_to_left[:, tf.newaxis]
        left, right = tf.where(which, other, own), tf.where(which, own, other)
        right = tf.reverse_sequence(right, _spoken(right), seq_axis=1)
        return Given(tf.where(which, right, left), lengths, right_to_left, tf.stack([left, right], axis=1))

    @forward_only()
    def _score(self, sources: tf.Tensor, given: Given) -> dict[str, tf.Tensor]:
        """Scores translations including EOS; ``token_log_probs`` are in the order of generation."""
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(given.ids, PAD_ID), tf.int32), axis=1)
        which = None if given.both is None else given.right_to_left
        by_token = token_log_probs(self._model, at_least_wide(sources), given.ids, lengths, given.both, which)
        log_probs = tf.reduce_sum(by_token, axis=1)
        scores = log_probs / length_penalty(lengths, self._hparams.alpha, self._hparams.length_penalty)
        return {"log_probs": log_probs, "lengths": lengths, "scores": scores, "token_log_probs": by_token}


def _spoken(ids: tf.Tensor) -> tf.Tensor:
    """Returns how many of the ids int32 [B, T] are neither PAD nor EOS, int32 [B]."""
    return tf.reduce_sum(tf.cast(tf.not_equal(ids, PAD_ID) & tf.not_equal(ids, EOS_ID), tf.int32), axis=1)


def token_log_probs(
    model: Seq2Seq | Ensemble,
    source: tf.Tensor,
    targets: tf.Tensor,
    lengths: tf.Tensor,
    both: tf.Tensor | None = None,
    right_to_left: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns the log-probabilities of given tokens, from one teacher-forced pass over whole sequences.

    Args:
      model: The model.
      source: int32 [B, S], or features float32 [B, S, F].
      targets: int32 [B, T] in the order of generation, with EOS.
      lengths: int32 [B], how many target tokens count.
      both: For a model of two directions, what L2R and R2L generate, int32 [B, 2, T]; one of the two is the targets.
      right_to_left: bool [B], whether the targets are what R2L generates.

    Returns:
      The log-probability of each token, float32 [B, T]; 0 beyond the lengths.
    """
    padded = at_least_wide(targets)
    if both is None:
        features = model.features(source, padded)
    else:
        side = tf.cast(right_to_left, tf.int32)
        features = model.features(source, at_least_wide(both))
        features = tf.nest.map_structure(lambda part: tf.gather(part, side, batch_dims=1), features)
    real = tf.sequence_mask(lengths, tf.shape(padded)[1])
    return tf.where(real, _log_probs_of(model, features, padded), 0.0)[:, : tf.shape(targets)[1]]


def _log_probs_of(model: Seq2Seq | Ensemble, features: Any, ids: tf.Tensor) -> tf.Tensor:
    """Returns the log-probabilities float32 [B, T] of ids int32 [B, T], given the model's features for them.

    They are computed in chunks of positions: the logits of a whole batch would not fit into memory, and the product for
    a single sentence would be too small to be fast.
    """
    positions = tf.size(ids)
    chunks = (positions + _CHUNK_POSITIONS - 1) // _CHUNK_POSITIONS
    missing = chunks * _CHUNK_POSITIONS - positions

    def chunked(x: tf.Tensor) -> tf.Tensor:
        rows = tf.reshape(x, tf.concat([[positions], tf.shape(x)[2:]], axis=0))
        rows = tf.pad(rows, [[0, missing]] + [[0, 0]] * (rows.shape.rank - 1))
        return tf.reshape(rows, [chunks, _CHUNK_POSITIONS, *x.shape[2:]])

    def chosen(chunk: tuple[Any, tf.Tensor]) -> tf.Tensor:
        logits = model.logits(chunk[0])
        return tf.gather(logits, chunk[1], batch_dims=1) - tf.reduce_logsumexp(logits, axis=-1)

    parts = (tf.nest.map_structure(chunked, features), chunked(ids))
    found = tf.map_fn(chosen, parts, fn_output_signature=tf.TensorSpec([_CHUNK_POSITIONS], tf.float32))
    return tf.reshape(tf.reshape(found, [-1])[:positions], tf.shape(ids))


def _reversed_where(tokens: tf.Tensor, lengths: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
    """Returns tokens [B, T, ...] with the first ``lengths`` int32 [B] reversed in the rows ``which``, bool [B]."""
    return tf.reverse_sequence(tokens, tf.where(which, lengths, 0), seq_axis=1)
