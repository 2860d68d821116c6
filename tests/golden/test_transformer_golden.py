"""The Transformer's logits and attention equal those of an independent NumPy Transformer."""

import numpy as np
import pytest
from numpy_transformer import NumpyTransformer, sinusoids, weights_of
from random_weights import random_arrays

SETTINGS = {
    "pre_norm": "",
    "post_norm": "layer_preprocess_sequence=none,layer_postprocess_sequence=dan",
    "interleaved": "pos_encoding=interleaved",
    "no_positions": "pos=none",
    "gelu": "ffn_activation=gelu",
    "swish_biases": "ffn_activation=swish,projection_bias=true",
    "glu": "ffn_activation=glu",
    "geglu": "ffn_activation=geglu",
    "swiglu_post_norm": "ffn_activation=swiglu,layer_preprocess_sequence=none,layer_postprocess_sequence=dan",
    "separate_embeddings": "shared_embedding_and_softmax_weights=false,use_target_space_embedding=false",
    "shared_embedding": "shared_embedding=true,shared_embedding_and_softmax_weights=false",
    "unscaled_embeddings": "multiply_embedding_mode=none",
    "target_space": "use_target_space_embedding=true,target_space_id=5",
    "layers": "num_encoder_layers=3,num_decoder_layers=1",
    "channels": "attention_key_channels=8,attention_value_channels=24",
    "scale_of_model": "attention_scale=model,num_heads=4",
    "epsilon": "norm_epsilon=0.5",
}
VOCAB = 13


def make(overrides, target_vocab=VOCAB):
    from t2t_ext import registry

    hparams = registry.hparams("transformer_test")
    hparams = hparams.override(overrides) if overrides else hparams
    model = registry.model("transformer")(hparams, source_vocab_size=VOCAB, target_vocab_size=target_vocab)
    model.build()
    model.assign(random_arrays(model, seed=3))
    numpy_model = NumpyTransformer(
        weights_of({k: v.numpy() for k, v in model.named_variables().items()}, hparams), hparams
    )
    return model, numpy_model


INPUTS = np.array([[5, 9, 7, 12, 1], [11, 6, 1, 0, 0], [1, 0, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 8, 3, 1], [4, 1, 0, 0], [10, 6, 7, 1]], np.int32)


def agree(model, numpy_model, targets=TARGETS):
    expected, maps = numpy_model(INPUTS, targets)
    got = model(INPUTS, targets, training=False).numpy()
    real = targets != 0  # logits at padding do not matter
    assert np.ptp(expected[real]) > 0.5, "the golden logits hardly differ: the comparison would mean little"
    np.testing.assert_allclose(got[real], expected[real], rtol=0, atol=1e-5)
    return maps, real


@pytest.mark.parametrize("setting", SETTINGS)
def test_logits(setting):
    agree(*make(SETTINGS[setting]))


def test_logits_with_separate_vocabularies():
    agree(*make("", target_vocab=11), targets=np.where(TARGETS >= 11, 2, TARGETS))


def test_padding_reads_as_zeros():
    """PAD is embedded as a zero vector (plus its position), even if the sentence continues after it."""
    model, numpy_model = make("")
    targets = np.array([[8, 0, 3, 1], [4, 1, 0, 0], [0, 6, 7, 1]], np.int32)
    got = model(INPUTS, targets, training=False).numpy()
    np.testing.assert_allclose(got, numpy_model(INPUTS, targets)[0], rtol=0, atol=1e-5)


def test_source_attention():
    model, numpy_model = make("")
    maps, real = agree(model, numpy_model)
    ours = {name: w.numpy() for name, w in model.attention_weights(INPUTS, TARGETS).items() if "source" in name}
    assert len(ours) == len(maps) == 2
    for (_, weights), expected in zip(sorted(ours.items()), maps, strict=True):
        for row in range(len(INPUTS)):
            np.testing.assert_allclose(weights[row][:, real[row]], expected[row][:, real[row]], rtol=0, atol=1e-5)


def test_the_first_position_sees_only_the_source():
    """The first logits do not depend on the target: the decoder's first input is zero, not an SOS embedding."""
    model, numpy_model = make("")
    first = model(INPUTS, TARGETS, training=False).numpy()[:, 0]
    other = np.where(TARGETS > 0, TARGETS % 9 + 2, 0).astype(np.int32)
    np.testing.assert_array_equal(first, model(INPUTS, other, training=False).numpy()[:, 0])
    np.testing.assert_allclose(first, numpy_model(INPUTS, other)[0][:, 0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", ["concat", "interleaved"])
def test_sinusoids_far_from_the_start(order):
    from t2t_ext.layers import embeddings

    got = embeddings.sinusoids(np.arange(2000), 64, order).numpy()
    np.testing.assert_allclose(got, sinusoids(2000, 64, order), rtol=0, atol=3e-4)
