"""Writes for TensorBoard: curves, sample translations, attention pictures and hparams, in RUN/train, RUN/eval and RUN.

With this layout, ``tensorboard --logdir=RUN`` shows both losses in one chart, and ``--logdir=RUNS`` calls every run by
its name.
"""

import contextlib
import html
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from t2t_ext.analysis.attention.maps import AttentionMap
from t2t_ext.analysis.attention.pictures import attention_picture
from t2t_ext.errors import UserError, first_line
from t2t_ext.evaluation import protocols
from t2t_ext.io import files
from t2t_ext.training.records import Record, loss_on_references

# Kind of record, and folder of its event files -> metrics that have curves.
_CURVES = {
    "train": (
        *("loss", "nll", "regularizer", "perplexity", "accuracy", "learning_rate", "gradient_norm"),
        *("tokens_per_second", "skipped_steps"),
    ),
    "eval": ("loss", "reference_loss", "nll", "perplexity", "accuracy", "bleu", *protocols.dev_labels()),
}
_LARGEST = float(tf.float32.max) / 2  # limit of event files, which the perplexity exceeds if training diverges
_COMPARED = ("bleu", "loss", "perplexity", "accuracy")  # shown beside the hparams when runs are compared
_EVENTS = "events.out.tfevents.*"
_LAYER = re.compile(r"layer_(\d+)")


class Board:
    """Writes event files; on resume they are truncated to the restored step, as ``metrics.jsonl`` is."""

    def __init__(
        self, directory: pathlib.Path, restored_step: int | None, *, evaluated: bool = True, enabled: bool = True
    ) -> None:
        """Prepares event files below a run's directory, unless this worker is not the chief (``enabled=False``).

        Points that will be written again are removed from existing event files.

        Args:
          directory: The run's directory.
          restored_step: Points of later steps are removed; None: the run begins anew, so all points are.
          evaluated: Whether the evaluation of ``restored_step`` is complete, so that its points stay.
          enabled: Whether anything is written.
        """
        # The folder in which earlier versions kept all points of a run.
        older = directory / "tensorboard"
        self._directory = older if any(older.glob(_EVENTS)) else directory
        self._enabled = enabled
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        last = -1 if restored_step is None else restored_step
        if enabled:
            with self._explained():
                for folder in (self._directory, self._directory / "train"):
                    _truncate(folder, last)
                _truncate(self._directory / "eval", last if evaluated else last - 1)

    def record(self, record: Record) -> None:
        """Writes the points of a record's curves."""
        with self._writing(record["kind"], record["step"]):
            for metric in _CURVES[record["kind"]]:
                if metric in record and (metric != "reference_loss" or loss_on_references(record) is not None):
                    tf.summary.scalar(metric, min(record[metric], _LARGEST))

    def gradient_norms(self, record: Record) -> None:
        """Writes the points of a record of ``gradient_norms.jsonl``, one curve per part of the model."""
        with self._writing("train", record["step"]):
            for name, norm in record["norms"].items():
                if name != "all":  # that is the curve gradient_norm
                    tf.summary.scalar(f"gradient_norms/{_for_people(name)}", norm)

    def hparams(self, rows: Sequence[tuple[str, Any, str]]) -> None:
        """Writes (hparam, value, origin) rows as a table, and for the tab that compares runs by their hparams."""
        from tensorboard.plugins.hparams import api

        lines = ["| hparam | value | origin |", "|---|---|---|"]
        lines += [f"| {name} | `{value}` | {origin} |" for name, value, origin in rows]
        values = {name: value if isinstance(value, bool | int | float) else str(value) for name, value, _ in rows}
        metrics = [api.Metric(tag, group="eval", display_name=f"dev {tag}") for tag in _COMPARED]
        metrics.append(api.Metric("loss", group="train", display_name="train loss"))
        with self._writing("", 0):
            tf.summary.text("hparams", "\n".join(lines))
            api.hparams_config([api.HParam(name) for name in values], metrics)
            # Each run is a trial of its own, even if its hparams equal those of another run. Its path must be absolute:
            # runs in different folders may be given by the same relative path.
            api.hparams(values, trial_id=str(self._directory.absolute()))

    def samples(self, step: int, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]) -> None:
        """Writes a table of translated sentences."""
        lines = ["| source | translation | reference |", "|---|---|---|"]
        for row in zip(sources, outputs, references, strict=True):
            cells = [html.escape(text).replace("|", "&#124;") for text in row]
            lines.append("| " + " | ".join(cells) + " |")
        with self._writing("eval", step):
            tf.summary.text("samples", "\n".join(lines))

    def attention(self, step: int, maps: Sequence[AttentionMap]) -> None:
        """Writes pictures of one sentence's attention, each of one layer with its heads side by side."""
        with self._writing("eval", step):
            for shown in maps:
                picture = tf.image.decode_png(attention_picture(shown))[None]
                tf.summary.image(f"attention/{_for_people(shown.name)}", picture)

    def flush(self) -> None:
        """Writes what is buffered."""
        with self._explained():
            for writer in self._writers.values():
                writer.flush()

    def close(self) -> None:
        """Writes what is left and closes the files."""
        with self._explained():
            for writer in self._writers.values():
                writer.close()

    @contextlib.contextmanager
    def _writing(self, folder: str, step: int) -> Iterator[None]:
        """Directs summaries to the writer of a folder, which opens its file when it is first used."""
        with self._explained():
            if folder not in self._writers:
                path = str(self._directory / folder)
                writer = tf.summary.create_file_writer(path) if self._enabled else tf.summary.create_noop_writer()
                self._writers[folder] = writer
            with self._writers[folder].as_default(step):
                yield

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns the errors that TensorFlow raises for a full disk and the like into a ``UserError``."""
        try:
            yield
        except tf.errors.OpError as error:
            raise UserError(
                f"Cannot write the curves for TensorBoard in {self._directory}: {first_line(error)}. Make room, then "
                "run the same command again: it resumes from the last checkpoint."
            ) from error


def _for_people(name: str) -> str:
    """Returns the name of a part of a model with layers counted from 1: ``encoder/layer1``."""
    return _LAYER.sub(lambda match: f"layer{int(match[1]) + 1}", name)


def _truncate(directory: pathlib.Path, last_step: int) -> None:
    """Removes points of later steps, and half-written records, from the event files of a directory."""
    # TensorBoard's own purge event only affects TensorFlow 1's summaries.
    for path in sorted(directory.glob(_EVENTS)):
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
        if not kept:
            path.unlink()
        elif not complete:
            with files.atomic_file(path) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
                for event in kept:
                    writer.write(event)
