"""The search and the alignments read the source part of mixed attention, normalized to a distribution."""

import numpy as np
import pytest
from random_weights import random_arrays
from test_ensembles_and_alignments import LINES, PAIRS, expected_links, translator_of


def test_coverage_and_alignments_read_the_part_on_the_source(tiny_encoder):
    from t2t_ext import registry

    size = tiny_encoder.vocab_size
    hparams = registry.hparams("layer_coordination_test").replace(num_hidden_layers=3)
    model = registry.model("layer_coordination")(hparams, source_vocab_size=size, target_vocab_size=size)
    model.build()
    model.assign(random_arrays(model, seed=4, scale=2.0))
    settings = {"alpha": 0.0, "coverage_penalty": 0.5, "max_length_offset": 4}
    for hypotheses in translator_of(model, tiny_encoder, **settings).translate(LINES[:2]):
        assert hypotheses[0].score < hypotheses[0].log_prob - 1e-3
    source, target = PAIRS[0]
    source_ids, ids = ([*tiny_encoder.encode(text), 1] for text in (source, target))
    weights = model.attention_weights(np.array([source_ids], np.int32), np.array([ids], np.int32))
    on_source = weights["layer_1/mixed_attention"].numpy()[0].mean(axis=0)[:, : len(source_ids)]
    assert on_source.sum(axis=1).max() < 0.99, "hardly anything is on the past: this would be an ordinary attention"
    expected = expected_links(tiny_encoder, on_source / on_source.sum(axis=1, keepdims=True), source_ids, ids)
    assert translator_of(model, tiny_encoder).align([PAIRS[0]]) == [expected]


def test_alignments_find_modules_and_both_directions():
    """Alignments read a module's two attentions as one with twice the heads, and the chosen direction's attention."""
    from t2t_ext import registry
    from t2t_ext.translation.alignment import AlignmentConfig, source_attention

    inputs, targets = np.array([[9, 10, 11, 12, 1], [13, 1, 0, 0, 0]]), np.array([[10, 9, 1], [11, 12, 1]])

    def model_of(name, **changes):
        hparams = registry.hparams(f"{name}_test").replace(num_hidden_layers=3, **changes)
        model = registry.model(name)(hparams, source_vocab_size=24, target_vocab_size=24)
        model.build()
        model.assign(random_arrays(model, seed=4, scale=2.0))
        return model

    def on_source(*distributions):
        found = np.concatenate([each.numpy() for each in distributions], axis=1).mean(axis=1)[:, :, : inputs.shape[1]]
        return found / found.sum(axis=-1, keepdims=True)

    model = model_of("layer_coordination", dc_encoder_layers="1-2")
    weights = model.attention_weights(inputs, targets)
    kinds = [weights[f"layer_1/mixed_attention/{kind}"] for kind in ("local_context", "global_context")]
    for layer, expected in ((None, on_source(*kinds)), (-1, on_source(weights["layer_2/mixed_attention"]))):
        found = source_attention(model, inputs, targets, AlignmentConfig(layer=layer))
        np.testing.assert_allclose(found, expected, atol=1e-6)

    model, both = model_of("synchronous_layer_coordination"), np.stack([targets, targets[::-1]], axis=1)
    weights = model.attention_weights(inputs, both)
    sides = [on_source(weights[f"layer_1/mixed_attention/{side}/history"]) for side in ("l2r", "r2l")]
    found = source_attention(model, inputs, both, AlignmentConfig(), np.array([True, False]))
    np.testing.assert_allclose(found, np.stack([sides[1][0], sides[0][1]]), atol=1e-6)


@pytest.mark.parametrize(
    ("shared", "changes"),
    [
        (True, {}),
        (False, {"lwc_share_weights": False}),
        (True, {"lwc_share_weights": False, "lwc_source": "input"}),
    ],
)
def test_states_of_the_source_are_what_the_next_layer_reads(shared, changes):
    """The source states are those from which the next reader makes its keys.

    With one stack, layer i + 1 reads state i. With two stacks, target layer i reads it, or target layer i + 1 with
    ``lwc_source=input``. The last states are normalized.
    """
    from t2t_ext import registry

    hparams = registry.hparams("layer_coordination_test").replace(num_hidden_layers=3, **changes)
    model = registry.model("layer_coordination")(hparams, source_vocab_size=24, target_vocab_size=24)
    model.build()
    model.assign(random_arrays(model, seed=4))
    inputs = np.array([[5, 9, 7, 1, 0], [6, 1, 0, 0, 0]], np.int32)
    states, memories = model.source_states(inputs), model.start(inputs)["source"]
    assert len(states) == (2 if shared else 3)
    for number, (state, layer) in enumerate(zip(states, model.coordinated[shared:], strict=True), 1):
        rows = np.reshape(state, [-1, state.shape[-1]])
        read = layer.attention.source_memory if number == len(states) else layer.memory
        np.testing.assert_allclose(read(rows, inputs != 0)[0], memories[shared:][number - 1][0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_all_layers_read_the_sources_last_states(shared):
    from t2t_ext import registry

    hparams = registry.hparams("layer_coordination_test")
    hparams = hparams.replace(num_hidden_layers=3, lwc_share_weights=shared, lwc_source="last")
    model = registry.model("layer_coordination")(hparams, source_vocab_size=24, target_vocab_size=24)
    model.build()
    model.assign(random_arrays(model, seed=4))
    inputs = np.array([[5, 9, 7, 1, 0], [6, 1, 0, 0, 0]], np.int32)
    states, memories = model.source_states(inputs), model.start(inputs)["source"]
    assert len(states) == len(memories) == 3
    last = model.coordinated[-1].attention.source_memory(np.reshape(states[-1], [-1, hparams.hidden_size]), inputs != 0)
    np.testing.assert_allclose(last[0], memories[-1][0], rtol=0, atol=1e-5)
