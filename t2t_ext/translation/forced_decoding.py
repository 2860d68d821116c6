"""What a model makes of translations that are given: their probability, and their words' counterparts in the source.

A forced pass over one direction needs the translation alone. Where a model writes in two directions that look at each
other, what it says of a translation depends on what the other side writes: both must be given.

Legend: B lines, S source positions, T target positions.
"""

from typing import Any

import tensorflow as tf

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.text.graph_text_encoder import graph_encoder
from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID, UNK_ID, SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.layers.gradients import forward_only
from t2t_ext.models.ensemble import Ensemble
from t2t_ext.models.seq2seq import Seq2Seq
from t2t_ext.search.beam_search import at_least_wide
from t2t_ext.search.directions import refuse_one_side
from t2t_ext.search.length_penalty import length_penalty
from t2t_ext.translation.alignment import AlignmentConfig, align_words, piece_tables, source_attention, words_of

_STRINGS = tf.TensorSpec([None], tf.string)
_IDS = tf.TensorSpec([None, None], tf.int32)
# Positions whose logits are computed at once: enough rows for a fast product, few enough to stay in the cache.
_CHUNK_POSITIONS = 256
_FLAGS = tf.TensorSpec([None], tf.bool)
_SIDES = [_STRINGS, _STRINGS, _STRINGS, _FLAGS]


class ForcedDecoder(tf.Module):
    """Scores and aligns string tensors; every public function is a ``tf.function`` with one trace."""

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        source_encoder: SubwordEncoder,
        target_encoder: SubwordEncoder,
        decode_hparams: DecodeHParams | None = None,
        target_direction: str = "l2r",
        alignment: AlignmentConfig | None = None,
    ) -> None:
        """Initialises the translator.

        Args:
          model: A built model, or an ensemble; its variables are read at every call, not copied.
          source_encoder: Text encoder of the source.
          target_encoder: Text encoder of the target.
          decode_hparams: How to search; None: the defaults.
          target_direction: ``r2l`` for a model whose targets were trained right to left: its output is turned round.
          alignment: Which attention word alignments are read from; None: the defaults.
        """
        super().__init__(name="translator")
        self.model = model
        self.source_encoder, self.target_encoder = source_encoder, target_encoder
        self.decode_hparams = decode_hparams or DecodeHParams()
        self.target_direction = target_direction
        self.alignment = alignment or AlignmentConfig()
        self._source = graph_encoder(source_encoder, "source_encoder")
        same = source_encoder.ids_sha256 == target_encoder.ids_sha256
        self._target = self._source if same else graph_encoder(target_encoder, "target_encoder")

    # === Graph functions ===

    @tf.function(input_signature=[_STRINGS, _STRINGS], autograph=False)
    def score_batch(self, inputs: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores given translations, strings [B] each (forced decoding), at most max_input_length subwords of them.

        Returns:
          ``log_probs`` float32 [B], ``lengths`` int32 [B] (tokens with EOS) and ``scores`` float32 [B], and
          ``token_log_probs`` float32 [B, T] in text order, 0 after the end.

        Raises:
          UserError: The model writes in two directions; ``score_sides_batch`` is for those.
        """
        if self.two_sided:
            refuse_one_side("score", "score(pairs, partners=...)")
        ids, lengths = self._target_ids(targets)
        scored = self._score(self._source_ids(inputs), self._turned(ids, lengths - 1), lengths)
        scored["token_log_probs"] = self._turned(scored["token_log_probs"], lengths - 1)
        return scored

    @tf.function(input_signature=_SIDES, autograph=False)
    def score_sides_batch(
        self, inputs: tf.Tensor, targets: tf.Tensor, partners: tf.Tensor, right_to_left: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Scores translations, strings [B], by a model of two directions while the other one writes ``partners``.

        Args:
          inputs: Sources, strings [B].
          targets: Translations, strings [B].
          partners: What the other direction writes, strings [B] in text order.
          right_to_left: bool [B], whether the translation is what is written right to left, else left to right.

        Returns:
          As ``score_batch``, of the translations.

        Raises:
          UserError: The model writes in one direction.
        """
        self._check_two_sided()
        both, ids, lengths = self._both_sides(targets, partners, right_to_left)
        scored = self._score(self._source_ids(inputs), ids, lengths, both, right_to_left)
        scored["token_log_probs"] = _turned_where(scored["token_log_probs"], lengths - 1, right_to_left)
        return scored

    @tf.function(input_signature=[_STRINGS, _IDS], autograph=False)
    def score_ids_batch(self, inputs: tf.Tensor, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores translations given as ids int32 [B, T] (as ``search_batch`` returns them); see ``score_batch``."""
        if self.two_sided:
            refuse_one_side("score", "score(pairs, partners=...)")
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(ids, PAD_ID), tf.int32), axis=1)
        return self._score(self._source_ids(inputs), ids, lengths)

    @tf.function(input_signature=[_STRINGS, tf.TensorSpec([None, 2, None], tf.int32), _FLAGS], autograph=False)
    def score_sides_ids_batch(
        self, inputs: tf.Tensor, both: tf.Tensor, right_to_left: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Scores one side of what both directions write, ids int32 [B, 2, T] as they are written; see ``score_batch``.

        Args:
          inputs: Sources, strings [B].
          both: Side 0 from left to right, side 1 from right to left, with EOS, padded with PAD.
          right_to_left: bool [B], whether it is side 1 that is scored.

        Returns:
          As ``score_batch``, ``token_log_probs`` in the order of writing.

        Raises:
          UserError: The model writes in one direction.
        """
        self._check_two_sided()
        own = tf.where(right_to_left[:, tf.newaxis], both[:, 1], both[:, 0])
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(own, PAD_ID), tf.int32), axis=1)
        return self._score(self._source_ids(inputs), own, lengths, both, right_to_left)

    @tf.function(input_signature=[_STRINGS, _STRINGS], autograph=False)
    def align_batch(self, inputs: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Aligns given translations, strings [B] each, at most max_input_length subwords of them.

        Returns:
          ``alignments`` string [B], ``source-target`` pairs of words in the order of the target words; see
          ``t2t_ext.translation.alignment``.

        Raises:
          UserError: The model has no such attention, or writes in two directions: see ``align_sides_batch``.
        """
        if self.two_sided:
            refuse_one_side("alignment", "align(pairs, partners=...)")
        ids, lengths = self._target_ids(targets, marked=True)
        return self._align(self._marked_source_ids(inputs), self._turned(ids, lengths - 1))

    @tf.function(input_signature=_SIDES, autograph=False)
    def align_sides_batch(
        self, inputs: tf.Tensor, targets: tf.Tensor, partners: tf.Tensor, right_to_left: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Aligns translations by a model of two directions; arguments as of ``score_sides_batch``."""
        self._check_two_sided()
        both, ids, _ = self._both_sides(targets, partners, right_to_left, marked=True)
        return self._align(self._marked_source_ids(inputs), ids, both, right_to_left)

    @tf.function(input_signature=[_STRINGS, _IDS], autograph=False)
    def align_ids_batch(self, inputs: tf.Tensor, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Aligns translations given as ids int32 [B, T] (as ``search_batch`` returns them); see ``align_batch``."""
        if self.two_sided:
            refuse_one_side("alignment", "align(pairs, partners=...)")
        return self._align(self._marked_source_ids(inputs), ids)

    @property
    def can_align(self) -> bool:
        """Whether translations can be aligned by themselves, with the attention that ``alignment`` asks for."""
        try:
            self.align_batch.get_concrete_function()
        except UserError:
            return False
        return True

    @property
    def two_sided(self) -> bool:
        """Whether the model writes in two directions at once that look at each other."""
        return self.model.directions == 2

    # === Parts ===

    def _check_two_sided(self) -> None:
        if not self.two_sided:
            raise UserError(
                "Partners are what the other direction of a synchronous model writes, but this model writes in one "
                "direction: leave them out."
            )

    def _source_ids(self, lines: tf.Tensor) -> tf.Tensor:
        """Encodes strings [B] as int32 [B, S], at most max_input_length subwords and EOS, S >= 4."""
        return _unmarked(self._marked_source_ids(lines), self.source_encoder)

    def _marked_source_ids(self, lines: tf.Tensor) -> tf.Tensor:
        """Encodes strings as ``_source_ids``, with the marks of ``GraphTokenEncoder.encode_marked``."""
        ids = self._source.encode_marked(lines, self.decode_hparams.max_input_length).to_tensor()
        return at_least_wide(ids)

    def _target_ids(self, targets: tf.Tensor, *, marked: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Encodes strings [B] as int32 [B, T] in text order, with EOS, and their lengths int32 [B] with EOS."""
        encode = self._target.encode_marked if marked else self._target.encode
        ids = encode(targets, self.decode_hparams.max_input_length)
        return ids.to_tensor(), tf.cast(ids.row_lengths(), tf.int32)

    def _both_sides(
        self, targets: tf.Tensor, partners: tf.Tensor, right_to_left: tf.Tensor, *, marked: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Encodes what both directions write.

        Returns:
          Both as they are written, int32 [B, 2, T]; the translations as they are written, int32 [B, T]; their lengths
          int32 [B] with EOS.
        """
        texts = [tf.where(right_to_left, partners, targets), tf.where(right_to_left, targets, partners)]
        (left, left_lengths), (right, right_lengths) = (self._target_ids(text, marked=marked) for text in texts)
        right = tf.reverse_sequence(right, right_lengths - 1, seq_axis=1)
        width = tf.maximum(tf.shape(left)[1], tf.shape(right)[1])
        left, right = (tf.pad(side, [[0, 0], [0, width - tf.shape(side)[1]]]) for side in (left, right))
        own = tf.where(right_to_left[:, tf.newaxis], right, left)
        return tf.stack([left, right], axis=1), own, tf.where(right_to_left, right_lengths, left_lengths)

    def _turned(self, tokens: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Turns the first ``lengths`` [B] of the tokens [B, T, ...] round, if the model writes right to left."""
        if self.target_direction != "r2l":
            return tokens
        return tf.reverse_sequence(tokens, lengths, seq_axis=1)

    @forward_only()
    def _align(
        self,
        source: tf.Tensor,
        targets: tf.Tensor,
        both: tf.Tensor | None = None,
        right_to_left: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Aligns source ids int32 [B, S] with target ids int32 [B, T] as they are written, with or without EOS.

        They may hold the marks of ``GraphTokenEncoder.encode_marked``. Of a model of two directions, ``both`` int32
        [B, 2, T] are the sides, and ``right_to_left`` bool [B] says which one is aligned.
        """
        targets = at_least_wide(targets)
        attention = source_attention(
            self.model,
            _unmarked(source, self.source_encoder),
            _unmarked(targets if both is None else at_least_wide(both), self.target_encoder),
            self.alignment,
            right_to_left,
        )
        spoken = tf.not_equal(targets, PAD_ID) & tf.not_equal(targets, EOS_ID)
        lengths = tf.reduce_sum(tf.cast(spoken, tf.int32), axis=1)
        if right_to_left is None:
            right_to_left = tf.fill(tf.shape(lengths), self.target_direction == "r2l")
        source_words = words_of(source, piece_tables(self.source_encoder))
        target_words = words_of(_turned_where(targets, lengths, right_to_left), piece_tables(self.target_encoder))
        attention = _turned_where(attention, lengths, right_to_left)
        return {"alignments": align_words(attention, source_words, target_words)}

    @forward_only()
    def _score(
        self,
        source: tf.Tensor,
        targets: tf.Tensor,
        lengths: tf.Tensor,
        both: tf.Tensor | None = None,
        right_to_left: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Scores target ids int32 [B, T] as they are written, ``lengths`` int32 [B] of them with EOS.

        Of a model of two directions, ``both`` int32 [B, 2, T] are the sides, and ``right_to_left`` bool [B] says which
        one is scored.
        """
        by_token = token_log_probs(self.model, source, targets, lengths, both, right_to_left)
        log_probs = tf.reduce_sum(by_token, axis=1)
        penalty = length_penalty(lengths, self.decode_hparams.alpha, self.decode_hparams.length_penalty)
        return {
            "log_probs": log_probs,
            "lengths": lengths,
            "scores": log_probs / penalty,
            "token_log_probs": by_token,
        }


def token_log_probs(
    model: Seq2Seq | Ensemble,
    source: tf.Tensor,
    targets: tf.Tensor,
    lengths: tf.Tensor,
    both: tf.Tensor | None = None,
    right_to_left: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns what a model makes of given tokens, in one pass over whole sequences.

    Args:
      model: The model.
      source: int32 [B, S], or features float32 [B, S, F].
      targets: int32 [B, T] as they are written, with EOS.
      lengths: int32 [B], how many of them count.
      both: Of a model of two directions the sides int32 [B, 2, T], one of which are the targets.
      right_to_left: bool [B], which one.

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
    """Returns the log-probabilities float32 [B, T] of ids int32 [B, T] from the model's features of them.

    In chunks of positions: the logits of a whole batch would not fit into memory, those of a sentence are too small
    a product.
    """
    positions = tf.size(ids)
    chunks = (positions + _CHUNK_POSITIONS - 1) // _CHUNK_POSITIONS
    missing = chunks * _CHUNK_POSITIONS - positions

    def cut(x: tf.Tensor) -> tf.Tensor:
        rows = tf.reshape(x, tf.concat([[positions], tf.shape(x)[2:]], axis=0))
        rows = tf.pad(rows, [[0, missing]] + [[0, 0]] * (rows.shape.rank - 1))
        return tf.reshape(rows, [chunks, _CHUNK_POSITIONS, *x.shape[2:]])

    def chosen(chunk: tuple[Any, tf.Tensor]) -> tf.Tensor:
        logits = model.logits(chunk[0])
        return tf.gather(logits, chunk[1], batch_dims=1) - tf.reduce_logsumexp(logits, axis=-1)

    cuts = (tf.nest.map_structure(cut, features), cut(ids))
    found = tf.map_fn(chosen, cuts, fn_output_signature=tf.TensorSpec([_CHUNK_POSITIONS], tf.float32))
    return tf.reshape(tf.reshape(found, [-1])[:positions], tf.shape(ids))


def _turned_where(tokens: tf.Tensor, lengths: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
    """Turns the first ``lengths`` int32 [B] of the tokens [B, T, ...] round where ``which`` bool [B] says so."""
    return tf.reverse_sequence(tokens, tf.where(which, lengths, 0), seq_axis=1)


def _unmarked(ids: tf.Tensor, encoder: SubwordEncoder) -> tf.Tensor:
    """Returns ids without the marks of ``GraphTokenEncoder.encode_marked``."""
    return ids if encoder.cut_by_graph else tf.where(ids >= encoder.vocab_size, UNK_ID, ids)
