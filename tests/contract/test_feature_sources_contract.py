"""The contract suite for feature vectors: what must hold for every model that can read them as its source."""

import numpy as np
import pytest
from contract_cases import VOCAB, drive, sentences
from random_weights import random_arrays

SIZE = 5
TARGETS = sentences(3, 5, seed=2)


def sources(rows=3, width=6, seed=1):
    """Returns features, float32 [rows, width, SIZE]; the first row has the full width."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal([rows, width, SIZE]).astype(np.float32)
    for row in range(1, rows):
        features[row, rng.integers(2, width) :] = 0.0
    return features


def make(name="transformer", overrides="", hparams_set="", **options):
    from t2t_ext import registry

    hparams = registry.hparams(hparams_set or f"{name}_test")
    hparams = hparams.override(overrides) if overrides else hparams
    vocab = options.pop("vocab", VOCAB)
    model = registry.model(name)(
        hparams, source_vocab_size=vocab, target_vocab_size=vocab, source_feature_size=SIZE, **options
    )
    model.build()
    model.assign(random_arrays(model, seed=1))
    return model


def written(model, targets):
    return targets if model.target_sides == 1 else np.stack([targets, np.roll(targets, 1, axis=0)], axis=1)


def readers():
    """Returns the names of the registered models that read feature vectors."""
    from t2t_ext import registry

    return [name for name in registry.model_names() if registry.model(name).takes_source_features]


def test_the_transformer_and_its_relatives_read_features():
    assert {"transformer", "synchronous_transformer"} <= set(readers())


@pytest.mark.parametrize("name", ["transformer", "synchronous_transformer", "cross_view_transformer", "dynamic_conv"])
def test_steps_padding_and_saving(name, tmp_path):
    from t2t_ext import registry
    from t2t_ext.runs import checkpoints

    if name not in registry.model_names():
        pytest.skip(f"{name} is not there")
    model, features = make(name), sources()
    targets = written(model, TARGETS)
    before = model(features, targets).numpy()
    padded = np.pad(features, [[0, 0], [0, 3], [0, 0]])
    real = targets != 0
    np.testing.assert_allclose(model(padded, targets).numpy()[real], before[real], rtol=0, atol=1e-5)
    for logits, past in drive(model, features, steps=4, beams=2, seed=5):
        batch, directions, beams, length = past.shape
        whole = np.concatenate([past, np.full([batch, directions, beams, 1], 7, np.int32)], axis=3)
        whole = whole.swapaxes(1, 2).reshape([batch * beams, *[directions] * (directions > 1), length + 1])
        expected = model(np.repeat(features, beams, axis=0), whole).numpy()[..., -1, :]
        expected = expected.reshape([batch, beams, directions, VOCAB]).swapaxes(1, 2)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5, err_msg=f"step {length}")
    arrays = {variable: value.numpy() for variable, value in model.named_variables().items()}
    again = type(model).from_config(model.get_config())
    again.build()
    again.assign(checkpoints.load_arrays(checkpoints.save_checkpoint(tmp_path, 1, arrays)))
    np.testing.assert_array_equal(again(features, targets).numpy(), before)


def test_the_projection_takes_the_place_of_the_source_embedding():
    model = make(overrides="shared_embedding_and_softmax_weights=false")
    variables = {name: tuple(value.shape) for name, value in model.named_variables().items()}
    width = model.hparams.hidden_size
    assert variables["source_features/kernel"] == (SIZE, width)
    assert variables["source_features/bias"] == (width,)
    assert not any("source_embedding" in name for name in variables)


def test_regions_have_no_order_unless_it_is_asked_for():
    features, rng = sources(rows=1), np.random.default_rng(3)
    turned = features[:, rng.permutation(features.shape[1])]
    for overrides, equal in (("", True), ("feature_positions=timing", False)):
        model = make(overrides=overrides)
        difference = np.abs(model(turned, TARGETS[:1]).numpy() - model(features, TARGETS[:1]).numpy()).max()
        assert (difference < 1e-5) == equal, overrides


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_every_variable_has_a_gradient(precision):
    import tensorflow as tf

    model = make(overrides=f"precision={precision}")
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(sources(), TARGETS)))
    variables = model.named_variables()
    for name, gradient in zip(variables, tape.gradient(loss, list(variables.values())), strict=True):
        assert gradient is not None, name
        values = tf.convert_to_tensor(gradient).numpy()
        assert np.isfinite(values).all(), name
        assert np.abs(values).max() > 0, name


def test_positions_need_positions():
    from t2t_ext import registry
    from t2t_ext.errors import UserError

    with pytest.raises(UserError, match="pos=none has none"):
        registry.hparams("transformer_test").override("pos=none,feature_positions=timing")


def test_a_model_of_words_alone_refuses():
    from t2t_ext import registry
    from t2t_ext.errors import UserError
    from t2t_ext.models.transformer import Transformer

    class Words(Transformer):
        takes_source_features = False

    with pytest.raises(UserError, match="Words reads words, but the source of these data is feature vectors"):
        Words(registry.hparams("transformer_test"), source_vocab_size=9, target_vocab_size=9, source_feature_size=4)


def test_texts_are_written_for_arrays(tiny_encoder):
    """The Translator writes texts for arrays of features, independently of the other arrays of the batch.

    Export and server: tests/integration/test_captioning_chain.py.
    """
    from t2t_ext.config.decode import DecodeHParams
    from t2t_ext.errors import UserError
    from t2t_ext.translation.translator import Translator

    model = make(vocab=tiny_encoder.vocab_size)
    model.assign(random_arrays(model, seed=1, scale=2.0))
    translator = Translator(model, tiny_encoder, tiny_encoder, DecodeHParams(beam_size=3, max_length_offset=6))
    arrays = [rows[np.any(rows != 0, axis=1)] for rows in sources()] + [np.zeros([0, SIZE], np.float32)]
    found = translator.translate(arrays)
    assert any(each[0].text for each in found)
    assert found[-1][0].text == ""
    alone = translator.translate(arrays[1:2])
    assert alone[0][0].text == found[1][0].text
    assert alone[0][0].score == pytest.approx(found[1][0].score, abs=1e-4)
    with pytest.raises(UserError, match=r"float \[regions, 5\]"):
        translator.translate(["a dog"])
    with pytest.raises(UserError, match="no word alignment"):
        translator.check_alignment()


def test_samples_depend_on_the_features_alone(tiny_encoder):
    from t2t_ext.config.decode import DecodeHParams
    from t2t_ext.translation.translator import Translator

    model = make(vocab=tiny_encoder.vocab_size)
    hparams = DecodeHParams(beam_size=1, sampling_method="random", max_length_offset=2)
    translator = Translator(model, tiny_encoder, tiny_encoder, hparams)
    arrays = [rows[np.any(rows != 0, axis=1)] for rows in sources()]
    together = [found[0].ids for found in translator.translate(arrays)]
    apart = [translator.translate([each])[0][0].ids for each in reversed(arrays)]
    assert together == apart[::-1]
    assert len(set(together)) == len(arrays)
