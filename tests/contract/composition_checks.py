"""Checks of models that combine several ideas: the contract suite with few calls.

There are many such models, all tiny, so each check makes one call where ``test_all_models`` makes several.
"""

import numpy as np
from contract_cases import VOCAB, drive, logits_of, sentences, targets_of, written_of, written_otherwise
from random_weights import random_arrays

INPUTS = sentences(3, 6, seed=1)
TARGETS = sentences(3, 5, seed=2)


def built(model_class, hparams):
    """Returns a built model with random weights."""
    model = model_class(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=1))
    return model


def check_steps(model):
    """Asserts that step-by-step decoding gives the same logits as decoding all at once."""
    directions, beams = model.directions, 2
    for logits, past in drive(model, INPUTS, steps=3, beams=beams, seed=5):
        batch, length = len(INPUTS), past.shape[-1]
        targets = np.concatenate([past, np.full([batch, directions, beams, 1], 7, np.int32)], axis=3)
        targets = targets.swapaxes(1, 2).reshape([batch * beams, *[directions] * (directions > 1), length + 1])
        whole = logits_of(model, np.repeat(INPUTS, beams, axis=0), targets)[..., -1, :]
        expected = whole.reshape([batch, beams, directions, VOCAB]).swapaxes(1, 2)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5, err_msg=f"step {length}")


def check_what_is_seen(model):
    """Asserts that the logits depend neither on future tokens nor on padding."""
    targets = written_of(model, TARGETS)
    before = logits_of(model, INPUTS, targets)
    after = logits_of(model, INPUTS, written_otherwise(model, targets, 2))
    np.testing.assert_array_equal(after[..., :3, :], before[..., :3, :])
    assert not np.allclose(after[..., 3, :], before[..., 3, :], atol=1e-3)
    wider = logits_of(model, np.pad(INPUTS, [[0, 0], [0, 4]]), targets)
    np.testing.assert_allclose(wider[targets != 0], before[targets != 0], rtol=0, atol=1e-5)


def check_every_weight(model):
    """Asserts that every weight has a gradient, so no part is built without being used."""
    import tensorflow as tf

    variables = model.named_variables()
    both = targets_of(model, TARGETS)
    with tf.GradientTape() as tape:
        logits = model(INPUTS, both)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=both, logits=logits))
    for name, gradient in zip(variables, tape.gradient(loss, list(variables.values())), strict=True):
        assert gradient is not None, f"{name} has no gradient"
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, f"{name} has a gradient of zeros"
