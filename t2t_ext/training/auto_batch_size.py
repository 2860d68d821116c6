"""``batch_size=auto``: finds the largest batch whose training step fits the device, in a child process.

The child (``t2t_ext.training.batch_size_probe``) makes real steps on the largest batches of the plan for one size
after the other: doubled while they fit, then bisected. A size does not fit if a child runs out of memory, is killed for
it, or takes more than it may. The trainer's own process has touched no device by then. Imports no TensorFlow.
"""

import collections
import contextlib
import dataclasses
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from t2t_ext.config.hyperparameters import AUTO_BATCH_SIZE, HParams
from t2t_ext.config.training import TrainConfig, TrainingSettings
from t2t_ext.errors import UserError
from t2t_ext.training import available_memory, setup_run

# Share of the memory available when probing begins; the rest is for evaluations, fragmentation and other programs.
HOST_SHARE = 0.8
# Share of the size that fits a GPU: its allocator fragments with changing shapes, and evaluations need own buffers.
DEVICE_SHARE = 0.9
FIRST_SIZE = 1024  # tokens
SMALLEST_SIZE = 64
# Fewer pairs per step on average are hardly intended; the hint then proposes as many as Keras's default batch size.
_FEW_PAIRS, _USUAL_PAIRS = 8, 32
_LOOK_SECONDS = 0.05
_MEMORY_WORDS = re.compile("bad_alloc|out[ _]of[ _]memory|resource_?exhausted|memoryerror", re.IGNORECASE)
_MODULE = "t2t_ext.training.batch_size_probe"

Say = Callable[[str], None]


def fill_in(run: setup_run.ResolvedRun, say: Say) -> setup_run.ResolvedRun:
    """Replaces ``batch_size=auto`` by a number; a run that already has a number is returned unchanged.

    The hparams of the returned run contain the number, and its origins say how it was found. The child process resolves
    the user's request again. ``say`` receives messages about the progress of probing.

    Raises:
      UserError: Several machines or a TPU take part, or not even the smallest batch fits.
    """
    if run.hparams.batch_size != AUTO_BATCH_SIZE:
        return run
    _check_one_machine(run.settings)
    available = available_memory.available_bytes()
    with contextlib.ExitStack() as stack:
        prober = Prober(run.asked, available and int(available * HOST_SHARE), say)
        stack.callback(prober.close)
        say("batch_size=auto: probing what fits, in a process of its own")
        needs = prober.needs()
        least, longest = (-(-needs[name] // SMALLEST_SIZE) * SMALLEST_SIZE for name in ("shortest", "longest"))
        # A smaller first size would leave out the longest pairs. Without max_length, a single line may have any length.
        first = max(FIRST_SIZE, longest if run.hparams.max_length else least)
        allowed = HParams.__dataclass_fields__["batch_size"].metadata["maximum"]
        size = largest_that_fits(prober.fits, min(needs["most"], allowed), first, least)
        if size is None:
            raise UserError(
                f"batch_size=auto: not even {least} tokens fit ({prober.last_failure}). Use a smaller model, a "
                "smaller max_length, or a device with more memory."
            )
        found = prober.results[size]
    if found["device"] == "GPU":
        size = max(least, int(size * DEVICE_SHARE) // SMALLEST_SIZE * SMALLEST_SIZE)
    room = f" of {available / 1e9:.1f} GB available" if available and found["device"] == "CPU" else ""
    origin = f"auto: probed, largest batch takes {found['peak'] / 1e9:.1f} GB{room} on the {found['device']}"
    say(f"batch_size=auto: {size:,} ({run.hparams.batch_tokens} tokens a replica); {origin.removeprefix('auto: ')}")
    hparams = run.hparams.replace(batch_size=size)
    stored = run.config.replace(hparams=hparams.to_dict(), origins={**run.config.origins, "batch_size": origin})
    return dataclasses.replace(run, config=stored, hparams=hparams)


def hint(batch_size: int, pairs: float, batches: int) -> str:
    """Returns a hint if steps have few pairs on average, as if ``batch_size`` were meant in sentences; otherwise "".

    Args:
      batch_size: The run's batch size in tokens.
      pairs: Average number of pairs per step.
      batches: Number of batches per epoch. A single one holds all pairs already.
    """
    if pairs >= _FEW_PAIRS or batches == 1:
        return ""
    proposed = round(batch_size * _USUAL_PAIRS / pairs, -2)
    return (
        f"batch_size={batch_size:,} counts tokens, not sentences: a step sees {pairs:.1f} pairs on average; with "
        f"batch_size={proposed:.0f} it would be about {_USUAL_PAIRS} (the sets have 2,048 to 4,096)"
    )


def hint_of_filling(
    hparams: HParams, share: int, row_multiple: int, *, merged: bool = False, on_cpu: bool = False
) -> str:
    """Returns a hint if empty rows and padding make a replica compute more than ``batch_size`` at once; otherwise "".

    Args:
      hparams: The run's hparams.
      share: Padded tokens of the largest share of a part of a batch; ``parallel_slices`` of them are computed at once.
      row_multiple: The rows of each part are filled up to a multiple of this number; 1: none is filled up.
      merged: Whether the parts of a batch are merged, as for XLA.
      on_cpu: Whether training runs on a CPU, where padding takes as long as text.
    """
    at_once = share * hparams.parallel_slices
    if at_once <= hparams.batch_size:
        return ""
    why = "where a batch has few rows, empty ones fill it up until replicas and slices have the same number"
    advice = ""
    if merged:
        why = "batches are padded to few shapes, each compiled once"
        advice = "; a CPU is faster with --xla_compile=false" if on_cpu else "; a smaller max_length pads less"
    elif row_multiple == 1:
        why = (
            "a part of a batch holds a pair at least, however long, and parallel_slices of them are computed at a time"
        )
        advice = "; a smaller max_length leaves out long pairs"
    return (
        f"{why}: a replica computes up to {at_once:,} tokens at once, padding included, where batch_size is "
        f"{hparams.batch_size:,}{advice}"
    )


def largest_that_fits(
    fits: Callable[[int], bool], most: int, first: int = FIRST_SIZE, least: int = SMALLEST_SIZE
) -> int | None:
    """Returns the largest size that fits, to within an eighth: a multiple of ``SMALLEST_SIZE`` tokens, or ``most``.

    The result is None if not even ``least`` fits.

    Args:
      fits: Returns whether a size fits; if one does not, no larger size does.
      most: The largest size that makes sense.
      first: The size that is tried first.
      least: The smallest size that makes sense, a multiple of ``SMALLEST_SIZE``.
    """
    good, bad, size = None, None, first
    while bad is None:
        if not fits(size):
            bad = size
        else:
            good = size
            if size >= most:
                return good
            size = min(2 * size, most)
    while good is None:
        if bad <= least:
            return None
        size = max(bad // 2 // SMALLEST_SIZE * SMALLEST_SIZE, least)
        good, bad = (size, bad) if fits(size) else (None, size)
    while bad - good > max(SMALLEST_SIZE, good // 8):
        size = max((good + bad) // 2 // SMALLEST_SIZE * SMALLEST_SIZE, good + SMALLEST_SIZE)
        good, bad = (size, bad) if fits(size) else (good, size)
    return good


class Prober:
    """Asks child processes whether sizes fit; starts a new child if the previous one has ended.

    Attributes:
      results: Size -> the child's answer, for sizes that fit.
      last_failure: Why the last failing size did not fit.
    """

    def __init__(self, config: TrainConfig, limit: int | None, say: Say) -> None:
        """Starts nothing yet; the child's resident set may take ``limit`` bytes (None: no limit is known)."""
        self.results: dict[int, dict[str, Any]] = {}
        self.last_failure = ""
        self._config = config
        self._limit = limit
        self._say = say
        self._child: _Child | None = None

    def needs(self) -> dict[str, int]:
        """Returns ``shortest`` and ``longest``, tokens of those pairs, and ``most``, the largest size that makes sense.

        Raises:
          UserError: The run cannot be set up, or not even its model fits.
        """
        answer = self._ask(0)
        if "failure" in answer:
            raise UserError(
                f"batch_size=auto: not even the model fits ({answer['failure']}). Use a smaller model, or a device "
                "with more memory."
            )
        return answer

    def fits(self, size: int) -> bool:
        """Tries a size and returns whether it fits.

        Raises:
          UserError: Something else is wrong with the run.
        """
        answer = self._ask(size)
        if "failure" in answer:
            self.close()
            self.last_failure = answer["failure"]
            self._say(f"batch_size=auto: {size:,} tokens do not fit: {answer['failure']}")
            return False
        self.results[size] = answer
        self._say(
            f"batch_size=auto: {size:,} tokens fit: peak {answer['peak'] / 1e9:.2f} GB on the {answer['device']}, "
            f"largest batch {answer['shape']}, {answer['seconds']:.1f} s a step"
        )
        return True

    def _ask(self, size: int) -> dict[str, Any]:
        if self._child is None:
            self._child = _Child(self._config, self._limit)
        return self._child.ask(size)

    def close(self) -> None:
        """Ends the child, if there is one."""
        if self._child is not None:
            self._child.close()
            self._child = None


class _Child:
    """One child process and its answers."""

    def __init__(self, config: TrainConfig, limit: int | None) -> None:
        self._limit = limit
        self._errors: collections.deque[str] = collections.deque(maxlen=40)  # last lines
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        if not (self._process.stdin and self._process.stdout and self._process.stderr):
            raise AssertionError("a process with pipes has no pipes")
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        self._lines: queue.Queue[str] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._errors.extend, args=[self._stderr], daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        asked = {name: value for name, value in config.given().items() if name != "train_command"}
        self._send({**asked, "problem_options": dict(config.problem_options or {}), "parent": os.getpid()})

    def ask(self, size: int) -> dict[str, Any]:
        """Returns the child's answer about a size; ``{"failure": why}`` if it does not fit.

        Raises:
          UserError: The child reported a ``UserError``.
          RuntimeError: The child failed for a reason other than memory.
        """
        self._send(size)
        while True:
            try:
                line = self._lines.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                resident, _ = available_memory.resident_bytes(self._process.pid)
                if self._limit and resident > self._limit:
                    return {"failure": f"it takes more than {self._limit / 1e9:.1f} GB"}
                continue
            answer = json.loads(line) if line else self._exit_reason()
            if "user_error" in answer:
                raise UserError(answer["user_error"])
            if answer.get("device") == "CPU" and self._limit and answer["peak"] > self._limit:
                return {"failure": f"it takes {answer['peak'] / 1e9:.1f} GB, more than {self._limit / 1e9:.1f} GB"}
            return answer

    def close(self) -> None:
        """Ends the process and waits for it."""
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        with contextlib.suppress(OSError):  # a message that could no longer be sent
            self._stdin.close()
        self._stdout.close()
        self._stderr.close()

    def _send(self, message: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # the next question finds out how the child ended
            self._stdin.write(json.dumps(message) + "\n")
            self._stdin.flush()

    def _read(self) -> None:
        for line in self._stdout:
            self._lines.put(line)
        self._lines.put("")

    def _exit_reason(self) -> dict[str, Any]:
        """Returns the failure if the process exited for lack of memory; otherwise raises ``RuntimeError``."""
        status = self._process.wait()
        for reader in self._readers:
            reader.join()
        text = "".join(self._errors)
        if status == -signal.SIGKILL:
            return {"failure": "the system killed the process, which took too much memory"}
        if status and _MEMORY_WORDS.search(text):
            return {"failure": "the device ran out of memory"}
        raise RuntimeError(f"Probing the batch size ended with status {status}:\n{text}")


def _check_one_machine(settings: TrainingSettings) -> None:
    several = settings.distribution in ("tpu", "multi_worker_mirrored")
    if settings.distribution == "auto" and os.environ.get("TF_CONFIG"):
        with contextlib.suppress(ValueError, AttributeError):
            cluster = json.loads(os.environ["TF_CONFIG"]).get("cluster", {})
            several = sum(len(cluster.get(job, [])) for job in ("chief", "worker")) > 1
    if several:
        raise UserError(
            "batch_size=auto probes the devices of one machine; it cannot be used with a TPU or with several workers, "
            "which must all have the same batches. Give a number (probe on one worker with --distribution=mirrored)."
        )
