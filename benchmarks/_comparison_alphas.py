"""The length penalty that rows of ``comparison.py`` would choose on the development set, and their test BLEU with it.

The protocol translates with one alpha, which is tuned for no row. So a difference between two rows may come from the
lengths of their translations. ``measured`` tries larger alphas with a finished training whose run still exists.
"""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from _comparison_store import described_score, unpack

from t2t_ext.experiments.plan import Stage

FIELD = "chosen_alpha"  # of a result
ALPHAS = (0.6, 1.0, 1.4, 1.8, 2.2)  # the first is the protocol's
NOTE = (
    "Translated again with the length penalty alpha that is best on the development set, for the trainings whose runs "
    f"were still there. From {ALPHAS[0]:g} the search goes up in steps of {ALPHAS[1] - ALPHAS[0]:g} until development "
    "BLEU no longer rises. Not corrected, and no conclusion: the tests of the protocol are those with "
    f"{ALPHAS[0]:g}. Length: over that of the references."
)
AGAIN = "‡"
AGAIN_NOTE = (
    f"{AGAIN}: measured on another training with the same setting and seed, since the run of the stored result is gone."
)
HEADINGS = (
    "", "", "seeds", "alpha", "dev BLEU", "rises by", "length", "BLEU", f"with {ALPHAS[0]:g}",
    "to", "difference", "95 %", "p boot", "p rand", f"with {ALPHAS[0]:g}",
)  # fmt: skip
Record = dict[str, Any]


def measured(
    stages_with: Callable[[float], Sequence[Stage]], run: Callable[[Stage], None], record: Mapping[str, Any]
) -> Record:
    """Returns what a training's best checkpoint reaches with the alpha that is chosen on the development set.

    Args:
      stages_with: Returns the stages of the training with an alpha.
      run: Carries out a stage if it is not done.
      record: The stored result of the training, which has one run (not a reranking of two).

    Returns:
      ``dev`` (alpha -> BLEU, of those that were tried), ``alpha`` (the chosen one), ``test`` and ``test_before``
      (scores with the chosen alpha and with the protocol's) and ``again`` (whether this is the run of another training
      than the stored result's).

    Raises:
      UserError: Translating failed.
    """

    def scored(alpha: float, split: str) -> Record:
        wanted = "score", split, record["name"]
        stage = next(each for each in stages_with(alpha) if (each.kind, each.split, each.system) == wanted)
        run(stage)
        return described_score(stage)

    dev: dict[float, float] = {}
    for alpha in ALPHAS:
        highest = max(dev.values(), default=-1.0)
        dev[alpha] = scored(alpha, "dev")["BLEU"]
        if dev[alpha] <= highest:
            break
    chosen = max(dev, key=lambda alpha: dev[alpha])  # the first of equals
    before = scored(ALPHAS[0], "test")
    return {
        "dev": {f"{alpha:g}": round(value, 3) for alpha, value in dev.items()},
        "alpha": chosen,
        "test": before if chosen == ALPHAS[0] else scored(chosen, "test"),
        "test_before": {name: before[name] for name in ("BLEU", "length_ratio")},
        "again": before["sha256"] != record["test"]["sha256"],
    }


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A row's results with the chosen alpha.

    Attributes:
      found: Seed -> the return value of ``measured``.
    """

    found: Mapping[int, Mapping[str, Any]]

    @classmethod
    def of(cls, runs: Mapping[int, Mapping[str, Any]]) -> "Chosen":
        """Returns those of a row's results, seed -> result, that have them."""
        return cls({seed: run[FIELD] for seed, run in sorted(runs.items()) if FIELD in run})

    def counts(self) -> dict[int, np.ndarray]:
        """Returns seed -> BLEU's counts of every sentence with the chosen alpha: float [sentences, 10]."""
        return {seed: unpack(each["test"]["counts"], each["test"]["sentences"]) for seed, each in self.found.items()}

    def before(self, control: "Chosen") -> float | None:
        """Returns the difference from a control's test BLEU with the protocol's alpha, over the seeds of both."""
        seeds = set(self.found) & set(control.found)
        gains = [self.found[seed]["test_before"]["BLEU"] - control.found[seed]["test_before"]["BLEU"] for seed in seeds]
        return statistics.fmean(gains) if gains else None

    def again(self) -> bool:
        """Returns whether one of the results is that of another training than the stored one's."""
        return any(each["again"] for each in self.found.values())

    def cells(self) -> list[str]:
        """Returns a table's cells: seeds, alphas, dev BLEU and its gain, length, test BLEU, and that with 0.6."""
        first = f"{ALPHAS[0]:g}"
        dev = [(each["dev"][f"{each['alpha']:g}"], each["dev"][first]) for each in self.found.values()]

        def mean(kind: str, name: str) -> float:
            return statistics.fmean(each[kind][name] for each in self.found.values())

        return [
            ", ".join(map(str, self.found)),
            ", ".join(f"{each['alpha']:g}" for each in self.found.values()),
            f"{statistics.fmean(best for best, _ in dev):.2f}",
            f"{statistics.fmean(best - before for best, before in dev):.2f}",
            f"{mean('test', 'length_ratio'):.3f}",
            f"{mean('test', 'BLEU'):.2f}",
            f"{mean('test_before', 'BLEU'):.2f}",
        ]
