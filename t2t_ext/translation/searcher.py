"""The search for translations: applies decode hparams, rules and strategies to a model.

The decoder command, BLEU during training and the exported SavedModel all search with this module, so they cannot
disagree.

Legend: B sentences, S source positions, T target positions, P tokens of the longest prefix, N hypotheses of a sentence.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.text.graph_text_encoder import WHITESPACE, GraphSubwordEncoder, GraphTokenEncoder
from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID, UNK_ID, SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.io import log
from t2t_ext.layers.gradients import forward_only
from t2t_ext.layers.masks import words_of_source
from t2t_ext.models.ensemble import Ensemble
from t2t_ext.models.seq2seq import Seq2Seq
from t2t_ext.search import random_numbers
from t2t_ext.search.beam_search import MIN_ROWS, Result, at_least_wide, beam_search
from t2t_ext.search.directions import check_directions, check_prefixes
from t2t_ext.search.guided_strategies import guided_strategy
from t2t_ext.search.lexical_constraints import count_unmet, encode_phrases
from t2t_ext.search.recompute import WholePrefixes
from t2t_ext.search.rules import CoveragePenalty, ForcedPrefix, MinimumLength, NoRepeatedNgrams, Rule, StepwisePenalty
from t2t_ext.search.sampling import Sampling, Truncation
from t2t_ext.search.search_state import SearchConfig
from t2t_ext.search.shortlist import ShortlistTable
from t2t_ext.search.word_ngrams import NoRepeatedWordNgrams, word_boundaries
from t2t_ext.translation.codec import TextCodec

_EMPTY_PLACE = -1e9  # the log-probability of a place without a hypothesis
# At most so many samples of a sentence are drawn in one row of the batch. Every token attends to all columns of its
# row, so without this the time would grow with the square of their number.
_MOST_SAMPLES_OF_A_ROW = 16
# Whitespace at the end of a prefix, as ``str.rstrip`` removes it.
_WHITESPACE_AT_THE_END = f"{WHITESPACE}+$"


class Searcher:
    """Searches for translations of encoded sources, inside the graph."""

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        target: TextCodec,
        decode_hparams: DecodeHParams,
        target_direction: str,
        shortlist: ShortlistTable | None = None,
    ) -> None:
        """Takes a built model or an ensemble; with ``target_direction=r2l`` its output is reversed."""
        self._model, self._target, self._hparams, self._shortlist = model, target, decode_hparams, shortlist
        self._target_direction = target_direction
        for word in unknown_words(decode_hparams, target.encoder):
            log.warning(
                f"no_repeat_ngram_ignore: {word!r} has no effect, as the target's vocabulary cannot write it and no "
                "translation contains it. Words are those of the prepared text, such as moses_tokenize leaves."
            )

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
          empty: bool [B], which sources have nothing to translate; their translations are empty.
          num_hypotheses: N.
          prefixes: Segmented strings [B] with which the translations begin. The last word may be continued unless
            whitespace follows it; an empty prefix forces nothing.
          constraints: Segmented strings [B] of phrases, separated by tabs, that the translations must contain.
          seeds: int64 [B]; a sample is a function of the source, its seed and the seed in the decode hparams.

        Returns:
          Best first, in drawing order for samples: ``outputs`` string, ``scores`` (log-probability over length penalty)
          and ``log_probs`` float32, ``lengths`` int32 (tokens with EOS), ``finished`` bool (False: truncated at the
          length limit) and ``directions`` int32 (0: left to right, 1: right to left), each [B, N]; ``ids`` int32
          [B, N, T] in the order of generation, with EOS if finished, padded with PAD; with constraints also
          ``unmet_constraints`` int32 [B, N], the number of phrases that a translation lacks. If the rules leave fewer
          than N translations, the rest have a log-probability of about -1e9 and length 0. An empty source has one.

        Raises:
          UserError: The model or the decode hparams exclude prefixes, constraints or seeds.
        """
        hparams, directions, reversed_directions = self._hparams, self._model.directions, self._reversed_directions
        banned = (PAD_ID, UNK_ID, *self._target.encoder.control_ids)
        # Samples are independent: many samples of a sentence are drawn in several equal rows.
        copies = rows_of_a_sentence(hparams, num_hypotheses)
        config = search_config(hparams, -(-num_hypotheses // copies), directions, banned)
        if seeds is not None and hparams.sampling_method != "random":
            raise UserError("Samples need sampling_method=random in the decode hparams.")
        sources = at_least_wide(sources)
        limits = tf.where(empty, 1, self._limits(sources))  # [B]
        firsts = tf.tile(tf.range(copies) * config.beam_size, tf.shape(limits))  # the first sample of each row
        sources, limits, prefixes, seeds = (
            each if each is None or copies == 1 else tf.repeat(each, copies, axis=0)
            for each in (sources, limits, prefixes, seeds)
        )
        batch = tf.shape(sources)[0]
        # Products of very few rows are computed differently: the last bits of a single sentence would differ.
        # Where a position precedes the first token, it is computed with one row per direction.
        members = self._model.members if isinstance(self._model, Ensemble) else (self._model,)
        has_tags = any(getattr(each.hparams, "predict_tag", False) for each in members)
        rows = min(config.beam_size, directions) if has_tags else config.beam_size
        missing = [[0, tf.maximum(-(-MIN_ROWS // rows) - batch, 0)]]
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
            graph = self._target.graph
            phrases = encode_phrases(padded, lambda texts: graph.encode(texts)[:, :-1], limits, reversed_directions)
        if seeds is not None:
            seeds = tf.pad(seeds, missing)
        firsts = tf.pad(firsts, missing)
        rules = search_rules(hparams, sources, reversed_directions, self._target.encoder, beginnings)
        strategy = sampling_strategy(hparams, sources, firsts, seeds) or guided_strategy(hparams, phrases)
        stepper: Any = WholePrefixes(self._model, config) if hparams.sb_decode == "recompute" else self._model
        step = stepper.step_with_attention if any(rule.needs_attention for rule in rules) else stepper.step
        state, columns = stepper.start(sources), None
        if self._shortlist is not None:
            given = [each for each in (beginnings and beginnings.ids, phrases and phrases.tokens) if each is not None]
            columns = self._shortlist.columns(sources, given, banned, 2 * config.live)
            state = stepper.shortlisted(state, columns.ids)
        found = beam_search(step, state, limits, config, rules, strategy, columns)
        unmet = {}
        if phrases is not None:
            unmet["unmet_constraints"] = count_unmet(phrases, found.ids, found.directions)[:batch]
        found = Result(*(part[:batch] for part in found))
        if copies > 1:
            shape = [batch // copies, copies * config.beam_size]
            joined = (tf.reshape(part, tf.concat([shape, tf.shape(part)[2:]], 0)) for part in found)
            found = Result(*(part[:, :num_hypotheses] for part in joined))
        return {**unmet, **self._translations(found, empty)}

    @property
    def _reversed_directions(self) -> tuple[bool, ...]:
        """Returns for each direction of the model whether it generates right to left."""
        return (self._target_direction == "r2l",) if self._model.directions == 1 else (False, True)

    def _translations(self, found: Result, empty: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns what ``search`` returns of any search; translations of sources that are ``empty`` are so, too."""
        reversed_directions = self._reversed_directions
        right_to_left = tf.equal(found.directions, 1)
        if self._model.directions == 1:
            right_to_left = tf.fill(tf.shape(found.directions), reversed_directions[0])
        empty = empty[:, tf.newaxis]  # [B, 1]
        # An empty source has one translation, not as many as the beam has places.
        none = tf.concat([[0.0], tf.fill([tf.shape(found.scores)[1] - 1], _EMPTY_PLACE)], axis=0)
        return {
            "outputs": tf.where(empty, "", self._to_text(found, right_to_left if any(reversed_directions) else None)),
            "scores": tf.where(empty, none, found.scores),
            "log_probs": tf.where(empty, none, found.log_probs),
            "lengths": tf.where(empty, 0, found.lengths),
            "finished": empty | found.finished,
            "ids": tf.where(empty[..., tf.newaxis], PAD_ID, found.ids),
            "directions": tf.cast(right_to_left, tf.int32),
        }

    def _limits(self, sources: tf.Tensor) -> tf.Tensor:
        """Returns the length limit of each sentence's translations, in tokens with EOS, int32 [B]."""
        hparams = self._hparams
        lengths = tf.reduce_sum(tf.cast(words_of_source(sources), tf.int32), axis=1)
        if hparams.length_limit == "extra":
            limits = lengths + 1 + hparams.extra_length  # T2T counts the source with its EOS
        else:
            limits = tf.cast(hparams.max_length_ratio * tf.cast(lengths, tf.float32), tf.int32)
            limits += hparams.max_length_offset
        return tf.maximum(limits, 1)

    def _to_text(self, found: Result, right_to_left: tf.Tensor | None) -> tf.Tensor:
        """Decodes the hypotheses of a search to segmented strings [B, N].

        ``right_to_left`` bool [B, N] says which hypotheses are reversed first; None: none.
        """
        shape = tf.shape(found.lengths)
        lengths = tf.reshape(found.lengths - tf.cast(found.finished, tf.int32), [-1])  # [B N]
        ids = tf.reshape(found.ids, [shape[0] * shape[1], tf.shape(found.ids)[2]])  # [B N, T]
        if right_to_left is not None:
            ids = tf.reverse_sequence(ids, tf.where(tf.reshape(right_to_left, [-1]), lengths, 0), seq_axis=1)
        text = self._target.graph.decode(tf.RaggedTensor.from_tensor(ids, lengths=lengths))
        return tf.reshape(text, shape)


class Prefixes(NamedTuple):
    """The given prefixes of translations.

    Attributes:
      ids: int32 [B, P], P >= 1, padded with PAD.
      lengths: int32 [B], tokens of each prefix; 0: nothing is forced.
      ends_word: bool [B], whether a new word must begin after the prefix.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    ends_word: tf.Tensor


def encode_prefixes(
    strings: tf.Tensor, encoder: GraphSubwordEncoder | GraphTokenEncoder, banned: tuple[int, ...], most: int
) -> Prefixes:
    """Encodes prefixes, segmented strings [B].

    Trailing whitespace says that the last word is complete; in subword-nmt's segmentation a last subword without ``@@``
    says so by itself. A prefix is truncated before the first token that is never produced, and after ``most`` tokens.
    """
    text = tf.strings.regex_replace(strings, _WHITESPACE_AT_THE_END, "")
    ids = encoder.encode(text, most).to_tensor()
    real = ~tf.reduce_any(tf.equal(ids[..., tf.newaxis], tf.constant([*banned, EOS_ID])), axis=2)
    lengths = tf.reduce_sum(tf.math.cumprod(tf.cast(real, tf.int32), axis=1), axis=1)
    return Prefixes(ids, lengths, tf.not_equal(strings, text) & (lengths > 0))


def rows_of_a_sentence(hparams: DecodeHParams, num_hypotheses: int) -> int:
    """Returns the number of rows of a batch that a sentence takes: more than one only for many samples."""
    if hparams.sampling_method != "random":
        return 1
    return max(1, -(-num_hypotheses // _MOST_SAMPLES_OF_A_ROW))


def search_config(
    hparams: DecodeHParams, num_hypotheses: int, directions: int, banned: tuple[int, ...]
) -> SearchConfig:
    """Returns the constants of a search for ``num_hypotheses`` translations.

    Raises:
      UserError: The settings do not fit a model with this number of directions, or ``num_hypotheses`` is out of range.
    """
    check_directions(hparams, directions)
    sampling = hparams.sampling_method == "random"
    if num_hypotheses < 1 or (num_hypotheses > hparams.beam_size and not sampling):
        raise UserError(
            f"num_hypotheses={num_hypotheses}: from 1 to beam_size={hparams.beam_size}; more need a larger beam."
        )
    return SearchConfig(
        beam_size=num_hypotheses if sampling else hparams.beam_size,
        num_hypotheses=num_hypotheses,
        directions=directions,
        alpha=hparams.alpha,
        penalty=hparams.length_penalty,
        early_stopping=hparams.early_stopping,
        banned=banned,
        pairing=hparams.sb_pairing,
        # A finished hypothesis leaves its place empty, so no other hypothesis takes its rank.
        finished_partner="freeze" if hparams.beam_extends == "top" else hparams.sb_finished_partner,
    )


def unknown_words(hparams: DecodeHParams, encoder: SubwordEncoder) -> list[str]:
    """Returns the words of ``no_repeat_ngram_ignore`` that no translation can contain."""
    words = hparams.no_repeat_ngram_ignore.split()
    return [word for word, ids in zip(words, encoder.encode_batch(words), strict=True) if UNK_ID in ids]


def search_rules(
    hparams: DecodeHParams,
    ids: tf.Tensor,
    right_to_left: tuple[bool, ...],
    encoder: SubwordEncoder,
    prefixes: Prefixes | None,
) -> list[Rule]:
    """Returns the rules for a search with source ids int32 [B, S], or feature vectors float32 [B, S, F].

    ``right_to_left`` says for each direction of the model whether it generates right to left; ``encoder`` is the text
    encoder of the target.
    """
    rules: list[Rule] = []
    words = words_of_source(ids)
    if hparams.min_length or hparams.min_length_ratio:
        source = tf.reduce_sum(tf.cast(words, tf.float32), axis=1)
        rules.append(
            MinimumLength(tf.maximum(hparams.min_length, tf.cast(hparams.min_length_ratio * source, tf.int32)))
        )
    if (size := hparams.no_repeat_ngram_size) and hparams.no_repeat_ngram_unit == "tokens":
        rules.append(NoRepeatedNgrams(size))
    elif size:
        ignored = [each for each in encoder.encode_batch(hparams.no_repeat_ngram_ignore.split()) if each]
        turned = [[each[::-1] if reverse else each for reverse in right_to_left] for each in ignored]
        rules.append(NoRepeatedWordNgrams(size, word_boundaries(encoder, right_to_left), turned))
    beta, directions = hparams.coverage_penalty, len(right_to_left)
    if beta and not hparams.stepwise_penalty:
        rules.append(CoveragePenalty(beta, words, directions, hparams.coverage_kind))
    if prefixes is not None:
        rules.append(ForcedPrefix(*prefixes, encoder.word_starts()))
    if beta and hparams.stepwise_penalty:
        rules.append(StepwisePenalty(beta, words, directions))
    return rules


def sampling_strategy(
    hparams: DecodeHParams, ids: tf.Tensor, firsts: tf.Tensor, seeds: tf.Tensor | None = None
) -> Sampling | None:
    """Returns the sampling strategy, or None if the hparams ask for a search.

    Args:
      hparams: The settings.
      ids: int32 [B, S], the sources.
      firsts: int32 [B], the number of each row's first sample among those of its source.
      seeds: int64 [B], additional seeds.
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
    return Sampling(keys, truncation, firsts)
