"""The search for translations: decode hparams, rules and strategies put to work on a model.

This module alone searches: the decoder command, BLEU during training and the exported SavedModel all run it, so they
cannot disagree.

Legend: B sentences, S source positions, T target positions, N hypotheses of a sentence.
"""

from typing import Any

import tensorflow as tf

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.text.text_encoder import PAD_ID
from t2t_ext.errors import UserError
from t2t_ext.layers.gradients import forward_only
from t2t_ext.layers.masks import words_of_source
from t2t_ext.models.ensemble import Ensemble
from t2t_ext.models.seq2seq import Seq2Seq
from t2t_ext.search.beam_search import MIN_ROWS, Result, at_least_wide, beam_search
from t2t_ext.search.directions import check_prefixes
from t2t_ext.search.guided_strategies import guided_strategy
from t2t_ext.search.lexical_constraints import count_unmet, encode_phrases
from t2t_ext.search.recompute import WholePrefixes
from t2t_ext.search.search_options import (
    encode_prefixes,
    never_produced,
    sampling_strategy,
    search_config,
    search_rules,
)
from t2t_ext.translation.codec import TextCodec


class Searcher:
    """Searches for translations of encoded sources, inside the graph."""

    def __init__(
        self, model: Seq2Seq | Ensemble, target: TextCodec, decode_hparams: DecodeHParams, target_direction: str
    ) -> None:
        """Takes what a search needs.

        Args:
          model: A built model, or an ensemble.
          target: The codec of the target.
          decode_hparams: How to search.
          target_direction: ``r2l`` for a model that generates right to left: its output is reversed.
        """
        self._model, self._target, self._hparams = model, target, decode_hparams
        self._target_direction = target_direction

    @forward_only()
    def search(
        self,
        sources: tf.Tensor,
        empty: tf.Tensor,
        num_hypotheses: int,
        *,
        prefixes: tf.Tensor | None = None,
        constraints: tf.Tensor | None = None,
        seeds: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Finds translations.

        Args:
          sources: Ids int32 [B, S] with EOS, padded with PAD, or features float32 [B, S, F].
          empty: bool [B], which have nothing to translate and stay empty.
          num_hypotheses: N.
          prefixes: Segmented strings [B] that the translations begin with. The last word may be continued unless
            whitespace follows it; an empty prefix forces nothing.
          constraints: Segmented strings [B] of phrases, separated by tabs, that the translations must contain.
          seeds: int64 [B]; a sample is a function of the source, its seed and that of the decode hparams.

        Returns:
          Best first, in drawing order for samples: ``outputs`` string, ``scores`` (log-probability over length penalty)
          and ``log_probs`` float32, ``lengths`` int32 (tokens with EOS), ``finished`` bool (False: truncated at the
          length limit) and ``directions`` int32 (0: left to right, 1: right to left), each [B, N]; ``ids`` int32
          [B, N, T] in the order in which they were generated, with EOS, padded with PAD; with constraints
          ``unmet_constraints`` int32 [B, N], the phrases that a translation lacks. Where the rules leave fewer than N
          translations, the rest have length 0 and a log-probability of about -1e9.

        Raises:
          UserError: The model or the decode hparams exclude prefixes, constraints or seeds.
        """
        hparams, directions = self._hparams, self._model.directions
        banned = never_produced(self._target.encoder)
        config = search_config(hparams, num_hypotheses, directions, banned)
        if seeds is not None and hparams.sampling_method != "random":
            raise UserError("Samples need sampling_method=random in the decode hparams.")
        sources = at_least_wide(sources)
        limits = tf.where(empty, 1, self._limits(sources))  # [B]
        batch = tf.shape(sources)[0]
        # Products of very few rows are computed in another way: a sentence alone would get other last bits.
        missing = [[0, tf.maximum(-(-MIN_ROWS // config.beam_size) - batch, 0)]]
        sources = tf.pad(sources, missing + [[0, 0]] * (sources.shape.rank - 1))
        limits = tf.pad(limits, missing, constant_values=1)
        beginnings = phrases = None
        if prefixes is not None:
            check_prefixes(directions, self._target_direction)
            padded = tf.pad(prefixes, missing, constant_values="")
            beginnings = encode_prefixes(padded, self._target.graph, banned, hparams.max_input_length)
        if constraints is not None:
            hparams.check_constraints()
            padded = tf.pad(constraints, missing, constant_values="")
            phrases = encode_phrases(padded, self._encode_phrases, limits, self._reversed_directions())
        if seeds is not None:
            seeds = tf.pad(seeds, missing)
        rules = search_rules(hparams, sources, self._reversed_directions(), self._target.encoder, beginnings)
        strategy = sampling_strategy(hparams, sources, seeds) or guided_strategy(hparams, directions, phrases)
        stepper: Any = WholePrefixes(self._model, config) if hparams.sb_decode == "recompute" else self._model
        step = stepper.step_with_attention if any(rule.needs_attention for rule in rules) else stepper.step
        found = beam_search(step, stepper.start(sources), limits, config, rules, strategy)
        unmet = {}
        if phrases is not None:
            unmet["unmet_constraints"] = count_unmet(phrases, found.ids, found.directions)[:batch]
        found = Result(*(part[:batch] for part in found))
        right_to_left = self._right_to_left(found.directions)
        empty = empty[:, tf.newaxis]  # [B, 1]
        return {
            **unmet,
            "outputs": tf.where(empty, "", self._to_text(found, right_to_left)),
            "scores": tf.where(empty, 0.0, found.scores),
            "log_probs": tf.where(empty, 0.0, found.log_probs),
            "lengths": tf.where(empty, 0, found.lengths),
            "finished": empty | found.finished,
            "ids": tf.where(empty[..., tf.newaxis], PAD_ID, found.ids),
            "directions": tf.cast(right_to_left, tf.int32),
        }

    def _limits(self, sources: tf.Tensor) -> tf.Tensor:
        """Returns the most target tokens (with EOS) of each sentence, int32 [B]."""
        hparams = self._hparams
        lengths = tf.reduce_sum(tf.cast(words_of_source(sources), tf.int32), axis=1)
        if hparams.length_limit == "extra":
            limits = lengths + 1 + hparams.extra_length  # T2T counts the source with its EOS
        else:
            limits = tf.cast(hparams.max_length_ratio * tf.cast(lengths, tf.float32), tf.int32)
            limits += hparams.max_length_offset
        return tf.maximum(limits, 1)

    def _encode_phrases(self, phrases: tf.Tensor) -> tf.RaggedTensor:
        return self._target.graph.encode(phrases)[:, :-1]

    def _reversed_directions(self) -> tuple[bool, ...]:
        """Returns for each direction of the model whether it generates right to left."""
        return (self._target_direction == "r2l",) if self._model.directions == 1 else (False, True)

    def _right_to_left(self, directions: tf.Tensor) -> tf.Tensor:
        """Returns which hypotheses were generated right to left, bool, from the search's directions int32."""
        if self._model.directions == 2:
            return tf.equal(directions, 1)
        return tf.fill(tf.shape(directions), self._target_direction == "r2l")

    def _to_text(self, found: Result, right_to_left: tf.Tensor) -> tf.Tensor:
        """Decodes the hypotheses of a search, those of bool [B, N] reversed, to segmented strings [B, N]."""
        shape = tf.shape(found.lengths)
        lengths = tf.reshape(found.lengths - tf.cast(found.finished, tf.int32), [-1])  # [B N]
        ids = tf.reshape(found.ids, [shape[0] * shape[1], tf.shape(found.ids)[2]])  # [B N, T]
        if any(self._reversed_directions()):
            ids = tf.reverse_sequence(ids, tf.where(tf.reshape(right_to_left, [-1]), lengths, 0), seq_axis=1)
        text = self._target.graph.decode(tf.RaggedTensor.from_tensor(ids, lengths=lengths))
        return tf.reshape(text, shape)
