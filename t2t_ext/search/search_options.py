"""Derives a search's constants, rules and strategy from the decode hparams and the inputs of one call.

Legend: B sentences, S source positions, P tokens of the longest prefix.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.text.graph_text_encoder import GraphSubwordEncoder, GraphTokenEncoder
from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID, UNK_ID, SubwordEncoder
from t2t_ext.layers.masks import words_of_source
from t2t_ext.search import random_numbers
from t2t_ext.search.directions import check_directions
from t2t_ext.search.rules import (
    CoveragePenalty,
    ForcedPrefix,
    MinimumLength,
    NoRepeatedNgrams,
    Rule,
    StepwisePenalty,
)
from t2t_ext.search.sampling import Sampling, Truncation
from t2t_ext.search.search_state import SearchConfig
from t2t_ext.search.word_ngrams import NoRepeatedWordNgrams, word_boundaries

# The whitespace removed from the end of a prefix.
WHITESPACE = " \t\n\f\r"


class Prefixes(NamedTuple):
    """The given prefixes of translations.

    Attributes:
      ids: int32 [B, P], P >= 1, padded with PAD.
      lengths: int32 [B], 0 = nothing is forced.
      ends_word: bool [B], whether a new word begins behind it.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    ends_word: tf.Tensor


def never_produced(encoder: SubwordEncoder) -> tuple[int, ...]:
    """Returns the ids that no search generates: PAD, UNK and the control symbols."""
    return (PAD_ID, UNK_ID, *encoder.control_ids)


def encode_prefixes(
    strings: tf.Tensor, encoder: GraphSubwordEncoder | GraphTokenEncoder, banned: tuple[int, ...], most: int
) -> Prefixes:
    """Encodes prefixes, strings [B].

    A space at the end says that the last word is complete, as a last subword without ``@@`` says by itself. A prefix is
    truncated before a token that is never produced, and after ``most`` tokens.
    """
    text = tf.strings.regex_replace(strings, f"[{WHITESPACE}]+$", "")
    ids = encoder.encode(text, most).to_tensor()
    real = ~tf.reduce_any(tf.equal(ids[..., tf.newaxis], tf.constant([*banned, EOS_ID])), axis=2)
    lengths = tf.reduce_sum(tf.math.cumprod(tf.cast(real, tf.int32), axis=1), axis=1)
    return Prefixes(ids, lengths, tf.not_equal(strings, text) & (lengths > 0))


def search_config(
    hparams: DecodeHParams, num_hypotheses: int, directions: int, banned: tuple[int, ...]
) -> SearchConfig:
    """Returns the constants of a search for ``num_hypotheses`` translations.

    Raises:
      UserError: The settings do not fit a model of so many directions.
    """
    check_directions(hparams, directions)
    sampling = hparams.sampling_method == "random"
    return SearchConfig(
        beam_size=num_hypotheses if sampling else hparams.beam_size,
        num_hypotheses=num_hypotheses,
        directions=directions,
        alpha=hparams.alpha,
        penalty=hparams.length_penalty,
        banned=banned,
        pairing=hparams.sb_pairing,
        finished_partner=hparams.sb_finished_partner,
    )


def search_rules(
    hparams: DecodeHParams,
    ids: tf.Tensor,
    right_to_left: tuple[bool, ...],
    encoder: SubwordEncoder,
    prefixes: Prefixes | None,
) -> list[Rule]:
    """Returns the rules of a search.

    Args:
      hparams: How to search.
      ids: Source ids int32 [B, S], or feature vectors float32 [B, S, F].
      right_to_left: Of each direction of the model, whether it generates right to left.
      encoder: The target's.
      prefixes: How translations begin; None: as the model wants.
    """
    rules: list[Rule] = []
    words = words_of_source(ids)
    if hparams.min_length or hparams.min_length_ratio:
        source = tf.reduce_sum(tf.cast(words, tf.float32), axis=1)
        rules.append(
            MinimumLength(tf.maximum(hparams.min_length, tf.cast(hparams.min_length_ratio * source, tf.int32)))
        )
    if hparams.no_repeat_ngram_size:
        rules.append(_no_repeats(hparams, right_to_left, encoder))
    beta, directions = hparams.coverage_penalty, len(right_to_left)
    if beta and not hparams.stepwise_penalty:
        rules.append(CoveragePenalty(beta, words, directions, hparams.coverage_kind))
    if prefixes is not None:
        rules.append(ForcedPrefix(*prefixes, encoder.word_starts()))
    if beta and hparams.stepwise_penalty:
        rules.append(StepwisePenalty(beta, words, directions))
    return rules


def _no_repeats(hparams: DecodeHParams, right_to_left: tuple[bool, ...], encoder: SubwordEncoder) -> Rule:
    size = hparams.no_repeat_ngram_size
    if hparams.no_repeat_ngram_unit == "tokens":
        return NoRepeatedNgrams(size)
    words = [ids for ids in encoder.encode_batch(hparams.no_repeat_ngram_ignore.split()) if ids]
    ignored = [[ids[::-1] if turned else ids for turned in right_to_left] for ids in words]
    return NoRepeatedWordNgrams(size, word_boundaries(encoder, right_to_left), ignored)


def sampling_strategy(hparams: DecodeHParams, ids: tf.Tensor, seeds: tf.Tensor | None = None) -> Sampling | None:
    """Returns the strategy that samples, or None where the hparams want a search.

    Args:
      hparams: How to search.
      ids: Source ids int32 [B, S], or feature vectors float32 [B, S, F].
      seeds: int64 [B], further seeds of the sentences.
    """
    if hparams.sampling_method != "random":
        return None
    keys = random_numbers.fold(random_numbers.fingerprint(ids), tf.constant(hparams.sampling_seed, tf.int64))
    if seeds is not None:
        keys = random_numbers.fold(keys, seeds)
    truncation = Truncation(
        temperature=hparams.sampling_temp,
        keep_top_k=max(hparams.sampling_keep_top_k, 0),
        keep_top_p=hparams.sampling_keep_top_p,
    )
    return Sampling(keys, truncation)
