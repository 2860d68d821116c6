"""The one way to translate: lists of strings in, translations out.

translator = Translator.load("RUN")
translator(["Guten Morgen.", "Wie geht es dir?"])
"""

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.decode import DecodeHParams, resolve_decode_hparams
from t2t_ext.data.features.float_files import padded
from t2t_ext.data.features.sources import FeatureSource
from t2t_ext.data.text.text_encoder import PAD_ID, SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.layers.masks import real_positions
from t2t_ext.models.ensemble import Ensemble
from t2t_ext.models.seq2seq import Seq2Seq, build_model
from t2t_ext.runs import checkpoints
from t2t_ext.runs.chosen_runs import ChosenRun, Paths, choose_runs, normalized_weights
from t2t_ext.search.beam_search import at_least_wide
from t2t_ext.search.lexical_constraints import SEPARATOR, join_phrases
from t2t_ext.search.search_options import BLANKS
from t2t_ext.translation.alignment import AlignmentConfig
from t2t_ext.translation.graph_translator import GraphTranslator

# A batch of long sentences holds fewer of them: attention's memory grows with the square of the length.
_MAX_BATCH_POSITIONS = 16384
_WIDTH_MULTIPLE = 8
# Training keeps float32 weights beside the low-precision products; for translating, the low-precision copy is enough.
_INFERENCE_PRECISION = {"mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}

# Log-probability below which a place among the hypotheses is empty.
_NOT_THERE = -5e8

Progress = Callable[[int, int], None]
Sources = Sequence[FeatureSource | np.ndarray]
_FEATURES = tf.TensorSpec([None, None, None], tf.float32)


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A translation of a line.

    Attributes:
      text: The translation, restored for people.
      log_prob: Natural logarithm of its probability, EOS included.
      length: Tokens with EOS.
      score: log_prob divided by the length penalty.
      finished: False if the length limit ended it.
      ids: Its token ids in the order in which they were written, with EOS where finished.
      unmet_constraints: Phrases that it was to hold and does not; None where no phrases were given.
      prepared: The translation as the model wrote it, words as the steps of the target text make them; the same as
        ``text`` where there are no steps.
      direction: In which direction it was written: ``l2r`` or ``r2l``.
    """

    text: str
    log_prob: float
    length: int
    score: float
    finished: bool
    ids: tuple[int, ...]
    unmet_constraints: int | None = None
    prepared: str = ""
    direction: str = "l2r"


class _Read(NamedTuple):
    """Lines as the model reads them.

    Attributes:
      graph: What the graph takes, strings.
      lengths: int64 [lines], the subwords of each, without EOS, before any is cut.
    """

    graph: list[str]
    lengths: np.ndarray


@dataclasses.dataclass(frozen=True)
class PairScore:
    """What the model thinks of a given translation.

    Attributes:
      log_prob: Natural logarithm of its probability, EOS included.
      length: Tokens with EOS.
      score: log_prob divided by the length penalty.
      token_log_probs: Of each token in text order, EOS last.
    """

    log_prob: float
    length: int
    score: float
    token_log_probs: tuple[float, ...]


class Translator(GraphTranslator):
    """Translates lists of strings in batches of similar lengths, several at a time.

    The result of a line does not depend on the other lines, nor on their order.

    Attributes:
      truncated_lines: How many lines of the last call were cut at max_input_length subwords.
      truncated_line_numbers: Which ones, counted from 1.
      unmet_prefix_line_numbers: Lines of the last call whose translation holds only the beginning of its prefix, since
        the length limit ended it or a character is not in the vocabulary.
      unmet_constraint_line_numbers: Lines of the last call whose best translation lacks some of its phrases.
      parallel_batches: Batches searched at the same time, on threads. With TensorFlow's intra-op threads set to
        1, as the commands do, one a core is fastest.
    """

    parallel_batches: int = max(1, os.cpu_count() or 1)
    positions: str = "subwords"  # what max_input_length counts
    truncated_lines: int = 0
    truncated_line_numbers: tuple[int, ...] = ()
    unmet_prefix_line_numbers: tuple[int, ...] = ()
    unmet_constraint_line_numbers: tuple[int, ...] = ()

    @classmethod
    def load(
        cls,
        run_dir: Paths,
        checkpoint_path: Paths | None = None,
        decode_hparams: str | DecodeHParams | None = None,
        warn: Callable[[str], None] | None = None,
        *,
        ensemble_weights: Sequence[float] | None = None,
        alignment: AlignmentConfig | None = None,
    ) -> Self:
        """Loads the translator of a run, or of several as an ensemble.

        Args:
          run_dir: The run's directory (``--output_dir`` of the trainer), or several.
          checkpoint_path: A checkpoint; ``best`` or ``averaged`` mean the run's. None: its latest good one. Several:
            one for each run, or an ensemble of one run's.
          decode_hparams: How to search: DecodeHParams, or overrides as ``"beam_size=4,alpha=0.6"``.
          warn: Told of checkpoints that were passed over because they are damaged.
          ensemble_weights: Shares of the members in the probability, in any unit; None: equal ones.
          alignment: Which attention word alignments are read from; None: the defaults.

        Returns:
          A translator with the checkpoint's weights (their moving average, where the run keeps one).

        Raises:
          UserError: If there is no run, no checkpoint, or they do not fit.
        """
        if not isinstance(decode_hparams, DecodeHParams):
            decode_hparams = resolve_decode_hparams(decode_hparams or "")
        chosen = choose_runs(run_dir, checkpoint_path, warn=warn)
        weights = normalized_weights(ensemble_weights, len(chosen))
        encoders = chosen[0].run.text_encoders()
        models = [_load_model(each, *encoders, decode_hparams.precision) for each in chosen]
        direction = models[0].hparams.target_direction
        model = models[0] if len(models) == 1 else Ensemble(models, weights)
        kind = FeatureTranslator if model.source_feature_size else cls
        translator = kind(model, *encoders, decode_hparams, direction, alignment)
        translator.checkpoint_path = chosen[0].checkpoint
        return translator

    def __call__(self, lines: Sequence[str]) -> list[str]:
        """Returns the best translation of every line, in order; an empty line's is empty."""
        return [hypotheses[0].text for hypotheses in self.translate(lines)]

    def translate(
        self,
        lines: Sequence[str],
        progress: Progress | None = None,
        *,
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Returns the ``num_hypotheses`` best translations of every line, best first; samples in drawing order.

        Args:
          lines: Source sentences, raw text.
          progress: Called with (lines done, lines in all) after every batch.
          prefixes: How each line's translations begin, "" = as the model wants; see ``search_with_prefix_batch``.
          constraints: The phrases that each line's translations must hold; see
            ``t2t_ext.search.lexical_constraints``. Both are raw text, too.

        Returns:
          A list for each line: fewer than ``num_hypotheses`` where prefixes and other rules leave fewer translations.

        Raises:
          UserError: As many prefixes as lines are needed, and a model that writes left to right; as many lists of
            constraints, and decode hparams that go with them.
        """
        lines = _checked(lines, "lines")
        prefixes = None if prefixes is None else _checked(prefixes, "prefixes")
        if prefixes is not None and len(prefixes) != len(lines):
            raise UserError(f"{len(prefixes)} prefixes for {len(lines)} lines: give one for each line, empty for none.")
        phrases = None
        if constraints is not None:
            phrases = self._graph_phrases(join_phrases(constraints, len(lines)))
            self.decode_hparams.check_constraints()
        source = self._read_sources(lines)
        if prefixes is not None:
            prefixes = _keeping_blanks(prefixes, self.target_encoder.prepare)
        graph_prefixes = None if prefixes is None else _keeping_blanks(prefixes, self.target_encoder.segment)
        results: list[list[Hypothesis]] = [[] for _ in lines]

        def search(batch: np.ndarray) -> None:
            found = self._search_lines(batch, source, graph_prefixes, phrases)
            for row, line in enumerate(batch):
                results[line] = _hypotheses(found, row, self.target_encoder)

        (lengths,) = self._cut_lengths(source)
        # Lines without phrases are searched by themselves, at the usual speed.
        batches = self._batches(lengths, None if phrases is None else np.array([bool(each) for each in phrases], bool))
        self._run(search, batches, len(lines), progress)
        self.unmet_constraint_line_numbers = tuple(
            i for i, found in enumerate(results, 1) if found[0].unmet_constraints
        )
        self.unmet_prefix_line_numbers = self._unmet(prefixes or [], results)
        return results

    def translate_ids(
        self, sources: Sequence[Sequence[int]], progress: Progress | None = None
    ) -> list[list[Hypothesis]]:
        """Returns what ``translate`` does of sources that are kept as ids with EOS; none is cut."""
        results: list[list[Hypothesis]] = [[] for _ in sources]

        def search(batch: np.ndarray) -> None:
            width = max(len(sources[i]) for i in batch)
            ids = np.full((len(batch), width), PAD_ID, np.int32)
            for row, i in enumerate(batch):
                ids[row, : len(sources[i])] = sources[i]
            found = {name: value.numpy() for name, value in self.search_ids_batch(tf.constant(ids)).items()}
            for row, i in enumerate(batch):
                results[i] = _hypotheses(found, row, self.target_encoder)

        lengths = np.array([len(ids) for ids in sources], np.int64)
        self._run(search, self._batches(lengths), len(sources), progress)
        return results

    def _read(self, encoder: SubwordEncoder, lines: list[str]) -> _Read:
        """Returns raw lines of one side as the model reads them."""
        prepared = encoder.prepare(lines)
        lengths = np.array([len(ids) for ids in encoder.encode_batch(prepared)], np.int64)
        return _Read(encoder.segment(prepared), lengths)

    def _read_sources(self, sources: list) -> _Read:
        """Returns sources as the model reads them."""
        return self._read(self.source_encoder, sources)

    def _inputs(self, source: _Read, numbers: Iterable[int]) -> tf.Tensor:
        """Returns the sources with these numbers as the graph takes them: strings [B]."""
        return tf.constant([source.graph[i] for i in numbers], tf.string)

    def _search_lines(
        self, batch: np.ndarray, source: _Read, prefixes: list[str] | None, phrases: list[str] | None
    ) -> dict[str, np.ndarray]:
        """Searches for translations of some sources; all strings are as the graph reads them."""

        def chosen(strings: Sequence[str]) -> tf.Tensor:
            return tf.constant([strings[i] for i in batch], tf.string)

        constrained = phrases is not None and any(phrases[i] for i in batch)
        inputs = self._inputs(source, batch)
        if constrained and prefixes is not None:
            found = self.search_with_constraints_and_prefix_batch(inputs, chosen(phrases), chosen(prefixes))
        elif constrained:
            found = self.search_with_constraints_batch(inputs, chosen(phrases))
        elif prefixes is not None:
            found = self.search_with_prefix_batch(inputs, chosen(prefixes))
        else:
            found = self.search_batch(inputs)
        return {name: value.numpy() for name, value in found.items()}

    def _graph_phrases(self, joined: list[str]) -> list[str]:
        """Returns constraints, raw phrases separated by tabs, as the graph reads them."""
        encoder = self.target_encoder
        if encoder.takes_raw_text:
            return joined
        phrases = [line.split(SEPARATOR) if line else [] for line in joined]
        return [SEPARATOR.join(encoder.segment(encoder.prepare_phrases(each))) for each in phrases]

    def _unmet(self, prefixes: Sequence[str], results: Sequence[Sequence[Hypothesis]]) -> tuple[int, ...]:
        """Returns the numbers, from 1, of the lines that do not begin with their whole prefix."""
        prefix_ids = self.target_encoder.encode_batch([prefix.rstrip(BLANKS) for prefix in prefixes])
        begins = [tuple(ids) == found[0].ids[: len(ids)] for ids, found in zip(prefix_ids, results, strict=False)]
        return tuple(i for i, met in enumerate(begins, 1) if not met and results[i - 1][0].length)

    def score(
        self,
        pairs: Sequence[tuple[str, str]],
        progress: Progress | None = None,
        *,
        partners: Sequence[str] | None = None,
        directions: Sequence[str] | None = None,
    ) -> list[PairScore]:
        """Returns the model's score of every (source, translation) pair.

        The translation is encoded anew; use ``score_ids_batch`` to score exactly the tokens that a search chose.

        Args:
          pairs: Raw text.
          progress: Called with (pairs done, pairs in all) after every batch.
          partners: Of a model that writes in two directions, and only of one, what the other direction writes beside
            each translation, raw text in text order.
          directions: In which direction each translation is written then, ``l2r`` or ``r2l``; None: all ``l2r``.

        Raises:
          UserError: The model writes in two directions and there are no partners, or the other way round.
        """
        results: list[PairScore | None] = [None] * len(pairs)

        def keep(batch: np.ndarray, scored: dict[str, tf.Tensor]) -> None:
            scored = {name: value.numpy() for name, value in scored.items()}
            for row, i in enumerate(batch):
                length = int(scored["lengths"][row])
                results[i] = PairScore(
                    log_prob=float(scored["log_probs"][row]),
                    length=length,
                    score=float(scored["scores"][row]),
                    token_log_probs=tuple(map(float, scored["token_log_probs"][row, :length])),
                )

        self._force((self.score_batch, self.score_sides_batch), keep, pairs, progress, partners, directions)
        return results

    def align(
        self,
        pairs: Sequence[tuple[str, str]],
        progress: Progress | None = None,
        *,
        partners: Sequence[str] | None = None,
        directions: Sequence[str] | None = None,
    ) -> list[str]:
        """Returns the word alignment of every (source, translation) pair, such as ``0-0 2-1 1-2``.

        The words are those of the prepared texts: ``isn't`` is two of them after Moses' tokenizer.
        The translation is encoded anew; ``align_hypotheses`` takes exactly the tokens that a search chose.
        Arguments are those of ``score``.

        Raises:
          UserError: As ``score``; or the model has no attention, layer or head as ``alignment`` says.
        """
        results = [""] * len(pairs)

        def keep(batch: np.ndarray, aligned: dict[str, tf.Tensor]) -> None:
            for i, line in zip(batch, aligned["alignments"].numpy(), strict=True):
                results[i] = line.decode()

        self._force((self.align_batch, self.align_sides_batch), keep, pairs, progress, partners, directions)
        return results

    def _force(
        self,
        functions: tuple[Callable[..., dict[str, tf.Tensor]], Callable[..., dict[str, tf.Tensor]]],
        keep: Callable[[np.ndarray, dict[str, tf.Tensor]], None],
        pairs: Sequence[tuple[str, str]],
        progress: Progress | None,
        partners: Sequence[str] | None,
        directions: Sequence[str] | None,
    ) -> None:
        """Runs a forced pass over pairs, in batches: one of the functions, for one direction and for two.

        What it gives is handed to ``keep`` with the numbers of the batch's pairs.
        """
        sources = _checked([source for source, _ in pairs], "sources")
        targets = _checked([target for _, target in pairs], "translations")
        source, texts = self._read_sources(sources), [self._read(self.target_encoder, targets)]
        right_to_left = _right_to_left(len(pairs), partners, directions)
        if partners is None:
            function = functions[0]
        else:
            texts.append(self._read(self.target_encoder, _checked(partners, "partners")))
            function = functions[1]

        def run(batch: np.ndarray) -> None:
            sides = [] if partners is None else [tf.constant(right_to_left[batch])]
            keep(batch, function(self._inputs(source, batch), *(_chosen(text, batch) for text in texts), *sides))

        lengths = np.max(self._cut_lengths(source, *texts), axis=0)
        self._run(run, self._batches(lengths), len(pairs), progress)

    def align_hypotheses(
        self, lines: Sequence[str], hypotheses: Sequence[Sequence[Hypothesis]], progress: Progress | None = None
    ) -> list[list[str]]:
        """Returns the word alignments of what ``translate`` found.

        Args:
          lines: Source sentences.
          hypotheses: Translations of each of them, as from ``translate``.
          progress: Called with (translations done, translations in all) after every batch.

        Raises:
          UserError: As ``align``.
        """
        source = self._read(self.source_encoder, _checked(lines, "lines"))
        flat = [(row, n) for row, found in enumerate(hypotheses) for n in range(len(found))]
        ids = [hypotheses[row][n].ids for row, n in flat]
        results = [[""] * len(found) for found in hypotheses]

        def align(batch: np.ndarray) -> None:
            width = max(len(ids[i]) for i in batch)
            rows = np.array([[*ids[i], *[PAD_ID] * (width - len(ids[i]))] for i in batch], np.int32)
            sources = tf.constant([source.graph[flat[i][0]] for i in batch], tf.string)
            aligned = self.align_ids_batch(sources, tf.constant(rows))
            for i, line in zip(batch, aligned["alignments"].numpy(), strict=True):
                row, n = flat[i]
                results[row][n] = line.decode()

        (lengths,) = self._cut_lengths(source)
        longest = np.array([max(lengths[row], len(ids[i])) for i, (row, _) in enumerate(flat)], np.int64)
        self._run(align, self._batches(longest), len(flat), progress)
        return results

    def score_ids(
        self, lines: Sequence[str], ids: Sequence[Sequence[Sequence[int]]], progress: Progress | None = None
    ) -> list[list[PairScore]]:
        """Returns the model's scores of translations given as token ids, several for each line (forced decoding).

        Args:
          lines: Source sentences.
          ids: For each of them token ids in the model's direction with EOS, as ``Hypothesis.ids``; none empty.
          progress: Called with (translations done, translations in all) after every batch.
        """
        source = self._read_sources(_checked(lines, "lines"))
        flat = [(row, n) for row, found in enumerate(ids) for n in range(len(found))]
        results: list[list[PairScore | None]] = [[None] * len(found) for found in ids]

        def score(batch: np.ndarray) -> None:
            chosen = [ids[row][n] for row, n in (flat[i] for i in batch)]
            # Few widths: oneDNN compiles every product for each shape.
            width = -(-max(map(len, chosen)) // _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE
            rows = np.array([[*each, *[PAD_ID] * (width - len(each))] for each in chosen], np.int32)
            sources = self._inputs(source, (flat[i][0] for i in batch))
            scored = {name: value.numpy() for name, value in self.score_ids_batch(sources, rows).items()}
            for place, i in enumerate(batch):
                row, n = flat[i]
                log_probs = scored["token_log_probs"][place, : len(chosen[place])]
                if self.target_direction == "r2l":
                    log_probs = np.append(log_probs[-2::-1], log_probs[-1])
                results[row][n] = PairScore(
                    log_prob=float(scored["log_probs"][place]),
                    length=int(scored["lengths"][place]),
                    score=float(scored["scores"][place]),
                    token_log_probs=tuple(map(float, log_probs)),
                )

        (lengths,) = self._cut_lengths(source)
        longest = np.array([max(lengths[row], len(ids[row][n])) for row, n in flat], np.int64)
        self._run(score, self._batches(longest), len(flat), progress)
        return results

    def check_alignment(self, *, with_partners: bool = False) -> None:
        """Finds out before hours of work whether the model can be aligned as ``alignment`` says.

        Args:
          with_partners: Whether a model that writes in two directions is going to get the other direction's, too.

        Raises:
          UserError: As ``align``.
        """
        function = self.align_sides_batch if with_partners and self.two_sided else self.align_ids_batch
        function.get_concrete_function()

    def _cut_lengths(self, *sides: _Read) -> list[np.ndarray]:
        """Returns the subwords read of each line, int64 [lines] for each side, and notes which lines are cut."""
        limit = self.decode_hparams.max_input_length
        cut = np.flatnonzero(np.any([side.lengths > limit for side in sides], axis=0))
        self.truncated_lines = len(cut)
        self.truncated_line_numbers = tuple(int(i) + 1 for i in cut)
        return [np.minimum(side.lengths, limit) for side in sides]

    def _batches(self, lengths: np.ndarray, apart: np.ndarray | None = None) -> list[np.ndarray]:
        """Groups lines of similar lengths, longest first, so that the last batches are the quick ones.

        Args:
          lengths: int64 [lines].
          apart: bool [lines], lines that share no batch with the others, and come first.
        """
        if apart is not None:
            kinds = [np.flatnonzero(apart), np.flatnonzero(~apart)]
            return [kind[batch] for kind in kinds for batch in self._batches(lengths[kind])]
        order = np.argsort(-lengths, kind="stable")
        batches, start = [], 0
        while start < len(order):
            longest = max(1, int(lengths[order[start]]))
            rows = min(self.decode_hparams.batch_size, max(1, _MAX_BATCH_POSITIONS // longest))
            batches.append(order[start : start + rows])
            start += rows
        return batches

    def _run(
        self, function: Callable[[np.ndarray], None], batches: list[np.ndarray], total: int, progress: Progress | None
    ) -> None:
        """Runs the function on every batch, ``parallel_batches`` at a time."""
        done = 0
        with concurrent.futures.ThreadPoolExecutor(self.parallel_batches) as pool:
            futures = {pool.submit(function, batch): len(batch) for batch in batches}
            try:
                for future in concurrent.futures.as_completed(futures):
                    future.result()
                    done += futures[future]
                    if progress is not None:
                        progress(done, total)
            except (tf.errors.ResourceExhaustedError, MemoryError) as error:
                pool.shutdown(cancel_futures=True)
                hparams = self.decode_hparams
                raise UserError(
                    f"Memory ran out: choose a smaller batch_size (now {hparams.batch_size}), beam_size "
                    f"({hparams.beam_size}) or max_input_length ({hparams.max_input_length}) in the decode hparams."
                ) from error
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def translator_for(model: Seq2Seq | Ensemble, *args: Any, **options: Any) -> Translator:
    """Returns the Translator for a model; arguments as of ``Translator``."""
    return (FeatureTranslator if model.source_feature_size else Translator)(model, *args, **options)


def _of_features(function: Any) -> Any:
    """Returns a graph function whose first argument is features float32 [B, S, F] instead of strings [B]."""
    signature = [_FEATURES, *function.input_signature[1:]]
    return tf.function(function.python_function, input_signature=signature, autograph=False)


class FeatureTranslator(Translator):
    """Writes texts for lists of arrays.

    Wherever ``Translator`` has strings, the sources are ``FeatureSource``s or arrays float [regions, F], in graph
    functions float32 [B, S, F] whose vectors of zeros alone are padding. A source without regions has nothing to be
    written of. Word alignments there are none.
    """

    positions = "feature vectors"
    translate_batch = _of_features(GraphTranslator.translate_batch)
    nbest_batch = _of_features(GraphTranslator.nbest_batch)
    search_batch = _of_features(GraphTranslator.search_batch)
    search_with_prefix_batch = _of_features(GraphTranslator.search_with_prefix_batch)
    translate_with_prefix_batch = _of_features(GraphTranslator.translate_with_prefix_batch)
    search_with_constraints_batch = _of_features(GraphTranslator.search_with_constraints_batch)
    search_with_constraints_and_prefix_batch = _of_features(GraphTranslator.search_with_constraints_and_prefix_batch)
    translate_with_constraints_batch = _of_features(GraphTranslator.translate_with_constraints_batch)
    sample_batch = _of_features(GraphTranslator.sample_batch)
    score_batch = _of_features(GraphTranslator.score_batch)
    score_sides_batch = _of_features(GraphTranslator.score_sides_batch)
    score_ids_batch = _of_features(GraphTranslator.score_ids_batch)
    score_sides_ids_batch = _of_features(GraphTranslator.score_sides_ids_batch)

    @property
    def source_spec(self) -> tf.TensorSpec:
        """What graph functions take as sources, F known."""
        return tf.TensorSpec([None, None, self.model.source_feature_size], tf.float32, name="inputs")

    def warmup_inputs(self) -> list[np.ndarray]:
        """Returns sources float32 [B, S, F] to try an exported model on: one, then several with padding."""
        size = self.model.source_feature_size
        pattern = np.sin(np.arange(4 * 6 * size, dtype=np.float32)).reshape(4, 6, size)
        pattern[1, 2:] = 0.0
        pattern[2] = 0.0
        return [pattern[:1], pattern]

    def translate(
        self,
        lines: Sources,
        progress: Progress | None = None,
        *,
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Returns the ``num_hypotheses`` best texts for every source; as ``Translator.translate``."""
        return super().translate(lines, progress, prefixes=prefixes, constraints=constraints)

    def translate_ids(self, sources: Sources, progress: Progress | None = None) -> list[list[Hypothesis]]:
        """Returns what ``translate`` does: there are no ids."""
        return self.translate(sources, progress)

    def align_hypotheses(self, lines: Any, hypotheses: Any, progress: Any = None) -> NoReturn:
        """Refuses; see ``check_alignment``."""
        del lines, hypotheses, progress
        self._refuse_alignment()

    def check_alignment(self, *, with_partners: bool = False) -> NoReturn:
        """Refuses.

        Raises:
          UserError: Always: feature vectors are no words.
        """
        del with_partners
        self._refuse_alignment()

    # === Parts ===

    def _refuse_alignment(self) -> NoReturn:
        raise UserError(
            "There is no word alignment with a source of feature vectors, which has no words: leave the alignments "
            "out. Which regions a word looks at is in the model's attention_weights."
        )

    def _blank(self, inputs: tf.Tensor) -> tf.Tensor:
        return ~tf.reduce_any(real_positions(inputs), axis=1)

    def _source_lengths(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(real_positions(ids), tf.int32), axis=1)

    def _source_ids(self, lines: tf.Tensor) -> tf.Tensor:
        """Cuts features float32 [B, S, F] at max_input_length regions and checks F."""
        features = tf.ensure_shape(lines, [None, None, self.model.source_feature_size])
        return at_least_wide(features[:, : self.decode_hparams.max_input_length])

    def _marked_source_ids(self, lines: tf.Tensor) -> NoReturn:
        del lines
        self._refuse_alignment()

    def _read_sources(self, sources: list) -> _Read:
        """Checks arrays; what is read are they.

        Raises:
          UserError: A source is no array of feature vectors of the model's size.
        """
        size = self.model.source_feature_size
        arrays = []
        for number, source in enumerate(sources, 1):
            rows = source.rows if isinstance(source, FeatureSource) else source
            shape = getattr(rows, "shape", None)
            if shape is None or len(shape) != 2 or shape[1] != size:
                what = f"{type(rows).__name__} {rows!r:.60}" if shape is None else f"an array of shape {list(shape)}"
                raise UserError(
                    f"Source {number} is {what}, but this model reads feature vectors: float [regions, {size}]."
                )
            arrays.append(rows)
        return _Read(arrays, np.array([len(rows) for rows in arrays], np.int64))

    def _inputs(self, source: _Read, numbers: Iterable[int]) -> tf.Tensor:
        limit = self.decode_hparams.max_input_length
        arrays = [source.graph[i][:limit] for i in numbers]
        width = max(map(len, arrays))
        return tf.constant(padded(arrays, width, self.model.source_feature_size, np.float32))


def _load_model(
    chosen: ChosenRun, source_encoder: SubwordEncoder, target_encoder: SubwordEncoder, precision: str
) -> Seq2Seq:
    """Returns the model of a checkpoint; the precision is the run's where it is empty."""
    hparams = chosen.run.hparams()
    precision = precision or hparams.precision
    model = build_model(
        registry.model(chosen.run.config.model),
        hparams,
        source_encoder,
        target_encoder,
        source_feature_size=chosen.run.config.source_feature_size,
        dtype=_INFERENCE_PRECISION.get(precision, precision),
    )
    group = "ema" if "ema" in checkpoints.read_info(chosen.checkpoint).groups else "model"
    model.assign(checkpoints.load_arrays(chosen.checkpoint, group))
    return model


def _chosen(lines: _Read, batch: np.ndarray) -> tf.Tensor:
    """Returns some lines as a string tensor [B]."""
    return tf.constant([lines.graph[i] for i in batch], tf.string)


def _keeping_blanks(prefixes: Sequence[str], function: Callable[[list[str]], list[str]]) -> list[str]:
    """Applies a function to prefixes without the blanks at their ends, which then follow again."""
    bodies = [prefix.rstrip(BLANKS) for prefix in prefixes]
    rows = zip(function(bodies), prefixes, bodies, strict=True)
    return [made + prefix[len(body) :] for made, prefix, body in rows]


def _hypotheses(found: dict[str, np.ndarray], row: int, encoder: SubwordEncoder) -> list[Hypothesis]:
    """Returns the hypotheses of a row, without the places that none has taken."""
    there = np.flatnonzero(found["log_probs"][row] > _NOT_THERE)
    return [_hypothesis(found, row, n, encoder) for n in (there if len(there) else [0])]


def _hypothesis(found: dict[str, np.ndarray], row: int, n: int, encoder: SubwordEncoder) -> Hypothesis:
    ids = found["ids"][row, n]
    prepared = encoder.join([found["outputs"][row, n].decode("utf-8", errors="replace")])
    return Hypothesis(
        text=encoder.restore(prepared)[0],
        prepared=prepared[0],
        log_prob=float(found["log_probs"][row, n]),
        length=int(found["lengths"][row, n]),
        score=float(found["scores"][row, n]),
        finished=bool(found["finished"][row, n]),
        ids=tuple(int(i) for i in ids if i != PAD_ID),
        unmet_constraints=int(found["unmet_constraints"][row, n]) if "unmet_constraints" in found else None,
        direction="r2l" if found["directions"][row, n] else "l2r",
    )


def _right_to_left(count: int, partners: Sequence[str] | None, directions: Sequence[str] | None) -> np.ndarray:
    """Returns which of so many translations are written right to left, bool, and checks what is given."""
    if directions is not None and partners is None:
        raise UserError("directions say which side of a synchronous model a translation is: give the partners, too.")
    for given, what in ((partners, "partners"), (directions, "directions")):
        if given is not None and len(given) != count:
            raise UserError(f"{len(given)} {what} for {count} translations: give one for each.")
    wrong = sorted(set(directions or ()) - {"l2r", "r2l"})
    if wrong:
        raise UserError(f"The direction {wrong[0]!r} of a translation is unknown: l2r or r2l.")
    return np.array([direction == "r2l" for direction in directions or ["l2r"] * count], bool)


def _checked(lines: Sequence[str], what: str) -> list[str]:
    """Returns the lines as a list, or explains that a single string is not one."""
    if isinstance(lines, str):
        raise UserError(f"A list of {what} is needed, got one string; write [text] instead of text.")
    return list(lines)
