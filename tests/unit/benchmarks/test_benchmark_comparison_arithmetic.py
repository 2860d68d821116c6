"""Tests of what benchmarks/comparison.py computes itself: the search of the grid and the tests of differences."""

import importlib
import pathlib
import random
import re
import sys

import numpy as np
import pytest
from made_up_results import counts_of

FOLDER = pathlib.Path(__file__).parents[3] / "benchmarks"
REFERENCES = ["a b c d e f g h", "b c d e f g", "c d e f a b d e f g h a"] * 20


def test_search_goes_from_hparam_to_hparam(plans):
    grid = plans.Grid({"dropout": [0.2, 0.3], "rate": [2, 1, 4]})
    assert grid.trainings() == 4
    assert grid.search({}) == ([(0.2, 2), (0.3, 2)], None)
    assert grid.search({(0.2, 2): 40.5}) == ([(0.3, 2)], None)
    scores = {(0.2, 2): 40.5, (0.3, 2): 40.6}
    assert grid.search(scores) == ([(0.3, 1), (0.3, 4)], None)
    assert grid.search({**scores, (0.3, 1): 40.7, (0.3, 4): 40.4}) == ([], (0.3, 1))
    full = plans.Grid(grid.values, full=True)
    cells = [(dropout, rate) for dropout in (0.2, 0.3) for rate in (2, 1, 4)]
    assert full.trainings() == 6
    assert full.search({}) == (cells, None)
    assert full.search({cell: -abs(cell[1] - 4) - cell[0] for cell in cells}) == ([], (0.2, 4))


def test_a_cell_must_be_better_by_more_than_the_margin(plans):
    grid = plans.Grid({"dropout": [0.2, 0.3], "rate": [2, 1, 4]}, margin=0.25)
    scores = {(0.2, 2): 40.0, (0.3, 2): 40.25, (0.2, 1): 40.5, (0.2, 4): 40.75}
    assert grid.search(scores) == ([], (0.2, 4))
    assert grid.search({**scores, (0.2, 1): 40.25, (0.2, 4): 40.0}) == ([], (0.2, 2))
    assert grid.search({**scores, (0.3, 2): 40.5}) == ([(0.3, 1), (0.3, 4)], None)


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.9, 1.0])
def test_bleu_is_sacrebleus(differences, noise):
    from sacrebleu.metrics import BLEU

    rng = random.Random(3)
    lines = [" ".join(word if rng.random() >= noise else "x" for word in each.split()) for each in REFERENCES]
    metric = BLEU(references=[REFERENCES])
    counts = np.array(metric._extract_corpus_statistics(lines, None), float)
    assert float(differences.bleu(counts.sum(axis=0))) == pytest.approx(metric.corpus_score(lines, None).score)


def test_bleu_without_its_brevity_penalty_is_sacrebleus(differences):
    from sacrebleu.metrics import BLEU

    lines = [each.rsplit(" ", 2)[0] for each in REFERENCES]
    metric = BLEU(references=[REFERENCES])
    counts = np.array(metric._extract_corpus_statistics(lines, None), float)
    expected = metric.corpus_score(lines, None)
    assert expected.bp < 0.9
    without = differences.without_penalty(counts)
    assert float(differences.bleu(without.sum(axis=0))) == pytest.approx(expected.score / expected.bp)
    assert counts[0, 1] == counts[0, 0] + 2, "what is given stays"


def alike(right):
    """Returns the counts of ten sentences of 100 words, of which `right` words are correct."""
    return np.tile([100.0, 100, right, right - 1, right - 2, right - 3, 100, 99, 98, 97], (10, 1))


def seeds_of(*rights):
    return {seed: alike(right) for seed, right in enumerate(rights, 1)}


def test_interval_has_the_seeds_variance(differences):
    """If the sentences of a seed are all alike, only the seeds vary: by their sample variance over n."""
    control, system = seeds_of(40, 50, 60), seeds_of(45, 60, 66)
    variances = [each.variance for each in map(differences.spread, (control, system))]
    scores = [[differences.bleu(each.sum(axis=0)) for each in seeds.values()] for seeds in (control, system)]
    assert variances == pytest.approx(np.var(scores, axis=1, ddof=1))
    found = differences.difference(system, control)
    assert (found.high - found.low) / 2 == pytest.approx(2.776 * np.sqrt(sum(variances) / 3), rel=0.1)  # t of 4 degrees
    # With a pool of many systems that vary more, their mean variance and their degrees of freedom count.
    pool = [differences.Spread(4 * sum(variances), 0.0, 2)] * 50
    found = differences.difference(system, control, pool=pool)
    assert (found.high - found.low) / 2 == pytest.approx(1.984 * np.sqrt(8 * sum(variances) / 3), rel=0.1)


def test_seeds_that_share_a_run_are_pairs(differences):
    """If systems share a run per seed, a gain that is equal in every seed counts, however much the seeds differ."""
    control, system = seeds_of(40, 50, 60), seeds_of(42, 52, 62)
    own = differences.spread(system, control)
    assert own.variance < differences.spread(system).variance / 100
    apart, paired = (differences.difference(system, control, shared=shared) for shared in (False, True))
    assert apart.value == paired.value
    assert apart.low < 0 < paired.low
    turned = differences.difference(control, system, shared=True)
    assert turned.value == -paired.value


def test_what_sentences_explain_of_the_seeds_differences_is_not_counted_twice(differences, stores, plans):
    """If translations of one quality differ only by chance, their variance equals that of drawing sentences."""
    spreads = [
        differences.spread({seed: counts_of(stores, plans, 0.3, 100 * row + seed) for seed in (1, 2, 3)})
        for row in range(40)
    ]
    pooled = differences.Spread.pooled(spreads)
    assert pooled.degrees == 80
    assert pooled.variance == pytest.approx(pooled.chance, rel=0.35)
    assert differences.spread({1: alike(40)}) is None


def test_errors_of_the_first_kind(differences, monkeypatch, capsys):
    """If seeds differ much, randomization and all tests of one seed find false differences; otherwise no test does."""
    null = importlib.import_module("comparison_null")
    for name in ("SAMPLES", "TRIALS"):
        monkeypatch.setattr(differences, name, 500)
    shares = []
    for more in ("--shift=0", "--shift=0.5"):
        monkeypatch.setattr(sys, "argv", ["comparison_null.py", "--pairs=2", "--sentences=60", "--seeds=2", more])
        assert null.main() == 0
        shares.append([float(share) for share in re.findall(r"([\d.]+) %", capsys.readouterr().out)])
    assert len(shares[0]) == 6
    assert max(shares[0]) == 0
    assert min(shares[1][0], *shares[1][4:]) >= 50


def test_holm(differences):
    assert differences.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert differences.holm([0.5, 0.9]) == [1.0, 1.0]
    assert differences.holm([]) == []
