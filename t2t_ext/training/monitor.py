"""TensorBoard: curves, sample translations, attention pictures and hparams, in RUN/tensorboard."""

import contextlib
import html
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from t2t_ext.analysis.attention.maps import AttentionMap
from t2t_ext.analysis.attention.pictures import attention_picture
from t2t_ext.errors import UserError, first_line
from t2t_ext.evaluation import protocols
from t2t_ext.io import files
from t2t_ext.training.records import Record

# Kind of record -> prefix of the tags, metrics that have curves.
_CURVES = {
    "train": (
        "train",
        (
            *("loss", "regularizer", "perplexity", "accuracy", "learning_rate", "gradient_norm"),
            *("tokens_per_second", "skipped_steps"),
        ),
    ),
    "eval": ("dev", ("loss", "perplexity", "accuracy", "bleu", *protocols.dev_labels())),
}


class Board:
    """Writes event files; on resume they are truncated to the restored step, as ``metrics.jsonl`` is."""

    def __init__(self, directory: pathlib.Path, restored_step: int, *, enabled: bool = True) -> None:
        """Opens a new event file, unless this worker is not the chief (``enabled=False``).

        Points of steps after ``restored_step`` are taken out of the event files that are there.
        """
        self._writer = tf.summary.create_noop_writer()
        self._directory = directory
        if enabled:
            _truncate(directory, restored_step)
            self._writer = tf.summary.create_file_writer(str(directory))

    def record(self, record: Record) -> None:
        """Writes the points of a record's curves."""
        prefix, metrics = _CURVES[record["kind"]]
        with self._explained(), self._writer.as_default(record["step"]):
            for metric in metrics:
                if metric in record:
                    tf.summary.scalar(f"{prefix}/{metric}", record[metric])

    def gradient_norms(self, record: Record) -> None:
        """Writes the points of a record of ``gradient_norms.jsonl``, a curve for each part of the model."""
        with self._explained(), self._writer.as_default(record["step"]):
            for name, norm in record["norms"].items():
                if name != "all":  # that is train/gradient_norm
                    tf.summary.scalar(f"gradient_norm/{name}", norm)

    def hparams(self, rows: Sequence[tuple[str, Any, str]]) -> None:
        """Writes a table of (hparam, value, origin)."""
        lines = ["| hparam | value | origin |", "|---|---|---|"]
        lines += [f"| {name} | `{value}` | {origin} |" for name, value, origin in rows]
        with self._explained(), self._writer.as_default(0):
            tf.summary.text("hparams", "\n".join(lines))

    def samples(self, step: int, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]) -> None:
        """Writes a table of translated sentences."""
        lines = ["| source | translation | reference |", "|---|---|---|"]
        for row in zip(sources, outputs, references, strict=True):
            cells = [html.escape(text).replace("|", "&#124;") for text in row]
            lines.append("| " + " | ".join(cells) + " |")
        with self._explained(), self._writer.as_default(step):
            tf.summary.text("dev/samples", "\n".join(lines))

    def attention(self, step: int, maps: Sequence[AttentionMap]) -> None:
        """Writes pictures of one sentence's attention, a layer each with its heads side by side."""
        with self._explained(), self._writer.as_default(step):
            for shown in maps:
                tf.summary.image(f"attention/{shown.name}", tf.image.decode_png(attention_picture(shown))[None])

    def flush(self) -> None:
        """Writes what is buffered."""
        with self._explained():
            self._writer.flush()

    def close(self) -> None:
        """Writes what is left and closes the file."""
        with self._explained():
            self._writer.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns what TensorFlow raises for a full disk and the like into a ``UserError``."""
        try:
            yield
        except tf.errors.OpError as error:
            raise UserError(
                f"Cannot write the curves for TensorBoard in {self._directory}: {first_line(error)}. Make room, then "
                "run the same command again: it resumes from the last checkpoint."
            ) from error


def _truncate(directory: pathlib.Path, last_step: int) -> None:
    """Takes points of later steps, and half-written records, out of the event files of a directory."""
    # TensorBoard's own purge event only concerns TensorFlow 1's summaries.
    for path in sorted(directory.glob("events.out.tfevents.*")):
        kept, complete = [], True
        try:
            for record in tf.data.TFRecordDataset(str(path)):
                event = record.numpy()
                if tf.compat.v1.Event.FromString(event).step <= last_step:
                    kept.append(event)
                else:
                    complete = False
        except tf.errors.DataLossError:
            complete = False
        if not complete:
            with files.atomic_file(path) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
                for event in kept:
                    writer.write(event)
