"""SIGTERM and Ctrl-C while training: finish the step, save, and say how the process should end."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any


class Interrupted(Exception):
    """Raised where waiting for the end of a step makes no sense, such as during an evaluation."""


class SignalWatch:
    """Notes SIGTERM and SIGINT instead of dying from them; ``received`` is the name of the one that came, or empty."""

    def __init__(self) -> None:
        self.received = ""
        self._abandon = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Catches the signals inside the block; does nothing outside the main thread, where Python cannot."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def abandoning(self) -> Iterator[None]:
        """Makes a signal raise ``Interrupted`` inside the block, at once."""
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


class Agreement:
    """After which step a signal stops training: the same one on all workers, whichever of them got the signal.

    Asking each other waits for the device, so it is not done after every step but every second or so; the chief's
    clock decides when, and it tells the others each time.
    """

    _SECONDS = 1.0

    def __init__(self, workers: Any, signals: SignalWatch, most_steps: int, step: int) -> None:
        """Prepares for training after a finished step, with at most ``most_steps`` between two agreements."""
        self._workers, self._signals, self._most_steps = workers, signals, most_steps
        self._last, self._next = step, step + 1
        self._time = time.monotonic()

    def stop_reason(self, step: int) -> str:
        """Returns the name of the signal that stops training after this step, or an empty string.

        All workers call it after every step.
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
