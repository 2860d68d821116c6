"""The one way to translate: lists of strings in, translations out.

translator = Translator.load("RUN")
translator(["Guten Morgen.", "Wie geht es dir?"])
"""

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.data.text_encoder import PAD_ID, SubwordEncoder
from t2t_ext.decoding.graph_translator import GraphTranslator
from t2t_ext.errors import UserError
from t2t_ext.hyperparameters import DecodeHParams, resolve_decode_hparams
from t2t_ext.models.seq2seq import build_model
from t2t_ext.persistence import checkpoints
from t2t_ext.persistence.run_directory import RunDirectory

# A batch of long sentences holds fewer of them: attention's memory grows with the square of the length.
_MAX_BATCH_POSITIONS = 16384
# Training keeps float32 weights beside the low-precision products; for translating, the low-precision copy is enough.
_INFERENCE_PRECISION = {"mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A translation of a line.

    Attributes:
      text: The translation.
      log_prob: Natural logarithm of its probability, EOS included.
      length: Tokens with EOS.
      score: log_prob divided by the length penalty.
      finished: False if the length limit ended it.
      ids: Its token ids in the model's direction, with EOS where finished.
    """

    text: str
    log_prob: float
    length: int
    score: float
    finished: bool
    ids: tuple[int, ...]


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
      parallel_batches: Batches searched at the same time, on threads. With TensorFlow's intra-op threads set to
        1, as the commands do, one a core is fastest.
    """

    parallel_batches: int = max(1, os.cpu_count() or 1)
    truncated_lines: int = 0
    truncated_line_numbers: tuple[int, ...] = ()

    @classmethod
    def load(
        cls,
        run_dir: str | os.PathLike,
        checkpoint_path: str | os.PathLike | None = None,
        decode_hparams: str | DecodeHParams | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> Self:
        """Loads the translator of a run.

        Args:
          run_dir: The run's directory (``--output_dir`` of the trainer).
          checkpoint_path: A checkpoint; ``best`` or ``averaged`` mean the run's. None: its latest good one.
          decode_hparams: How to search: DecodeHParams, or overrides as ``"beam_size=4,alpha=0.6"``.
          warn: Told of checkpoints that were passed over because they are damaged.

        Returns:
          A translator with the checkpoint's weights (their moving average, where the run keeps one).

        Raises:
          UserError: If there is no run, no checkpoint, or they do not fit.
        """
        if not isinstance(decode_hparams, DecodeHParams):
            decode_hparams = resolve_decode_hparams(decode_hparams or "")
        run = RunDirectory.open(run_dir)
        run.load_user_code()
        hparams = run.hparams()
        source_encoder, target_encoder = run.text_encoders()
        path = checkpoints.resolve_checkpoint(run_dir, checkpoint_path, warn=warn)
        model_class = registry.model(run.config.model)
        precision = decode_hparams.precision or hparams.precision
        precision = _INFERENCE_PRECISION.get(precision, precision)
        model = build_model(model_class, hparams, source_encoder, target_encoder, dtype=precision)
        group = "ema" if "ema" in checkpoints.read_info(path).groups else "model"
        model.assign(checkpoints.load_arrays(path, group))
        translator = cls(model, source_encoder, target_encoder, decode_hparams, hparams.target_direction)
        translator.checkpoint_path = path
        return translator

    def __call__(self, lines: Sequence[str]) -> list[str]:
        """Returns the best translation of every line, in order; an empty line's is empty."""
        return [hypotheses[0].text for hypotheses in self.translate(lines)]

    def translate(self, lines: Sequence[str], progress: Progress | None = None) -> list[list[Hypothesis]]:
        """Returns the ``num_hypotheses`` best translations of every line, best first.

        Args:
          lines: Source sentences.
          progress: Called with (lines done, lines in all) after every batch.
        """
        lines = _checked(lines, "lines")
        results: list[list[Hypothesis]] = [[] for _ in lines]

        def search(batch: np.ndarray) -> None:
            found = self.search_batch(tf.constant([lines[i] for i in batch], tf.string))
            found = {name: value.numpy() for name, value in found.items()}
            for row, line in enumerate(batch):
                results[line] = [_hypothesis(found, row, n) for n in range(found["scores"].shape[1])]

        (lengths,) = self._lengths((self.source_encoder, lines))
        self._run(search, self._batches(lengths), len(lines), progress)
        return results

    def score(self, pairs: Sequence[tuple[str, str]], progress: Progress | None = None) -> list[PairScore]:
        """Returns the model's score of every (source, translation) pair.

        The translation is encoded anew; use ``score_ids_batch`` to score exactly the tokens that a search chose.
        """
        sources = _checked([source for source, _ in pairs], "sources")
        targets = _checked([target for _, target in pairs], "translations")
        results: list[PairScore | None] = [None] * len(sources)

        def score(batch: np.ndarray) -> None:
            scored = self.score_batch(
                tf.constant([sources[i] for i in batch], tf.string), tf.constant([targets[i] for i in batch], tf.string)
            )
            scored = {name: value.numpy() for name, value in scored.items()}
            for row, i in enumerate(batch):
                length = int(scored["lengths"][row])
                results[i] = PairScore(
                    log_prob=float(scored["log_probs"][row]),
                    length=length,
                    score=float(scored["scores"][row]),
                    token_log_probs=tuple(map(float, scored["token_log_probs"][row, :length])),
                )

        lengths = np.maximum(*self._lengths((self.source_encoder, sources), (self.target_encoder, targets)))
        self._run(score, self._batches(lengths), len(sources), progress)
        return results

    def _lengths(self, *sides: tuple[SubwordEncoder, list[str]]) -> list[np.ndarray]:
        """Returns the subwords read of each line, int64 [lines] for each side, and notes which lines are cut."""
        limit = self.decode_hparams.max_input_length
        lengths = [np.array([len(ids) for ids in encoder.encode_batch(lines)], np.int64) for encoder, lines in sides]
        cut = np.flatnonzero(np.any([side > limit for side in lengths], axis=0))
        self.truncated_lines = len(cut)
        self.truncated_line_numbers = tuple(int(i) + 1 for i in cut)
        return [np.minimum(side, limit) for side in lengths]

    def _batches(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Groups lines of similar lengths, longest first, so that the last batches are the quick ones."""
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
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def _hypothesis(found: dict[str, np.ndarray], row: int, n: int) -> Hypothesis:
    ids = found["ids"][row, n]
    return Hypothesis(
        text=found["outputs"][row, n].decode("utf-8", errors="replace"),
        log_prob=float(found["log_probs"][row, n]),
        length=int(found["lengths"][row, n]),
        score=float(found["scores"][row, n]),
        finished=bool(found["finished"][row, n]),
        ids=tuple(int(i) for i in ids if i != PAD_ID),
    )


def _checked(lines: Sequence[str], what: str) -> list[str]:
    """Returns the lines as a list, or explains that a single string is not one."""
    if isinstance(lines, str):
        raise UserError(f"A list of {what} is needed, got one string; write [text] instead of text.")
    return list(lines)
