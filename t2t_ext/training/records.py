"""``metrics.jsonl``: what a run has logged, one JSON object per line, for other programs and for the run itself.

Records have ``kind`` (``train`` or ``eval``) and ``step``. The best checkpoint and early stopping are functions of
these records, so a resumed run decides as the uninterrupted one would have. ``gradient_norms.jsonl`` is a file of the
same kind, with the records of ``gradient_norms_record``. This module imports no TensorFlow.

JSON has neither ``nan`` nor infinity, both of which occur when training diverges. They are null in the file and ``nan``
in memory, so that a resumed run decides like the run that wrote them.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any, TypedDict

from t2t_ext.config.training import TrainingSettings
from t2t_ext.io import files, stored
from t2t_ext.training.dev_metrics import EVAL_METRICS, WITHOUT_TRANSLATIONS

Record = dict[str, Any]


class Logged(TypedDict):
    """The fields that every line of the log has; the others are numbers, or strings such as ``search``."""

    kind: str
    step: stored.Count


@dataclasses.dataclass(frozen=True)
class Best:
    """The best evaluation so far by one metric."""

    step: int
    value: float


def parse(line: str) -> Record:
    """Returns the record of a line.

    Raises:
      Damaged: The line is not a record.
    """
    record: Record = stored.parse(line, Logged)
    return {name: math.nan if value is None or _is_no_number(value) else value for name, value in record.items()}


def _written(record: Record) -> str:
    """Returns the line of a record."""
    plain = {name: None if _is_no_number(value) else value for name, value in record.items()}
    return json.dumps(plain, allow_nan=False)


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def read(path: pathlib.Path, last_step: int) -> list[Record]:
    """Returns the records of a file up to a step; the file may be missing, and damaged lines are skipped."""
    found: list[Record] = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            record = parse(line)
        except stored.Damaged:
            continue
        if record["step"] <= last_step:
            found.append(record)
    return found


class Records:
    """The records of a run, in memory and in the file."""

    def __init__(self, path: pathlib.Path, last_step: int, *, writable: bool = True) -> None:
        """Reads the file, which may be missing, and truncates it to what was logged up to ``last_step``.

        Only the chief does this (``writable``): the other workers keep no records.
        """
        self._path = path
        self._writable = writable
        self.all: list[Record] = read(path, last_step) if writable else []
        kept = "".join(_written(record) + "\n" for record in self.all)
        if writable and kept != (path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""):
            files.write_text_atomically(path, kept)

    def append(self, record: Record) -> None:
        """Adds a record; it is on disk when the call returns.

        Raises:
          UserError: The disk is full or not writable. A half-written line is removed.
        """
        if self._writable:
            line = _written(record)
            files.append_line(self._path, line)
            self.all.append(parse(line))

    def evaluations(self) -> list[Record]:
        """Returns the records of evaluations, oldest first."""
        return [record for record in self.all if record["kind"] == "eval"]

    def has_evaluation(self, step: int) -> bool:
        """Returns whether the dev set was evaluated at a step."""
        return any(record["step"] == step for record in self.evaluations())


def gradient_norms_record(step: int, steps: int, norms: Mapping[str, float], total: float) -> Record:
    """Returns the record of mean gradient norms over ``steps`` steps: of a model's parts and of all (``total``)."""
    # Skipped steps are not included, so all values are finite.
    rounded = {name: float(f"{norm:.6g}") for name, norm in {"all": total, **norms}.items()}
    return {"kind": "gradient_norms", "step": step, "steps": steps, "norms": rounded}


def loss_on_references(record: Record) -> float | None:
    """Returns the dev loss on references only if it differs from the record's loss, otherwise None."""
    gold = record.get("reference_loss")
    return None if gold is None or math.isnan(gold) or gold == record["loss"] else gold


def best_of(evaluations: list[Record], metric: str, minimize: bool | None = None, delta: float = 0.0) -> Best | None:
    """Returns the best evaluation by a metric; the first one if several are equal.

    Every number is better than ``nan``. Records without the metric are skipped. So are scores of translations if their
    sentences or search differ from those of the last evaluation, because ``--eval_bleu_sentences`` or
    ``--decode_hparams`` was different.

    Args:
      evaluations: Records, oldest first.
      metric: The metric's name.
      minimize: Whether smaller is better; None: as the metric is defined.
      delta: An evaluation counts as better only if it improves on the best so far by more than this.
    """
    sign = -1.0 if (EVAL_METRICS[metric] if minimize is None else minimize) else 1.0
    best = None
    for record in _comparable(evaluations, metric):
        value = record.get(metric)
        if not isinstance(value, int | float):
            continue
        first_number = best is not None and math.isnan(best.value) and not math.isnan(value)
        if best is None or first_number or sign * (value - best.value) > delta:
            best = Best(record["step"], value)
    return best


def best_weights_of(evaluations: list[Record], metric: str) -> Best | None:
    """Returns the evaluation whose weights are best: like ``best_of``, but of equal ones the one with the lowest loss.

    If the losses are equal or unknown as well, it is the latest one: a model that translates nothing correctly yet
    (BLEU 0 at every evaluation) learns all the same.
    """
    best = best_of(evaluations, metric)
    equal = [each for each in _comparable(evaluations, metric) if best is not None and each.get(metric) == best.value]
    if best is None or not equal:  # nothing equals nan
        return best
    return Best(min(equal, key=lambda each: (_loss(each), -each["step"]))["step"], best.value)


def _loss(record: Record) -> float:
    """Returns the loss of an evaluation, or infinity if it is not known."""
    loss = record.get("loss")
    return float(loss) if isinstance(loss, int | float) and not math.isnan(loss) else math.inf


def _comparable(evaluations: list[Record], metric: str) -> list[Record]:
    """Returns the records whose value of a metric comes from the same sentences and search as the last one's."""
    if not evaluations or metric in WITHOUT_TRANSLATIONS:
        return evaluations
    last = {key: evaluations[-1].get(key) for key in ("sentences", "search")}
    # Earlier versions noted neither.
    return [each for each in evaluations if all(each.get(key, value) == value for key, value in last.items())]


def stopped_improving(evaluations: list[Record], settings: TrainingSettings) -> Best | None:
    """Returns the best evaluation if early stopping ends the run now, otherwise None."""
    if not settings.eval_early_stopping_steps or not evaluations:
        return None
    best = best_of(
        evaluations,
        settings.eval_early_stopping_metric,
        settings.eval_early_stopping_metric_minimize,
        settings.eval_early_stopping_metric_delta,
    )
    if best is None or evaluations[-1]["step"] - best.step < settings.eval_early_stopping_steps:
        return None
    return best
