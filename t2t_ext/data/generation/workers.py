"""Runs a function on a stream of tasks, on all cores or with Apache Beam, in order and in bounded memory.

Processes are spawned, never forked, because the calling process may have TensorFlow's threads.
"""

import collections
import concurrent.futures.process
import contextlib
import hmac
import itertools
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import pickle
import secrets
import shlex
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from t2t_ext.config.cores import usable_cores
from t2t_ext.errors import UserError, require_package

# Enough that no process waits for its next task, few enough that tasks do not pile up in memory.
TASKS_IN_FLIGHT_PER_PROCESS = 3
_DEFAULT_RUNNER = "DirectRunner"
_KEY_BYTES = 32  # size of HMAC-SHA-256 codes and of their key


class Workers:
    """A pool of processes that starts when it is first needed and ends with the ``with`` block.

    With a single process there is no pool: tasks run in the calling process.
    """

    def __init__(self, num_processes: int) -> None:
        """Makes a pool; starts nothing yet.

        Args:
          num_processes: Maximum number of processes; 0 for one per core.
        """
        self.num_processes = num_processes or usable_cores()
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yields ``function(task)`` for every task, in order, while later tasks are being processed.

        Args:
          function: A module-level function, or a partial of one, which can be pickled.
          tasks: Picklable arguments, taken from the iterable only when they are needed.

        Raises:
          Exception: Whatever the function or the iterable raises.
          UserError: A process died.
        """
        tasks = iter(tasks)
        first_two = list(itertools.islice(tasks, 2))
        in_this_process = self.num_processes == 1 or len(first_two) < 2
        tasks = itertools.chain(first_two, tasks)
        del first_two
        if in_this_process:
            yield from map(function, tasks)
            return
        if self._pool is None:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self.num_processes, mp_context=multiprocessing.get_context("spawn"), initializer=_start_process
            )
        waiting: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
        try:
            for task in tasks:
                waiting.append(self._pool.submit(function, task))
                if len(waiting) >= TASKS_IN_FLIGHT_PER_PROCESS * self.num_processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise UserError(
                "A worker process ended unexpectedly. Was it out of memory? Then give --num_processes=1. In a script "
                "of your own, call this under `if __name__ == '__main__':`."
            ) from error


def _start_process() -> None:
    """Prepares a worker process: its parent handles Ctrl-C, and it ends when its parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            with contextlib.suppress(OSError):
                multiprocessing.connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


class BeamWorkers(Workers):
    """Runs each ``map`` as an Apache Beam pipeline, on one machine or many.

    Tasks are written to a directory that all machines share. A pipeline of task numbers runs them, and their results
    are read from there, in order. So a runner moves and keeps only numbers. The output is the same as with
    ``Workers``, whatever the machines are and however often a runner repeats a task. Files that others put into the
    directory are never unpickled: every file is authenticated with a key that is passed only through Beam.
    """

    def __init__(self, options: str, directory: pathlib.Path) -> None:
        """Checks that Beam is installed and accepts the options; runs nothing yet.

        Args:
          options: Flags for Beam, such as ``"--runner=FlinkRunner --flink_master=HOST:8081"``; without ``--runner``,
            the DirectRunner runs everything on this machine.
          directory: The directory for tasks and results; all machines must see it under this path.

        Raises:
          UserError: Apache Beam is not installed, or its options are wrong.
        """
        require_package("apache_beam", "beam", "--runner=beam")
        self._flags = _checked_flags(options)
        self._directory = directory
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._stages = 0

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yields ``function(task)`` for every task, in order, after all have run; a task may run more than once.

        Raises:
          Exception: What the function raised for the first task that failed.
          UserError: The pipeline failed for another reason.
        """
        self._stages += 1
        stage = self._directory / f"{self._stages:03d}"
        for folder in ("tasks", "results"):
            (stage / folder).mkdir(parents=True)
        count = 0
        for count, task in enumerate(tasks, 1):
            _put(stage / "tasks" / str(count - 1), (function, task), self._key)
        if count:
            self._run(stage, count)
        for number in range(count):
            failed, result = _get(stage / "results" / str(number), self._key)
            if failed:
                raise result
            yield result
        shutil.rmtree(stage)

    def _run(self, stage: pathlib.Path, count: int) -> None:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions

        try:
            with beam.Pipeline(options=PipelineOptions(self._flags)) as pipeline:
                numbers = pipeline | "Number the tasks" >> beam.Create(range(count))
                spread = numbers | "Spread them" >> beam.Reshuffle()
                _ = spread | "Run them" >> beam.Map(run_task, str(stage), self._key)
        except Exception as error:
            raise UserError(
                f"Apache Beam ({shlex.join(self._flags)}) failed: {error}. All its machines must see {stage} under "
                f"this path and have this t2t_ext installed."
            ) from error


def run_task(number: int, stage: str, key: bytes) -> None:
    """Runs a task from a directory and stores its result or exception there; ``key`` authenticates both files.

    Raises:
      UserError: The task file was not written with this key.
    """
    result = pathlib.Path(stage, "results", str(number))
    if result.exists():  # the runner repeats the task
        return
    task_file = pathlib.Path(stage, "tasks", str(number))
    function, task = _get(task_file, key)
    try:
        outcome = (False, function(task))
    except Exception as error:
        outcome = (True, error)
    _put(result, outcome, key)
    task_file.unlink(missing_ok=True)


def _put(path: pathlib.Path, content: Any, key: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp-{secrets.token_hex(8)}")
    data = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    temporary.write_bytes(_code(path, data, key) + data)
    os.rename(temporary, path)


def _get(path: pathlib.Path, key: bytes) -> Any:
    content = path.read_bytes()
    code, data = content[:_KEY_BYTES], content[_KEY_BYTES:]
    if not hmac.compare_digest(code, _code(path, data, key)):
        raise UserError(f"{path} was not written by this data generation. See who else writes to that folder.")
    return pickle.loads(data)


def _code(path: pathlib.Path, data: bytes, key: bytes) -> bytes:
    """Returns the HMAC-SHA-256 that authenticates a file's contents together with its name within a stage."""
    return hmac.digest(key, "/".join(path.parts[-3:]).encode() + b"\0" + data, "sha256")


def _checked_flags(options: str) -> list[str]:
    """Returns Beam's flags after checking them.

    Raises:
      UserError: The text is not a list of flags, or Beam or its runner does not accept them.
    """
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
    from apache_beam.runners import create_runner

    try:
        flags = shlex.split(options)
        chosen = PipelineOptions(flags)
        chosen.get_all_options()
        runner = chosen.view_as(StandardOptions).runner
        create_runner(runner or _DEFAULT_RUNNER)
    except (ValueError, ImportError, AttributeError, SystemExit) as error:
        raise UserError(f"--beam_options={options!r} are no options of Apache Beam: {error}.") from None
    return flags if runner else [f"--runner={_DEFAULT_RUNNER}", *flags]
