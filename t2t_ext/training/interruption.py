"""SIGTERM and Ctrl-C while training: finish the step, save, and say how the process should end."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class Interrupted(Exception):
    """Raised where waiting for the end of a step makes no sense, such as during an evaluation."""


class SignalWatch:
    """Notes SIGTERM and SIGINT instead of dying from them.

    Attributes:
      received: Name of the signal that came (``SIGTERM``, ``SIGINT``), or empty.
    """

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
