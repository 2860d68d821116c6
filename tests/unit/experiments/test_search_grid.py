"""Tests of grids of search settings: what they contain, what is refused, and what is said about them."""

import pytest

from t2t_ext.errors import UserError
from t2t_ext.evaluation.score_table import ScoreRecord
from t2t_ext.experiments import search_grid


def record(step=10, **scores):
    return ScoreRecord(
        step=step, checkpoint="c", weights="w", search="s", scoring="p", translations="t.txt", lines=20, seconds=4.0,
        scores=scores, signatures={},
    )  # fmt: skip


def test_combinations_are_in_the_order_of_the_grid():
    grid = search_grid.combinations("alpha=0.6:1.4, beam_size=2:8", "min_length=1")
    found = [(each.hparams.alpha, each.hparams.beam_size, each.hparams.min_length) for each in grid]
    assert found == [(0.6, 2, 1), (0.6, 8, 1), (1.4, 2, 1), (1.4, 8, 1)]
    assert grid[1].given == ("alpha=0.6", "beam_size=8")


@pytest.mark.parametrize(
    ("grid", "overrides", "message"),
    [
        ("alpha", "", "'alpha' is no setting with values"),
        ("alpha=0.6:", "", "'alpha=0.6:' is no setting with values"),
        ("alpha=1:1", "", "alpha has a value twice"),
        ("alpha=1:2,alpha=3:4", "", "alpha has a value twice"),
        ("alpha=1:2", "beam_size=4,alpha=1", "alpha is in --search_grid and in --decode_hparams"),
        ("alpha=1", "", "has 1 combination"),
        ("beam_size=" + ":".join(map(str, range(1, 300))), "", "has 299 combination"),
        ("alfa=1:2", "", "--search_grid=alfa=1:2: 'alfa' is no setting of the search. Did you mean 'alpha'?"),
        ("num_hypotheses=2:8", "", "--search_grid with num_hypotheses=8: num_hypotheses=8 is more than beam_size=4"),
        ("diverse_strength=0.1:0.2", "", "has no effect without diverse_groups"),
        ("min_length=0:-1", "alpha=1", "--search_grid with min_length=-1 and --decode_hparams=alpha=1: min_length"),
        ("alpha=0.6:0.60", "", "alpha=0.6 and alpha=0.60 are the same search"),
        ("batch_size=1:8", "", "batch_size changes no score"),
        ("num_hypotheses=2:4", "", "num_hypotheses changes no score with early_stopping=exact"),
    ],
)
def test_mistakes(grid, overrides, message):
    with pytest.raises(UserError) as error:
        search_grid.combinations(grid, overrides)
    assert message in str(error.value)


@pytest.mark.parametrize(("name", "best"), [("BLEU", ["2", "1"]), ("BLEU_cased", ["2", "1"]), ("TER", ["1", "2"])])
def test_the_best_comes_first(name, best):
    grid = search_grid.combinations("alpha=1:2")
    tried = [search_grid.Tried(each, record(**{name: 10.0 * each.hparams.alpha})) for each in grid]
    lines = search_grid.shown(tried).splitlines()
    assert lines[0].split() == ["alpha", name, "lines/s"]
    assert [line.split()[0] for line in lines[1:]] == best
    assert lines[1].split()[1:] == [f"{10 * float(best[0]):.2f}", "5.0"]


def test_of_equal_ones_the_first_comes_first():
    tried = [search_grid.Tried(each, record(BLEU=1.0)) for each in search_grid.combinations("beam_size=1:8:4")]
    assert [each.combination.hparams.beam_size for each in search_grid.ranked(tried)] == [1, 8, 4]


def test_more_hypotheses_are_a_setting_where_they_change_the_search():
    grid = search_grid.combinations("num_hypotheses=2:4", "early_stopping=heuristic")
    assert [each.hparams.num_hypotheses for each in grid] == [2, 4]


def test_warnings():
    grid = search_grid.combinations("alpha=1:2")
    said = []
    search_grid.warn([search_grid.Tried(each, record(BLEU=1.0)) for each in grid], "dev", said.append)
    assert said == []
    tried = [search_grid.Tried(each, record(step, BLEU=1.0)) for each, step in zip(grid, (10, 20), strict=True)]
    search_grid.warn(tried, "test", said.append)
    assert "steps 10, 20 are compared" in said[0]
    assert "choose on --split=dev" in said[1]
    said.clear()
    search_grid.warn(tried[:1], "mt03", said.append)
    search_grid.warn(tried[:1], "", said.append)
    assert said == ["settings chosen on mt03 make its score look better than it is: choose on --split=dev"]
