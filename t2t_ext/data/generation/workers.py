"""Runs a function over a stream of tasks on all cores, results in order, memory bounded.

Processes are spawned, never forked: the calling process may hold TensorFlow's threads.
"""

import collections
import concurrent.futures.process
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from t2t_ext.errors import UserError

# Enough that no process waits for its next task, few enough that tasks do not pile up in memory.
TASKS_IN_FLIGHT_PER_PROCESS = 3


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """A pool of processes that is started at the first need and ends with the ``with`` block.

    A single process means no pool at all: tasks then run in the caller.
    """

    def __init__(self, num_processes: int) -> None:
        """Makes a pool; starts nothing yet.

        Args:
          num_processes: At the most so many processes; 0 for one per core.
        """
        self.num_processes = num_processes or available_cores()
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yields ``function(task)`` for every task, in order, while later tasks are being worked on.

        Args:
          function: A function of a module (it is sent by name).
          tasks: Picklable arguments, taken from the iterable only as they are needed.

        Raises:
          Exception: Whatever the function or the iterable raises.
          UserError: A process died.
        """
        try:
            yield from self._map(function, iter(tasks))
        except concurrent.futures.process.BrokenProcessPool as error:
            raise UserError(
                "A worker process ended unexpectedly. Was it out of memory? Then give --num_processes=1. In a script "
                "of your own, call this under `if __name__ == '__main__':`."
            ) from error

    def _map(self, function: Callable[[Any], Any], tasks: Iterator[Any]) -> Iterator[Any]:
        first_two = [task for _, task in zip(range(2), tasks, strict=False)]
        if self.num_processes == 1 or len(first_two) < 2:
            for task in first_two:
                yield function(task)
            yield from map(function, tasks)
            return
        pool = self._started()
        waiting: collections.deque = collections.deque(pool.submit(function, task) for task in first_two)
        first_two.clear()
        for task in tasks:
            waiting.append(pool.submit(function, task))
            if len(waiting) >= TASKS_IN_FLIGHT_PER_PROCESS * self.num_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _started(self) -> concurrent.futures.ProcessPoolExecutor:
        if self._pool is None:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self.num_processes, mp_context=multiprocessing.get_context("spawn"), initializer=_start_process
            )
        return self._pool


def _start_process() -> None:
    """Prepares a worker: Ctrl-C is the parent's to handle, and nobody outlives a parent that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        with contextlib.suppress(OSError):
            multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
