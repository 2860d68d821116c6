"""Compares the beam search with all possible sequences and with an independent search in plain Python."""

import numpy as np
import pytest
from numpy_beam_search import EOS, beam_search, brute_force, greedy, penalty, score_of, search_directions
from toy_step import Toy

TOLERANCE = 1e-4


def search(toy, limits, *, kind="memories", graph=True, rules=list, strategy=lambda: None, **config):
    """Runs the toolkit's search over the toy; returns a list of dicts per sentence, the best hypothesis first.

    The functions `rules` and `strategy` make the rules and the strategy inside the graph. Empty places are left out.
    """
    import tensorflow as tf

    from t2t_ext.search.beam_search import SearchConfig
    from t2t_ext.search.beam_search import beam_search as ours

    settings = SearchConfig(directions=toy.directions, **config)

    def run(lengths):
        asked = rules()
        step = toy.make_step(kind, any(rule.needs_attention for rule in asked))
        state = toy.start(tf.shape(lengths)[0], settings.live)
        return ours(step, state, lengths, settings, asked, strategy())

    function = tf.function(run, input_signature=[tf.TensorSpec([None], tf.int32)], autograph=False) if graph else run
    result = function(tf.constant(limits, tf.int32))
    result = type(result)(*(part.numpy() for part in result))
    return [
        [
            {
                "ids": tuple(int(i) for i in result.ids[b, n, : result.lengths[b, n]]),
                "rest": result.ids[b, n, result.lengths[b, n] :],
                "log_prob": result.log_probs[b, n],
                "score": result.scores[b, n],
                "finished": bool(result.finished[b, n]),
            }
            for n in range(result.ids.shape[1])
            if result.log_probs[b, n] > -1e8
        ]
        for b in range(len(limits))
    ]


def same(got, expected):
    """Asserts that `got` (from `search`) agrees with `expected`, a list of `Found`."""
    assert [g["ids"] for g in got] == [e.ids for e in expected]
    assert [g["finished"] for g in got] == [e.finished for e in expected]
    np.testing.assert_allclose([g["log_prob"] for g in got], [e.log_prob for e in expected], atol=TOLERANCE, rtol=0)
    np.testing.assert_allclose([g["score"] for g in got], [e.score for e in expected], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("vocab_size", [pytest.param(3, marks=pytest.mark.slow), 4, 5])
@pytest.mark.parametrize(
    ("alpha", "kind"), [(0.0, "gnmt"), (0.6, "gnmt"), (1.4, "gnmt"), (0.6, "len_power"), (1.0, "len_power")]
)
def test_a_wide_beam_finds_the_best_of_all_sequences(vocab_size, alpha, kind):
    limits = [4, 3, 1, 2, 4]
    toy = Toy(len(limits), vocab_size, seed=vocab_size)
    beam = (vocab_size - 2) ** 4 + 3
    wanted = 3 if vocab_size > 3 else 1
    found = search(toy, limits, beam_size=beam, num_hypotheses=wanted, alpha=alpha, penalty=kind)
    for sentence, limit in enumerate(limits):
        log_probs = toy.log_probs(sentence)
        finished, unfinished = brute_force(log_probs, vocab_size=vocab_size, limit=limit, alpha=alpha, kind=kind)
        same(found[sentence], (finished + unfinished)[:wanted])


def test_a_wide_beam_with_further_symbols_that_may_not_be_produced():
    toy = Toy(3, 5, seed=11)
    found = search(toy, [4, 4, 4], beam_size=20, num_hypotheses=4, alpha=0.6, banned=(0, 3))
    for sentence in range(3):
        finished, _ = brute_force(toy.log_probs(sentence), vocab_size=5, limit=4, alpha=0.6, forbidden=(0, 3))
        same(found[sentence], finished[:4])


@pytest.mark.parametrize("kind", ["memories", "windows"])
@pytest.mark.parametrize("wanted", [pytest.param(1, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize(("alpha", "penalty_kind"), [(0.6, "gnmt"), (1.0, "len_power"), (0.0, "gnmt")])
def test_ordinary_beams_agree_with_the_independent_search(kind, wanted, alpha, penalty_kind):
    limits = [12, 1, 7, 12, 3, 9, 2, 12]
    toy = Toy(len(limits), 23, seed=5, eos=1.0)
    found = search(
        toy, limits, kind=kind, beam_size=4, num_hypotheses=wanted, alpha=alpha, penalty=penalty_kind, banned=(0, 3, 4)
    )
    for sentence, limit in enumerate(limits):
        expected = beam_search(
            toy.log_probs(sentence),
            limit=limit,
            beam=4,
            alpha=alpha,
            kind=penalty_kind,
            forbidden=(0, 3, 4),
            wanted=wanted,
        )
        same(found[sentence], expected[:wanted])


@pytest.mark.parametrize("wanted", [1, 3])
def test_a_heuristic_stop_agrees_with_the_independent_search(wanted):
    """The heuristic stop agrees with the independent search; it differs from the exact stop but is never better."""
    limits = [40, 12, 25, 40, 9, 30]
    toy = Toy(len(limits), 23, seed=5, eos=1.0)
    config = {"beam_size": 4, "num_hypotheses": wanted, "alpha": 1.5}
    found = search(toy, limits, early_stopping="heuristic", **config)
    for sentence, limit in enumerate(limits):
        settings = {"limit": limit, "beam": 4, "alpha": 1.5, "wanted": wanted, "heuristic": True}
        same(found[sentence], beam_search(toy.log_probs(sentence), **settings)[:wanted])
    exact = search(toy, limits, **config)
    assert [row[0]["ids"] for row in found] != [row[0]["ids"] for row in exact]
    assert all(row[0]["score"] <= best[0]["score"] + TOLERANCE for row, best in zip(found, exact, strict=True))


@pytest.mark.parametrize("beam", [2, pytest.param(3, marks=pytest.mark.slow), 8])
@pytest.mark.parametrize("eos", [-8.0, 0.0, 3.0])
def test_beams_of_other_sizes(beam, eos):
    """Beams of any size agree with the independent search, however many hypotheses end.

    Depending on `eos` the pool is empty at the limit, partly filled, or full at once.
    """
    limits = [8, 5, 8, 1]
    toy = Toy(len(limits), 40, seed=beam, eos=eos)
    found = search(toy, limits, beam_size=beam, num_hypotheses=beam, alpha=0.6)
    for sentence, limit in enumerate(limits):
        expected = beam_search(toy.log_probs(sentence), limit=limit, beam=beam, alpha=0.6, wanted=beam)
        same(found[sentence], expected)


def test_only_the_top_is_extended():
    """The `top` beam agrees with the independent search and differs from the usual beam."""
    from t2t_ext.search.strategies import TopBeam

    limits = [8, 5, 8, 1]
    toy = Toy(len(limits), 40, seed=3, eos=2.0)
    found = search(toy, limits, beam_size=3, num_hypotheses=3, alpha=0.6, strategy=TopBeam)
    for sentence, limit in enumerate(limits):
        settings = {"limit": limit, "beam": 3, "alpha": 0.6, "wanted": 3}
        same(found[sentence], beam_search(toy.log_probs(sentence), top=True, **settings))
    usual = search(toy, limits, beam_size=3, num_hypotheses=3, alpha=0.6)
    assert [[each["ids"] for each in row] for row in found] != [[each["ids"] for each in row] for row in usual]


def test_a_large_vocabulary():
    """The searches agree for a vocabulary so large that the best tokens are searched in blocks."""
    toy = Toy(2, 5003, seed=1, eos=6.0, scale=1.0, rows=401)
    found = search(toy, [6, 6], beam_size=4, num_hypotheses=4, alpha=0.6)
    for sentence in range(2):
        same(found[sentence], beam_search(toy.log_probs(sentence), limit=6, beam=4, alpha=0.6, wanted=4))


def test_unfinished_hypotheses_at_the_limit():
    """Unfinished hypotheses are marked, penalized like the others, and ranked after every finished one."""
    toy = Toy(4, 9, seed=2, eos=-3.0)
    found = search(toy, [5] * 4, beam_size=4, num_hypotheses=4, alpha=0.6)
    kinds = [[hypothesis["finished"] for hypothesis in sentence] for sentence in found]
    assert any(not finished for sentence in kinds for finished in sentence)
    for sentence in found:
        assert [h["finished"] for h in sentence] == sorted([h["finished"] for h in sentence], reverse=True)
        for hypothesis in sentence:
            length = len(hypothesis["ids"])
            assert hypothesis["score"] == pytest.approx(hypothesis["log_prob"] / penalty(length, 0.6), abs=TOLERANCE)
            assert hypothesis["finished"] == (EOS in hypothesis["ids"])
            assert hypothesis["finished"] or length == 5


def test_log_probabilities_are_those_of_the_ids():
    toy = Toy(5, 30, seed=8, eos=1.0)
    for sentence, hypotheses in enumerate(search(toy, [9] * 5, beam_size=5, num_hypotheses=5, alpha=0.6)):
        assert len({h["ids"] for h in hypotheses}) == len(hypotheses)
        for hypothesis in hypotheses:
            expected = score_of(toy.log_probs(sentence), hypothesis["ids"])
            assert hypothesis["log_prob"] == pytest.approx(expected, abs=TOLERANCE)
            assert not hypothesis["rest"].any()
            assert EOS not in hypothesis["ids"][:-1]


def test_a_beam_of_one_is_greedy():
    limits = [10, 10, 4, 1, 10, 10]
    toy = Toy(len(limits), 12, seed=4, eos=0.5)
    found = search(toy, limits, beam_size=1, alpha=0.6, banned=(0, 3))
    for sentence, limit in enumerate(limits):
        same(found[sentence], [greedy(toy.log_probs(sentence), limit=limit, alpha=0.6, forbidden=(0, 3))])


def test_a_sentence_does_not_depend_on_its_batch():
    """A sentence's result is independent of its batch, except for the last bits of vectorized logarithms and powers."""
    limits = [2, 12, 7, 1]
    toy = Toy(4, 17, seed=6, eos=1.0)
    together = search(toy, limits, beam_size=4, num_hypotheses=4, alpha=0.6)
    for sentence, limit in enumerate(limits):
        alone = Toy(1, 17)
        alone.table = toy.table[:, sentence : sentence + 1]
        (result,) = search(alone, [limit], beam_size=4, num_hypotheses=4, alpha=0.6)
        for one, other in zip(result, together[sentence], strict=True):
            assert one["ids"] == other["ids"]
            assert one["log_prob"] == pytest.approx(other["log_prob"], abs=1e-5)
            assert one["score"] == pytest.approx(other["score"], abs=1e-5)


def test_eager_equals_graph():
    toy = Toy(2, 9, seed=3)
    settings = {"beam_size": 3, "num_hypotheses": 2, "alpha": 0.6}
    eager, graph = (search(toy, [6, 4], graph=graph, **settings) for graph in (False, True))
    assert [[h["ids"] for h in sentence] for sentence in eager] == [[h["ids"] for h in sentence] for sentence in graph]


@pytest.mark.parametrize("use_partner", [False, True])
def test_two_directions_share_a_pool(use_partner):
    limits = [9, 4, 9, 1, 6]
    toy = Toy(len(limits), 21, seed=7, eos=0.5, directions=2, use_partner=use_partner)
    found = search(toy, limits, beam_size=6, num_hypotheses=6, alpha=0.6)
    for sentence, limit in enumerate(limits):
        functions = [toy.log_probs(sentence, direction) for direction in range(2)]
        expected = search_directions(functions, limit=limit, beam=6, alpha=0.6, wanted=6)
        same(found[sentence], expected)


def test_the_oracles_agree_with_each_other():
    """The independent search with a beam for all sequences finds what the brute-force search finds."""
    toy = Toy(1, 4, seed=0)
    log_probs = toy.log_probs(0)
    finished, unfinished = brute_force(log_probs, vocab_size=4, limit=4, alpha=0.6)
    assert len(finished) == 1 + 2 + 4 + 8
    assert len(unfinished) == 16
    assert beam_search(log_probs, limit=4, beam=31, alpha=0.6, wanted=31) == finished + unfinished
