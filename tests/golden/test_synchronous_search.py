"""Compares the search in two directions with an independent search that replays every earlier partner.

The models are synchronous Transformers with random weights, whose states depend on both sides' pasts.
"""

import functools
import itertools

import numpy as np
import pytest
from numpy_beam_search import EOS, penalty
from numpy_synchronous_nodes import NumpySynchronous
from numpy_synchronous_search import Node, log_probs_of_pair, search
from random_weights import random_arrays

VOCAB = 23
BANNED = (0, 2, 3, 4)
LIMITS = [9, 3, 7, 1, 9]
MODES = list(itertools.product(("rank", "best"), ("next_alive", "freeze")))
SETTINGS = {
    "plain": "",
    "gate_post_norm": "sb_fusion=gate,projection_bias=true,layer_preprocess_sequence=none,"
    "layer_postprocess_sequence=dan",
    "tag_predicted": "predict_tag=true,sb_fusion=linear",
    "one_layer": "sb_layers=2,num_decoder_layers=3,sb_lambda_trainable=vector",
}


@functools.cache
def make(setting="plain", vocab=VOCAB, seed=7, eos=1.6, dtype=None):
    """Returns a model whose translations vary in words and length, and its arrays by name."""
    from t2t_ext import registry

    settings = "shared_embedding_and_softmax_weights=false"
    if "gate" not in SETTINGS[setting]:
        settings += ",sb_lambda=1.0"
    hparams = registry.hparams("synchronous_transformer_test").override(settings)
    hparams = hparams.override(SETTINGS[setting]) if SETTINGS[setting] else hparams
    model = registry.model("synchronous_transformer")(
        hparams, source_vocab_size=vocab, target_vocab_size=vocab, dtype=dtype
    )
    model.build()
    arrays = random_arrays(model, seed=seed, scale=2.0)
    arrays["softmax/embeddings"][1] *= eos
    model.assign(arrays)
    return model, {name: np.asarray(variable, np.float64) for name, variable in model.named_variables().items()}


def sources(count, vocab=VOCAB, seed=5):
    """Returns random source sentences, int32 [B, S]."""
    rng = np.random.default_rng(seed)
    ids = np.zeros([count, 7], np.int32)
    for row in range(count):
        length = rng.integers(1, 7)
        ids[row, :length], ids[row, length] = rng.integers(5, vocab, length), 1
    return ids


def numpy_models(made, inputs):
    """Returns a NumPy model for each sentence."""
    model, arrays = made
    return [NumpySynchronous(arrays, model.hparams, source) for source in inputs]


def ours(model, inputs, limits, *, recompute=False, graph=False, rules=lambda ids: (), strategy=lambda: None, **config):
    """Runs the toolkit's search; returns a list of dicts for every sentence, the best hypothesis first."""
    import tensorflow as tf

    from t2t_ext.search.beam_search import beam_search
    from t2t_ext.search.recompute import WholePrefixes
    from t2t_ext.search.search_state import SearchConfig

    settings = SearchConfig(directions=2, **{"banned": BANNED, **config})
    stepper = WholePrefixes(model, settings) if recompute else model

    def run(ids, lengths):
        asked = rules(ids)
        step = stepper.step_with_attention if any(rule.needs_attention for rule in asked) else stepper.step
        return beam_search(step, stepper.start(ids), lengths, settings, asked, strategy())

    shapes = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
    function = tf.function(run, input_signature=shapes, autograph=False) if graph else run
    result = function(tf.constant(inputs), tf.constant(limits, tf.int32))
    result = type(result)(*(part.numpy() for part in result))
    return [
        [
            {
                "ids": tuple(int(i) for i in result.ids[b, n, : result.lengths[b, n]]),
                "log_prob": float(result.log_probs[b, n]),
                "score": float(result.scores[b, n]),
                "finished": bool(result.finished[b, n]),
                "side": int(result.directions[b, n]),
            }
            for n in range(result.ids.shape[1])
            if result.log_probs[b, n] > -1e8
        ]
        for b in range(len(limits))
    ]


def same(got, expected, atol=2e-4):
    """Asserts that `got` (from `ours`) agrees with `expected`, a list of `Found`."""
    assert [(each["side"], each["ids"]) for each in got] == [(each.side, each.ids) for each in expected]
    assert [each["finished"] for each in got] == [each.finished for each in expected]
    np.testing.assert_allclose([g["log_prob"] for g in got], [e.log_prob for e in expected], atol=atol, rtol=0)
    np.testing.assert_allclose([g["score"] for g in got], [e.score for e in expected], atol=atol, rtol=0)


def compare(made, inputs, limits, *, beam, wanted, graph=False, **settings):
    """Asserts that the toolkit's search agrees with the independent one and returns its results."""
    modes = {key: value for key, value in settings.items() if key != "recompute"}
    found = ours(made[0], inputs, limits, beam_size=beam, num_hypotheses=wanted, graph=graph, **settings)
    for one, numpy_model, limit in zip(found, numpy_models(made, inputs), limits, strict=True):
        keywords = {"recompute": settings.get("recompute", False), **modes}
        expected = search(numpy_model, limit=limit, beam=beam, wanted=wanted, forbidden=BANNED, **keywords)
        same(one, expected[:wanted])
    return found


# === Every partner is replayed ===


@pytest.mark.parametrize(
    ("pairing", "finished_partner", "alpha"),
    [*((*mode, 0.6) for mode in MODES), (*MODES[0], 0.0), (*MODES[-1], 0.0)],
)
def test_every_partner_is_replayed(pairing, finished_partner, alpha):
    """The searches agree when sentences end at different times, by EOS or by their limit, and leave the batch."""
    mode = {"pairing": pairing, "finished_partner": finished_partner, "alpha": alpha}
    found = compare(make(), sources(len(LIMITS)), LIMITS, beam=6, wanted=6, **mode)
    kinds = {(each["finished"], each["side"]) for sentence in found for each in sentence}
    assert len(kinds) == 4


@pytest.mark.parametrize(
    ("setting", "finished_partner"),
    [("gate_post_norm", "next_alive"), ("tag_predicted", "freeze"), ("one_layer", "next_alive")],
)
def test_other_models(setting, finished_partner):
    limits = [8, 5]
    compare(make(setting), sources(2), limits, beam=4, wanted=4, alpha=0.6, finished_partner=finished_partner)


def test_in_a_graph():
    mode = {"pairing": "rank", "finished_partner": "freeze", "alpha": 0.6}
    compare(make(), sources(4, seed=8), [8, 2, 6, 8], beam=4, wanted=1, graph=True, **mode)


def test_the_modes_differ():
    """All modes give different results; otherwise the tests above would show little."""
    inputs, limits = sources(6, seed=9), [9] * 6

    def found(pairing, finished_partner):
        settings = {"pairing": pairing, "finished_partner": finished_partner}
        return ours(make()[0], inputs, limits, beam_size=6, num_hypotheses=6, **settings)

    for one, other in itertools.combinations([found(*mode) for mode in MODES], 2):
        assert one != other


@pytest.mark.parametrize("beam", [2, 6])
def test_only_the_top_is_extended(beam):
    """The `top` beam agrees with the independent search; with one hypothesis per side it is a greedy search.

    In greedy search a side ends when EOS is the most probable token, and stays unchanged from then on.
    """
    from t2t_ext.config.decode import DecodeHParams
    from t2t_ext.search.guided_strategies import guided_strategy
    from t2t_ext.translation.searcher import search_config

    top = DecodeHParams(beam_size=beam, beam_extends="top")
    assert search_config(top, beam, 2, BANNED).freezes
    made, inputs, limits = make(), sources(6, seed=9), [9] * 6
    settings, beams = {"alpha": 0.6, "finished_partner": "freeze"}, {"beam_size": beam, "num_hypotheses": beam}
    found = ours(made[0], inputs, limits, strategy=lambda: guided_strategy(top), **beams, **settings)
    for one, numpy_model, limit in zip(found, numpy_models(made, inputs), limits, strict=True):
        same(one, search(numpy_model, limit=limit, beam=beam, wanted=beam, forbidden=BANNED, top=True, **settings))
    assert found != ours(made[0], inputs, limits, **beams, **settings)
    if beam == 2:
        assert all({each["side"] for each in sentence} == {0, 1} for sentence in found)
        lengths = [sorted(len(each["ids"]) for each in sentence) for sentence in found]
        assert any(short < long for short, long in lengths), "no side went on alone: this test shows little"


# === Without a cache ===


@pytest.mark.parametrize(("pairing", "finished_partner"), [MODES[0], MODES[-1]])
def test_recomputed_prefixes(pairing, finished_partner):
    mode = {"pairing": pairing, "finished_partner": finished_partner, "alpha": 0.6}
    inputs, limits = sources(3), [7, 3, 7]
    found = compare(make(), inputs, limits, beam=6, wanted=6, recompute=True, **mode)
    assert found != ours(make()[0], inputs, limits, beam_size=6, num_hypotheses=6, **mode)


@pytest.mark.parametrize("setting", ["gate_post_norm", "tag_predicted"])
def test_one_hypothesis_a_side_needs_no_cache(setting):
    """With one hypothesis per side partners never change, so cached steps and recomputed prefixes give the same."""
    model, _ = make(setting)
    inputs, limits = sources(3, seed=2), [8, 4, 8]
    cached, whole = (ours(model, inputs, limits, beam_size=2, num_hypotheses=2, recompute=r) for r in (False, True))
    for one, other in zip(cached, whole, strict=True):
        assert [(each["side"], each["ids"]) for each in one] == [(each["side"], each["ids"]) for each in other]
        for name in ("log_prob", "score"):
            np.testing.assert_allclose([each[name] for each in one], [each[name] for each in other], atol=1e-4)


# === All possible pairs ===


def greedy_by_pairs(numpy_model, limit, alpha):
    """Finds what a search with one hypothesis per side must give, from the probabilities of all pairs of sequences.

    Among all pairs of sequences of `limit` words there is one in which every word is the likeliest of its step, given
    both sides' earlier words. A prefix of it may end wherever EOS is one of the two likeliest continuations.

    Returns:
      (finished, score, log P, ids, side) of every hypothesis that ends, the best first, and the pair.
    """
    words = [v for v in range(numpy_model.w.softmax.shape[0]) if v not in (*BANNED, EOS)]
    sequences = list(itertools.product(words, repeat=limit))
    paths = []
    for pair in itertools.product(sequences, sequences):
        steps = log_probs_of_pair(numpy_model, pair)
        likeliest = [tuple(max(words, key=lambda v: step[v]) for step in side) for side in steps]
        if likeliest == list(pair):
            paths.append((pair, steps))
    ((pair, steps),) = paths
    found = []
    for side in (0, 1):
        log_prob = 0.0
        for t, word in enumerate(pair[side]):
            step = steps[side][t]
            if step[EOS] >= sorted(step[v] for v in (*words, EOS))[-2]:
                total = log_prob + step[EOS]
                found.append((True, total / penalty(t + 1, alpha), total, (*pair[side][:t], EOS), side))
            log_prob += step[word]
        found.append((False, log_prob / penalty(limit, alpha), log_prob, pair[side], side))
    return sorted(found, reverse=True), pair


def test_greedy_by_pairs():
    """The search finds what follows from all 64 pairs of three-word sequences, where ids 5 and 6 are the only words.

    The model's logits for both sides at once give the same log-probabilities.
    """
    vocab, limits, seen = 7, [3, 2, 1], set()
    for seed, alpha in ((5, 0.6), (9, 0.0)):
        made = make(vocab=vocab, seed=seed, eos=1.0)
        inputs = sources(len(limits), vocab=vocab, seed=2)
        results = ours(made[0], inputs, limits, beam_size=2, num_hypotheses=2, alpha=alpha)
        for row, (got, numpy_model, limit) in enumerate(zip(results, numpy_models(made, inputs), limits, strict=True)):
            expected, pair = greedy_by_pairs(numpy_model, limit, alpha)
            for each, (finished, score, log_prob, ids, side) in zip(got, expected, strict=False):
                assert (each["side"], each["ids"], each["finished"]) == (side, ids, finished)
                assert each["score"] == pytest.approx(score, abs=1e-4)
                assert each["log_prob"] == pytest.approx(log_prob, abs=1e-4)
                sides = [ids, ids]
                sides[1 - side] = pair[1 - side][: len(ids)]
                logits = made[0](inputs[row : row + 1], np.array([sides], np.int32)).numpy()[0, side].astype(float)
                steps = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
                assert each["log_prob"] == pytest.approx(steps[range(len(ids)), ids].sum(), abs=1e-4)
                seen.add((side, finished))
    assert len(seen) > 2, "all alike: this test shows little"


# === Rules, strategies, ensembles, precisions ===


def test_rules():
    from t2t_ext.search.rules import MinimumLength, NoRepeatedNgrams

    made, limits = make(), [9, 6, 9]
    inputs = sources(3, seed=4)

    def allowed(prefix, token):
        return (token != EOS or len(prefix) >= 4) and token not in prefix

    found = ours(
        made[0],
        inputs,
        limits,
        beam_size=6,
        num_hypotheses=6,
        finished_partner="freeze",
        rules=lambda ids: (MinimumLength(4 + 0 * ids[:, 0]), NoRepeatedNgrams(1)),
    )
    for one, numpy_model, limit in zip(found, numpy_models(made, inputs), limits, strict=True):
        settings = {"wanted": 6, "alpha": 0.6, "finished_partner": "freeze", "forbidden": BANNED, "allowed": allowed}
        same(one, search(numpy_model, limit=limit, beam=6, **settings))


class Recorded:
    """A model that records every step for one sentence as nodes: the input tokens and the visible columns."""

    def __init__(self, model):
        self.model, self.nodes = model, []

    def start(self, inputs):
        return self.model.start(inputs)

    def step(self, ids, visible, partner_visible, parents, state):
        self._keep(ids.numpy()[0], visible.numpy()[0], partner_visible.numpy()[0])
        return self.model.step(ids, visible, partner_visible, parents, state)

    def step_with_attention(self, ids, visible, partner_visible, parents, state):
        self._keep(ids.numpy()[0], visible.numpy()[0], partner_visible.numpy()[0])
        return self.model.step_with_attention(ids, visible, partner_visible, parents, state)

    def _keep(self, ids, visible, partner_visible):
        first = not self.nodes
        self.nodes.append([[Node(side, None if first else int(i)) for i in ids[side]] for side in (0, 1)])
        columns = [[node for step in self.nodes for node in step[side]] for side in (0, 1)]
        for side in (0, 1):
            for node, own, other in zip(self.nodes[-1][side], visible[side], partner_visible[side], strict=True):
                node.past = tuple(columns[side][i] for i in np.flatnonzero(own))
                node.seen = tuple(columns[1 - side][i] for i in np.flatnonzero(other))

    def log_probs(self, numpy_model, side, ids):
        """Returns the possible log-probabilities of a hypothesis: one for each recorded node with the same ids."""
        fed = [None, *ids[:-1]]
        ends = [node for node in self.nodes[len(ids) - 1][side] if [each.token for each in node.past] == fed]
        return [
            sum(numpy_model.log_probs(node)[token] for node, token in zip(end.past, ids, strict=True)) for end in ends
        ]


def checked_against_its_record(made, source, *, atol=2e-4, **settings):
    """Searches for one sentence and asserts that every log-probability is that of recorded nodes of the search."""
    recorded = Recorded(made[0])
    (found,) = ours(recorded, source[np.newaxis], [8], **settings)
    numpy_model = NumpySynchronous(made[1], made[0].hparams, source)
    for each in found:
        assert min(abs(each["log_prob"] - p) for p in recorded.log_probs(numpy_model, each["side"], each["ids"])) < atol
    return found, recorded


def test_groups_see_frozen_partners():
    """With G groups, the K / G best continuations of each group count; some hypotheses see a frozen partner."""
    from t2t_ext.search.guided_strategies import DiverseGroups
    from t2t_ext.search.search_state import SearchConfig

    config = SearchConfig(beam_size=8, directions=2)
    in_beam = DiverseGroups(2, 1.0).in_beam(8, config)
    np.testing.assert_array_equal(in_beam, [True, True, False, False] * 2)
    for source in sources(2, seed=12):
        found, recorded = checked_against_its_record(
            make(),
            source,
            beam_size=8,
            num_hypotheses=8,
            finished_partner="freeze",
            strategy=lambda: DiverseGroups(2, 1.0),
        )
        assert {each["side"] for each in found} == {0, 1}
        behind = [len(node.seen) < len(node.past) for step in recorded.nodes for side in step for node in side]
        assert any(behind)


@pytest.mark.parametrize("finished_partner", ["next_alive", "freeze"])
def test_the_best_partner_need_not_be_the_first(finished_partner):
    """The best partner is the most probable one at any rank, as constraints and groups use other orders."""
    import tensorflow as tf

    from t2t_ext.search import partners
    from t2t_ext.search.search_state import SearchConfig

    config = SearchConfig(beam_size=4, directions=2, pairing="best", finished_partner=finished_partner)
    visible = tf.constant([[[[True, False], [False, True]], [[True, True], [False, False]]]])
    log_probs = tf.constant([[[-3.0, -2.0], [-1.0, -4.0]]])
    state = partners.start_partners(1, config)
    if finished_partner == "freeze":
        state = state._replace(columns=tf.zeros([1, 2, 2, 0], tf.bool))
    seen = partners.partner_columns(state, visible, log_probs, config)
    np.testing.assert_array_equal(seen, [[[[True, True]] * 2, [[False, True]] * 2]])
    if finished_partner == "next_alive":
        return
    # On the left-to-right side the second hypothesis, the most probable one, ends; on the other side also the second.
    from t2t_ext.search.strategies import BeamStrategy

    best = tf.constant([[[-2.0, -3.5], [-2.5, -4.0]]])
    candidates = (best, tf.constant([[[1, 0], [0, 1]]], tf.int64), tf.constant([[[1, 9], [9, 1]]], tf.int64))
    parents = tf.zeros([1, 2, 2], tf.int64)
    state = partners.follow_partners(state, seen, candidates, parents, log_probs, BeamStrategy(), config)
    np.testing.assert_array_equal(state.frozen, [[[False, False], [True, True]]])


def test_phrases_are_in_text_order_in_both_directions():
    import tensorflow as tf

    from t2t_ext.search.guided_strategies import ConstrainedBeam
    from t2t_ext.search.lexical_constraints import make_phrases

    phrase = (9, 17)

    def strategy():
        return ConstrainedBeam(make_phrases(tf.constant([[phrase]]), tf.constant([[2]]), (False, True)))

    sides = set()
    for source, mode in zip(sources(4, seed=13), MODES, strict=True):
        settings = {"pairing": mode[0], "finished_partner": mode[1], "strategy": strategy}
        made = make(seed=6, eos=1.0)
        found, _ = checked_against_its_record(made, source, beam_size=8, num_hypotheses=4, **settings)
        for each in found:
            words = each["ids"][::-1] if each["side"] else each["ids"]
            assert not each["finished"] or phrase in itertools.pairwise(words)
            sides.add((each["side"], each["finished"]))
    assert {(0, True), (1, True)} <= sides


def test_coverage():
    from t2t_ext.search.rules import CoveragePenalty

    def rules(ids):
        return (CoveragePenalty(0.4, ids > 1, 2),)

    found, _ = checked_against_its_record(make(), sources(1, seed=3)[0], beam_size=4, num_hypotheses=4, rules=rules)
    assert all(each["score"] < each["log_prob"] / penalty(len(each["ids"]), 0.6) for each in found)


def test_an_ensemble():
    from t2t_ext.models.ensemble import Ensemble

    made = [make(seed=seed) for seed in (7, 3)]
    inputs, limits = sources(3, seed=6), [7, 4, 7]
    ensemble = Ensemble([model for model, _ in made], (1, 3))
    found = ours(ensemble, inputs, limits, beam_size=4, num_hypotheses=4)
    members = [numpy_models(each, inputs) for each in made]
    for row, limit in enumerate(limits):

        class Mixture:
            def start(self):
                return (), ()

            def log_probs(self, node, row=row):
                parts = (member[row].log_probs(node) for member in members)
                return np.log(sum(w * np.exp(part) for w, part in zip((0.25, 0.75), parts, strict=True)))

        same(found[row], search(Mixture(), limit=limit, beam=4, alpha=0.6, wanted=4, forbidden=BANNED))


@pytest.mark.slow
def test_bfloat16():
    made = make(dtype="bfloat16")
    inputs = sources(3, seed=7)
    for source in inputs:
        checked_against_its_record(made, source, beam_size=4, num_hypotheses=2, atol=0.3)
    together = ours(made[0], inputs, [8] * 3, beam_size=4, num_hypotheses=2)
    alone = [ours(made[0], inputs[row : row + 1], [8], beam_size=4, num_hypotheses=2)[0] for row in range(3)]
    for one, other in zip(together, alone, strict=True):
        assert [each["ids"] for each in one] == [each["ids"] for each in other]
        np.testing.assert_allclose([e["log_prob"] for e in one], [e["log_prob"] for e in other], atol=1e-3)
