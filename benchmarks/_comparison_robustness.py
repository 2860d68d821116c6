"""Tables of ``comparison.py``'s report that show whether a conclusion depends on the measure or on one seed."""

import dataclasses
import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from _comparison_pairs import SEEDS_TO_CONCLUDE, Tests, corrected
from _comparison_plan import Pair, Plan
from _comparison_store import unpack
from _comparison_tests import Difference, difference, difference_of_means, spread, without_penalty

LEVEL = 0.05
# A two-sided test at 5 % finds a difference of 2.8 standard errors in four of five cases; intervals are 2 x 1.96 wide.
_FOUND, _WIDTH = 2.8, 3.92
Counts = Mapping[str, Mapping[int, np.ndarray]]  # row -> seed -> BLEU's counts of every sentence
Runs = Mapping[str, Mapping[int, Mapping[str, Any]]]  # row -> seed -> result
MORE_SEEDS_NOTE = (
    "More seeds: with all seeds of rows that have more than the others, but not in pairs of which both hold the same "
    "run; after Holm's correction of the larger of two p, the bootstrap's of these seeds and randomization's of those "
    "that both rows have."
)
MEASURES_NOTE = (
    "Every pair that is tested, by other measures: BLEU without its brevity penalty, BLEU on the development set, and "
    "chrF2. Not corrected, and no conclusion: the tests of the protocol are those of test BLEU; without the penalty "
    "short translations are favored; and the checkpoints were chosen on the development set. Bold: the larger of both "
    "p is below 0.05."
)
SEEDS_NOTE = (
    "The same pairs with one seed of both rows left out, and with the trainings that stood in place of others until "
    "these were trained again (docs/comparison_changes.md says why): the difference, and in brackets the larger p, for "
    "two seeds uncorrected and for three after Holm's correction. Bold: below 0.05."
)


class Robustness:
    """The pairs of rows that a plan tests, each with its difference by several measures and from several seeds."""

    def __init__(self, plan: Plan, runs: Runs, replaced: Runs, further: Runs) -> None:
        """Takes the results of all finished rows, former results that were replaced, and those with further seeds."""
        self._plan, self._runs, self._replaced, self._further = plan, runs, replaced, further
        self._test, self._dev = _counts(runs, "test"), _counts(runs, "dev")
        more = _counts(further, "test")
        self._all = {row: {**seeds, **more.get(row, {})} for row, seeds in self._test.items()}
        self.pairs = [pair for pair in _directed(plan) if set(pair) <= set(self._test)]

    def measures(self) -> list[list[str]]:
        """Returns a line of cells for each pair: its names, number of seeds, and its difference by each measure."""
        even = {row: {seed: without_penalty(each) for seed, each in seeds.items()} for row, seeds in self._test.items()}
        tests = [Tests(self._plan, counts) for counts in (self._test, even, self._dev)]
        lines = []
        for pair in self.pairs:
            found = [each.of(*pair)[0] for each in tests]
            if found[0] is None:
                continue
            cells = [cell for each in found for cell in _with_interval(each)]
            lines.append([*pair, str(found[0].seeds), *cells, self._of_chrf(*pair)])
        return lines

    def seeds(self) -> list[list[str]]:
        """Returns a line of cells for each pair with enough seeds: its names, and its difference by sets of seeds."""
        numbers = sorted({seed for seeds in self._test.values() for seed in seeds})
        views = [self._test, *(_without(self._test, seed) for seed in numbers)]
        if self._replaced:
            former = _counts(self._replaced, "test")
            views.append({row: {**seeds, **former.get(row, {})} for row, seeds in self._test.items()})
        tests = [Tests(self._plan, view) for view in views]
        more = self._with_more_seeds if self._further else {}
        lines = []
        for pair in self.pairs:
            found = [each.of(*pair) for each in tests]
            first = found[0][0]
            if first is None or first.seeds < SEEDS_TO_CONCLUDE:
                continue
            if more:
                found.append(_turned(pair, *more[frozenset(pair)]))
            lines.append([*pair, *(_with_p(*each) for each in found)])
        return lines

    def more_seeds_of_both(self) -> list[str]:
        """Returns a sentence about each pair of which both rows have more seeds than the others."""
        sentences = []
        for pair in self.pairs:
            if set(pair) <= set(self._further):
                found, p = _turned(pair, *self._with_more_seeds[frozenset(pair)])
                if found:
                    names = " minus ".join(map(self._plan.brief, pair))
                    sentences.append(
                        f"{names}: {_with_p(found, p)}, 95 % interval {found.low:+.2f} to {found.high:+.2f}."
                    )
        return sentences

    @functools.cached_property
    def _with_more_seeds(self) -> dict[Pair, tuple[Difference | None, float]]:
        """Pair -> difference of the alphabetically later row from the other, with all seeds; corrected p."""
        tests = Tests(self._plan, self._test)
        systems = [each for seeds in self._all.values() if (each := spread(seeds))]

        def tested(pair: Pair) -> Difference | None:
            first, _ = tests.of(max(pair), min(pair))
            if not first or not pair & set(self._further) or self._plan.shares_runs(*pair):
                return first
            row, control = self._all[max(pair)], self._all[min(pair)]
            if len(row.keys() & control.keys()) > first.seeds:
                first = difference(row, control, pool=systems)
            found = difference_of_means(row, control, pool=systems)
            if not found or not first:
                return None
            return dataclasses.replace(found, p_randomization=first.p_randomization, seeds=first.seeds)

        found: dict[Pair, tuple[Difference | None, float]] = {}
        for family in self._plan.pairs():
            differences = [tested(pair) for pair in family]
            found |= dict(zip(family, zip(differences, corrected(differences), strict=True), strict=True))
        return found

    def seed_headings(self) -> list[str]:
        """Returns the headings of the columns that ``seeds`` returns after the names."""
        numbers = sorted({seed for seeds in self._test.values() for seed in seeds})
        return [
            "all seeds",
            *(f"without seed {seed}" for seed in numbers),
            *(["former"] if self._replaced else []),
            *(["more seeds"] if self._further else []),
        ]

    def found_in_four_of_five(self) -> dict[str, tuple[float, float]]:
        """Returns the differences in BLEU that would be found in four of five cases, before correction.

        They follow from the widths of the intervals of pairs with enough seeds.

        Returns:
          ``root`` (pairs with the first row) and ``others`` -> (least, most); without a kind that has no pairs.
        """
        tests, root = Tests(self._plan, self._test), self._plan.main[0]
        found: dict[str, list[float]] = {}
        for pair in self.pairs:
            tested, _ = tests.of(*pair)
            if tested and tested.seeds >= SEEDS_TO_CONCLUDE:
                kind = "root" if root in pair else "others"
                found.setdefault(kind, []).append((tested.high - tested.low) / _WIDTH * _FOUND)
        return {kind: (min(each), max(each)) for kind, each in found.items()}

    def _of_chrf(self, row: str, control: str) -> str:
        seeds = set(self._runs[row]) & set(self._runs[control])
        values = [self._runs[row][seed]["test"]["chrF2"] - self._runs[control][seed]["test"]["chrF2"] for seed in seeds]
        return f"{statistics.fmean(values):+.2f}"


def _turned(pair: tuple[str, str], found: Difference | None, p: float) -> tuple[Difference | None, float]:
    """Returns a difference of the alphabetically later row as that of the first row of a pair, and its p."""
    return found if not found or pair[0] == max(pair) else found.turned(), p


def _directed(plan: Plan) -> list[tuple[str, str]]:
    """Returns the tested pairs, each once: a row and its control, or the better and the worse row of an order."""
    tested = {pair for family in plan.pairs() for pair in family}
    found = [(row, control) for row in plan.main if (control := plan.control(row))]
    found += [(each.above, each.below) for orders in plan.orders.values() for each in orders]
    first = {frozenset(pair): pair for pair in reversed(found)}
    return [pair for pair in dict.fromkeys(found) if frozenset(pair) in tested and first[frozenset(pair)] == pair]


def _counts(runs: Runs, split: str) -> Counts:
    return {
        row: {
            seed: unpack(run[split]["counts"], run[split]["sentences"])
            for seed, run in seeds.items()
            if run[split].get("counts")
        }
        for row, seeds in runs.items()
    }


def _without(counts: Counts, seed: int) -> Counts:
    """Returns the counts without those of a seed; a row that has no other seed is left out."""
    kept = {row: {each: of_seed for each, of_seed in seeds.items() if each != seed} for row, seeds in counts.items()}
    return {row: seeds for row, seeds in kept.items() if seeds}


def _with_interval(tested: Difference | None) -> list[str]:
    if tested is None:
        return ["", ""]
    value = f"{tested.value:+.2f}"
    interval = f"{tested.low:+.2f} to {tested.high:+.2f}"
    return [f"**{value}**" if tested.p < LEVEL else value, interval]


def _with_p(tested: Difference | None, corrected: float | None) -> str:
    if tested is None:
        return ""
    p = tested.p if corrected is None else corrected
    shown = f"{tested.value:+.2f} ({'< 0.001' if p < 0.001 else f'{p:.3f}'})"
    return f"**{shown}**" if p < LEVEL else shown


def below_chance(tested: Sequence[Difference]) -> str:
    """Returns a text: how many differences have p below 0.05, and how many would by chance."""
    small = sum(each.p < LEVEL for each in tested)
    expected = len(tested) * LEVEL
    return (
        f"Of {len(tested)} differences {small} have p below {LEVEL} (the larger of both); chance gives {expected:.1f}."
    )
