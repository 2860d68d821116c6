"""Transformers with talking heads equal an independent NumPy rendering of Shazeer et al. (2020)."""

import numpy as np
import pytest
from numpy_talking_heads import NumpyTalkingHeads
from random_weights import random_arrays

VOCAB = 13
INPUTS = np.array([[5, 9, 7, 12, 8, 6, 1], [11, 6, 1, 0, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 8, 3, 9, 1], [4, 1, 0, 0, 0]], np.int32)


def make(overrides):
    from t2t_ext import registry

    hparams = registry.hparams("transformer_test").override(overrides)
    model = registry.model("transformer")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    return model


@pytest.mark.parametrize(
    ("overrides", "layers"),
    [
        ("talking_heads=both", 4),
        (
            "talking_heads=both,layer_preprocess_sequence=none,layer_postprocess_sequence=dan,projection_bias=true,"
            "attention_key_channels=8,attention_value_channels=24,num_heads=4",
            4,
        ),
        ("talking_heads=encoder", 2),
        ("talking_heads=decoder,dc_encoder_layers=none", 2),
    ],
)
def test_logits(overrides, layers):
    model = make(overrides)
    model.assign(random_arrays(model, seed=3))
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    assert sum(name.endswith("/mix_logits") for name in arrays) == layers
    expected, _ = NumpyTalkingHeads(arrays, model.hparams)(INPUTS, TARGETS)
    real = TARGETS != 0
    assert np.ptp(expected[real]) > 0.5, "the golden logits hardly differ: the comparison would mean little"
    np.testing.assert_allclose(model(INPUTS, TARGETS).numpy()[real], expected[real], rtol=0, atol=1e-5)


def test_at_first_it_is_the_transformer():
    """With a Transformer's weights, talking heads equal the Transformer: their matrices begin as the identity."""
    talking, silent = make("talking_heads=both"), make("pos=timing")
    arrays = random_arrays(silent, seed=5)
    silent.assign(arrays)
    talking.assign(arrays, strict=False)
    assert set(talking.named_variables()) - set(arrays) == {
        f"{stack}/layer_{i}/self_attention/mix_{what}"
        for stack in ("encoder", "decoder")
        for i in (0, 1)
        for what in ("logits", "weights")
    }
    np.testing.assert_allclose(talking(INPUTS, TARGETS), silent(INPUTS, TARGETS), rtol=0, atol=1e-6)


def test_two_directions_have_none_in_the_decoder():
    from t2t_ext import registry
    from t2t_ext.errors import UserError

    hparams = registry.hparams("synchronous_transformer_test")
    with pytest.raises(
        UserError, match=r"talking_heads=both: a decoder of two directions .* set talking_heads=encoder"
    ):
        hparams.replace(talking_heads="both")
    assert hparams.replace(talking_heads="encoder").mixers == {"talking_heads", "synchronous"}
