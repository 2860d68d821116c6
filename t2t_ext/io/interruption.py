"""Handles SIGTERM and Ctrl-C during training: finish the step, save, and tell how the process should end."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(Exception):
    """Raised when it makes no sense to wait for the end of a step, such as during an evaluation."""


class SignalWatch:
    """Records SIGTERM and SIGINT instead of ending the process.

    Attributes:
      received: The name of the signal that came; empty if none came.
    """

    def __init__(self, acknowledgement: str = "") -> None:
        """Prepares to watch for signals; ``watching`` starts it.

        Args:
          acknowledgement: The text written to standard error, after the signal's name, as soon as the first one comes.
        """
        self.received = ""
        self._abandon = False
        self._acknowledgement = acknowledgement

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Catches the signals inside the block; does nothing outside the main thread, where Python cannot do this."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with self._acknowledging() if self._acknowledgement else contextlib.nullcontext():
            previous = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
            try:
                yield
            finally:
                for number, handler in previous.items():
                    signal.signal(number, handler)

    @contextlib.contextmanager
    def _acknowledging(self) -> Iterator[None]:
        """Acknowledges the first signal at once.

        Python runs signal handlers only between its own instructions, so none runs while TensorFlow prepares a graph,
        which takes seconds. Python's C handler, however, writes each signal to a pipe at once, which a thread reads.
        """
        noted, note = os.pipe()
        os.set_blocking(note, False)  # as set_wakeup_fd requires
        thread = threading.Thread(target=self._acknowledge, args=[noted], daemon=True)
        thread.start()
        before = signal.set_wakeup_fd(note, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            os.close(note)  # ends the thread
            thread.join()
            os.close(noted)

    def _acknowledge(self, noted: int) -> None:
        said = False
        while numbers := os.read(noted, 16):
            names = [signal.Signals(number).name for number in numbers if number in _SIGNALS]
            if names and not said and not self._abandon:  # an abandoned block ends at once
                said = True
                with contextlib.suppress(OSError):
                    begin = "\n" if os.isatty(2) else ""  # a terminal shows ^C, and perhaps a progress bar
                    os.write(2, f"{begin}{names[0]}: {self._acknowledgement}\n".encode())

    @contextlib.contextmanager
    def abandoning(self) -> Iterator[None]:
        """Makes a signal raise ``Interrupted`` immediately inside the block; also raises it if one came before."""
        self._abandon = True
        try:
            if self.received:
                raise Interrupted
            yield
        finally:
            self._abandon = False

    def _on_signal(self, number: int, frame: object) -> None:
        del frame
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C does not wait
        self.received = signal.Signals(number).name
        if self._abandon:
            raise Interrupted


@contextlib.contextmanager
def exiting_at_sigterm(status: int) -> Iterator[None]:
    """Makes SIGTERM raise ``SystemExit(status)`` inside the block; does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        del number, frame
        with contextlib.suppress(OSError):
            os.write(2, b"stopped by SIGTERM\n")
        raise SystemExit(status)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Agreement:
    """Makes all workers stop after the same step when any of them has received a signal.

    The workers wait for the device when they exchange this information, so they do it about once a second instead of
    after every step. The chief's clock decides when, and the chief announces the next exchange each time.
    """

    _SECONDS = 1.0

    def __init__(self, workers: Any, signals: SignalWatch, most_steps: int, step: int) -> None:
        """Prepares for training that continues after ``step``, with at most ``most_steps`` between two exchanges."""
        self._workers, self._signals, self._most_steps = workers, signals, most_steps
        self._last, self._next = step, step + 1
        self._time = time.monotonic()

    def stop_reason(self, step: int) -> str:
        """Returns the name of the signal that stops training after this step, or an empty string.

        All workers must call this after every step.
        """
        if self._workers.count == 1:
            return self._signals.received
        if step < self._next:
            return ""
        now = time.monotonic()
        seconds_a_step = max(now - self._time, 1e-3) / (step - self._last)
        wait = max(1, min(self._most_steps, int(self._SECONDS / seconds_a_step))) if self._workers.is_chief else 0
        interrupted, wait = self._workers.sum([bool(self._signals.received), wait])
        self._last, self._next, self._time = step, step + int(wait), now
        return (self._signals.received or "SIGTERM") if interrupted else ""
