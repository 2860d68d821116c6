"""Holds the gradient norms of the systems to compare: logged by runs in training, or computed at checkpoints.

Means are taken over *points*: lines of ``RUN/gradient_norms.jsonl`` (each a mean over the steps since the previous
line), or batches. Several runs with the same label, such as seeds, form one system. Imports no TensorFlow.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from t2t_ext.analysis.gradients.groups import encoder_layers, in_order
from t2t_ext.errors import UserError
from t2t_ext.io import stored
from t2t_ext.runs.run_directory import RunDirectory

ALL = "all"
TOP = "top encoder layer"


@dataclasses.dataclass(frozen=True)
class Series:
    """Gradient norms of a run.

    Attributes:
      run: The run's directory.
      steps: The step of each point, int [points]; for batches, the checkpoint's step.
      norms: Part of the model, or ``all``, -> float [points].
      damaged: Number of lines of its file that could not be read.
    """

    run: pathlib.Path
    steps: np.ndarray
    norms: Mapping[str, np.ndarray]
    damaged: int = 0

    @property
    def groups(self) -> list[str]:
        """The parts of the model."""
        return in_order(name for name in self.norms if name != ALL)

    @property
    def top(self) -> str:
        """The highest layer that encodes the source; empty where there is none."""
        return (encoder_layers(self.groups) or [""])[-1]

    def named(self, name: str) -> str:
        """Returns this run's part for a name in the table: ``TOP`` stands for the run's own highest layer."""
        return self.top if name == TOP else name


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean over ``count`` points or runs, and its standard error, which is NaN if ``count`` is 1."""

    value: float
    error: float
    count: int

    def __str__(self) -> str:
        return f"{self.value:.4g}" + ("" if math.isnan(self.error) else f" ± {self.error:.2g}")


@dataclasses.dataclass(frozen=True)
class System:
    """One or more runs with the same label, which usually differ only in their seeds."""

    label: str
    series: tuple[Series, ...]

    @property
    def groups(self) -> list[str]:
        """The parts that all its runs have."""
        first, *others = (each.groups for each in self.series)
        return [name for name in first if all(name in other for other in others)]

    def mean(self, name: str) -> Mean | None:
        """Returns the mean norm of a part (a group, ``all`` or ``TOP``); None if the model does not have the part.

        The standard error is computed over the points of a single run, or over the means of several runs.
        """
        if any(each.named(name) not in each.norms for each in self.series):
            return None
        values = [each.norms[each.named(name)] for each in self.series]
        points = values[0] if len(values) == 1 else np.array([each.mean() for each in values])
        error = float(np.std(points, ddof=1) / math.sqrt(len(points))) if len(points) > 1 else math.nan
        return Mean(float(points.mean()), error, len(points))

    def share(self, name: str) -> float | None:
        """Returns the mean norm of a part divided by the mean norm of the whole gradient."""
        part, whole = self.mean(name), self.mean(ALL)
        return part.value / whole.value if part and whole and whole.value else None


class _Logged(TypedDict):
    """A line of the file."""

    step: stored.Count
    norms: dict[str, stored.Real]


def read(run: RunDirectory, from_step: int = 0, to_step: int = 0) -> Series:
    """Reads the norms that a run logged from ``from_step`` to ``to_step``, both included (``to_step`` 0: to the end).

    Raises:
      UserError: There is nothing between these steps, or nothing at all.
    """
    path = run.gradient_norms_path
    if not path.is_file():
        raise UserError(
            f"{run.path} has no {path.name}: it has not logged a step yet, or was trained before gradient norms were "
            "logged. At its checkpoints they can be computed: --split=dev --batches=20."
        )
    points: list[tuple[int, Mapping[str, float]]] = []
    damaged = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = stored.parse(line, _Logged)
            points.append((record["step"], record["norms"]))
        except stored.Damaged:
            damaged += 1
    if not points:
        raise UserError(f"{path} has no line that can be read ({damaged} damaged): compute them with --split=dev.")
    kept = [point for point in points if point[0] >= from_step and (not to_step or point[0] <= to_step)]
    if not kept:
        wanted = f"from step {from_step}" + (f" to {to_step}" if to_step else " on")
        raise UserError(
            f"{path} has nothing {wanted}: its {len(points)} lines are of steps {points[0][0]} to {points[-1][0]}. "
            "Change --from_step and --to_step."
        )
    names = [name for name in kept[0][1] if all(name in norms for _, norms in kept)]
    return Series(
        run.path,
        np.array([step for step, _ in kept]),
        {name: np.array([norms[name] for _, norms in kept]) for name in names},
        damaged,
    )


def systems(series: Sequence[Series], labels: Sequence[str]) -> list[System]:
    """Groups series with the same label into systems, in order of the labels' first appearance."""
    found: dict[str, list[Series]] = {}
    for each, label in zip(series, labels, strict=True):
        found.setdefault(label, []).append(each)
    return [System(label, tuple(members)) for label, members in found.items()]
