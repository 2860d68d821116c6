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

_REST = 20  # a window with this many times the median time per update contains a pause of the process or machine
_STARTED = re.compile(r"first step after ([\d.]+) s")
_FAIRSEQ_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \| INFO \| ([\w.]+) \| (.*)$")
_FAIRSEQ_SAVED = re.compile(r"Saved checkpoint .*\(writing took ([\d.]+) seconds\)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """The result of an evaluation on the development set.

    Attributes:
      updates: The number of updates before it.
      minutes: Minutes of training only: without start-up, evaluations and the writing of checkpoints.
      minutes_counted: The same with all evaluations so far, including this one.
      tokens: Target tokens trained on; EOS counts, padding does not.
      bleu: Dev BLEU.
      loss: Dev loss on references only; None if the log has none.
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
      name: The name of its recipe.
      seed: Its seed; 0 if the log does not say.
      points: Its evaluations, in order.
      minutes: Minutes of training only, up to the last logged update.
      minutes_before: The part of these minutes that its initial weights took.
      updates: The number of logged updates.
      ended: Why it ended: ``target``, ``minutes``, ``updates``, ``early stopping``; empty if unknown.
      startup_seconds: Time from building the model to the end of the first update; None if the log does not say.
      test: Test score of the checkpoint that was best on the development set; None if not scored.
      test_signature: The signature that says which scores are comparable.
      parameters: The number of learned parameters; None if they were not counted.
      more: Other data that are stored with it.
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
        """The evaluation with the best dev BLEU, the first one if several are equal; None if there is none."""
        return max(self.points, key=lambda point: point.bleu, default=None)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Returns the run of a stored result."""
        known = {field.name for field in dataclasses.fields(cls)} - {"points", "more"}
        points = [Point(**point) for point in content["points"]]
        more = {name: value for name, value in content.items() if name not in {*known, "points"}}
        return cls(points=points, more=more, **{name: value for name, value in content.items() if name in known})

    def to_json(self) -> dict[str, Any]:
        """Returns the run in the form in which it is stored."""
        content = dataclasses.asdict(self)
        return {**content.pop("more"), **content}


# === Reading ===


def records(run: str | os.PathLike) -> list[dict[str, Any]]:
    """Returns the records of RUN/metrics.jsonl without an incomplete last line; empty if there is no file."""
    path = pathlib.Path(run) / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            break
        # A loss that is not a number is stored as null.
        found.append({name: math.nan if value is None else value for name, value in record.items()})
    return found


def read_run(run: str | os.PathLike, name: str = "", seed: int = 0, before: float = 0.0) -> Run:
    """Returns the curve of a run, read from its metrics.jsonl.

    The first update, which builds the graph, counts as taking as long as the later ones in its log window. The same
    holds for a resumed run's updates from before the interruption. A window in which the training paused (its process
    was stopped, the machine slept) counts as taking as long as the others.

    Args:
      run: The run's directory.
      name: The name of its recipe; empty: the directory's name.
      seed: Its seed.
      before: Minutes of training that its initial weights took.
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
    """Returns the seconds to the end of the very first update, from the trainer's log; None if they are not there."""
    started = _STARTED.search(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else None
    return float(started[1]) if started else None


def read_fairseq(log: str | os.PathLike, name: str = "fairseq", seed: int = 0) -> Run:
    """Returns the curve of a fairseq training, read from its log (``--log-format json``); times are to a second.

    Points are its ``valid`` lines with ``valid_bleu`` (``--eval-bleu``); a log without them gives none. Training
    begins with "Start iterating over samples"; validations and the writing of checkpoints are subtracted.
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
    """Minutes and target tokens after each logged update; interpolated between these, extrapolated after the last."""

    def __init__(self, before: float = 0.0) -> None:
        self.updates, self.minutes, self.tokens = [0], [before], [0.0]

    def add(self, updates: int, minutes: float, tokens: float) -> None:
        """Adds a log window: the total number of updates at its end, and its own minutes and target tokens."""
        self.updates.append(updates)
        self.minutes.append(self.minutes[-1] + minutes)
        self.tokens.append(self.tokens[-1] + tokens)

    def point(self, updates: int, bleu: float, loss: float | None, evaluating: float) -> Point:
        """Returns an evaluation after a number of updates; ``evaluating`` are the minutes of evaluations so far."""
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
    """Returns the point at which a curve reaches a dev BLEU; None if it never does.

    Args:
      points: The curve's evaluations.
      target: The BLEU.
      interpolated: Whether to interpolate linearly between the last evaluation below the target (or the beginning,
        with BLEU 0) and the first that reaches it. Otherwise the point is the first evaluation that reaches it.
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
      values: The values of the seeds that have one.
      of: The number of all seeds.
    """

    values: tuple[float, ...]
    of: int

    @property
    def mean(self) -> float | None:
        """The mean; None without values."""
        return statistics.fmean(self.values) if self.values else None

    def shown(self, form: str) -> str:
        """Returns mean and range as text, with the number of seeds that have a value if not all have."""
        if self.mean is None:
            return "-"
        low, high = (format(value, form) for value in (min(self.values), max(self.values)))
        text = format(self.mean, form) + (f" ({low}–{high})" if len(self.values) > 1 else "")
        return text if len(self.values) == self.of else f"{text}, {len(self.values)} of {self.of}"


def to_target(runs: Sequence[Run], target: float, field: str, *, interpolated: bool = False) -> Spread:
    """Returns what the runs of a recipe needed to reach a dev BLEU.

    Args:
      runs: The runs, one for each seed.
      target: The BLEU.
      field: The field of ``Point`` to return: ``minutes``, ``minutes_counted``, ``updates`` or ``tokens``.
      interpolated: See ``reached``.
    """
    found = [reached(run.points, target, interpolated=interpolated) for run in runs]
    return Spread(tuple(getattr(point, field) for point in found if point), len(runs))
