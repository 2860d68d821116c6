"""A quantity of an experiment's report: its value with each seed, mean and deviation, and the paper's figure."""

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A quantity of the report.

    Attributes:
      name: A split, or one of ``recipes.OTHER_FIGURES``.
      label: What it is, such as ``BLEU_cased``.
      by_seed: Seed -> value.
      published: The paper's figure, None where it gives none.
      signature: What makes the value comparable; empty where there is nothing to say.
    """

    name: str
    label: str
    by_seed: Mapping[int, float]
    published: float | None
    signature: str = ""

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self.by_seed.values())

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over the seeds; None for a single one."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """Returns the figure as a JSON object."""
        values = dataclasses.asdict(self) | {"mean": self.mean, "deviation": self.deviation}
        values["by_seed"] = {str(seed): value for seed, value in self.by_seed.items()}
        return values
