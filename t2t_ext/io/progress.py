"""Shows progress to people: a bar with the remaining time on a terminal, an occasional plain line elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from t2t_ext.io import log

SECONDS_BETWEEN_LINES = 10.0
Advance = Callable[[int], None]  # called with the amount done since the last call
Update = Callable[[int, int], None]  # called with (done so far, total), as a Translator does
# (description, total, unit) -> a context manager that yields an Update, such as running_total
Progress = Callable[[str, int, str], AbstractContextManager[Update]]


@contextlib.contextmanager
def progress(description: str, total: int | None, unit: str, *, enabled: bool = True) -> Iterator[Advance]:
    """Shows the progress of a long task on standard error.

    Args:
      description: The task, e.g. ``Encoding train``.
      total: The amount of work, or None if it is not known.
      unit: The unit of the amount, in the plural, e.g. ``pairs`` or ``bytes``.
      enabled: Whether to show anything.

    Yields:
      A function to call with the amount done since its last call.
    """
    if not enabled or not log.shows_info():
        yield lambda amount: None
    elif sys.stderr.isatty():
        with _bar(description, total, unit) as advance:
            yield advance
    else:
        yield _plain_lines(description, total, unit)


@contextlib.contextmanager
def running_total(description: str, total: int | None, unit: str) -> Iterator[Update]:
    """Shows progress like ``progress``, but yields a function to call with the amount done so far and the total."""
    before = 0
    with progress(description, total, unit) as advance:

        def update(done: int, total: int) -> None:
            nonlocal before
            del total
            advance(done - before)
            before = done

        yield update


@contextlib.contextmanager
def _bar(description: str, total: int | None, unit: str) -> Iterator[Advance]:
    import rich.console
    import rich.progress as bars

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.completed:,.0f}" + (f" of {total:,}" if total else "") + f" {unit}"),
        bars.TextColumn("{task.fields[rate]}"),
        bars.TimeRemainingColumn(),
    )
    started = time.monotonic()
    with bars.Progress(*columns, console=rich.console.Console(file=sys.stderr)) as shown:
        task = shown.add_task(description, total=total, rate="")
        done = 0

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            rate = done / max(time.monotonic() - started, 1e-3)
            shown.update(task, completed=done, rate=f"{_rounded(rate)} {unit}/s")

        yield advance


def _plain_lines(description: str, total: int | None, unit: str) -> Advance:
    started = last = time.monotonic()
    done = 0

    def advance(amount: int) -> None:
        nonlocal done, last
        done += amount
        now = time.monotonic()
        if not done or now - last < SECONDS_BETWEEN_LINES:
            return
        last = now
        rate = done / (now - started)
        of_total = f" of {total:,} {unit}, {max(total - done, 0) / rate:,.0f} s left" if total else f" {unit}"
        log.info(f"{description}: {done:,}{of_total} ({_rounded(rate)} {unit}/s)")

    return advance


def _rounded(rate: float) -> str:
    """Returns a rate as text; a low rate has a decimal place, because "0 lines/s" would suggest a standstill."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
