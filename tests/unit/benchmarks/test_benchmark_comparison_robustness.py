"""Tests of benchmarks/comparison.py: the tested pairs by other measures, and with other seeds."""

import importlib
import re

import pytest
from made_up_results import made_up

ROOT, LWC, ENC_DC, FULL_DC = (
    f"comparison_{name}" for name in ("transformer", "layer_coordination", "enc_dc", "full_dc")
)


@pytest.fixture
def runs(stores, plans):
    """Returns three seeds of three rows and two of another; the dev set has the counts of the test set."""
    found = {}
    for row, noise, seeds in (
        (ROOT, 0.3, (1, 2, 3)),
        (LWC, 0.5, (1, 2, 3)),
        (ENC_DC, 0.3, (1, 2, 3)),
        (FULL_DC, 0.1, (1, 2)),
    ):
        for seed in seeds:
            record = made_up(stores, plans.Job(row, "plain", (), seed), 40.0, noise=noise)
            record["test"]["chrF2"] += seed * (row == LWC)
            record["dev"] |= {name: record["test"][name] for name in ("sentences", "counts")}
            found.setdefault(row, {})[seed] = record
    return found


@pytest.fixture
def robustness(make_plan, runs, differences, monkeypatch):
    monkeypatch.setattr(differences, "TRIALS", 500)
    module = importlib.import_module("_comparison_robustness")
    return lambda replaced, further=(): module.Robustness(make_plan(tune=False), runs, replaced, dict(further))


def of(lines, *pair):
    (line,) = [line for line in lines if line[:2] == list(pair)]
    return line[2:]


def test_pairs_by_other_measures(robustness, runs, stores, differences):
    lines = robustness({}).measures()
    assert {tuple(line[:2]) for line in lines} == {(LWC, ROOT), (ENC_DC, ROOT), (FULL_DC, ROOT), (FULL_DC, ENC_DC)}
    seeds, bleu, interval, no_penalty, _, dev, of_dev, chrf = of(lines, LWC, ROOT)
    counts = {
        row: {seed: stores.unpack(run["test"]["counts"], 60) for seed, run in runs[row].items()} for row in (LWC, ROOT)
    }
    expected = differences.difference(counts[LWC], counts[ROOT]).value
    assert (seeds, bleu, chrf) == ("3", f"**{expected:+.2f}**", "+2.00")
    assert (dev, of_dev) == (bleu, interval)
    # The translations are as long as the references: there is no penalty.
    assert no_penalty == bleu
    assert of(lines, FULL_DC, ROOT)[0] == "2"


def test_pairs_from_other_seeds(robustness, runs, stores, plans, differences):
    former = made_up(stores, plans.Job(ROOT, "plain", (), 7), 40.0, noise=0.6)
    made = robustness({ROOT: {1: former}})
    lines = made.seeds()
    assert made.seed_headings() == ["all seeds", "without seed 1", "without seed 2", "without seed 3", "former"]
    assert [line[:2] for line in lines] == [[LWC, ROOT], [ENC_DC, ROOT]]  # three seeds of both
    counts = {
        row: {seed: stores.unpack(run["test"]["counts"], 60) for seed, run in runs[row].items()} for row in (LWC, ROOT)
    }
    found = [float(re.search(r"[+-][\d.]+", cell)[0]) for cell in of(lines, LWC, ROOT)]
    for without, shown in enumerate(found[:4]):
        kept = [{seed: each for seed, each in counts[row].items() if seed != without} for row in (LWC, ROOT)]
        assert shown == pytest.approx(differences.difference(*kept).value, abs=0.0051)
    counts[ROOT][1] = stores.unpack(former["test"]["counts"], 60)
    assert found[4] == pytest.approx(differences.difference(counts[LWC], counts[ROOT]).value, abs=0.0051)
    low, high = made.found_in_four_of_five()["root"]
    assert 0 < low <= high


def test_without_former_trainings_there_is_no_column_of_them(robustness):
    made = robustness({})
    assert made.seed_headings()[-1] == "without seed 3"
    assert {len(line) for line in made.seeds()} == {2 + len(made.seed_headings())}


def test_pairs_with_more_seeds_of_the_control(robustness, runs, stores, plans, differences):
    further = {seed: made_up(stores, plans.Job(ROOT, "plain", (), seed), 40.0, noise=0.35) for seed in (4, 5)}
    made = robustness({}, {ROOT: further})
    assert made.seed_headings()[-2:] == ["without seed 3", "more seeds"]
    every = {seed: stores.unpack(run["test"]["counts"], 60) for seed, run in {**runs[ROOT], **further}.items()}
    own = {seed: stores.unpack(run["test"]["counts"], 60) for seed, run in runs[LWC].items()}
    mean = [sum(float(differences.bleu(each.sum(axis=0))) for each in row.values()) / len(row) for row in (own, every)]
    shown = of(made.seeds(), LWC, ROOT)[-1]
    assert float(re.search(r"[+-][\d.]+", shown)[0]) == pytest.approx(mean[0] - mean[1], abs=0.0051)
    assert of(made.seeds(), LWC, ROOT)[0] != shown


def test_pairs_with_more_seeds_of_both(robustness, runs, stores, plans, differences, monkeypatch):
    further = {
        row: {seed: made_up(stores, plans.Job(row, "plain", (), seed), 40.0, noise=noise) for seed in (4, 5)}
        for row, noise in ((ROOT, 0.35), (LWC, 0.45))
    }
    counts = {
        row: {seed: stores.unpack(run["test"]["counts"], 60) for seed, run in {**runs[row], **further[row]}.items()}
        for row in further
    }
    shown = of(robustness({}, further).seeds(), LWC, ROOT)[-1]
    expected = differences.difference(counts[LWC], counts[ROOT])  # as many seeds: pairs of seeds and means are the same
    assert expected.seeds == 5
    assert f"{expected.value:+.2f} (" in shown
    (sentence,) = robustness({}, further).more_seeds_of_both()
    assert sentence.startswith("Layer-wise coordination minus Transformer: ")
    assert f": {shown}, 95 % interval -" in sentence
    assert not robustness({}, {ROOT: further[ROOT]}).more_seeds_of_both()
    # Randomization takes all five seeds too, not only the three that every row has.
    asked = []
    monkeypatch.setattr(
        importlib.import_module("_comparison_robustness"),
        "difference",
        lambda *pair, **kwargs: (
            asked.append([sorted(each) for each in pair]) or differences.difference(*pair, **kwargs)
        ),
    )
    robustness({}, further).seeds()
    assert asked == [[[1, 2, 3, 4, 5]] * 2]


def test_further_seeds_come_last_and_with_all_seeds_alone(make_plan):
    plan = make_plan(tune=False)
    jobs = plan.jobs({}, [1, 2, 3], ["plain"])[0]
    assert [(job.row, job.seed) for job in jobs[-9:]] == [
        (row, seed) for row in (ROOT, LWC, ENC_DC) for seed in (4, 5, 6)
    ]
    assert max(job.seed for job in plan.jobs({}, [1, 2], ["plain"])[0]) == 2
    assert make_plan("iwslt14_small").further_seeds == {}


def test_as_many_seeds_give_the_same_interval(runs, stores, differences):
    """If both rows have the same seeds, means of all seeds are tested like pairs of seeds."""
    counts = [
        {seed: stores.unpack(run["test"]["counts"], 60) for seed, run in runs[row].items()} for row in (LWC, ROOT)
    ]
    paired, means = differences.difference(*counts), differences.difference_of_means(*counts)
    assert (means.value, means.low, means.high) == pytest.approx((paired.value, paired.low, paired.high))
    assert means.p_bootstrap == paired.p_bootstrap
    assert differences.difference_of_means(counts[0], {1: counts[1][1]}) is None


def test_differences_beside_what_chance_gives(differences):
    module = importlib.import_module("_comparison_robustness")
    made = [differences.Difference(1.0, 0.0, 2.0, p, 0.01, 1) for p in (0.01, 0.04, 0.06, 0.5)]
    assert module.below_chance(made) == "Of 4 differences 2 have p below 0.05 (the larger of both); chance gives 0.2."
