"""``metrics.jsonl``: what a run logged, one JSON object a line, for machines and for the run itself.

Records have ``kind`` (``train`` or ``eval``) and ``step``. The best checkpoint and early stopping are functions of
these records, so a resumed run decides as the uninterrupted one would have. ``gradient_norms.jsonl`` is a file of the
same kind, with the records of ``gradient_norms_record``. This module imports no TensorFlow.

JSON has neither ``nan`` nor infinity, which a training that diverges has: both are null in the file and ``nan`` in
memory, so that a resumed run decides as the one that wrote them.
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
    """What every line of the log has; the other values are numbers, or texts such as ``search``."""

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
      Damaged: It is none.
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
    """Returns the records of a file, which may be missing, up to a step; lines that are damaged are passed over."""
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
        """Reads the file, which may be missing, and truncates it to what a run had logged until ``last_step``.

        Only the chief does (``writable``): the other workers keep no records.
        """
        self._path = path
        self._writable = writable
        self.all: list[Record] = read(path, last_step) if writable else []
        kept = "".join(_written(record) + "\n" for record in self.all)
        if writable and kept != (path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""):
            files.write_text_atomically(path, kept)

    def append(self, record: Record) -> None:
        """Adds a record; it is on the disk when the call returns.

        Raises:
          UserError: The disk is full or not writable. A half-written line is taken away.
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
    """Returns the record of the gradient norms of a model's parts and of all (``total``), means over so many steps."""
    # Those of steps that were skipped are not among them, so that all are numbers.
    rounded = {name: float(f"{norm:.6g}") for name, norm in {"all": total, **norms}.items()}
    return {"kind": "gradient_norms", "step": step, "steps": steps, "norms": rounded}


def loss_on_references(record: Record) -> float | None:
    """Returns the dev loss on references alone, where another one was taken."""
    gold = record.get("reference_loss")
    return None if gold is None or math.isnan(gold) or gold == record["loss"] else gold


def best_of(evaluations: list[Record], metric: str, minimize: bool | None = None, delta: float = 0.0) -> Best | None:
    """Finds the best evaluation by a metric; of equal ones the first.

    Every number is better than a value that is none. Records without the metric are passed over, and so are scores of
    translations of other sentences than the last ones, or by another search (of another ``--eval_bleu_sentences`` or
    ``--decode_hparams``).

    Args:
      evaluations: Records, oldest first.
      metric: The metric's name.
      minimize: Whether smaller is better; None: as the metric is defined.
      delta: Least difference to the best so far that counts as better.
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
    """Finds the evaluation whose weights are the best: as ``best_of``, but of equal ones that with the lowest loss.

    Of a loss that is equal or not known, it is the later one: a model that translates nothing right yet (BLEU 0 at
    every evaluation) learns all the same.
    """
    best = best_of(evaluations, metric)
    equal = [each for each in _comparable(evaluations, metric) if best is not None and each.get(metric) == best.value]
    if best is None or not equal:  # no value equals one that is no number
        return best
    return Best(min(equal, key=lambda each: (_loss(each), -each["step"]))["step"], best.value)


def _loss(record: Record) -> float:
    """Returns the loss of an evaluation, infinite where it is not known."""
    loss = record.get("loss")
    return float(loss) if isinstance(loss, int | float) and not math.isnan(loss) else math.inf


def _comparable(evaluations: list[Record], metric: str) -> list[Record]:
    """Returns the records whose values of a metric are of the same sentences and search as the last one's."""
    if not evaluations or metric in WITHOUT_TRANSLATIONS:
        return evaluations
    last = {key: evaluations[-1].get(key) for key in ("sentences", "search")}
    # Earlier versions noted neither.
    return [each for each in evaluations if all(each.get(key, value) == value for key, value in last.items())]


def stopped_improving(evaluations: list[Record], settings: TrainingSettings) -> Best | None:
    """Returns whether early stopping ends the run now: returns the best evaluation if it does, else None."""
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
