"""The queue of ``comparison.py``: trainings on pinned cores, in the plan's order, each stored as soon as it is done."""

import ctypes
import dataclasses
import math
import os
import pathlib
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import _quality_curves as curves
from _comparison_plan import Cell, Job, Plan
from _comparison_store import Record, Store
from _comparison_time import Progress, seconds_left
from _quality_runs import say

from t2t_ext.errors import UserError

_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 10.0  # a training that needs another's stage, such as its data, need not wait until the other ends
_DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


class Work(Protocol):
    """The work that the queue delegates."""

    def prepare(self, job: Job) -> None:
        """Prepares a training before its command is started."""

    def command(self, job: Job) -> list[str]:
        """Returns the command that carries out a training, and resumes one that was stopped."""

    def folder(self, job: Job) -> pathlib.Path:
        """Returns the folder of a training's log; its run is in the subfolder ``run``."""

    def unfinished(self, job: Job) -> set[pathlib.Path]:
        """Returns the markers of the stages that the command would still carry out."""

    def gone(self, job: Job) -> bool:
        """Returns whether the run of a training with a stored result no longer exists."""

    def record(self, job: Job, seconds: float) -> Record:
        """Returns the result of a finished training."""

    def record_of_failed(self, job: Job, seconds: float) -> Record | None:
        """Returns the record of a training that failed and would fail again; None if it may be tried again."""


@dataclasses.dataclass
class _Running:
    """A running training: its process, its cores, the markers of the stages it works on, and when it was started."""

    process: subprocess.Popen
    cores: Sequence[int]
    markers: set[pathlib.Path]
    began: float


class Queue:
    """Trainings side by side, one in each slot.

    Attributes:
      failed: Training -> why it failed.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        work: Work,
        jobs: Callable[[], tuple[list[Job], int]],
        slots: Sequence[Sequence[int]],
        *,
        keep_open: Sequence[int] = (),
    ) -> None:
        """Prepares the queue; nothing is started.

        Args:
          plan: The rows.
          store: Where results go.
          work: How a training is carried out.
          jobs: Returns all known trainings in order, and the number of further ones that are not known yet.
          slots: For each of the trainings that run side by side, its cores.
          keep_open: File descriptors that a training keeps open as long as it runs.
        """
        self._plan, self._store, self._work, self._jobs, self._slots = plan, store, work, jobs, slots
        self._keep_open = keep_open
        self._running: dict[Job, _Running] = {}
        self._held_back = False
        self._again: list[Job] = []  # stored trainings whose runs are gone but needed by others
        self.failed: dict[Job, str] = {}

    def run(self, every: float = 60.0) -> None:
        """Carries out the trainings; prints their progress every ``every`` seconds.

        Raises:
          KeyboardInterrupt: Ctrl-C or SIGTERM came; the trainings have saved and ended.
        """
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            said = tried = time.monotonic()
            self._start()
            while self._running:
                time.sleep(_LOOK_SECONDS)
                ended = [job for job, each in self._running.items() if each.process.poll() is not None]
                for job in ended:
                    self._finish(job)
                if ended or (self._held_back and time.monotonic() - tried >= _RETRY_SECONDS):
                    tried = time.monotonic()
                    self._start()
                if time.monotonic() - said >= every:
                    said = time.monotonic()
                    say(self.progress())
        finally:
            for each in self._running.values():
                each.process.terminate()
            for job, each in self._running.items():
                each.process.wait()
                say(f"{self._title(job)}: stopped; the same command resumes it")
            signal.signal(signal.SIGTERM, before)

    def _start(self) -> None:
        """Starts trainings that can be started, as far as slots are free."""
        waiting = [job for job in self._jobs()[0] if job not in self._store.records]
        cells, self._held_back = self._plan.cells(self._store.scores()), False
        self._again = made_again(self._plan, self._work, waiting, cells)
        waiting = with_made_again(self._plan, waiting, self._again, cells)
        for job in waiting:
            free = [cores for cores in self._slots if cores not in [each.cores for each in self._running.values()]]
            if not free:
                break
            if job in self.failed or job in self._running:
                continue
            if any(need in waiting for need in self._plan.needs(job, cells) or ()):
                continue
            markers = self._work.unfinished(job)
            if any(markers & each.markers for each in self._running.values()):
                self._held_back = True  # for example, another training is generating the same data
                continue
            self._running[job] = self._started(job, free[0], markers)

    def _started(self, job: Job, cores: Sequence[int], markers: set[pathlib.Path]) -> _Running:
        folder = self._work.folder(job)
        folder.mkdir(parents=True, exist_ok=True)
        self._work.prepare(job)

        def prepare() -> None:  # in the new process
            os.sched_setaffinity(0, cores)
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)  # if the queue is killed, it saves and ends

        with open(folder / "queue.log", "ab") as log:
            process = subprocess.Popen(
                self._work.command(job),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # only this process receives Ctrl-C
                pass_fds=list(self._keep_open),
                preexec_fn=prepare,  # noqa: PLW1509 - this process has one thread
            )
        again = ", again: its run is gone, and others take it" if job in self._again else ""
        say(f"{self._title(job)}: on cores {','.join(map(str, cores))}{again}")
        return _Running(process, cores, markers, time.monotonic())

    def _finish(self, job: Job) -> None:
        """Stores the result of a training whose process has ended, or notes why there is none."""
        ended = self._running.pop(job)
        log, seconds = self._work.folder(job) / "queue.log", time.monotonic() - ended.began
        try:
            if ended.process.returncode:
                if (failed := self._work.record_of_failed(job, seconds)) is not None:
                    self._store.add(failed)
                    say(f"{self._title(job)}: {failed['ended']} after {failed['updates']:,} updates")
                    return
                lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
                last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
                raise UserError(f"status {ended.process.returncode}: {last} Its output is in {log}.")
            record = self._work.record(job, seconds)
            if (stored := self._store.records.get(job)) is not None:
                same = record["test"]["sha256"] == stored["test"]["sha256"]
                found = "same translations as" if same else "OTHER translations than"
                say(f"{self._title(job)}: trained again, {found} those of the stored result")
                if not same:
                    self._store.add(_with_another(stored, record))
                return
            self._store.add(record)
        except Exception as error:  # no error of one training may end the others
            if not isinstance(error, UserError | OSError):
                with open(log, "a", encoding="utf-8") as file:
                    file.write(traceback.format_exc())
                error = UserError(f"{type(error).__name__}: {error}. The traceback is in {log}.")
            self.failed[job] = str(error)
            say(f"{self._title(job)}: failed: {error}")
            return
        minutes = f"{record['updates']:,} updates, {record['minutes']:.1f} min"
        say(f"{self._title(job)}: test BLEU {record['test']['BLEU']:.2f}, dev {record['dev']['BLEU']:.2f}; {minutes}")
        say(self.progress())

    def progress(self) -> str:
        """Returns the progress of the trainings and an estimate of the time left."""
        jobs, later = self._jobs()
        done = [job for job in jobs if job in self._store.records]
        parts = [f"{len(done)} of {len(jobs) + later} trainings done"]
        runs = {job: curves.read_run(self._work.folder(job) / "run") for job in self._running}
        parts += [self._shown(job, run) for job, run in runs.items()]
        left = self._seconds_left(
            [job for job in [*jobs, *self._again] if self._is_left(job) and job not in self.failed], later, runs
        )
        if left:
            parts.append(f"about {math.ceil(left / 60):,} min left ({left / 3600:.1f} h)")
        return "; ".join(parts)

    def _is_left(self, job: Job) -> bool:
        return job not in self._store.records or (job in self._again and (job in self._running or self._work.gone(job)))

    def _seconds_left(self, jobs: Sequence[Job], later: int, runs: Mapping[Job, curves.Run]) -> float:
        """Returns an estimate of the seconds left; 0 if there is none."""
        running = {
            job: Progress(time.monotonic() - self._running[job].began, run.updates, run.minutes)
            for job, run in runs.items()
        }
        return seconds_left(self._store.records, self._plan.price, jobs, running, later=later, slots=len(self._slots))

    def _shown(self, job: Job, run: curves.Run) -> str:
        bleu = f", dev BLEU {run.points[-1].bleu:.1f}" if run.points else ""
        return f"{self._title(job)}: update {run.updates:,}{bleu}"

    def _title(self, job: Job) -> str:
        return f"{self._plan.name(job)}, seed {job.seed}"


def made_again(plan: Plan, work: Work, waiting: Sequence[Job], cells: Mapping[str, Cell]) -> list[Job]:
    """Returns the stored trainings whose runs are gone, but which waiting trainings need.

    Args:
      plan: The rows.
      work: Tells which runs are gone.
      waiting: The trainings that are not stored.
      cells: The chosen cells of the families.
    """
    found: dict[Job, None] = {}
    looked_at = list(waiting)
    while looked_at:
        for need in plan.needs(looked_at.pop(), cells) or ():
            if need not in waiting and need not in found and work.gone(need):
                found[need] = None
                looked_at.append(need)
    return list(found)


def with_made_again(plan: Plan, waiting: Sequence[Job], again: Sequence[Job], cells: Mapping[str, Cell]) -> list[Job]:
    """Returns the waiting trainings, each preceded by the trainings it needs that are made again."""
    found: dict[Job, None] = {}

    def put(job: Job) -> None:
        for need in plan.needs(job, cells) or ():
            if need in again:
                put(need)
        found.setdefault(job)

    for job in waiting:
        put(job)
    return list(found)


def _with_another(stored: Record, again: Record) -> Record:
    """Returns a stored result with the outcome of a repeated training, from which other trainings have learned."""
    kept = {name: again[name] for name in ("date", "machine", "precision")}
    kept |= {"BLEU": again["test"]["BLEU"], "sha256": again["test"]["sha256"]}
    return {**stored, "made_again": [*stored.get("made_again", []), kept]}
