"""Which pairs of rows ``comparison.py`` tests, and Holm's correction for their number."""

from collections.abc import Mapping, Sequence

import numpy as np
from _comparison_plan import Pair, Plan
from _comparison_tests import Difference, Spread, difference, holm, spread

SEEDS_TO_CONCLUDE = 3


class Tests:
    """The tests of the pairs of rows with one recipe of training, and Holm's correction for the number of pairs."""

    def __init__(self, plan: Plan, counts: Mapping[str, Mapping[int, np.ndarray]]) -> None:
        """Takes what BLEU counts in every sentence of every row that is finished, by seed."""
        self._plan, self._counts = plan, counts
        primary, others = plan.pairs()
        pairs = [pair for pair in (*primary, *others) if pair <= set(counts)]
        self._systems = [each for row in counts.values() if (each := spread(row))]
        self._shared = [each for pair in pairs if self._are_shared(pair) and (each := self._spread(pair))]
        self._tested: dict[Pair, Difference | None] = {}
        self._corrected: dict[Pair, float] = {}
        for family in (primary, others):
            self._corrected |= dict(zip(family, corrected([self._test(pair) for pair in family]), strict=True))

    def of(self, row: str, control: str) -> tuple[Difference | None, float | None]:
        """Returns the difference of a row to another one, and its larger p after correction, None with too few seeds.

        Pairs that are no main rows, and so have one seed, have none.
        """
        pair = frozenset((row, control))
        found = self._test(pair)
        if found is None:
            return None, None
        concludes = found.seeds >= SEEDS_TO_CONCLUDE and pair in self._corrected
        return found if row == max(pair) else found.turned(), self._corrected[pair] if concludes else None

    def _test(self, pair: Pair) -> Difference | None:
        """Returns the difference of a pair's later name to the other one; None where one of them is not finished."""
        if pair not in self._tested:
            other, row = (self._counts.get(name, {}) for name in sorted(pair))
            shared = self._are_shared(pair)
            pool = self._shared if shared else self._systems
            self._tested[pair] = difference(row, other, pool=pool, shared=shared)
        return self._tested[pair]

    def _spread(self, pair: Pair) -> Spread | None:
        other, row = (self._counts[name] for name in sorted(pair))
        return spread(row, other)

    def _are_shared(self, pair: Pair) -> bool:
        return self._plan.shares_runs(*pair)


def corrected(tests: Sequence[Difference | None]) -> list[float]:
    """Returns Holm's p of tests; the p of those without seeds enough to conclude from counts as 1.

    So their number is known before any of them is made. (What is concluded can still change until all rows have their
    seeds, since the variance of seeds is a mean over those that have two.)
    """
    return holm([each.p if each and each.seeds >= SEEDS_TO_CONCLUDE else 1.0 for each in tests])
