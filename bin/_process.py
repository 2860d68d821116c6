"""The process of a command: Ctrl-C always ends it with 130 and without a traceback, and no stream is missing."""

import contextlib
import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TextIO

from t2t_ext.errors import first_line

INTERRUPTED = 130
# Errors of a disk, a pipe or a terminal that accepts no more data, or is missing.
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_is_own = False


def prepare() -> None:
    """Lets Ctrl-C end the process quietly, even during imports and after the command; see ``run_main``.

    It also replaces standard streams that the caller has closed. Otherwise the next file to be opened would take a
    stream's number, and output for the stream would go to that file. The replacements work as follows: standard input
    is empty, printing is an error, and messages to standard error are discarded.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest free number
    text: Any = {"encoding": "utf-8", "errors": "backslashreplace", "closefd": False}
    sys.stdin, sys.stdout, sys.stderr = (
        stream or open(number, "w" if number else "r", **text)  # noqa: SIM115
        for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr))
    )
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _on_exception
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _on_unraisable


def own_process() -> None:
    """Records that the process exists only for a command."""
    global _is_own  # noqa: PLW0603 -- there is one process
    _is_own = True


def leave_at_the_next_interrupt() -> None:
    """Lets another Ctrl-C end the process at once, even if something still waits for a thread or cleans up."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


@contextlib.contextmanager
def leaving_at_an_interrupt() -> Iterator[None]:
    """Lets Ctrl-C end a command's process at once: C modules that are being imported would turn it into other errors.

    If ``own_process`` was not called, the process may belong to a notebook, and nothing changes.
    """
    ignored = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)  # as in background jobs of a script
    if not _is_own or ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    from t2t_ext.io import inputs  # see name_user_code

    said = os.dup(2)  # a copy: what is written to 2 itself is held back meanwhile

    def leave(*_: object) -> None:
        inputs.forget_pipes()
        with contextlib.suppress(OSError, ValueError):
            os.write(said, b"interrupted\n")
            sys.stdout.flush()
        os._exit(INTERRUPTED)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        os.close(said)


def explained(error: OSError | ValueError | MemoryError) -> str:
    """Returns a message for the user if the system, not the command, caused an error; otherwise ""."""
    if isinstance(error, MemoryError):
        return f"The memory is not enough ({first_line(error)}). Give smaller sizes, or less at a time."
    if isinstance(error, ValueError):
        named = "embedded null" in str(error)  # Python's message for a file name with a NUL character
        return "The name of a file or directory holds a NUL character; correct it." if named else ""
    if error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}."
    if error.errno not in _CANNOT_WRITE:
        return ""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        silence(sys.stdout)
        return f"Standard output cannot be written to: {error.strerror}."
    return f"Standard output, or a file, cannot be written to: {error.strerror}."


def name_user_code(error: BaseException) -> None:
    """Ends the traceback of an error that came through a module of --t2t_usr_dir with the module's file and line.

    The module's author needs the traceback, but the place is lost among the frames of TensorFlow. If the error came
    through a model of such a module, the model is named, too.
    """
    from t2t_ext import registry  # imported here, since this module is loaded before the others: see prepare
    from t2t_ext.config import user_directory

    place = user_directory.place_of(error)
    if not place:
        return
    names = {
        registry.model(name): name
        for directory in registry.loaded_user_directories()
        for name in registry.user_names(directory).get("model", [])
    }
    found = [names.get(type(frame.f_locals.get("self")), "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    model = next(filter(None, reversed(found)), "")
    where = f"{model} ({place})" if model else place
    error.add_note(f"{where}: {type(error).__name__}: {first_line(error)}")


def silence(stream: TextIO) -> None:
    """Discards what standard output or error gets from now on: the interpreter flushes it once more at exit."""
    with contextlib.suppress(OSError, ValueError):  # for a stream without a number
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _on_exception(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)
    sys.__excepthook__(kind, error, traceback)


def _on_unraisable(problem: Any) -> None:
    """Handles a Ctrl-C that came where no exception can be raised, such as in a destructor."""
    if not issubclass(problem.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(problem)
    elif threading.main_thread().is_alive():
        again = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT])  # repeats it, where it can be raised
        again.daemon = True
        again.start()
    else:
        os._exit(INTERRUPTED)
