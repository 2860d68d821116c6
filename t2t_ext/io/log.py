"""Logs messages through absl: plain text on standard error, with time and code location in a file of --log_dir.

Messages of other libraries still go to absl, whose default ``--verbosity`` is -1 (warnings).
"""

import logging
import os
import sys
import time
from collections.abc import Callable

from absl import logging as absl_logging
from absl.flags import FLAGS
from absl.logging import converter

from t2t_ext.errors import UserError

FLAG_NAMES = ("verbosity", "log_dir", "logtostderr", "alsologtostderr", "stderrthreshold")
Write = Callable[[str], None]


class _Terminal(logging.Handler):
    """Writes messages to the current standard error, which may have been replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        write: Write = getattr(record, "write", None) or _to_stderr
        write(level + record.getMessage())


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


_terminal = _Terminal()
_log = logging.getLogger("absl.t2t_ext")
_log.setLevel(logging.INFO)
_log.propagate = False
_log.addHandler(_terminal)


def info(text: str, write: Write | None = None) -> None:
    """Logs a message of one or more lines for the user.

    If ``write`` is given, it shows the message instead of standard error, for example above a progress bar.
    """
    _log.info("%s", text, stacklevel=2, extra={"write": write})


def warning(text: str) -> None:
    """Logs a warning."""
    _log.warning("%s", text, stacklevel=2)


def error(text: str) -> None:
    """Logs an error."""
    _log.error("%s", text, stacklevel=2)


def shows_info() -> bool:
    """Returns whether messages of the level INFO are shown."""
    return _log.isEnabledFor(logging.INFO)


def configure(program: str) -> None:
    """Applies absl's flags: how much is logged, and whether it is also logged to a file named after the program.

    Raises:
      UserError: The directory in ``--log_dir`` cannot be used.
    """
    for handler in [each for each in _log.handlers if each is not _terminal]:
        _log.removeHandler(handler)
        handler.close()
    verbosity = FLAGS["verbosity"]
    _log.setLevel(converter.absl_to_standard(verbosity.value) if verbosity.present else logging.INFO)
    _terminal.setLevel(logging.NOTSET)
    directory = FLAGS["log_dir"].value
    if not directory or FLAGS["logtostderr"].value:
        return
    if FLAGS["stderrthreshold"].present and not FLAGS["alsologtostderr"].value:
        _terminal.setLevel(converter.string_to_standard(FLAGS["stderrthreshold"].value))
    try:
        os.makedirs(directory, exist_ok=True)
        _, prefix, _ = absl_logging.find_log_dir_and_names(program, directory)
        name = f"{prefix}.INFO.{time.strftime('%Y%m%d-%H%M%S')}.{os.getpid()}"
        handler = logging.FileHandler(os.path.join(directory, name), encoding="utf-8")
    except OSError as problem:
        raise UserError(
            f"--log_dir={directory}: {problem.strerror or problem}. Give a directory to write to."
        ) from None
    handler.setFormatter(absl_logging.PythonFormatter())
    _log.addHandler(handler)
