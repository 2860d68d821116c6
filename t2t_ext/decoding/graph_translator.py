"""From strings to strings inside the TensorFlow graph: text encoder, search, text decoder.

This module alone translates: the decoder command, BLEU during training and the exported
SavedModel all run these functions, so they cannot disagree.

Legend: B lines, S source positions, T target positions, N hypotheses of a line.
"""

import tensorflow as tf

from t2t_ext.data.graph_text_encoder import GraphSubwordEncoder
from t2t_ext.data.text_encoder import PAD_ID, UNK_ID, SubwordEncoder
from t2t_ext.decoding.beam_search import Result, SearchConfig, beam_search
from t2t_ext.decoding.length_penalty import length_penalty
from t2t_ext.hyperparameters import DecodeHParams
from t2t_ext.models.seq2seq import Seq2Seq

# Products over fewer rows than this may round differently from the same rows of larger products.
_MIN_ROWS = 4
_STRINGS = tf.TensorSpec([None], tf.string)


class GraphTranslator(tf.Module):
    """Translates string tensors; every public function is a ``tf.function`` with one trace."""

    def __init__(
        self,
        model: Seq2Seq,
        source_encoder: SubwordEncoder,
        target_encoder: SubwordEncoder,
        decode_hparams: DecodeHParams | None = None,
        target_direction: str = "l2r",
    ) -> None:
        """Initialises the translator.

        Args:
          model: A built model; its variables are read at every call, not copied.
          source_encoder: Text encoder of the source.
          target_encoder: Text encoder of the target.
          decode_hparams: How to search; None: the defaults.
          target_direction: ``r2l`` for a model whose targets were trained right to left: its output is turned round.
        """
        super().__init__(name="translator")
        self.model = model
        self.source_encoder, self.target_encoder = source_encoder, target_encoder
        self.decode_hparams = decode_hparams or DecodeHParams()
        self.target_direction = target_direction
        self._source = GraphSubwordEncoder(source_encoder.model_bytes, name="source_encoder")
        same = source_encoder.sha256 == target_encoder.sha256
        self._target = self._source if same else GraphSubwordEncoder(target_encoder.model_bytes, name="target_encoder")

    @property
    def num_hypotheses(self) -> int:
        """N, the hypotheses returned for a line."""
        return self.decode_hparams.beam_size if self.decode_hparams.return_beams else self.decode_hparams.num_hypotheses

    # === Graph functions ===

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def translate_batch(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates strings [B].

        Returns:
          ``outputs`` string [B] and ``scores`` float32 [B], log-probability over length penalty.
        """
        found = self._search(inputs, 1)
        return {"outputs": found["outputs"][:, 0], "scores": found["scores"][:, 0]}

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def nbest_batch(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds ``beam_size`` translations of strings [B], best first.

        Returns:
          ``outputs`` string, ``scores`` and ``log_probs`` float32, ``lengths`` int32 (tokens with EOS) and
          ``finished`` bool (False: ended by the length limit), each [B, N].
        """
        found = self._search(inputs, self.decode_hparams.beam_size)
        return {name: found[name] for name in ("outputs", "scores", "log_probs", "lengths", "finished")}

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def search_batch(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds as many translations of strings [B] as the decode hparams ask for.

        Returns:
          What ``nbest_batch`` returns, and ``ids`` int32 [B, N, T] in the model's direction, with EOS, padded with 0.
        """
        return self._search(inputs, self.num_hypotheses)

    @tf.function(input_signature=[_STRINGS, _STRINGS], autograph=False)
    def score_batch(self, inputs: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores given translations, strings [B] each (forced decoding), at most max_input_length subwords of them.

        Returns:
          ``log_probs`` float32 [B], ``lengths`` int32 [B] (tokens with EOS) and ``scores`` float32 [B], and
          ``token_log_probs`` float32 [B, T] in text order, 0 after the end.
        """
        ids = self._target.encode(targets, self.decode_hparams.max_input_length)
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        scored = self._score(self._source_ids(inputs), self._turned(ids.to_tensor(), lengths - 1), lengths)
        scored["token_log_probs"] = self._turned(scored["token_log_probs"], lengths - 1)
        return scored

    @tf.function(input_signature=[_STRINGS, tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def score_ids_batch(self, inputs: tf.Tensor, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores translations given as ids int32 [B, T] (as ``search_batch`` returns them); see ``score_batch``."""
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(ids, PAD_ID), tf.int32), axis=1)
        return self._score(self._source_ids(inputs), ids, lengths)

    # === Parts ===

    def _source_ids(self, lines: tf.Tensor) -> tf.Tensor:
        """Encodes strings [B] as int32 [B, S], at most max_input_length subwords and EOS, S >= 4."""
        ids = self._source.encode(lines, self.decode_hparams.max_input_length).to_tensor()
        return tf.pad(ids, [[0, 0], [0, tf.maximum(_MIN_ROWS - tf.shape(ids)[1], 0)]])

    def _limits(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the most target tokens (with EOS) of each sentence, int32 [B], from its source ids int32 [B, S]."""
        hparams = self.decode_hparams
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(ids, PAD_ID), tf.int32), axis=1) - 1
        if hparams.length_limit == "extra":
            limits = lengths + 1 + hparams.extra_length  # T2T counts the source with its EOS
        else:
            limits = tf.cast(hparams.max_length_ratio * tf.cast(lengths, tf.float32), tf.int32)
            limits += hparams.max_length_offset
        return tf.maximum(limits, 1)

    def _banned(self) -> tuple[int, ...]:
        """Ids that are never produced: PAD, UNK and the control symbols."""
        return (PAD_ID, UNK_ID, *self.target_encoder.control_ids)

    def _search(self, lines: tf.Tensor, num_hypotheses: int) -> dict[str, tf.Tensor]:
        hparams = self.decode_hparams
        config = SearchConfig(
            beam_size=hparams.beam_size,
            num_hypotheses=num_hypotheses,
            directions=self.model.directions,
            alpha=hparams.alpha,
            penalty=hparams.length_penalty,
            banned=self._banned(),
        )
        # A line without a visible character has nothing to translate: it stays as it is not searched for.
        blank = tf.equal(tf.strings.length(tf.strings.strip(lines)), 0)
        ids = self._source_ids(lines)
        limits = tf.where(blank, 1, self._limits(ids))
        batch = tf.shape(lines)[0]
        missing = tf.maximum(-(-_MIN_ROWS // config.beam_size) - batch, 0)
        ids, limits = tf.pad(ids, [[0, missing], [0, 0]]), tf.pad(limits, [[0, missing]], constant_values=1)
        found = beam_search(self.model.step, self.model.start(ids), limits, config)
        found = Result(*(part[:batch] for part in found))
        blank = blank[:, tf.newaxis]
        return {
            "outputs": tf.where(blank, "", self._to_text(found)),
            "scores": tf.where(blank, 0.0, found.scores),
            "log_probs": tf.where(blank, 0.0, found.log_probs),
            "lengths": tf.where(blank, 0, found.lengths),
            "finished": blank | found.finished,
            "ids": tf.where(blank[..., tf.newaxis], PAD_ID, found.ids),
        }

    def _to_text(self, found: Result) -> tf.Tensor:
        """Decodes the hypotheses of a search to strings [B, N]."""
        shape = tf.shape(found.lengths)
        lengths = tf.reshape(found.lengths - tf.cast(found.finished, tf.int32), [-1])
        ids = tf.reshape(found.ids, [shape[0] * shape[1], tf.shape(found.ids)[2]])
        text = self._target.decode(tf.RaggedTensor.from_tensor(self._turned(ids, lengths), lengths=lengths))
        return tf.reshape(text, shape)

    def _turned(self, tokens: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Turns the first ``lengths`` [B] of the tokens [B, T] round, if the model writes right to left."""
        if self.target_direction != "r2l":
            return tokens
        return tf.reverse_sequence(tokens, lengths, seq_axis=1)

    def _score(self, source: tf.Tensor, targets: tf.Tensor, lengths: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores target ids int32 [B, T] in the model's direction, ``lengths`` int32 [B] of them with EOS."""
        width = tf.maximum(tf.shape(targets)[1], _MIN_ROWS)
        padded = tf.pad(targets, [[0, 0], [0, width - tf.shape(targets)[1]]])

        def chosen_of_sentence(sentence: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            features, ids = sentence
            logits = self.model.logits(features)
            return tf.gather(logits, ids, batch_dims=1) - tf.reduce_logsumexp(logits, axis=-1)

        # Sentence by sentence: the logits of a whole batch of long sentences would not fit into memory.
        features = self.model.features(source, padded)
        chosen = tf.map_fn(
            chosen_of_sentence, (features, padded), fn_output_signature=tf.TensorSpec([None], tf.float32)
        )
        real = tf.sequence_mask(lengths, width)
        token_log_probs = tf.where(real, chosen, 0.0)[:, : tf.shape(targets)[1]]
        log_probs = tf.reduce_sum(token_log_probs, axis=1)
        penalty = length_penalty(lengths, self.decode_hparams.alpha, self.decode_hparams.length_penalty)
        return {
            "log_probs": log_probs,
            "lengths": lengths,
            "scores": log_probs / penalty,
            "token_log_probs": token_log_probs,
        }
