"""The Translator, through which all translation goes: lists of strings in, translations out.

    translator = Translator.load("RUN")
    translator(["Guten Morgen.", "Wie geht es dir?"])

If the run reads feature vectors, the sources are ``FeatureSource``s or float arrays [regions, F] instead:

    translator([np.load("image.npy")])

A Translator consists of a codec for each side (``translation.codec``), a ``Searcher`` and a ``ForcedDecoder``. The
methods whose names end in ``_batch`` are graph functions of string tensors; the exported SavedModel is made from them.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.cores import usable_cores
from t2t_ext.config.decode import DecodeHParams, resolve_decode_hparams
from t2t_ext.data.datasets.shortlist import Shortlist, check_reads_text
from t2t_ext.data.features.sources import FeatureSource
from t2t_ext.data.text.text_encoder import EOS_ID, SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.layers.masks import words_of_source
from t2t_ext.models.ensemble import Ensemble
from t2t_ext.models.seq2seq import Seq2Seq, build_model
from t2t_ext.runs import checkpoints
from t2t_ext.runs.chosen_runs import ChosenRun, Paths, choose_runs, normalized_weights
from t2t_ext.search.lexical_constraints import join_phrases
from t2t_ext.search.shortlist import ShortlistTable
from t2t_ext.translation.alignment import AlignmentConfig
from t2t_ext.translation.batches import MAX_BATCH_POSITIONS, Given, Progress, Read, Traced, run_batches, similar_lengths
from t2t_ext.translation.codec import IDS, Encoded, FeatureCodec, TextCodec, check_texts, check_vocabularies
from t2t_ext.translation.forced_decoding import ForcedDecoder
from t2t_ext.translation.hypothesis import Hypothesis, PairScore, hypotheses_of, pair_score
from t2t_ext.translation.searcher import Searcher, rows_of_a_sentence

# Given targets are padded to few different widths: oneDNN compiles every matrix product for each shape.
_WIDTH_MULTIPLE = 8
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")
# In mixed precision, training keeps float32 weights. For translation, weights in the low precision are enough.
_INFERENCE_PRECISION = {"mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}

Sources = Sequence[str] | Sequence[FeatureSource] | Sequence[np.ndarray]
_STRINGS = tf.TensorSpec([None], tf.string)
_FLAGS = tf.TensorSpec([None], tf.bool)
_OPTIONS = {"prefixes": _STRINGS, "constraints": _STRINGS, "seeds": tf.TensorSpec([None], tf.int64)}


class Translator:
    """Translates lists of sources in batches of similar lengths, several batches at a time.

    The result of a line depends neither on the other lines nor on their order.

    Attributes:
      model: The model or an ensemble; its variables are read at every call, not copied.
      members: The models of the ensemble, or the single model.
      source: The codec of the source.
      target: The codec of the target.
      source_encoder: Text encoder of the source.
      target_encoder: Text encoder of the target.
      decode_hparams: The settings of the search.
      target_direction: ``l2r`` or ``r2l``.
      alignment: The attention that word alignments are read from.
      shortlist: The candidates to which the search is restricted; None: the whole vocabulary.
      source_limit: The most subwords (or regions) of a source: max_input_length, or fewer if the encoder reads fewer.
      truncated_lines: How many lines of the last call had a source truncated to source_limit or a target truncated to
        max_input_length.
      truncated_line_numbers: The numbers of these lines, counted from 1.
      unmet_prefix_line_numbers: Lines of the last call whose translation has only the beginning of its prefix, because
        it was truncated at the length limit or the vocabulary lacks a character.
      unmet_constraint_line_numbers: Lines of the last call whose best translation lacks some of its phrases.
      untranslated_line_numbers: Lines of the last call that have text but no translation, because the model's
        probabilities are NaN or the rules leave none.
      empty_line_numbers: Lines of the last call that have text but whose best translation is empty (only EOS).
      parallel_batches: Number of batches that are searched at the same time, each on a thread. One per core is fastest
        if TensorFlow's intra-op threads are set to 1, as the commands do.
    """

    parallel_batches: int = usable_cores()
    truncated_lines: int = 0
    truncated_line_numbers: tuple[int, ...] = ()
    unmet_prefix_line_numbers: tuple[int, ...] = ()
    unmet_constraint_line_numbers: tuple[int, ...] = ()
    untranslated_line_numbers: tuple[int, ...] = ()
    empty_line_numbers: tuple[int, ...] = ()

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        source_encoder: SubwordEncoder,
        target_encoder: SubwordEncoder,
        decode_hparams: DecodeHParams | None = None,
        target_direction: str | None = None,
        alignment: AlignmentConfig | None = None,
    ) -> None:
        """Initializes the translator for a model or an ensemble; models that are not built yet are built.

        If ``target_direction`` is ``r2l``, the output of the model is reversed. None means the direction in the model's
        hparams.

        Raises:
          UserError: The decode hparams or the encoders do not fit the model.
        """
        check_vocabularies(model, source_encoder, target_encoder)
        self.model = model
        self.members: tuple[Seq2Seq, ...] = model.members if isinstance(model, Ensemble) else (model,)
        self.source_encoder, self.target_encoder = source_encoder, target_encoder
        self.decode_hparams = decode_hparams or DecodeHParams()
        for member in self.members:
            if not member.built:
                member.build()
            _check_precision(member, self.decode_hparams.precision)
        self.target_direction = target_direction = target_direction or self.members[0].hparams.target_direction
        self.alignment = alignment or AlignmentConfig()
        limit = self.decode_hparams.max_input_length
        self.target = TextCodec(target_encoder, limit, "targets")
        self.source_limit = min(limit, model.longest_source - 1) if model.longest_source else limit  # EOS is added
        self.source: TextCodec | FeatureCodec
        if model.source_feature_size:
            self.source = FeatureCodec(model.source_feature_size, self.source_limit, "inputs")
        else:
            same = source_encoder.ids_sha256 == target_encoder.ids_sha256
            self.source = TextCodec(source_encoder, self.source_limit, "inputs", self.target.graph if same else None)
        self.shortlist = self._shortlist()
        self._searcher = Searcher(model, self.target, self.decode_hparams, target_direction, self.shortlist)
        self._forced = ForcedDecoder(
            model, self.source, self.target, self.decode_hparams, target_direction, self.alignment
        )
        forced = {"targets": IDS, "partners": IDS, "right_to_left": _FLAGS}
        inputs, sources = {"inputs": self.source.spec}, {"sources": self.source.ids_spec}
        self._search = Traced(self._searcher.search, {**sources, "empty": _FLAGS, **_OPTIONS})
        self._score = Traced(self._forced.score, sources | forced)
        both = {"both": tf.TensorSpec([None, 2, None], tf.int32), "right_to_left": _FLAGS}
        self._score_both = Traced(self._forced.score_both, sources | both)
        self._align = Traced(self._forced.align, sources | forced)
        self._search_inputs = Traced(self._searched, inputs | _OPTIONS)
        strings = {**inputs, "targets": _STRINGS, "partners": _STRINGS, "right_to_left": _FLAGS}
        self._score_inputs = Traced(functools.partial(self._forced_strings, self._forced.score, False), strings)
        self._align_inputs = Traced(functools.partial(self._forced_strings, self._forced.align, True), strings)

    @classmethod
    def load(
        cls,
        run_dir: Paths,
        checkpoint_path: Paths | None = None,
        decode_hparams: str | Mapping[str, Any] | DecodeHParams | None = None,
        warn: Callable[[str], None] | None = None,
        *,
        ensemble_weights: Sequence[float] | None = None,
        alignment: AlignmentConfig | None = None,
        for_training: bool = False,
    ) -> Self:
        """Loads the translator of a run, or of several runs as an ensemble.

        Args:
          run_dir: The run's directory (``--output_dir`` of the trainer), or several directories.
          checkpoint_path: A checkpoint; ``best`` and ``averaged`` name those of the run. None: the run's latest
            undamaged one. Several: one for each run, or several checkpoints of one run as an ensemble.
          decode_hparams: The settings of the search: DecodeHParams, or overrides as a string
            (``"beam_size=4,alpha=0.6"``) or a dict.
          warn: Called with a warning for each damaged checkpoint that is passed over.
          ensemble_weights: The members' shares of the probability, in any unit; None: equal shares.
          alignment: The attention that word alignments are read from; None: the defaults.
          for_training: Whether to keep the model's weights in float32 even if its matrix products have a lower
            precision, so that ``model.fit`` can train them further. Otherwise the weights have that lower precision.

        Returns:
          A translator with the checkpoint's weights, or with their moving average if the run keeps one.

        Raises:
          UserError: There is no run or no checkpoint, or they do not fit together.
        """
        if isinstance(decode_hparams, Mapping):
            given = decode_hparams
            decode_hparams = DecodeHParams().replace(**given)
            decode_hparams.check_effect("decode_hparams", given)
        elif not isinstance(decode_hparams, DecodeHParams):
            decode_hparams = resolve_decode_hparams(decode_hparams or "")
        chosen = choose_runs(run_dir, checkpoint_path, warn=warn)
        return cls.of_runs(
            chosen, decode_hparams, ensemble_weights=ensemble_weights, alignment=alignment, for_training=for_training
        )

    @classmethod
    def of_runs(
        cls,
        chosen: Sequence[ChosenRun],
        decode_hparams: DecodeHParams | None = None,
        *,
        ensemble_weights: Sequence[float] | None = None,
        alignment: AlignmentConfig | None = None,
        for_training: bool = False,
    ) -> Self:
        """Loads the translator of runs that ``choose_runs`` has opened; for the other arguments see ``load``."""
        decode_hparams = decode_hparams or DecodeHParams()
        weights = normalized_weights(ensemble_weights, len(chosen))
        encoders = chosen[0].run.text_encoders()
        models = [_load_model(each, *encoders, decode_hparams.precision, for_training=for_training) for each in chosen]
        model = models[0] if len(models) == 1 else Ensemble(models, weights)
        return cls(model, *encoders, decode_hparams, alignment=alignment)

    def _shortlist(self) -> ShortlistTable | None:
        """Returns the shortlist named in the decode hparams, or None if they name none."""
        if not (path := self.decode_hparams.shortlist):
            return None
        check_reads_text(self.model.source_feature_size)
        shortlist = Shortlist.read(path, self.source_encoder, self.target_encoder)
        return ShortlistTable(shortlist, self.target_encoder.vocab_size)

    def __repr__(self) -> str:
        models = " + ".join(f"{type(each).__name__} of {each.count_params():,} parameters" for each in self.members)
        size = self.model.source_feature_size
        source = f"vectors of {size:,}" if size else f"{self.source_encoder.vocab_size:,} subwords"
        search = self.decode_hparams
        return (
            f"<Translator: {models}, {source} to {self.target_encoder.vocab_size:,} subwords, {self.target_direction}, "
            f"beam_size={search.beam_size}, alpha={search.alpha:g}, num_hypotheses={search.num_hypotheses}>"
        )

    # === Translating ===

    def __call__(self, lines: Sources) -> list[str]:
        """Returns the best translation of every line, in order; the translation of an empty line is empty."""
        return [hypotheses[0].text for hypotheses in self.translate(lines)]

    def translate(
        self,
        lines: Sources,
        progress: Progress | None = None,
        *,
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Returns the ``num_hypotheses`` best translations of every line, best first; samples in drawing order.

        Args:
          lines: Source sentences as raw text, or sources of feature vectors.
          progress: Called with (lines done, lines in all) after every batch.
          prefixes: The beginning of each line's translations, as raw text; "" leaves it free. See ``Searcher.search``.
          constraints: The phrases that each line's translations must contain, as raw text; see
            ``t2t_ext.search.lexical_constraints``.

        Returns:
          A list for each line, shorter than ``num_hypotheses`` if prefixes and other rules leave fewer translations. An
          empty line has one, which is empty.

        Raises:
          UserError: There is not one prefix, or one list of constraints, for each line; the model does not generate
            left to right, as prefixes require; or the decode hparams exclude constraints.
        """
        lines = _checked(lines, "lines")
        prefixes = None if prefixes is None else check_texts(_checked(prefixes, "prefixes"), "prefixes")
        if prefixes is not None and len(prefixes) != len(lines):
            raise UserError(f"{len(prefixes)} prefixes for {len(lines)} lines: give one for each line, empty for none.")
        phrases = None
        if constraints is not None:
            phrases = self.target_encoder.segment_phrases(
                _checked(join_phrases(constraints, len(lines)), "constraints")
            )
            self.decode_hparams.check_constraints()
        encoded = self.source.read(lines)
        self._note_truncated(encoded)
        encoder = self.target_encoder
        prepared = None if prefixes is None else encoder.prepare_beginnings(prefixes)
        segmented = None if prepared is None else encoder.segment_beginnings(prepared)
        results = self._search_all(encoded, progress, segmented, phrases)
        self.untranslated_line_numbers = tuple(
            i
            for i, (found, empty) in enumerate(zip(results, encoded.empty, strict=True), 1)
            if not (empty or found[0].length)
        )
        self.empty_line_numbers = tuple(i for i, found in enumerate(results, 1) if found[0].ids == (EOS_ID,))
        self.unmet_constraint_line_numbers = tuple(
            i for i, found in enumerate(results, 1) if found[0].unmet_constraints
        )
        begin = encoder.encode_batch([prefix.rstrip() for prefix in prepared or []])
        self.unmet_prefix_line_numbers = tuple(
            i
            for i, (ids, found) in enumerate(zip(begin, results, strict=False), 1)
            if tuple(ids) != found[0].ids[: len(ids)] and found[0].length
        )
        return results

    def translate_ids(self, sources: Sequence[Any], progress: Progress | None = None) -> list[list[Hypothesis]]:
        """Returns the translations of sources given as ids with EOS, as ``translate`` does; no source is truncated.

        Sources of feature vectors have no ids; they are given as for ``translate``.
        """
        return self._search_all(self.source.read_ids(sources), progress)

    def _search_all(
        self,
        encoded: Encoded,
        progress: Progress | None,
        prefixes: Sequence[str] | None = None,
        phrases: Sequence[str] | None = None,
    ) -> list[list[Hypothesis]]:
        """Searches for translations of encoded sources; prefixes and phrases are already segmented."""
        settings = {"num_hypotheses": self.decode_hparams.returned}

        def given(batch: np.ndarray) -> dict[str, tf.Tensor | None]:
            constrained = phrases is not None and any(phrases[i] for i in batch)
            return {
                "sources": self.source.batch(encoded.rows[i] for i in batch),
                "empty": tf.constant(encoded.empty[batch]),
                "prefixes": _strings(prefixes, batch),
                "constraints": _strings(phrases, batch) if constrained else None,
            }

        # Lines without phrases get batches of their own, which are searched at the usual speed.
        apart = None if phrases is None else [bool(each) for each in phrases]
        read = functools.partial(hypotheses_of, encoder=self.target_encoder, unmet=None if phrases is None else 0)
        search = functools.partial(self._search, settings)
        rows = rows_of_a_sentence(self.decode_hparams, self.decode_hparams.returned)
        return self._run(search, given, read, list(map(len, encoded.rows)), progress, apart, rows)

    # === Scoring and aligning given translations ===

    def score(
        self,
        pairs: Sequence[tuple[Any, str]],
        progress: Progress | None = None,
        *,
        partners: Sequence[str] | None = None,
        directions: Sequence[str] | None = None,
    ) -> list[PairScore]:
        """Returns the model's score of every (source, translation) pair.

        The translation is encoded anew; ``score_ids`` scores exactly the tokens that a search chose.

        Args:
          pairs: Raw text.
          progress: Called with (pairs done, pairs in all) after every batch.
          partners: Only for a model of two directions, which needs them: what the other direction generates alongside
            each translation, as raw text in text order.
          directions: Only with partners: the direction in which each translation is generated, ``l2r`` or ``r2l``;
            None: all ``l2r``.

        Raises:
          UserError: Partners are missing for a model of two directions, or are given for a model of one.
        """
        return self._force_pairs(self._score, pair_score, pairs, progress, partners, directions)

    def align(
        self,
        pairs: Sequence[tuple[Any, str]],
        progress: Progress | None = None,
        *,
        partners: Sequence[str] | None = None,
        directions: Sequence[str] | None = None,
    ) -> list[str]:
        """Returns the word alignment of every (source, translation) pair, such as ``0-0 2-1 1-2``.

        The words are those of the prepared texts: Moses' tokenizer, for example, makes two words of ``isn't``.
        The translation is encoded anew; ``align_hypotheses`` aligns exactly the tokens that a search chose.
        For the arguments see ``score``.

        Raises:
          UserError: As for ``score``; or the model lacks the attention, layer or head that ``alignment`` asks for.
        """
        return self._force_pairs(self._align, _alignment, pairs, progress, partners, directions, marked=True)

    def score_ids(
        self, lines: Sources, ids: Sequence[Sequence[Sequence[int]]], progress: Progress | None = None
    ) -> list[list[PairScore]]:
        """Returns the model's scores of translations given as token ids, several for each line (forced decoding).

        The ids are in the order of generation, as in ``Hypothesis.ids``; no translation may be empty. ``progress`` is
        called with (translations done, translations in all) after every batch.
        """
        return self._force_ids(self._score, pair_score, self.source.read(_checked(lines, "lines")), ids, progress)

    def align_hypotheses(
        self, lines: Sources, hypotheses: Sequence[Sequence[Hypothesis]], progress: Progress | None = None
    ) -> list[list[str]]:
        """Returns the word alignments of the hypotheses that ``translate`` found for each line.

        ``progress`` is called with (translations done, translations in all) after every batch.

        Raises:
          UserError: As for ``align``.
        """
        self.check_alignment()
        ids = [[each.ids for each in found] for found in hypotheses]
        sources = self.source.read(_checked(lines, "lines"), marked=True)
        return self._force_ids(self._align, _alignment, sources, ids, progress)

    def check_alignment(self, *, with_partners: bool = False) -> None:
        """Checks that the model provides the attention that ``alignment`` asks for, before hours of work are spent.

        ``with_partners`` says whether a model of two directions will be given partners as well.

        Raises:
          UserError: As for ``align``.
        """
        names = ("partners", "right_to_left") if with_partners and self.two_sided else ()
        self._align.of("sources", "targets", *names).get_concrete_function()

    def _force_pairs(
        self,
        function: Traced,
        read: Read,
        pairs: Sequence[tuple[Any, str]],
        progress: Progress | None,
        partners: Sequence[str] | None,
        directions: Sequence[str] | None,
        *,
        marked: bool = False,
    ) -> list[Any]:
        """Runs forced decoding of pairs in batches; returns the result of ``read`` for each pair."""
        right_to_left = _right_to_left(len(pairs), partners, directions)
        wrong = next((n for n, pair in enumerate(pairs, 1) if isinstance(pair, str) or len(pair) != 2), 0)
        if wrong:
            raise UserError(f"Number {wrong} is {pairs[wrong - 1]!r:.60}: pairs are (source, translation).")
        sources = self.source.read(_checked([source for source, _ in pairs], "sources"), marked=marked)
        targets = self.target.read(_checked([target for _, target in pairs], "translations"), marked=marked)
        sides = [sources, targets]
        if partners is not None:
            sides.append(self.target.read(_checked(partners, "partners"), marked=marked))
        self._note_truncated(*sides)

        def given(batch: np.ndarray) -> dict[str, tf.Tensor]:
            tensors = {
                "targets": self.target.batch(targets.rows[i] for i in batch),
                "sources": self.source.batch(sources.rows[i] for i in batch),
            }
            if partners is not None:
                tensors["partners"] = self.target.batch(sides[2].rows[i] for i in batch)
                tensors["right_to_left"] = tf.constant(right_to_left[batch])
            return tensors

        lengths = [max(map(len, rows)) for rows in zip(*(side.rows for side in sides), strict=True)]
        return self._run(function, given, read, lengths, progress)

    def _force_ids(
        self,
        function: Traced,
        read: Read,
        sources: Encoded,
        ids: Sequence[Sequence[Sequence[int]]],
        progress: Progress | None,
    ) -> list[list[Any]]:
        """Runs forced decoding of ids in the order of generation; returns the result of ``read`` for each translation.

        ``ids`` holds several translations for each line, as a search returns them.
        """
        self._note_truncated(sources)
        places = [(line, n) for line, found in enumerate(ids) for n in range(len(found))]

        def given(batch: np.ndarray) -> dict[str, tf.Tensor]:
            chosen = [places[i] for i in batch]
            targets = (self._in_text_order(ids[line][n]) for line, n in chosen)
            return {
                "targets": self.target.batch(targets, _WIDTH_MULTIPLE),
                "sources": self.source.batch(sources.rows[line] for line, _ in chosen),
            }

        lengths = [max(len(sources.rows[line]), len(ids[line][n])) for line, n in places]
        results = iter(self._run(function, given, read, lengths, progress))
        return [[next(results) for _ in found] for found in ids]

    def _in_text_order(self, ids: Sequence[int]) -> Sequence[int]:
        """Returns the ids of a hypothesis in text order, with EOS last if it has one."""
        if self.target_direction == "l2r" or not ids:
            return ids
        end = len(ids) - (ids[-1] == EOS_ID)
        return [*reversed(ids[:end]), *ids[end:]]

    # === Graph functions: tensors in, tensors out ===

    def search_batch(
        self,
        inputs: tf.Tensor,
        *,
        num_hypotheses: int | None = None,
        prefixes: tf.Tensor | None = None,
        constraints: tf.Tensor | None = None,
        seeds: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Finds translations of segmented strings [B], or of features float32 [B, S, F].

        ``num_hypotheses`` is N; by default it is taken from the decode hparams. The other arguments and the results are
        those of ``Searcher.search``.
        """
        settings = {"num_hypotheses": num_hypotheses or self.decode_hparams.returned}
        return self._search_inputs(settings, inputs=inputs, prefixes=prefixes, constraints=constraints, seeds=seeds)

    def search_ids_batch(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds translations of sources given as ids int32 [B, S] with EOS, padded with PAD; none is truncated.

        A source that consists only of EOS has nothing to translate.

        Returns:
          The same tensors as ``search_batch``.
        """
        empty = _nothing_in(tf.convert_to_tensor(ids))
        return self._search({"num_hypotheses": self.decode_hparams.returned}, sources=ids, empty=empty)

    def score_batch(
        self,
        inputs: tf.Tensor,
        targets: tf.Tensor,
        partners: tf.Tensor | None = None,
        right_to_left: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Scores segmented translations, strings [B]; for other arguments and results see ``ForcedDecoder.score``."""
        return self._score_inputs(inputs=inputs, targets=targets, partners=partners, right_to_left=right_to_left)

    def score_sides_ids_batch(
        self, inputs: tf.Tensor, both: tf.Tensor, right_to_left: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Scores the output of one of two directions for source strings [B]; see ``ForcedDecoder.score_both``."""
        sources = self.source.encode(tf.convert_to_tensor(inputs))
        return self._score_both(sources=sources, both=both, right_to_left=right_to_left)

    def align_batch(
        self,
        inputs: tf.Tensor,
        targets: tf.Tensor,
        partners: tf.Tensor | None = None,
        right_to_left: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Aligns segmented translations, strings [B]; for other arguments and results see ``ForcedDecoder.align``."""
        return self._align_inputs(inputs=inputs, targets=targets, partners=partners, right_to_left=right_to_left)

    def _searched(self, inputs: tf.Tensor, **options: Any) -> dict[str, tf.Tensor]:
        sources = self.source.encode(inputs)
        return self._searcher.search(sources, self.source.empty(inputs) | _nothing_in(sources), **options)

    def _forced_strings(
        self,
        function: Callable[..., dict[str, tf.Tensor]],
        marked: bool,
        inputs: tf.Tensor,
        targets: tf.Tensor,
        **sides: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        if "partners" in sides:
            sides["partners"] = self.target.encode(sides["partners"], marked=marked)
        return function(self.source.encode(inputs, marked=marked), self.target.encode(targets, marked=marked), **sides)

    # === Abilities ===

    @property
    def samples(self) -> bool:
        """Whether translations are sampled instead of searched for."""
        return self.decode_hparams.sampling_method == "random"

    @property
    def two_sided(self) -> bool:
        """Whether the model generates in two directions at once, each of which attends to the other."""
        return self._forced.two_sided

    @property
    def can_force_prefix(self) -> bool:
        """Whether the model generates the beginning of a translation first."""
        return self.target_direction == "l2r" and self.model.directions == 1

    @property
    def can_constrain(self) -> bool:
        """Whether the decode hparams allow lexical constraints."""
        try:
            self.decode_hparams.check_constraints()
        except UserError:
            return False
        return True

    @property
    def can_align(self) -> bool:
        """Whether translations can be aligned without partners, with the attention that ``alignment`` asks for."""
        try:
            self._align_inputs.of("inputs", "targets").get_concrete_function()
        except UserError:
            return False
        return True

    # === Batches ===

    def describe_limits(self) -> str:
        """Returns the limit to which sources and targets are truncated, such as ``max_input_length=1024 subwords``."""
        limit, unit = self.decode_hparams.max_input_length, self.source.unit
        if self.source_limit == limit:
            return f"max_input_length={limit} {unit}"
        return f"{self.source_limit} {unit}, the most that the pretrained encoder reads (targets: {limit})"

    def _note_truncated(self, *sides: Encoded) -> None:
        """Records which lines are truncated on at least one side."""
        longer = np.flatnonzero(np.any([side.truncated for side in sides], axis=0))
        self.truncated_lines = len(longer)
        self.truncated_line_numbers = tuple(int(i) + 1 for i in longer)

    def _run(
        self,
        function: Callable[..., dict[str, tf.Tensor]],
        given: Given,
        read: Read,
        lengths: Sequence[int],
        progress: Progress | None,
        apart: Sequence[bool] | None = None,
        rows: int = 1,
    ) -> list[Any]:
        """Runs a graph function with ``run_batches``; if memory runs out, the error says which settings to change.

        ``rows`` is the number of rows that a sentence takes in a batch.
        """
        hparams = self.decode_hparams
        size, positions = max(1, hparams.batch_size // rows), max(1, MAX_BATCH_POSITIONS // rows)
        batches = similar_lengths(lengths, size, apart, positions)
        try:
            return run_batches(function, given, read, batches, self.parallel_batches, progress)
        except (tf.errors.ResourceExhaustedError, MemoryError) as error:
            kept = "num_hypotheses" if self.samples else "beam_size"
            raise UserError(
                f"Memory ran out: choose a smaller batch_size (now {hparams.batch_size}), {kept} "
                f"({getattr(hparams, kept)}) or max_input_length ({hparams.max_input_length}) in the decode hparams."
            ) from error


def _load_model(
    chosen: ChosenRun,
    source_encoder: SubwordEncoder,
    target_encoder: SubwordEncoder,
    precision: str,
    *,
    for_training: bool,
) -> Seq2Seq:
    """Returns the model of a checkpoint; an empty precision means the precision of the run."""
    hparams = chosen.run.hparams()
    precision = precision or hparams.precision
    if not chosen.checkpoint.exists():
        raise UserError(f"Training has removed the checkpoint {chosen.checkpoint} meanwhile. Repeat the command.")
    arrays = checkpoints.load_arrays(chosen.checkpoint, checkpoints.read_info(chosen.checkpoint).users_group)
    model = build_model(
        registry.model(chosen.run.config.model),
        hparams,
        source_encoder,
        target_encoder,
        source_feature_size=chosen.run.config.source_feature_size,
        dtype=precision if for_training else _INFERENCE_PRECISION.get(precision, precision),
    )
    model.assign(arrays, origin=chosen.checkpoint)
    return model


def _check_precision(model: Seq2Seq, precision: str) -> None:
    """Raises a UserError if an existing model has a different precision from the one in the decode hparams."""
    if precision and precision.removeprefix("mixed_") != model.compute_dtype:
        raise UserError(
            f"precision={precision}: this {type(model).__name__} computes in {model.compute_dtype}. Leave precision "
            f'out, load the run with it (Translator.load), or make the model with dtype="{precision}".'
        )


def _nothing_in(sources: tf.Tensor) -> tf.Tensor:
    """Returns which sources, ids [B, S] or features [B, S, F], have neither subwords nor regions, bool [B]."""
    return ~tf.reduce_any(words_of_source(sources), axis=1)


def _alignment(aligned: Mapping[str, list[bytes]], row: int) -> str:
    return aligned["alignments"][row].decode()


def _strings(texts: Sequence[str] | None, batch: np.ndarray) -> tf.Tensor | None:
    """Returns the texts of a batch as a string tensor [B], or None without texts."""
    return None if texts is None else tf.constant([texts[i] for i in batch], tf.string)


def _right_to_left(count: int, partners: Sequence[str] | None, directions: Sequence[str] | None) -> np.ndarray:
    """Returns which of ``count`` translations are generated right to left, bool [count], and checks the arguments."""
    if directions is not None and partners is None:
        raise UserError("directions say which side of a synchronous model a translation is: give the partners, too.")
    for given, what in ((partners, "partners"), (directions, "directions")):
        if given is not None and len(given) != count:
            raise UserError(f"{len(given)} {what} for {count} translations: give one for each.")
    wrong = sorted(set(directions or ()) - {"l2r", "r2l"})
    if wrong:
        raise UserError(f"The direction {wrong[0]!r} of a translation is unknown: l2r or r2l.")
    return np.array([direction == "r2l" for direction in directions or ["l2r"] * count], bool)


def _checked(lines: Sequence[Any], what: str) -> list[Any]:
    """Returns the lines as a list; a single string, or a line with half a surrogate pair, raises a UserError."""
    if isinstance(lines, str):
        raise UserError(f"A list of {what} is needed, got one string; write [text] instead of text.")
    lines = list(lines)
    for number, line in enumerate(lines, 1):
        found = _HALF_A_PAIR.search(line) if isinstance(line, str) else None
        if found:
            raise UserError(
                f"{what}, number {number}: U+{ord(found[0]):04X} is half a surrogate pair, which is no character. Read "
                'files as UTF-8, or replace it: text.encode("utf-8", "replace").decode().'
            )
    return lines
