"""Keeps messages of libraries that users can do nothing about off standard error; the others are passed on."""

import contextlib
import importlib.machinery
import logging
import os
import re
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Sequence

# Lines that users can do nothing about.
_CHATTER = re.compile(
    rb"All log messages before absl::InitializeLog"
    rb"|^I\d{4} \d\d:\d\d"  # INFO of absl
    rb"|^\d{4}-\d\d-\d\d [^ ]+ I "  # INFO of TensorFlow's older logging
    rb"|LOG\(INFO\)"  # sentencepiece
    rb"|failed call to cuInit"  # there is no GPU
    rb"|Unable to register cu\w+ factory|computation placer already registered"  # libraries linked twice
    rb"|oneDNN supports DT_\w+ only on"
)
_lock = threading.RLock()  # the process has only one standard error


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Holds back what the block writes to standard error, then passes on the lines that may matter to users."""
    with _lock, contextlib.ExitStack() as opened:
        try:
            held = opened.enter_context(tempfile.TemporaryFile())
        except OSError:  # no directory for temporary files can be written to
            yield
            return
        sys.stderr.flush()
        try:
            real = os.dup(2)
        except OSError:  # there is no standard error
            yield
            return
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(real, 2)
            held.seek(0)
            for line in held:
                if not _CHATTER.search(line):
                    os.write(real, line)
            os.close(real)


def _is_no_retracing(record: logging.LogRecord) -> bool:
    return "triggered tf.function retracing" not in str(record.msg)


@contextlib.contextmanager
def retracing_expected() -> Iterator[None]:
    """Suppresses TensorFlow's warning that a function is traced often, where each model or shape has its own graph."""
    tensorflow = logging.getLogger("tensorflow")
    tensorflow.addFilter(_is_no_retracing)
    try:
        yield
    finally:
        tensorflow.removeFilter(_is_no_retracing)


class _QuietLoader(importlib.machinery.SourceFileLoader):
    """Loads TensorFlow and lists its devices, without the messages about versions, CPUs and missing GPUs."""

    def exec_module(self, module: types.ModuleType) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        with left_out():
            super().exec_module(module)
            from t2t_ext import compat

            module.config.list_physical_devices()
            compat.say_what_onednn_lacks()


class _QuietFinder:
    """Finds TensorFlow for the first import, whether by a command, a module of t2t_ext or the user's code."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns a module specification that loads TensorFlow quietly; None for all other modules."""
        if name != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _QuietLoader(spec.loader.name, spec.loader.path)
        return spec


def keep_imports_quiet() -> None:
    """Makes the first import of TensorFlow in this process quiet, wherever the import statement is."""
    if _QuietFinder not in sys.meta_path:
        sys.meta_path.insert(0, _QuietFinder)
