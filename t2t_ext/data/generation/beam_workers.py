"""Runs the tasks of data generation as Apache Beam pipelines, on one machine or many.

Tasks are written to a directory that all machines share, a pipeline of their numbers runs them, and what they return is
read from there, in order. So what a runner moves about and keeps in memory are numbers, and whatever the machines and
however often a runner does a task again, the same files are written as by ``Workers``.
"""

import os
import pathlib
import pickle
import secrets
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from t2t_ext.errors import UserError, require_package

DEFAULT_RUNNER = "DirectRunner"


class BeamWorkers:
    """Takes the place of ``workers.Workers``: ``map`` runs a pipeline for each stage, one after the other."""

    def __init__(self, options: str, directory: pathlib.Path) -> None:
        """Checks that Beam is there and understands its options; runs nothing yet.

        Args:
          options: Flags of Beam's, such as ``"--runner=FlinkRunner --flink_master=HOST:8081"``; without ``--runner``,
            the DirectRunner runs everything on this machine.
          directory: Where tasks and results are put; all machines must see it under this path.

        Raises:
          UserError: Apache Beam is not installed, or its options are wrong.
        """
        require_package("apache_beam", "beam", "--runner=beam")
        self._flags = _checked_flags(options)
        self._directory = directory
        self._stages = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yields ``function(task)`` for every task, in order, after all have been done.

        Args:
          function: A function of a module (it is sent by name). It may be called again for the same task.
          tasks: Picklable arguments.

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
            _put(stage / "tasks" / str(count - 1), (function, task))
        if count:
            self._run(stage, count)
        for number in range(count):
            failed, result = pickle.loads((stage / "results" / str(number)).read_bytes())
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
                _ = spread | "Run them" >> beam.Map(run_task, str(stage))
        except Exception as error:
            raise UserError(
                f"Apache Beam ({shlex.join(self._flags)}) failed: {error}. All its machines must see {stage} under "
                f"this path and have this t2t_ext installed."
            ) from error


def run_task(number: int, stage: str) -> None:
    """Does a task that lies in a directory and puts what it returns, or raises, beside it.

    Args:
      number: The task's.
      stage: The directory.
    """
    result = pathlib.Path(stage, "results", str(number))
    if result.exists():  # the runner does it again
        return
    task_file = pathlib.Path(stage, "tasks", str(number))
    function, task = pickle.loads(task_file.read_bytes())
    try:
        outcome = (False, function(task))
    except Exception as error:
        outcome = (True, error)
    _put(result, outcome)
    task_file.unlink(missing_ok=True)


def _put(path: pathlib.Path, content: Any) -> None:
    temporary = path.with_name(f".{path.name}.tmp-{secrets.token_hex(8)}")
    temporary.write_bytes(pickle.dumps(content, pickle.HIGHEST_PROTOCOL))
    os.rename(temporary, path)


def _checked_flags(options: str) -> list[str]:
    """Returns Beam's flags.

    Raises:
      UserError: They are no flags, or ones that Beam or its runner does not take.
    """
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
    from apache_beam.runners import create_runner

    try:
        flags = shlex.split(options)
        chosen = PipelineOptions(flags)
        chosen.get_all_options()
        runner = chosen.view_as(StandardOptions).runner
        create_runner(runner or DEFAULT_RUNNER)
    except (ValueError, ImportError, AttributeError, SystemExit) as error:
        raise UserError(f"--beam_options={options!r} are no options of Apache Beam: {error}.") from None
    return flags if runner else [f"--runner={DEFAULT_RUNNER}", *flags]
