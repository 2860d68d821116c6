"""TensorBoard: curves, sample translations, attention pictures and hparams, in RUN/tensorboard."""

import contextlib
import html
import io
import math
import pathlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_ext.errors import UserError
from t2t_ext.persistence import files
from t2t_ext.training.records import Record

# Metric -> tag, by kind of record.
_TAGS = {
    "train": {
        "loss": "train/loss",
        "perplexity": "train/perplexity",
        "accuracy": "train/accuracy",
        "learning_rate": "train/learning_rate",
        "gradient_norm": "train/gradient_norm",
        "tokens_per_second": "train/tokens_per_second",
        "skipped_steps": "train/skipped_steps",
    },
    "eval": {
        "loss": "dev/loss",
        "perplexity": "dev/perplexity",
        "accuracy": "dev/accuracy",
        "bleu": "dev/bleu",
    },
}


class Board:
    """Writes event files; on resume they are cut to the restored step, as ``metrics.jsonl`` is."""

    def __init__(self, directory: pathlib.Path, restored_step: int, *, enabled: bool = True) -> None:
        """Opens a new event file.

        Args:
          directory: Folder of the event files.
          restored_step: Points of later steps are taken out of the event files that are there; 0 for a new run.
          enabled: False for workers that are not the chief: nothing is written.
        """
        self._writer = tf.summary.create_noop_writer()
        self._directory = directory
        if enabled:
            _cut(directory, restored_step)
            self._writer = tf.summary.create_file_writer(str(directory))

    def record(self, record: Record) -> None:
        """Writes the points of a record's curves."""
        with self._explained(), self._writer.as_default(record["step"]):
            for metric, tag in _TAGS[record["kind"]].items():
                if metric in record:
                    tf.summary.scalar(tag, record[metric])

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

    def attention(
        self, step: int, weights: Mapping[str, Any], source_pieces: Sequence[str], targets: Sequence[Sequence[str]]
    ) -> None:
        """Writes pictures of attention weights, a layer each with its heads side by side.

        Args:
          step: The step.
          weights: Layer -> float [1, heads, rows, columns] of one sentence.
          source_pieces: Text of the source's positions.
          targets: Text of the positions of the target, or of both targets, in the order in which they are written.
        """
        with self._explained(), self._writer.as_default(step):
            for layer, values in weights.items():
                rows, columns = _what_looks_at_what(layer, source_pieces, targets)
                picture = attention_picture(np.asarray(values, np.float32)[0], columns, rows)
                tf.summary.image(f"attention/{layer}", tf.image.decode_png(picture)[None])

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
            reason = (str(error.message).strip() or type(error).__name__).splitlines()[0]
            raise UserError(
                f"Cannot write the curves for TensorBoard in {self._directory}: {reason}. Make room, then run the same "
                "command again: it goes on from the last checkpoint."
            ) from error


def _what_looks_at_what(
    layer: str, source: Sequence[str], targets: Sequence[Sequence[str]]
) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the labels of the rows and of the columns of a layer's attention, by the parts of its name."""
    parts = layer.split("/")
    if parts[0] == "encoder":
        return source, source
    side = len(targets) - 1 if "r2l" in parts else 0
    if "source_attention" in parts:
        return targets[side], source
    other = len(targets) - 1 - side
    return targets[side], targets[other if "future" in parts else side]


def attention_picture(weights: np.ndarray, column_pieces: Sequence[str], row_pieces: Sequence[str]) -> bytes:
    """Draws heat maps of attention weights.

    Args:
      weights: float32 [heads, rows, columns]; dark is much.
      column_pieces: Labels of the columns, of what is looked at; left out where there are not as many.
      row_pieces: Labels of the rows, likewise.

    Returns:
      A PNG file.
    """
    from matplotlib import figure

    heads, num_rows, num_columns = weights.shape
    columns = min(heads, 4)
    rows = math.ceil(heads / columns)
    width = 1.5 + 0.18 * num_columns
    height = 1.2 + 0.18 * num_rows
    # A Figure of its own instead of pyplot: nothing global, no display.
    drawing = figure.Figure(figsize=(columns * width, rows * height), dpi=80, layout="constrained")
    axes = drawing.subplots(rows, columns, squeeze=False).flat
    for head, axis in enumerate(axes):
        if head >= heads:
            axis.set_visible(False)
            continue
        axis.imshow(weights[head], cmap="Greys", vmin=0.0, vmax=1.0, aspect="auto")
        axis.set_title(f"head {head}", fontsize=8)
        # "$" would start a formula.
        if len(column_pieces) == num_columns:
            axis.set_xticks(range(num_columns), [p.replace("$", r"\$") for p in column_pieces], rotation=90)
        if len(row_pieces) == num_rows:
            axis.set_yticks(range(num_rows), [p.replace("$", r"\$") for p in row_pieces])
        axis.tick_params(labelsize=6)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # The font that matplotlib brings has no Chinese; a box is drawn instead.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        drawing.savefig(buffer, format="png")
    return buffer.getvalue()


def _cut(directory: pathlib.Path, last_step: int) -> None:
    """Takes points of later steps, and half-written records, out of the event files of a directory.

    TensorBoard's own purge event only concerns TensorFlow 1's summaries.
    """
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
