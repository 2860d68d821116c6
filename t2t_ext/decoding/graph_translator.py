"""From strings to strings inside the TensorFlow graph: text encoder, search, text decoder.

The strings are segmented texts (``t2t_ext.data.text_encoder``): as people write them where the text has no steps and is
cut by SentencePiece; otherwise what must happen before and after the graph is the Translator's, or a server's client's.

This module alone translates: the decoder command, BLEU during training and the exported
SavedModel all run these functions, so they cannot disagree.

Legend: B lines, S source positions, T target positions, N hypotheses of a line.
"""

import tensorflow as tf

from t2t_ext.data.graph_text_encoder import graph_encoder
from t2t_ext.data.text_encoder import EOS_ID, PAD_ID, UNK_ID, SubwordEncoder
from t2t_ext.decoding.alignment import AlignmentConfig, align_words, piece_tables, source_attention, words_of
from t2t_ext.decoding.beam_search import MIN_ROWS, Result, beam_search
from t2t_ext.decoding.guided_strategies import guided_strategy
from t2t_ext.decoding.length_penalty import length_penalty
from t2t_ext.decoding.lexical_constraints import Phrases, count_unmet, encode_phrases
from t2t_ext.decoding.search_options import (
    Prefixes,
    encode_prefixes,
    never_produced,
    sampling_strategy,
    search_config,
    search_rules,
)
from t2t_ext.errors import UserError
from t2t_ext.hyperparameters import DecodeHParams
from t2t_ext.models.ensemble import Ensemble
from t2t_ext.models.seq2seq import Seq2Seq

_STRINGS = tf.TensorSpec([None], tf.string)


class GraphTranslator(tf.Module):
    """Translates string tensors; every public function is a ``tf.function`` with one trace."""

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

    @property
    def num_hypotheses(self) -> int:
        """N, the hypotheses returned for a line."""
        return self.decode_hparams.returned

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
        """Finds ``beam_size`` translations of strings [B], best first, or draws ``num_hypotheses`` samples.

        Returns:
          ``outputs`` string, ``scores`` and ``log_probs`` float32, ``lengths`` int32 (tokens with EOS) and
          ``finished`` bool (False: ended by the length limit), each [B, N]. Where the rules leave fewer than N
          translations, the rest have length 0 and a log-probability of about -1e9.
        """
        hparams = self.decode_hparams
        found = self._search(inputs, hparams.num_hypotheses if self.samples else hparams.beam_size)
        return {name: found[name] for name in ("outputs", "scores", "log_probs", "lengths", "finished")}

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def search_batch(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds as many translations of strings [B] as the decode hparams ask for.

        Returns:
          What ``nbest_batch`` returns, and ``ids`` int32 [B, N, T] in the model's direction, with EOS, padded with 0.
        """
        return self._search(inputs, self.num_hypotheses)

    @tf.function(input_signature=[_STRINGS, _STRINGS], autograph=False)
    def search_with_prefix_batch(self, inputs: tf.Tensor, prefixes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds translations of strings [B] that begin with the prefixes, strings [B].

        A prefix's last word may be continued unless a blank follows it; an empty prefix forces nothing.

        Returns:
          As ``search_batch``; log-probabilities and lengths are of the whole translation.

        Raises:
          UserError: The model does not begin at the beginning.
        """
        return self._search(inputs, self.num_hypotheses, prefixes=prefixes)

    @tf.function(input_signature=[_STRINGS, _STRINGS], autograph=False)
    def translate_with_prefix_batch(self, inputs: tf.Tensor, prefixes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates strings [B] as ``translate_batch``; the translations begin as ``search_with_prefix_batch``'s."""
        found = self._search(inputs, 1, prefixes=prefixes)
        return {"outputs": found["outputs"][:, 0], "scores": found["scores"][:, 0]}

    @tf.function(input_signature=[_STRINGS, _STRINGS], autograph=False)
    def search_with_constraints_batch(self, inputs: tf.Tensor, constraints: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds translations of strings [B] that hold the constraints, strings [B] of phrases separated by tabs.

        Returns:
          As ``search_batch``, and ``unmet_constraints`` int32 [B, N], the phrases that a translation lacks: none, but
          where the length limit ended it or no translation can hold them.

        Raises:
          UserError: The decode hparams exclude constraints.
        """
        return self._search(inputs, self.num_hypotheses, constraints=constraints)

    @tf.function(input_signature=[_STRINGS, _STRINGS, _STRINGS], autograph=False)
    def search_with_constraints_and_prefix_batch(
        self, inputs: tf.Tensor, constraints: tf.Tensor, prefixes: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Finds what ``search_with_constraints_batch`` and ``search_with_prefix_batch`` find, both at once."""
        return self._search(inputs, self.num_hypotheses, constraints=constraints, prefixes=prefixes)

    @tf.function(input_signature=[_STRINGS, _STRINGS], autograph=False)
    def translate_with_constraints_batch(self, inputs: tf.Tensor, constraints: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates strings [B] as ``translate_batch``, with the constraints of ``search_with_constraints_batch``.

        Returns:
          ``outputs`` string, ``scores`` float32 and ``unmet_constraints`` int32, each [B].
        """
        found = self._search(inputs, 1, constraints=constraints)
        return {name: found[name][:, 0] for name in ("outputs", "scores", "unmet_constraints")}

    @property
    def can_constrain(self) -> bool:
        """Whether the decode hparams leave room for constraints."""
        return not self.samples and self.decode_hparams.diverse_groups == 1

    @tf.function(input_signature=[_STRINGS, tf.TensorSpec([None], tf.int64)], autograph=False)
    def sample_batch(self, inputs: tf.Tensor, seeds: tf.Tensor) -> dict[str, tf.Tensor]:
        """Draws a translation of each of strings [B]: a function of the string, its seed int64 [B] and the hparams'.

        Returns:
          ``outputs`` string [B], ``scores`` and ``log_probs`` float32 [B].

        Raises:
          UserError: The decode hparams want a search.
        """
        if not self.samples:
            raise UserError("Samples need sampling_method=random in the decode hparams.")
        found = self._search(inputs, 1, seeds=seeds)
        return {name: found[name][:, 0] for name in ("outputs", "scores", "log_probs")}

    @property
    def samples(self) -> bool:
        """Whether translations are drawn instead of searched for."""
        return self.decode_hparams.sampling_method == "random"

    @property
    def can_force_prefix(self) -> bool:
        """Whether the model writes the beginning of a translation first."""
        return self.target_direction == "l2r" and self.model.directions == 1

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

    @tf.function(input_signature=[_STRINGS, _STRINGS], autograph=False)
    def align_batch(self, inputs: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Aligns given translations, strings [B] each, at most max_input_length subwords of them.

        Returns:
          ``alignments`` string [B], ``source-target`` pairs of words in the order of the target words; see
          ``t2t_ext.decoding.alignment``.
        """
        ids = self._target.encode_marked(targets, self.decode_hparams.max_input_length)
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        return self._align(self._marked_source_ids(inputs), self._turned(ids.to_tensor(), lengths - 1))

    @tf.function(input_signature=[_STRINGS, tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def align_ids_batch(self, inputs: tf.Tensor, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Aligns translations given as ids int32 [B, T] (as ``search_batch`` returns them); see ``align_batch``."""
        return self._align(self._marked_source_ids(inputs), ids)

    @property
    def can_align(self) -> bool:
        """Whether the model has the attention that ``alignment`` asks for."""
        try:
            self.align_batch.get_concrete_function()
        except UserError:
            return False
        return True

    # === Parts ===

    def _source_ids(self, lines: tf.Tensor) -> tf.Tensor:
        """Encodes strings [B] as int32 [B, S], at most max_input_length subwords and EOS, S >= 4."""
        return _unmarked(self._marked_source_ids(lines), self.source_encoder)

    def _marked_source_ids(self, lines: tf.Tensor) -> tf.Tensor:
        """Encodes strings as ``_source_ids``, with the marks of ``GraphTokenEncoder.encode_marked``."""
        ids = self._source.encode_marked(lines, self.decode_hparams.max_input_length).to_tensor()
        return tf.pad(ids, [[0, 0], [0, tf.maximum(MIN_ROWS - tf.shape(ids)[1], 0)]])

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

    def _prefixes(self, prefixes: tf.Tensor) -> Prefixes:
        if not self.can_force_prefix:
            raise UserError(
                "Prefixes need a model that begins at the beginning: this one writes right to left"
                + (" as well" if self.model.directions == 2 else " (target_direction=r2l)")
                + ". Leave the prefixes out, or take a run with target_direction=l2r."
            )
        banned = never_produced(self.target_encoder)
        return encode_prefixes(prefixes, self._target, banned, self.decode_hparams.max_input_length)

    def _phrases(self, constraints: tf.Tensor, limits: tf.Tensor) -> Phrases:
        self.decode_hparams.check_constraints()
        turned_round = (self.target_direction == "r2l",) if self.model.directions == 1 else (False, True)
        return encode_phrases(constraints, lambda phrases: self._target.encode(phrases)[:, :-1], limits, turned_round)

    def _search(
        self,
        lines: tf.Tensor,
        num_hypotheses: int,
        *,
        prefixes: tf.Tensor | None = None,
        constraints: tf.Tensor | None = None,
        seeds: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        hparams, directions = self.decode_hparams, self.model.directions
        config = search_config(hparams, num_hypotheses, directions, never_produced(self.target_encoder))
        # A line without a visible character has nothing to translate: it stays as it is not searched for.
        blank = tf.equal(tf.strings.length(tf.strings.strip(lines)), 0)
        ids = self._source_ids(lines)
        limits = tf.where(blank, 1, self._limits(ids))
        batch = tf.shape(lines)[0]
        missing = tf.maximum(-(-MIN_ROWS // config.beam_size) - batch, 0)
        ids, limits = tf.pad(ids, [[0, missing], [0, 0]]), tf.pad(limits, [[0, missing]], constant_values=1)
        if prefixes is not None:
            prefixes = self._prefixes(tf.pad(prefixes, [[0, missing]], constant_values=""))
        if seeds is not None:
            seeds = tf.pad(seeds, [[0, missing]])
        rules = search_rules(hparams, ids, directions, self.target_encoder, prefixes)
        phrases = None
        if constraints is not None:
            phrases = self._phrases(tf.pad(constraints, [[0, missing]], constant_values=""), limits)
        strategy = sampling_strategy(hparams, ids, seeds) or guided_strategy(hparams, directions, phrases)
        with_attention = any(rule.needs_attention for rule in rules)
        step = self.model.step_with_attention if with_attention else self.model.step
        found = beam_search(step, self.model.start(ids), limits, config, rules, strategy)
        unmet = None if phrases is None else count_unmet(phrases, found.ids, found.directions)[:batch]
        found = Result(*(part[:batch] for part in found))
        blank = blank[:, tf.newaxis]
        return {
            **({} if unmet is None else {"unmet_constraints": unmet}),
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
        """Turns the first ``lengths`` [B] of the tokens [B, T, ...] round, if the model writes right to left."""
        if self.target_direction != "r2l":
            return tokens
        return tf.reverse_sequence(tokens, lengths, seq_axis=1)

    def _align(self, source: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Aligns source ids int32 [B, S] with target ids int32 [B, T] in the model's direction, with or without EOS.

        Both may hold the marks of ``GraphTokenEncoder.encode_marked``.
        """
        targets = tf.pad(targets, [[0, 0], [0, tf.maximum(MIN_ROWS - tf.shape(targets)[1], 0)]])
        attention = source_attention(
            self.model,
            _unmarked(source, self.source_encoder),
            _unmarked(targets, self.target_encoder),
            self.alignment,
        )
        spoken = tf.not_equal(targets, PAD_ID) & tf.not_equal(targets, EOS_ID)
        lengths = tf.reduce_sum(tf.cast(spoken, tf.int32), axis=1)
        source_words = words_of(source, piece_tables(self.source_encoder))
        target_words = words_of(self._turned(targets, lengths), piece_tables(self.target_encoder))
        return {"alignments": align_words(self._turned(attention, lengths), source_words, target_words)}

    def _score(self, source: tf.Tensor, targets: tf.Tensor, lengths: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores target ids int32 [B, T] in the model's direction, ``lengths`` int32 [B] of them with EOS."""
        width = tf.maximum(tf.shape(targets)[1], MIN_ROWS)
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


def _unmarked(ids: tf.Tensor, encoder: SubwordEncoder) -> tf.Tensor:
    """Returns ids without the marks of ``GraphTokenEncoder.encode_marked``."""
    return ids if encoder.cut_by_graph else tf.where(ids >= encoder.vocab_size, UNK_ID, ids)
