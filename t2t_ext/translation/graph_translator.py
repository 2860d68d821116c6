"""From strings to strings inside the TensorFlow graph: text encoder, search, text decoder.

The strings are segmented texts (``t2t_ext.data.text.text_encoder``): as people write them where the text has no steps
and is cut by SentencePiece; otherwise what must happen before and after the graph is the Translator's, or a server's
client's.

This module alone translates: the decoder command, BLEU during training and the exported
SavedModel all run these functions, so they cannot disagree.

Legend: B lines, S source positions, T target positions, N hypotheses of a line.
"""

import tensorflow as tf

from t2t_ext.data.text.text_encoder import PAD_ID
from t2t_ext.errors import UserError
from t2t_ext.layers.gradients import forward_only
from t2t_ext.layers.masks import words_of_source
from t2t_ext.search.beam_search import MIN_ROWS, Result, at_least_wide, beam_search
from t2t_ext.search.directions import check_prefixes
from t2t_ext.search.guided_strategies import guided_strategy
from t2t_ext.search.lexical_constraints import Phrases, count_unmet, encode_phrases
from t2t_ext.search.recompute import WholePrefixes
from t2t_ext.search.search_options import (
    Prefixes,
    encode_prefixes,
    never_produced,
    sampling_strategy,
    search_config,
    search_rules,
)
from t2t_ext.translation.forced_decoding import ForcedDecoder

_STRINGS = tf.TensorSpec([None], tf.string)


class GraphTranslator(ForcedDecoder):
    """Translates string tensors; every public function is a ``tf.function`` with one trace."""

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
          What ``nbest_batch`` returns, ``ids`` int32 [B, N, T] in the order in which they were written, with EOS,
          padded with 0, and ``directions`` int32 [B, N]: 0 where they were written left to right, 1 right to left.
        """
        return self._search(inputs, self.num_hypotheses)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def search_ids_batch(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds translations of sources given as ids int32 [B, S] with EOS, padded with 0, none of them cut.

        Returns:
          As ``search_batch``. A source without any token but EOS has nothing to translate.
        """
        ids = at_least_wide(ids)
        return self._search_ids(ids, ~tf.reduce_any(words_of_source(ids), axis=1), self.num_hypotheses)

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

    # === Parts ===

    def _blank(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns which of strings [B] have nothing to translate, since no character is visible: bool [B]."""
        return tf.equal(tf.strings.length(tf.strings.strip(inputs)), 0)

    def _source_lengths(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns how many tokens, without EOS, each row of source ids int32 [B, S] has: int32 [B]."""
        return tf.reduce_sum(tf.cast(tf.not_equal(ids, PAD_ID), tf.int32), axis=1) - 1

    def _limits(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the most target tokens (with EOS) of each sentence, int32 [B], from its source ids int32 [B, S]."""
        hparams = self.decode_hparams
        lengths = self._source_lengths(ids)
        if hparams.length_limit == "extra":
            limits = lengths + 1 + hparams.extra_length  # T2T counts the source with its EOS
        else:
            limits = tf.cast(hparams.max_length_ratio * tf.cast(lengths, tf.float32), tf.int32)
            limits += hparams.max_length_offset
        return tf.maximum(limits, 1)

    def _prefixes(self, prefixes: tf.Tensor) -> Prefixes:
        check_prefixes(self.model.directions, self.target_direction)
        banned = never_produced(self.target_encoder)
        return encode_prefixes(prefixes, self._target, banned, self.decode_hparams.max_input_length)

    def _phrases(self, constraints: tf.Tensor, limits: tf.Tensor) -> Phrases:
        self.decode_hparams.check_constraints()
        turned_round = self._turned_round()
        return encode_phrases(constraints, lambda phrases: self._target.encode(phrases)[:, :-1], limits, turned_round)

    def _turned_round(self) -> tuple[bool, ...]:
        """Returns of each direction whether it writes right to left."""
        return (self.target_direction == "r2l",) if self.model.directions == 1 else (False, True)

    def _search(
        self,
        lines: tf.Tensor,
        num_hypotheses: int,
        *,
        prefixes: tf.Tensor | None = None,
        constraints: tf.Tensor | None = None,
        seeds: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        # A line that has nothing to translate stays: it is not searched for.
        return self._search_ids(
            self._source_ids(lines),
            self._blank(lines),
            num_hypotheses,
            prefixes=prefixes,
            constraints=constraints,
            seeds=seeds,
        )

    @forward_only()
    def _search_ids(
        self,
        ids: tf.Tensor,
        blank: tf.Tensor,
        num_hypotheses: int,
        *,
        prefixes: tf.Tensor | None = None,
        constraints: tf.Tensor | None = None,
        seeds: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Searches for source ids int32 [B, S], or features float32 [B, S, F], S >= 4.

        ``blank`` bool [B] says which have nothing to translate.
        """
        hparams, directions = self.decode_hparams, self.model.directions
        config = search_config(hparams, num_hypotheses, directions, never_produced(self.target_encoder))
        limits = tf.where(blank, 1, self._limits(ids))
        batch = tf.shape(ids)[0]
        missing = tf.maximum(-(-MIN_ROWS // config.beam_size) - batch, 0)
        rows = [[0, missing], *[[0, 0]] * (ids.shape.rank - 1)]
        ids, limits = tf.pad(ids, rows), tf.pad(limits, [[0, missing]], constant_values=1)
        if prefixes is not None:
            prefixes = self._prefixes(tf.pad(prefixes, [[0, missing]], constant_values=""))
        if seeds is not None:
            seeds = tf.pad(seeds, [[0, missing]])
        rules = search_rules(hparams, ids, self._turned_round(), self.target_encoder, prefixes)
        phrases = None
        if constraints is not None:
            phrases = self._phrases(tf.pad(constraints, [[0, missing]], constant_values=""), limits)
        strategy = sampling_strategy(hparams, ids, seeds) or guided_strategy(hparams, directions, phrases)
        with_attention = any(rule.needs_attention for rule in rules)
        stepper = WholePrefixes(self.model, config) if hparams.sb_decode == "recompute" else self.model
        step = stepper.step_with_attention if with_attention else stepper.step
        found = beam_search(step, stepper.start(ids), limits, config, rules, strategy)
        unmet = None if phrases is None else count_unmet(phrases, found.ids, found.directions)[:batch]
        found = Result(*(part[:batch] for part in found))
        right_to_left = self._right_to_left(found.directions)
        blank = blank[:, tf.newaxis]
        return {
            **({} if unmet is None else {"unmet_constraints": unmet}),
            "outputs": tf.where(blank, "", self._to_text(found, right_to_left)),
            "scores": tf.where(blank, 0.0, found.scores),
            "log_probs": tf.where(blank, 0.0, found.log_probs),
            "lengths": tf.where(blank, 0, found.lengths),
            "finished": blank | found.finished,
            "ids": tf.where(blank[..., tf.newaxis], PAD_ID, found.ids),
            "directions": tf.cast(right_to_left, tf.int32),
        }

    def _right_to_left(self, directions: tf.Tensor) -> tf.Tensor:
        """Returns which hypotheses were written right to left, bool, from the search's directions int32."""
        if self.model.directions == 2:
            return tf.equal(directions, 1)
        return tf.fill(tf.shape(directions), self.target_direction == "r2l")

    def _to_text(self, found: Result, right_to_left: tf.Tensor) -> tf.Tensor:
        """Decodes the hypotheses of a search, those of bool [B, N] turned round, to strings [B, N]."""
        shape = tf.shape(found.lengths)
        lengths = tf.reshape(found.lengths - tf.cast(found.finished, tf.int32), [-1])
        ids = tf.reshape(found.ids, [shape[0] * shape[1], tf.shape(found.ids)[2]])
        if self.model.directions == 2 or self.target_direction == "r2l":
            ids = tf.reverse_sequence(ids, tf.where(tf.reshape(right_to_left, [-1]), lengths, 0), seq_axis=1)
        text = self._target.decode(tf.RaggedTensor.from_tensor(ids, lengths=lengths))
        return tf.reshape(text, shape)
