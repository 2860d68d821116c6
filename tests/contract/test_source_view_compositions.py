"""Views of the source go together with decoders of both directions, convolutions and a second decoder."""

import numpy as np
import pytest
from contract_cases import VOCAB, drive, logits_of, sentences, targets_of, written_of, written_otherwise
from random_weights import random_arrays

INPUTS = sentences(3, 6, seed=1)
TARGETS = sentences(3, 5, seed=2)
SOFT = {"source_view": "gca", "integration": "soft"}
COMPOSITIONS = {
    "synchronous_gca_soft": ("synchronous_transformer", SOFT),
    "synchronous_ama_by_query": (
        "synchronous_transformer",
        {"source_view": "ama", "ama_query": "decoder", "integration": "soft_two_attention"},
    ),
    "dynamic_conv_gca": ("dynamic_conv", {"source_view": "gca"}),
    "asynchronous_gca_soft": ("asynchronous_transformer", {**SOFT, "backward_length_offset": 2}),
}


@pytest.fixture(scope="module", params=COMPOSITIONS)
def composed(request):
    """A model with random weights."""
    from t2t_ext import registry

    name, changes = COMPOSITIONS[request.param]
    hparams = registry.hparams(f"{name}_test").replace(num_encoder_layers=3, **changes)
    model = registry.model(name)(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=1))
    return model


def test_step_by_step_equals_all_at_once(composed):
    directions, beams = composed.directions, 2
    for logits, past in drive(composed, INPUTS, steps=3, beams=beams, seed=5):
        batch, length = len(INPUTS), past.shape[-1]
        targets = np.concatenate([past, np.full([batch, directions, beams, 1], 7, np.int32)], axis=3)
        targets = targets.swapaxes(1, 2).reshape([batch * beams, *[directions] * (directions > 1), length + 1])
        whole = logits_of(composed, np.repeat(INPUTS, beams, axis=0), targets)[..., -1, :]
        expected = whole.reshape([batch, beams, directions, VOCAB]).swapaxes(1, 2)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5, err_msg=f"step {length}")


def test_no_future_no_padding_and_every_weight(composed):
    """Nothing is seen that must not be; and every view, norm and attention has a gradient."""
    import tensorflow as tf

    targets = written_of(composed, TARGETS)
    before = logits_of(composed, INPUTS, targets)
    after = logits_of(composed, INPUTS, written_otherwise(composed, targets, 2))
    np.testing.assert_array_equal(after[..., :3, :], before[..., :3, :])
    wider = logits_of(composed, np.pad(INPUTS, [[0, 0], [0, 4]]), targets)
    np.testing.assert_allclose(wider[targets != 0], before[targets != 0], rtol=0, atol=1e-5)
    variables = composed.named_variables()
    both = targets_of(composed, TARGETS)
    with tf.GradientTape() as tape:
        logits = composed(INPUTS, both)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=both, logits=logits))
    for name, gradient in zip(variables, tape.gradient(loss, list(variables.values())), strict=True):
        assert gradient is not None, f"{name} has no gradient"
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, f"{name} has a gradient of zeros"
