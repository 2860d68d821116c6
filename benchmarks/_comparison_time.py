"""Estimates the time left for the trainings of ``comparison.py`` from stored results and from running trainings."""

import collections
import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence

from _comparison_plan import PLAIN, Job
from _comparison_store import Record

_ENOUGH = 200  # updates after which a training's own speed counts as known
_LAST_UPDATES = 500  # left, until the next evaluation, for a training that had as many updates as others of its row


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a training.

    Attributes:
      seconds: Time since it was started or resumed.
      updates: Number of updates of the whole run.
      minutes: Time that these updates took.
    """

    seconds: float
    updates: int
    minutes: float


def seconds_left(
    records: Mapping[Job, Record],
    price: Callable[[str], float],
    jobs: Sequence[Job],
    running: Mapping[Job, Progress],
    *,
    later: int,
    slots: int,
) -> float:
    """Returns an estimate of the seconds left; 0 if there are no stored results to estimate from.

    A running training is assumed to continue at its speed and to end after as many updates as others of its row. A
    waiting training takes as long as others of its row, or longer if the running ones are slower than the stored ones
    of their rows were. Numbers from one training recipe are scaled to another by the ratio in rows that have both.

    Args:
      records: The stored results.
      price: Training recipe -> the duration of an update relative to the plain recipe's.
      jobs: The trainings that are left, including the running ones.
      running: Running training -> its progress.
      later: The number of further trainings that are not known yet.
      slots: How many trainings run side by side.
    """
    seconds, updates, paces = (collections.defaultdict[str, list[float]](list) for _ in range(3))
    stretch = _stretches(records)
    for job, record in records.items():
        # For a resumed training, only the last part was timed. A row that reranks has no updates of its own.
        trained = 60 * (record["minutes"] - record["minutes_before"])
        seconds[job.row].append(max(record["seconds"], trained) / price(job.variant) / stretch[job.variant])
        if trained and record["updates"]:
            updates[job.row].append(record["updates"] / stretch[job.variant])
            paces[job.row].append(trained / record["updates"] / price(job.variant))
    if not seconds:
        return 0.0

    def whole(job: Job) -> float:
        return _median(seconds, job.row) * price(job.variant) * stretch[job.variant]

    known = {job: each for job, each in running.items() if each.updates >= _ENOUGH and updates}
    slower = [_pace(known[job]) / price(job.variant) / _median(paces, job.row) for job in known if job.row in paces]
    factor = statistics.median(slower) if slower else 1.0
    left = [_median(seconds) * factor] * later
    for job in jobs:
        if job in known:
            ends = _median(updates, job.row) * stretch[job.variant]
            left.append(max(ends - known[job].updates, _LAST_UPDATES) * _pace(known[job]))
        else:
            left.append(max(0.0, whole(job) * factor - (running[job].seconds if job in running else 0.0)))
    return max(sum(left) / slots, *left, 0.0)  # the longest training may end up running alone


def _stretches(records: Mapping[Job, Record]) -> Mapping[str, float]:
    """Returns training recipe -> the number of updates that trainings need, relative to the plain recipe; default 1."""
    found = collections.defaultdict[tuple[str, str], list[float]](list)
    for job, record in records.items():
        if record["updates"]:
            found[job.variant, job.row].append(record["updates"])
    ratios = collections.defaultdict[str, list[float]](list)
    for (variant, row), updates in found.items():
        if (PLAIN, row) in found:
            ratios[variant].append(statistics.median(updates) / statistics.median(found[PLAIN, row]))
    known = {variant: statistics.median(each) for variant, each in ratios.items()}
    return collections.defaultdict(lambda: 1.0, known)


def _pace(progress: Progress) -> float:
    """Returns the seconds per update."""
    return 60 * progress.minutes / progress.updates


def _median(found: Mapping[str, Sequence[float]], row: str = "") -> float:
    """Returns the median of a row's values, or of all values if the row has none."""
    return statistics.median(found.get(row) or [value for values in found.values() for value in values])
