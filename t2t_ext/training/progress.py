"""Progress display of a run: a progress bar on a terminal, plain lines elsewhere. Imports no TensorFlow."""

import sys
from typing import Any, TextIO

from t2t_ext.errors import shortened
from t2t_ext.evaluation import protocols
from t2t_ext.io import log
from t2t_ext.training.records import Record, loss_on_references

_LONGEST_SAMPLE = 300  # characters


class Progress:
    """Prints lines, and keeps a progress bar below them if the stream is a terminal."""

    def __init__(self, total_steps: int, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        """Prepares the display, on stderr by default; ``start`` shows the bar. With ``quiet``, nothing is printed."""
        self._total = total_steps
        self._quiet = quiet
        self._stream = stream
        self._bar: Any = None  # a rich Progress; rich is imported only if a bar is shown
        self._task = None

    def start(self, step: int) -> None:
        """Shows the bar at a step if the stream is a terminal."""
        stream = self._stream or sys.stderr
        if self._quiet or not stream.isatty():
            return
        from rich import console, progress

        self._bar = progress.Progress(
            progress.TextColumn("step {task.completed}/{task.total}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[note]}"),
            console=console.Console(file=stream),
            speed_estimate_period=120,
            refresh_per_second=2,
        )
        self._task = self._bar.add_task("train", total=self._total, completed=step, note="")
        self._bar.start()

    def advance(self, step: int) -> None:
        """Moves the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=step)

    def note(self, text: str) -> None:
        """Writes a text beside the bar, if there is one."""
        if self._bar is not None:
            self._bar.update(self._task, note=text)

    def line(self, text: str) -> None:
        """Prints a line."""
        if not self._quiet:
            log.info(text, self._write)

    def _write(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._stream or sys.stderr, flush=True)

    def stop(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = None


def _number(value: float) -> str:
    """Returns a number as text; if training diverges, it may exceed 1e300."""
    return f"{value:.2f}" if value < 1e6 else f"{value:.2e}"


def _losses(record: Record) -> str:
    """Returns the loss in words, with the unsmoothed loss, on which perplexity is based, if the two differ."""
    loss, nll = record["loss"], record.get("nll", record["loss"])
    smoothed = f" (label-smoothed; {nll:.3f} without)" if abs(loss - nll) >= 5e-4 else ""
    return f"loss {loss:.3f}{smoothed}"


def describe_training(record: Record, total_steps: int = 0, seconds_left: float = 0.0) -> str:
    """Formats a training record as one line, with the remaining steps and time if the time is known.

    Args:
      record: The record.
      total_steps: The step that training ends at.
      seconds_left: Estimated seconds until then, evaluations included; 0 if not known.
    """
    text = f"step {record['step']}: "
    if "loss" in record:
        text += f"{_losses(record)}, perplexity {_number(record['perplexity'])}, "
    if record["tokens_per_second"]:  # 0 for the first step alone, which builds the graph
        text += f"{record['tokens_per_second']:,.0f} tokens/s, "
    text += f"learning rate {record['learning_rate']:.2e}"
    text += f", gradient norm {record['gradient_norm']:.2f}" if "gradient_norm" in record else ", no update"
    text += f", regularizer {record['regularizer']:.3f}" if "regularizer" in record else ""
    text += f", {record['skipped_steps']} steps skipped so far" if record["skipped_steps"] else ""
    left = total_steps - record["step"]
    if left > 0 and seconds_left > 0:
        text += f", {left:,} of {total_steps:,} steps left ({_duration(seconds_left)})"
    return text


def _duration(seconds: float) -> str:
    """Returns a time in words, with the precision that an estimate can have."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 2880 else f"{minutes / 1440:.1f} days"


def describe_sample(hypothesis: str, source: str, reference: str) -> str:
    """Formats a translation beside its source and its reference, which are shortened if they are documents."""
    source, reference = (shortened(text, _LONGEST_SAMPLE) for text in (source, reference))
    return f"  first dev sentence: {hypothesis}\n    its source: {source}\n    its reference: {reference}"


def describe_evaluation(record: Record) -> str:
    """Formats an evaluation record as one line."""
    gold = loss_on_references(record)
    on_references = "" if gold is None else f", on references alone {gold:.3f}"
    text = (
        f"dev set at step {record['step']}: {_losses(record)}{on_references}, "
        f"perplexity {_number(record['perplexity'])}, token accuracy {100 * record['accuracy']:.1f}%"
    )
    if "bleu" in record:
        text += f", BLEU {record['bleu']:.2f} [{record['bleu_signature']}]"
    text += "".join(f", {label} {record[label]:.2f}" for label in protocols.dev_labels() if label in record)
    if record.get("leaky"):
        text += " (pseudo=none: each side sees its own future, so that only BLEU means something)"
    return text
