"""The results of probing tasks: accuracies of runs, what is sure of them, means by category. Imports no TensorFlow."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_ext.analysis.probing import statistics as probing_statistics
from t2t_ext.analysis.probing.senteval import CATEGORIES, TEST, ProbingTask


@dataclasses.dataclass(frozen=True)
class ProbedRun:
    """A run's label, directory and checkpoint, and for the page its model and hparams set."""

    label: str
    run: pathlib.Path
    checkpoint: str
    about: str


@dataclasses.dataclass(frozen=True, eq=False)
class Probed:
    """Results of the classifiers on a run's representations of a task.

    Attributes:
      right: bool [seeds, test sentences], which ones a classifier has right.
      validation: For each seed, the accuracies on the validation sentences after each epoch.
      best_epochs: For each seed, the epoch whose weights predicted, from 1.
    """

    right: np.ndarray
    validation: Sequence[Sequence[float]]
    best_epochs: Sequence[int]

    @property
    def accuracy(self) -> float:
        """The share of test sentences that is right, the mean over seeds."""
        return float(self.right.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95% interval (Wilson), of the choice of test sentences."""
        return probing_statistics.wilson(self.accuracy, self.right.shape[1])

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the accuracy over seeds; None of a single one."""
        return float(self.right.mean(axis=1).std(ddof=1)) if len(self.right) > 1 else None


@dataclasses.dataclass(frozen=True, eq=False)
class TaskResult:
    """A task and the results of all runs by label, the first being what the others are compared with."""

    task: ProbingTask
    runs: Mapping[str, Probed]

    @property
    def test_sentences(self) -> int:
        """The number of sentences behind the accuracies."""
        return len(self.task.partitions[TEST])

    def compared(self, label: str) -> tuple[float, str, float] | None:
        """Returns by how much a run is better than the first, the test and its p-value; None of the first itself."""
        first = next(iter(self.runs))
        if label == first:
            return None
        mine, other = self.runs[label], self.runs[first]
        return (mine.accuracy - other.accuracy, *probing_statistics.paired_test(other.right, mine.right))


@dataclasses.dataclass(frozen=True, eq=False)
class ProbingReport:
    """All of it.

    Attributes:
      runs: What is compared.
      tasks: In the order of the papers' tables.
      settings: How it was measured; JSON values.
      measured: The same for people, a sentence.
    """

    runs: Sequence[ProbedRun]
    tasks: Sequence[TaskResult]
    settings: Mapping[str, Any]
    measured: str

    @property
    def labels(self) -> list[str]:
        """Names of the runs."""
        return [run.label for run in self.runs]

    @property
    def by_category(self) -> dict[str, list[TaskResult]]:
        """The tasks of each category that has any."""
        found = {name: [each for each in self.tasks if each.task.category == name] for name in CATEGORIES}
        return {name: tasks for name, tasks in found.items() if tasks}

    def mean(self, category: str, label: str) -> float:
        """Returns a run's mean accuracy over the tasks of a category, as ``#Avg`` of the paper's table 4."""
        return float(np.mean([each.runs[label].accuracy for each in self.by_category[category]]))
