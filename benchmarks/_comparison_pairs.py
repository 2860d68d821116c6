"""Which pairs of rows ``comparison.py`` tests, and Holm's correction for their number."""

from collections.abc import Mapping, Sequence

import numpy as np
from _comparison_plan import Pair, Plan
from _comparison_tests import Difference, Spread, difference, holm, spread

SEEDS_TO_CONCLUDE = 3


class Tests:
    """The tests of the pairs of rows with one training recipe, and Holm's correction for the number of pairs."""

    def __init__(self, plan: Plan, counts: Mapping[str, Mapping[int, np.ndarray]]) -> None:
        """Makes the tests; ``counts`` is finished row -> seed -> BLEU's counts, float [sentences, 10]."""
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
        """Returns a row's difference from another row, and the larger of its two p after correction.

        That p is None if there are too few seeds, or if the pair is not one of main rows and so has one seed.
        """
        pair = frozenset((row, control))
        found = self._test(pair)
        if found is None:
            return None, None
        concludes = found.seeds >= SEEDS_TO_CONCLUDE and pair in self._corrected
        return found if row == max(pair) else found.turned(), self._corrected[pair] if concludes else None

    def _test(self, pair: Pair) -> Difference | None:
        """Returns the difference of the alphabetically later row from the other; None if one has no common seed."""
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
    """Returns the p of tests after Holm's correction; a test with too few seeds for a conclusion counts as p = 1.

    So the number of tests is known before any of them is made. (Conclusions can still change until all rows have their
    seeds, because the variance of seeds is a mean over the rows with at least two.)
    """
    return holm([each.p if each and each.seeds >= SEEDS_TO_CONCLUDE else 1.0 for each in tests])
