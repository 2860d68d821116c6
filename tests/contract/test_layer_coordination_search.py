"""Mixed attention as the search and the alignments read it: its part on the source, as a distribution."""

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


@pytest.mark.parametrize(
    ("shared", "changes"),
    [
        (True, {}),
        (False, {"lwc_share_weights": False}),
        (True, {"lwc_share_weights": False, "lwc_source": "input"}),
    ],
)
def test_states_of_the_source_are_what_the_next_layer_reads(shared, changes):
    """Of one stack layer i + 1 makes its keys of them, of two stacks the target's layer i, or i + 1 that of inputs.

    The last are normalised.
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
