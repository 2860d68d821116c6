"""The results of probing tasks: accuracies with intervals and tests, means by category. Imports no TensorFlow."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_ext.analysis.probing import statistics as probing_statistics
from t2t_ext.analysis.probing.senteval import CATEGORIES, TEST, ProbingTask


@dataclasses.dataclass(frozen=True)
class ProbedRun:
    """A run's label, directory and checkpoint; ``about`` gives its model and hparams set for the page."""

    label: str
    run: pathlib.Path
    checkpoint: str
    about: str


@dataclasses.dataclass(frozen=True, eq=False)
class Probed:
    """The results of the classifiers on a run's representations of a task.

    Attributes:
      right: Whether each seed's classifier has each test sentence right, bool [seeds, test sentences].
      validation: For each seed, the accuracy on the validation sentences after each epoch.
      best_epochs: For each seed, the epoch whose weights were used for prediction, from 1.
    """

    right: np.ndarray
    validation: Sequence[Sequence[float]]
    best_epochs: Sequence[int]

    @property
    def accuracy(self) -> float:
        """The share of test sentences that are right, averaged over seeds."""
        return float(self.right.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The accuracy's 95 % interval (Wilson), for the choice of test sentences."""
        return probing_statistics.wilson(self.accuracy, self.right.shape[1])

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the accuracy over seeds; None for a single seed."""
        return float(self.right.mean(axis=1).std(ddof=1)) if len(self.right) > 1 else None


@dataclasses.dataclass(frozen=True, eq=False)
class TaskResult:
    """A task and the results of all runs by label; the others are compared with the first."""

    task: ProbingTask
    runs: Mapping[str, Probed]

    @property
    def test_sentences(self) -> int:
        """The number of test sentences."""
        return len(self.task.partitions[TEST])

    def compared(self, label: str) -> tuple[float, str, float] | None:
        """Returns a run's difference in accuracy to the first, the test and its p-value; None for the first itself."""
        first = next(iter(self.runs))
        if label == first:
            return None
        mine, other = self.runs[label], self.runs[first]
        return (mine.accuracy - other.accuracy, *probing_statistics.paired_test(other.right, mine.right))


@dataclasses.dataclass(frozen=True, eq=False)
class ProbingReport:
    """The results of all tasks and runs.

    Attributes:
      runs: The compared runs.
      tasks: The results by task, in the order of the papers' tables.
      settings: The settings of the measurement, as JSON values.
      measured: A sentence that describes the measurement.
    """

    runs: Sequence[ProbedRun]
    tasks: Sequence[TaskResult]
    settings: Mapping[str, Any]
    measured: str

    @property
    def labels(self) -> list[str]:
        """The labels of the runs."""
        return [run.label for run in self.runs]

    @property
    def by_category(self) -> dict[str, list[TaskResult]]:
        """Category -> its tasks, for the categories that have any."""
        found = {name: [each for each in self.tasks if each.task.category == name] for name in CATEGORIES}
        return {name: tasks for name, tasks in found.items() if tasks}

    def mean(self, category: str, label: str) -> float:
        """Returns a run's mean accuracy over the tasks of a category, like ``#Avg`` in the paper's table 4."""
        return float(np.mean([each.runs[label].accuracy for each in self.by_category[category]]))
