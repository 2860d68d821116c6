"""Compares ensembles with the mean of the probabilities, computed by hand, over all possible sequences."""

import math

import numpy as np
import pytest
from numpy_beam_search import beam_search, brute_force
from test_beam_search_oracle import same, search
from toy_step import Toy

from t2t_ext.errors import UserError


class ToyMember:
    """A toy with the interface of a model."""

    def __init__(self, toy, kind):
        self.directions = toy.directions
        self.target_vocab_size = self.source_vocab_size = toy.table.shape[-1]
        self.source_feature_size = self.longest_source = 0
        self.step, self.step_with_attention = toy.make_step(kind), toy.make_step(kind, with_attention=True)


class Together:
    """An ensemble of toys with the interface that `search` expects; the members use different kinds of state."""

    def __init__(self, toys, weights=None):
        from t2t_ext.models.ensemble import Ensemble

        kinds = ("memories", "windows")
        self.toys, self.directions = toys, toys[0].directions
        members = [ToyMember(toy, kinds[i % 2]) for i, toy in enumerate(toys)]
        self.ensemble = Ensemble(members, weights)

    def start(self, sentences, hypotheses):
        return {"members": [toy.start(sentences, hypotheses) for toy in self.toys]}

    def make_step(self, kind, with_attention=False):
        return self.ensemble.step_with_attention if with_attention else self.ensemble.step

    def log_probs(self, sentence, direction=0):
        functions = [toy.log_probs(sentence, direction) for toy in self.toys]

        def mean(own):
            rows = [weight * np.exp(f(own)) for weight, f in zip(self.ensemble.weights, functions, strict=True)]
            return np.log(np.sum(rows, axis=0))

        return mean


@pytest.mark.parametrize("weights", [None, (1, 2, 5)])
def test_a_wide_beam_finds_the_best_of_all_sequences(weights):
    limits = [4, 3, 1, 4]
    toys = [Toy(len(limits), 4, seed=seed) for seed in range(3)]
    together = Together(toys, weights)
    found = search(together, limits, beam_size=19, num_hypotheses=4, alpha=0.6)
    differ = False
    for sentence, limit in enumerate(limits):
        finished, unfinished = brute_force(together.log_probs(sentence), vocab_size=4, limit=limit, alpha=0.6)
        same(found[sentence][: len(finished + unfinished)], (finished + unfinished)[:4])
        alone = [brute_force(toy.log_probs(sentence), vocab_size=4, limit=limit, alpha=0.6)[0][0] for toy in toys]
        differ |= any(finished[0].ids != best.ids for best in alone)
    assert differ, "the members agree: this test shows nothing"


def test_ordinary_beams():
    limits = [9, 4, 9, 1]
    together = Together([Toy(len(limits), 19, seed=seed, eos=1.0) for seed in (3, 4)])
    found = search(together, limits, beam_size=4, num_hypotheses=4, alpha=0.6)
    for sentence, limit in enumerate(limits):
        same(found[sentence], beam_search(together.log_probs(sentence), limit=limit, beam=4, alpha=0.6, wanted=4))


def test_a_toy_with_itself_is_the_toy():
    toy = Toy(3, 19, seed=5, eos=1.0)
    settings = {"beam_size": 4, "num_hypotheses": 4, "alpha": 0.6}
    alone, together = search(toy, [8] * 3, **settings), search(Together([toy] * 3), [8] * 3, **settings)
    assert [[h["ids"] for h in row] for row in alone] == [[h["ids"] for h in row] for row in together]
    for left, right in zip(alone, together, strict=True):
        assert [h["score"] for h in left] == pytest.approx([h["score"] for h in right], abs=1e-5)


def test_the_mixture_neither_underflows_nor_overflows():
    import tensorflow as tf

    from t2t_ext.models.ensemble import log_mixture

    logits = [np.array([0.0, -200.0, 300.0]), np.array([500.0, -200.0, 0.0])]
    # In exact arithmetic: softmaxes (e^-300, e^-500, 1) and (1, e^-700, e^-500), up to factors of 1 + e^-300.
    expected = [math.log(0.75), -500 + math.log(0.25), math.log(0.25)]
    found = log_mixture([tf.constant(row, tf.float32) for row in logits], (0.25, 0.75))
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-5)


def models():
    """Returns three Transformers that differ in shape or precision."""
    from random_weights import random_arrays

    from t2t_ext import registry

    built = []
    for seed, (overrides, dtype) in enumerate(
        [("", "float32"), ("hidden_size=24,num_heads=3,num_decoder_layers=1", "float32"), ("", "mixed_bfloat16")]
    ):
        hparams = registry.hparams("transformer_test")
        model = registry.model("transformer")(
            hparams.override(overrides) if overrides else hparams,
            source_vocab_size=24, target_vocab_size=24, dtype=dtype,
        )  # fmt: skip
        model.build()
        model.assign(random_arrays(model, seed=seed, scale=2.0))
        built.append(model)
    return built


def test_whole_sequences_of_different_models():
    from t2t_ext.models.ensemble import Ensemble

    members = models()
    ensemble = Ensemble(members, (2, 1, 1))
    rng = np.random.default_rng(0)
    inputs, targets = (rng.integers(3, 24, [3, length]).astype(np.int32) for length in (7, 5))
    probs = []
    for member in members:
        logits = member(inputs, targets).numpy().astype(np.float64)
        probs.append(np.exp(logits - logits.max(-1, keepdims=True)))
        probs[-1] /= probs[-1].sum(-1, keepdims=True)
    expected = np.log(0.5 * probs[0] + 0.25 * probs[1] + 0.25 * probs[2])
    np.testing.assert_allclose(ensemble(inputs, targets), expected, atol=1e-5)
    names = ensemble.named_variables()
    assert len(names) == sum(len(member.named_variables()) for member in members)
    assert all(name.startswith(("member_0/", "member_1/", "member_2/")) for name in names)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("target_vocab_size", "same number of target subwords, got 5, 6"),
        ("source_vocab_size", "same number of source subwords, got 5, 6"),
        ("directions", "directions of generation, got 1, 6"),
    ],
)
def test_members_that_do_not_fit(attribute, message):
    from t2t_ext.models.ensemble import Ensemble

    members = [ToyMember(Toy(1, 5), "windows") for _ in range(2)]
    setattr(members[1], attribute, 6)
    with pytest.raises(UserError, match=message):
        Ensemble(members)
