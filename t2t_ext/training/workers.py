"""The processes that train together (``MultiWorkerMirroredStrategy``): they end together and detect lost workers.

A collective operation waits for all workers. TensorFlow aborts it if a connection breaks, but not if a machine
vanishes silently, and not while a worker computes on its own (the chief's evaluations). A thread therefore asks
the other workers' servers for a heartbeat, with TensorFlow's own call. If one does not answer, the collective
operations are aborted, and a process that is still there a few seconds later is killed.
"""

import contextlib
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from t2t_ext import compat
from t2t_ext.errors import UserError, first_line
from t2t_ext.training import strategies

EXIT_STATUS = 75  # EX_TEMPFAIL of sysexits.h: start it again
PROBE_SECONDS = 1.0
GRACE_SECONDS = 5.0  # for the main thread to end by itself
_NAMING_SECONDS = 10.0  # for finding out which worker broke a collective operation
_LEAVE_SECONDS = 20.0
# Errors raised by broken connections and aborted collective operations, here or in the worker that reports them.
_CONNECTION_ERRORS = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_BROKEN_OFF = ("Collective ops is aborted", "recvmsg:", "Socket closed", "Connection reset", "failed to connect")


class WorkerLostError(UserError):
    """Another worker is lost, so this one cannot continue; all have to be restarted."""

    exit_status = EXIT_STATUS


class Workers:
    """This process and the others that train with it. With a single process, everything here is trivial.

    Attributes:
      count: How many processes there are.
      index: This process's number; 0 is the chief.
    """

    def __init__(self, strategy: tf.distribute.Strategy, timeout: float, resume_point: Callable[[], str]) -> None:
        """Prepares the object; ``watching`` starts the thread.

        Args:
          strategy: The run's distribution strategy.
          timeout: Seconds without a heartbeat after which a worker counts as lost.
          resume_point: Returns where a restarted run resumes, in words.
        """
        self._strategy = strategy
        self._timeout = timeout
        self._resume_point = resume_point
        addresses = strategies.worker_addresses(strategy)
        self._addresses = list(addresses.values())
        self.count = max(1, len(addresses))
        self.index = strategies.worker_index(strategy)
        self._peers = {name: number for number, name in enumerate(addresses) if number != self.index}
        self._done = threading.Event()
        self._lost = ""

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files."""
        return self.index == 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches the other workers inside the block; at its end, waits until all of them have reached it.

        Raises:
          WorkerLostError: The block failed because another worker is gone.
        """
        if not self._peers:
            yield
            return
        thread = threading.Thread(target=self._watch, name="t2t_ext-workers", daemon=True)
        thread.start()
        try:
            yield
        except (tf.errors.OpError, RuntimeError) as error:
            message = self._why(error)
            if not message:
                raise
            raise WorkerLostError(message) from error
        else:
            self._leave_together()
        finally:
            self._done.set()

    def sum(self, values: Sequence[float]) -> list[float]:
        """Adds up numbers over all workers; all of them must call it, with equally many numbers.

        Returns:
          The sums, exact for integers below 2^53, the same on every worker.
        """
        if not self._peers:
            return list(values)
        # Each of a worker's replicas contributes, so each number is counted that many times.
        local = self._strategy.num_replicas_in_sync // self.count
        return (self._summed(tf.constant(values, tf.float64)).numpy() / local).tolist()

    def any(self, value: bool) -> bool:
        """Returns whether any worker passes True; all of them must call it."""
        return self.sum([float(value)])[0] > 0

    def of_chief(self, value: float) -> float:
        """Returns the chief's number to all workers; all of them must call it."""
        return self.sum([value if self.is_chief else 0.0])[0]

    def check_same(self, settings: str) -> None:
        """Checks that all workers were started with the same settings, given in one text.

        Raises:
          UserError: The settings differ; every worker raises it.
        """
        mine = zlib.crc32(settings.encode())
        different = self.sum([float(self.of_chief(mine) != mine and i == self.index) for i in range(self.count)])
        if any(different):
            others = ", ".join(f"worker {i} ({self._addresses[i]})" for i, value in enumerate(different) if value)
            raise UserError(
                f"Not all workers were started alike: settings or data of {others} differ from those of the chief, "
                f"worker 0 ({self._addresses[0]}). Start all of them with the same flags and the same generated data."
            )

    @tf.function(autograph=False)
    def _summed(self, values: tf.Tensor) -> tf.Tensor:
        def on_replica(values: tf.Tensor) -> tf.Tensor:
            # The sum is placed where its input is, and identity puts the input on the replica's device.
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(values))

        return self._strategy.experimental_local_results(self._strategy.run(on_replica, args=(values,)))[0]

    def _watch(self) -> None:
        seen = dict.fromkeys(self._peers, time.monotonic())
        while not self._done.wait(PROBE_SECONDS):
            for peer in self._peers:
                trouble = self._probe(peer)
                if not trouble:
                    seen[peer] = time.monotonic()
                elif time.monotonic() - seen[peer] > self._timeout:
                    self._end(f"{self._describe(peer)} has sent no heartbeat for {self._timeout:g} s ({trouble})")
                    return

    def _probe(self, peer: str) -> str:
        """Asks a worker's server for a heartbeat; returns what is wrong, or an empty string."""
        milliseconds = int(1000 * max(min(5.0, self._timeout / 3), 0.5))
        try:
            compat.check_peer(peer, milliseconds)
        except tf.errors.FailedPreconditionError:
            return "it was started again alone"
        except tf.errors.OpError as error:
            return first_line(error)
        return ""

    def _end(self, why: str) -> None:
        """Aborts collective operations; ends the process if the main thread does not."""
        self._lost = why
        with contextlib.suppress(tf.errors.OpError):
            compat.abort_collective_operations(why)
        if self._done.wait(GRACE_SECONDS):
            return
        sys.stdout.flush()
        print(f"error: {self._message(why)}", file=sys.stderr, flush=True)
        # Safe whatever the main thread is doing: at any moment, files are either complete or not there.
        os._exit(EXIT_STATUS)

    def _why(self, error: Exception) -> str:
        """Returns what to tell the user about a TensorFlow error; empty if no other worker caused it."""
        text = str(error)
        broken_off = isinstance(error, _CONNECTION_ERRORS) or any(words in text for words in _BROKEN_OFF)
        deadline = time.monotonic() + (_NAMING_SECONDS if broken_off else 0.0)
        while not self._lost:
            for peer in self._peers:
                # Twice, since a busy server may miss one.
                if self._probe(peer) and (trouble := self._probe(peer)):
                    return self._message(f"{self._describe(peer)} is gone ({trouble})")
            if time.monotonic() > deadline:
                return self._message(f"another worker broke off ({first_line(error)})") if broken_off else ""
            time.sleep(0.2)
        return self._message(self._lost)

    def _describe(self, peer: str) -> str:
        index = self._peers[peer]
        return f"Worker {index} ({self._addresses[index]}{', the chief' if index == 0 else ''})"

    def _message(self, why: str) -> str:
        return (
            f"{why}; worker {self.index} stops, too, since all must compute every step. Start all "
            f"{self.count} workers again with the same commands: training resumes from {self._resume_point()}."
        )

    def _leave_together(self) -> None:
        """Waits for the others, whose last collective operation may still need this process."""
        self._done.set()
        # A worker that is lost now has done its part.
        with contextlib.suppress(tf.errors.OpError):
            compat.wait_at_barrier("t2t_ext/end", int(1000 * _LEAVE_SECONDS))
