"""How long the trainings of ``comparison.py`` that are left take, about, by the stored ones and by those that run."""

import collections
import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence

from _comparison_plan import PLAIN, Job
from _comparison_store import Record

_ENOUGH = 200  # updates, from which on a training's own speed is known
_LAST_UPDATES = 500  # of a training that has had as many as others: until its next evaluation


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a training is.

    Attributes:
      seconds: Since it was started, or resumed.
      updates: All of its run's.
      minutes: That these took.
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
    """Returns an estimate; 0 where nothing is stored to estimate from.

    A training that runs goes on as fast as until now, and ends after as many updates as others of its row. One that
    waits takes as long as others of its row, longer where those that run are slower here than they were there. What is
    known of a row with one recipe of training is stretched to another one as it was in rows that have both.

    Args:
      records: The stored results.
      price: How many times as long an update takes with a recipe of training.
      jobs: The trainings that are left, those that run among them.
      running: How far these are.
      later: How many trainings there will be besides.
      slots: How many run side by side.
    """
    seconds, updates, paces = (collections.defaultdict[str, list[float]](list) for _ in range(3))
    stretch = _stretches(records)
    for job, record in records.items():
        # Of a training that was resumed, only the last part was timed. One that reranks has no updates of its own.
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
    return max(sum(left) / slots, *left, 0.0)  # the last ones have no others beside them


def _stretches(records: Mapping[Job, Record]) -> Mapping[str, float]:
    """Returns for each recipe of training how many times as many updates as with the plain one trainings take."""
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
    """Returns the seconds of an update."""
    return 60 * progress.minutes / progress.updates


def _median(found: Mapping[str, Sequence[float]], row: str = "") -> float:
    """Returns the median of a row; of all, where the row has none."""
    return statistics.median(found.get(row) or [value for values in found.values() for value in values])
