"""The trainings of ``time_to_quality.py``: a queue on pinned cores that stores a result for each training.

The folders are::

    WORK_DIR/data                        generated data
    WORK_DIR/RECIPE/seed1/run            a run; the log of each command is beside it
    WORK_DIR/results/RECIPE.seed1.json   its result, which exists only when it is complete
"""

import contextlib
import dataclasses
import fcntl
import math
import os
import pathlib
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import _quality_curves as curves
import _report
from _quality_jobs import EXTENDED, Job

from t2t_ext.errors import UserError
from t2t_ext.experiments.plan import Stage
from t2t_ext.experiments.stages import score_record
from t2t_ext.runs import checkpoints

_LOOK_SECONDS = 1.0
_PREEMPTED = 143  # the trainer's exit status after SIGTERM
_TOO_EARLY = 0.02  # share of the budget that must be used before the time left is estimated


class Trainings:
    """Carries out jobs on pinned cores, as many side by side as there are slots."""

    def __init__(self, waiting: Sequence[Job], slots: Sequence[Sequence[int]], work_dir: pathlib.Path) -> None:
        """Prepares; nothing is started.

        Args:
          waiting: The jobs, in order.
          slots: For each of the jobs that run side by side, its cores.
          work_dir: Where all files go.

        Raises:
          UserError: Another process is using ``work_dir``.
        """
        self._slots, self._all = slots, len(waiting)
        self._waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in waiting:
            self._waiting.put(job)
        self._stop = threading.Event()
        self._locks = {stage.marker: threading.Lock() for job in waiting for stage in job.stages}
        self._running: dict[str, _Progress] = {}
        self._done_seconds: list[float] = []
        self.failed: dict[str, str] = {}
        work_dir.mkdir(parents=True, exist_ok=True)
        self._lock = open(work_dir / ".lock", "w", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"--work_dir={work_dir}: another benchmark, or a training that it left running, is at work there. "
                "Wait until it has ended, or choose another --work_dir."
            ) from None

    def run(self, every: float = 30.0) -> None:
        """Carries out the jobs and prints their progress.

        Args:
          every: Seconds between two lines of progress.

        Raises:
          KeyboardInterrupt: Ctrl-C or SIGTERM came; trainings have saved and ended.
        """
        threads = [threading.Thread(target=self._work, args=[slot]) for slot in self._slots]
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for thread in threads:
                thread.start()
            said = time.monotonic()
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.2)
                if time.monotonic() - said >= every:
                    said = time.monotonic()
                    say(self.progress())
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
            signal.signal(signal.SIGTERM, before)

    def progress(self) -> str:
        """Returns the progress of the jobs and the maximum time left; they may reach their targets sooner."""
        running = list(self._running.values())
        known = [seconds for each in running if (seconds := each.seconds())]
        parts = [f"{self._all - self._waiting.qsize() - len(running)} of {self._all} done"]
        parts += [each.text for each in running]
        totals = self._done_seconds or [whole for whole, _ in known]
        if totals and (running or self._waiting.qsize()):
            mean = statistics.fmean(totals)
            unknown = self._waiting.qsize() + len(running) - len(known)
            seconds = (sum(left for _, left in known) + mean * unknown) / len(self._slots)
            parts.append(f"at most about {math.ceil(seconds / 60)} min of training left")
        return "; ".join(parts)

    def _work(self, cores: Sequence[int]) -> None:
        """Carries out jobs until none is left; processes that are started here inherit this thread's cores."""
        os.sched_setaffinity(0, cores)
        while not self._stop.is_set():
            try:
                job = self._waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            self._running[job.title] = _Progress(job)
            try:
                say(f"{job.title}: on cores {','.join(map(str, cores))}")
                run = self._carry_out(job, cores)
                self._done_seconds.append(time.monotonic() - began)
                best = run.best
                found = f"best dev BLEU {best.bleu:.2f} at step {best.updates}" if best else "no evaluation"
                say(f"{job.title}: ended by {run.ended} after {run.minutes:.1f} min, {run.updates} updates; {found}")
            except _Stopped:
                say(f"{job.title}: stopped; the same command resumes it")
            except Exception as error:  # one training must not end the others
                self.failed[job.title] = " ".join(str(error).split()) or type(error).__name__
                say(f"{job.title}: failed: {self.failed[job.title]}")
            finally:
                del self._running[job.title]

    def _carry_out(self, job: Job, cores: Sequence[int]) -> curves.Run:
        """Runs the commands of a job and stores its result."""
        ended = ""
        for stage in job.stages:
            with self._locks[stage.marker]:  # initial weights that several jobs need are trained only once
                if stage is job.training:
                    ended = self._train(job)
                elif stage.kind == "train" or job.read().points:
                    self._running[job.title].text = f"{job.title}: {stage.title}"
                    self._command(stage)
        stages = {stage.kind: stage for stage in job.stages}
        run = job.read()
        run.ended = ended
        run.startup_seconds = curves.startup_seconds(job.training.log)
        scores = score_record(stages["score"])
        if scores:
            label, run.test = next(iter(scores.scores.items()))
            run.test_signature = f"{label} {scores.signatures[label]}"
        saved = checkpoints.list_checkpoints(job.training.output)
        groups = checkpoints.read_info(saved[-1]).groups if saved else {}
        run.parameters = sum(math.prod(each["shape"]) for each in groups.get("model", {}).values()) or None
        run.more = {"settings": job.settings(len(cores)), "budget": dataclasses.asdict(job.budget),
                    "commands": [stage.command_line for stage in job.stages], "on_cores": list(cores)}  # fmt: skip
        _report.write_report(job.result, _report.report(run.to_json()))
        return run

    def _train(self, job: Job) -> str:
        """Trains until a limit is reached, and returns what ended the training."""
        run, stage = job.read(), job.training
        asked = job.budget.ended_by(run)
        if not asked:
            with self._started(stage) as process:
                while process.poll() is None:
                    time.sleep(_LOOK_SECONDS)
                    run = job.read()
                    self._running[job.title].note(run)
                    if not asked and (asked := job.budget.ended_by(run)):
                        process.send_signal(signal.SIGTERM)  # it saves and ends
            run = job.read()
            if process.returncode == 0:
                return "updates" if run.updates >= int(stage.flags[EXTENDED]) else "early stopping"
            if not asked or process.returncode != _PREEMPTED:
                raise _failure(stage, process.returncode)
        saved = checkpoints.list_checkpoints(stage.output)
        if not saved:
            raise UserError(f"Its first weights took {run.minutes:.1f} min, the whole budget. Give more --minutes.")
        step = checkpoints.checkpoint_step(saved[-1])
        if asked == "minutes" and step not in {point.updates for point in run.points}:
            # A trainer without updates left evaluates the last one.
            self._command(dataclasses.replace(stage, flags={**stage.flags, EXTENDED: step}))
        return asked

    def _command(self, stage: Stage) -> None:
        """Runs a command to its end."""
        with self._started(stage) as process:
            while process.poll() is None:
                time.sleep(0.1)
        if process.returncode:
            raise _failure(stage, process.returncode)

    @contextlib.contextmanager
    def _started(self, stage: Stage) -> Iterator[subprocess.Popen]:
        """Yields the process of a command; when everything is to stop, the process is terminated and awaited."""
        module = f"t2t_ext.bin.{stage.command.replace('-', '_')}"
        stage.folder.mkdir(parents=True, exist_ok=True)
        with open(stage.log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *stage.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # only this process receives Ctrl-C
                pass_fds=[self._lock.fileno()],  # if the benchmark is killed, its training keeps the folder locked
            )
        ended = threading.Event()
        watcher = threading.Thread(target=self._end_when_stopped, args=[process, ended])
        watcher.start()
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            ended.set()
            watcher.join()
        if self._stop.is_set() and process.returncode:
            raise _Stopped

    def _end_when_stopped(self, process: subprocess.Popen, ended: threading.Event) -> None:
        while not ended.wait(0.2):
            if self._stop.is_set():
                process.terminate()
                return


class _Progress:
    """The progress of a job, as a share of its budget."""

    def __init__(self, job: Job) -> None:
        self._job, self.began, self.text = job, time.monotonic(), job.title
        self._share = self._before = self._allowed(job.read())

    def note(self, run: curves.Run) -> None:
        """Updates the progress from the training's log so far."""
        self._share = self._allowed(run)
        bleu = f", BLEU {run.points[-1].bleu:.1f}" if run.points else ""
        self.text = f"{self._job.title}: update {run.updates}, {run.minutes:.1f} min{bleu}"

    def _allowed(self, run: curves.Run) -> float:
        minutes = self._job.budget.minutes
        shares = run.updates / int(self._job.training.flags[EXTENDED]), run.minutes / minutes if minutes else 0.0
        return min(1.0, max(shares))

    def seconds(self) -> tuple[float, float] | None:
        """Returns (seconds of the whole job, seconds left), or None if it is too early to tell."""
        done = self._share - self._before
        if done < _TOO_EARLY:
            return None
        rate = (time.monotonic() - self.began) / done
        return rate, rate * (1 - self._share)


class _Stopped(Exception):
    """Raised when everything is to stop."""


def _failure(stage: Stage, status: int) -> UserError:
    """Returns the error of a failed command, with the last line that it printed."""
    lines = stage.log.read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return UserError(f"{stage.title} ended with status {status}: {last} Its output is in {stage.log}.")


def say(text: str) -> None:
    """Prints a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
