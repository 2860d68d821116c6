"""Learning curves of ``time_to_quality.py``: dev BLEU over minutes, updates and target tokens, read from logs.

Imports neither TensorFlow nor the toolkit.
"""

import dataclasses
import datetime
import json
import math
import os
import pathlib
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Self

_REST = 20  # so many times the median time of an update is a pause of the process or of the machine, not training
_STARTED = re.compile(r"first step after ([\d.]+) s")
_FAIRSEQ_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \| INFO \| ([\w.]+) \| (.*)$")
_FAIRSEQ_SAVED = re.compile(r"Saved checkpoint .*\(writing took ([\d.]+) seconds\)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """What an evaluation on the development set found.

    Attributes:
      updates: After how many updates.
      minutes: Of training alone: without start-up, evaluations and the writing of checkpoints.
      minutes_counted: The same with all evaluations so far, this one among them.
      tokens: Target tokens trained on: EOS counts, padding does not.
      bleu: Dev BLEU.
      loss: Dev loss, on references alone; None where the log has none.
    """

    updates: int
    minutes: float
    minutes_counted: float
    tokens: float
    bleu: float
    loss: float | None = None


@dataclasses.dataclass(kw_only=True)
class Run:
    """A finished training.

    Attributes:
      name: Of its recipe.
      seed: Its seed; 0 where the log does not say.
      points: Its evaluations, in order.
      minutes: Of training alone, up to the last update that was logged.
      minutes_before: Those of them that its first weights took.
      updates: How many updates were logged.
      ended: Why it ended: ``target``, ``minutes``, ``updates``, ``early stopping``; empty where nobody knows.
      startup_seconds: From the making of the model to the end of the first update; None where the log does not say.
      test: Score of the test set by the checkpoint that the development set chose; None: not scored.
      test_signature: What makes the score comparable.
      parameters: Numbers that are learned; None where nobody counted them.
      more: What else is stored with it.
    """

    name: str
    seed: int
    points: list[Point]
    minutes: float
    updates: int
    minutes_before: float = 0.0
    ended: str = ""
    startup_seconds: float | None = None
    test: float | None = None
    test_signature: str = ""
    parameters: int | None = None
    more: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def best(self) -> Point | None:
        """The evaluation with the best dev BLEU, the first of equal ones."""
        return max(self.points, key=lambda point: point.bleu, default=None)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Returns the run of a stored result."""
        known = {field.name for field in dataclasses.fields(cls)} - {"points", "more"}
        points = [Point(**point) for point in content["points"]]
        more = {name: value for name, value in content.items() if name not in {*known, "points"}}
        return cls(points=points, more=more, **{name: value for name, value in content.items() if name in known})

    def to_json(self) -> dict[str, Any]:
        """Returns the run as it is stored."""
        content = dataclasses.asdict(self)
        return {**content.pop("more"), **content}


# === Reading ===


def records(run: str | os.PathLike) -> list[dict[str, Any]]:
    """Returns the records of RUN/metrics.jsonl, without a line that is just being written; none where there is none."""
    path = pathlib.Path(run) / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            break
        # A loss that is no number is null.
        found.append({name: math.nan if value is None else value for name, value in record.items()})
    return found


def read_run(run: str | os.PathLike, name: str = "", seed: int = 0, before: float = 0.0) -> Run:
    """Reads the curve of a run from its metrics.jsonl.

    The first update, which makes the graph, counts as long as those after it in its log window. The same goes for
    updates that a resumed run's window has from before the interruption. A window in which the training rested (its
    process was stopped, the machine slept) counts as long as the others.

    Args:
      run: The run's directory.
      name: Of its recipe; empty: the directory's name.
      seed: Its seed.
      before: Minutes of training that its first weights took.
    """
    found = records(run)
    clock = _Clock(before)
    windows = []  # last update, updates, minutes, target tokens
    for record in found:
        if record["kind"] == "train":
            steps = record["step"] - (windows[-1][0] if windows else 0)
            target = steps * record["target_tokens_per_step"]
            tokens, rate = target + steps * record["source_tokens_per_step"], record["tokens_per_second"]
            minutes = tokens / rate / 60 if rate else record["seconds"] / 60
            windows.append((record["step"], steps, minutes, target))
    usual = statistics.median([minutes / steps for _, steps, minutes, _ in windows if steps] or [0.0])
    for last, steps, minutes, target in windows:
        rested = minutes > _REST * usual * steps
        clock.add(last, usual * steps if rested else minutes, target)
    points, evaluating = [], 0.0
    for record in found:
        if record["kind"] == "eval":
            evaluating += record["seconds"] / 60
            if "bleu" in record:
                loss = record.get("reference_loss", record.get("loss"))
                points.append(clock.point(record["step"], record["bleu"], loss, evaluating))
    return Run(
        name=name or pathlib.Path(run).name,
        seed=seed,
        points=points,
        minutes=clock.minutes[-1],
        minutes_before=before,
        updates=clock.updates[-1],
    )


def startup_seconds(log: pathlib.Path) -> float | None:
    """Returns when the trainer's log says that the first update of all was done."""
    started = _STARTED.search(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else None
    return float(started[1]) if started else None


def read_fairseq(log: str | os.PathLike, name: str = "fairseq", seed: int = 0) -> Run:
    """Reads the curve of a training by fairseq from its log (``--log-format json``), to a second.

    Points are its ``valid`` lines with ``valid_bleu`` (``--eval-bleu``); a log without them gives none. Training
    begins with "Start iterating over samples"; validations and the writing of checkpoints are taken out of it.
    """
    clock, points = _Clock(), []
    began = validating = None
    evaluating = saving = 0.0  # minutes
    for line in pathlib.Path(log).read_text(encoding="utf-8", errors="replace").splitlines():
        match = _FAIRSEQ_LINE.match(line)
        if not match:
            continue
        now = datetime.datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").timestamp() / 60
        logger, text = match[2], match[3]
        if began is None:
            began = now if text.startswith("Start iterating over samples") else None
        elif text.startswith("begin validation"):
            validating = now
        elif saved := _FAIRSEQ_SAVED.match(text):
            saving += float(saved[1]) / 60
        elif logger == "train_inner":
            found = json.loads(text)
            updates = int(found["num_updates"])
            steps, minutes = updates - clock.updates[-1], now - began - evaluating - saving
            clock.add(updates, max(0.0, minutes - clock.minutes[-1]), steps * float(found["wpb"]))
        elif logger == "valid":
            found = json.loads(text)
            at = (now if validating is None else validating) - began - evaluating - saving
            evaluating += 0.0 if validating is None else now - validating
            if "valid_bleu" in found:
                point = clock.point(int(found["valid_num_updates"]), float(found["valid_bleu"]), None, evaluating)
                points.append(dataclasses.replace(point, minutes=at, minutes_counted=at + evaluating))
    return Run(name=name, seed=seed, points=points, minutes=clock.minutes[-1], updates=clock.updates[-1])


class _Clock:
    """Minutes and target tokens after the updates that were logged, and between and just after them in proportion."""

    def __init__(self, before: float = 0.0) -> None:
        self.updates, self.minutes, self.tokens = [0], [before], [0.0]

    def add(self, updates: int, minutes: float, tokens: float) -> None:
        """Adds a log window that ends after so many updates and lasted so long."""
        self.updates.append(updates)
        self.minutes.append(self.minutes[-1] + minutes)
        self.tokens.append(self.tokens[-1] + tokens)

    def point(self, updates: int, bleu: float, loss: float | None, evaluating: float) -> Point:
        """Returns an evaluation."""
        after = next((n for n, each in enumerate(self.updates) if each >= updates), len(self.updates) - 1)
        first, last = max(after - 1, 0), after
        share = (updates - self.updates[first]) / max(self.updates[last] - self.updates[first], 1)
        minutes, tokens = (
            values[first] + share * (values[last] - values[first]) for values in (self.minutes, self.tokens)
        )
        return Point(
            updates=updates,
            minutes=minutes,
            minutes_counted=minutes + evaluating,
            tokens=tokens,
            bleu=bleu,
            loss=loss,
        )


# === Targets ===


def reached(points: Sequence[Point], target: float, *, interpolated: bool = False) -> Point | None:
    """Returns when a curve reaches a dev BLEU; None if it never does.

    Args:
      points: Its evaluations.
      target: The BLEU.
      interpolated: Between the last evaluation below the target (or the beginning, with BLEU 0) and the first that
        reaches it, as if BLEU rose evenly. Otherwise the first evaluation that reaches it.
    """
    before = Point(updates=0, minutes=0.0, minutes_counted=0.0, tokens=0.0, bleu=0.0)
    for point in points:
        if point.bleu >= target:
            if not interpolated:
                return point
            share = (target - before.bleu) / max(point.bleu - before.bleu, 1e-9)
            between = {
                name: getattr(before, name) + share * (getattr(point, name) - getattr(before, name))
                for name in ("updates", "minutes", "minutes_counted", "tokens")
            }
            return Point(bleu=target, **{**between, "updates": round(between["updates"])})
        before = point
    return None


@dataclasses.dataclass(frozen=True)
class Spread:
    """A quantity over seeds.

    Attributes:
      values: Of the seeds that have one.
      of: How many seeds there are.
    """

    values: tuple[float, ...]
    of: int

    @property
    def mean(self) -> float | None:
        """The mean; None without values."""
        return statistics.fmean(self.values) if self.values else None

    def shown(self, form: str) -> str:
        """Writes mean, range, and how many seeds have a value, where not all have."""
        if self.mean is None:
            return "-"
        low, high = (format(value, form) for value in (min(self.values), max(self.values)))
        text = format(self.mean, form) + (f" ({low}–{high})" if len(self.values) > 1 else "")
        return text if len(self.values) == self.of else f"{text}, {len(self.values)} of {self.of}"


def to_target(runs: Sequence[Run], target: float, field: str, *, interpolated: bool = False) -> Spread:
    """Returns what it took the runs of a recipe to reach a dev BLEU.

    Args:
      runs: One for each seed.
      target: The BLEU.
      field: Of ``Point``: ``minutes``, ``minutes_counted``, ``updates`` or ``tokens``.
      interpolated: See ``reached``.
    """
    found = [reached(run.points, target, interpolated=interpolated) for run in runs]
    return Spread(tuple(getattr(point, field) for point in found if point), len(runs))
