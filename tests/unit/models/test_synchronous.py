"""Tests of synchronous decoding: its hparams, its use in other models, and the inputs that it refuses."""

import numpy as np
import pytest
from random_weights import random_arrays

from t2t_ext import registry
from t2t_ext.config.layer_ranges import layer_numbers
from t2t_ext.config.synchronous import SynchronousHParams
from t2t_ext.errors import UserError

INPUTS = np.array([[5, 9, 7, 12, 1], [11, 6, 1, 0, 0]], np.int32)
TARGETS = np.array([[[8, 8, 5, 1], [6, 1, 0, 0]], [[5, 1, 0, 0], [10, 6, 7, 1]]], np.int32)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("all", range(6)),
        ("1-6", range(6)),
        ("1,3-4", (0, 2, 3)),
        ("1+3-4", (0, 2, 3)),
        (" 2 , 3 - 4 ", (1, 2, 3)),
        ("6", (5,)),
        ("", ()),
    ],
)
def test_layer_ranges(text, numbers):
    assert layer_numbers(text, 6) == frozenset(numbers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-2", "0-2 is outside of the 6 layers, which count from 1 to 6"),
        ("7", "7 is outside"),
        ("4-2", "goes backwards: write 2-4"),
        ("two", "'two' is no layer: write all, 1-6, or 1,3-4"),
        ("1,,2", "'' is no layer"),
        ("-1", "'-1' is no layer"),
    ],
)
def test_mistaken_layer_ranges(text, message):
    with pytest.raises(ValueError, match=message):
        layer_numbers(text, 6)
    with pytest.raises(UserError, match=f"sb_layers='{text}': .*{message}"):
        SynchronousHParams(sb_layers=text)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("sb_fusion=gate,sb_lambda_trainable=scalar", "sb_fusion=gate has no lambda"),
        ("sb_fusion=gate,sb_lambda=0.5", "sb_lambda=0.5 has no effect: sb_fusion=gate has no lambda"),
        ("sb_gate=model", "sb_gate=model is for sb_fusion=gate, not tanh"),
        ("sb_fusion=gated", "sb_fusion is one of linear, tanh, relu, gate"),
        ("sb_layer=1", "sb_layers"),
        ("pseudo=l2r", "pseudo=l2r is not for synchronous=true"),
        ("sb_future_dropout=1", "sb_future_dropout must be less than 1"),
    ],
)
def test_mistaken_hparams(overrides, message):
    with pytest.raises(UserError, match=message):
        registry.hparams("synchronous_transformer_base").override(overrides)


def test_layers_of_a_decoder_with_another_depth():
    assert SynchronousHParams(num_decoder_layers=3, sb_layers="all").synchronous_layers == {0, 1, 2}
    with pytest.raises(UserError, match="names no layer"):
        SynchronousHParams(sb_layers="")


SIZES = {"tiny": (2, 128, 512, 4), "small": (6, 256, 1024, 4), "base": (6, 512, 2048, 8), "big": (6, 1024, 4096, 16)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["", "_printed", "_original"])
def test_what_the_paper_states(size, kind):
    """The sets have the values of Zhou et al. 2019, section 4.2, equations 11 and 12, or of the authors' program."""
    hparams, original = registry.hparams(f"synchronous_transformer_{size}{kind}"), kind == "_original"
    assert SIZES[size] == (hparams.num_hidden_layers, hparams.hidden_size, hparams.filter_size, hparams.num_heads)
    assert (hparams.optimizer, hparams.optimizer_adam_beta1, hparams.optimizer_adam_beta2) == ("adam", 0.9, 0.998)
    assert (hparams.optimizer_adam_epsilon, hparams.learning_rate_warmup_steps) == (1e-9, 16000)
    assert (hparams.label_smoothing, hparams.layer_prepostprocess_dropout) == (0.1, 0.1)
    assert (hparams.sb_fusion, hparams.sb_lambda, hparams.sb_layers, hparams.pseudo) == ("tanh", 0.1, "all", "two")
    norms = (hparams.layer_preprocess_sequence, hparams.layer_postprocess_sequence)
    assert norms == (("none", "dan") if kind else ("n", "da"))
    assert hparams.projection_bias == bool(kind)
    assert hparams.predict_tag == hparams.use_target_space_embedding == original
    assert hparams.sb_future_dropout == (0.3 if original else 0.0)


def test_the_peak_of_the_learning_rate():
    from t2t_ext.training.schedules import Schedule

    schedule = Schedule(registry.hparams("synchronous_transformer_big"), 200_000)
    rates = {step: float(schedule(step)) for step in (1, 8000, 16000, 32000)}
    assert max(rates, key=rates.get) == 16000
    assert rates[16000] == pytest.approx(1024**-0.5 * 16000**-0.5, rel=3e-3)


def built(model_class, hparams):
    model = model_class(hparams, source_vocab_size=13, target_vocab_size=13)
    model.build()
    model.assign(random_arrays(model, seed=3))
    return model


@pytest.mark.parametrize("targets", [TARGETS[:, 0], TARGETS[:, :1]])
def test_one_target_is_not_enough(targets):
    model = built(registry.model("synchronous_transformer"), registry.hparams("synchronous_transformer_test"))
    for call in (model, model.features, model.attention_weights):
        with pytest.raises(UserError, match="depends on the other's words: give both"):
            call(INPUTS, targets)


def test_without_the_other_side_it_is_a_transformer():
    """With lambda = 0 each side equals a Transformer that is given the tag, with the same weights by name."""
    hparams = registry.hparams("synchronous_transformer_test").replace(
        sb_fusion="linear", sb_lambda=0.0, predict_tag=True
    )
    model = built(registry.model("synchronous_transformer"), hparams)
    one_direction = registry.hparams("synchronous_transformer_test").replace(synchronous=False)
    transformer = built(registry.model("transformer"), one_direction)
    logits = model.logits(model.training_features(INPUTS, TARGETS)).numpy()
    labels = np.asarray(model.training_labels(TARGETS))
    for side in (0, 1):
        expected = transformer(INPUTS, labels[:, side]).numpy()
        real = labels[:, side] != 0
        np.testing.assert_allclose(logits[:, side][real], expected[real], rtol=0, atol=1e-5)


@pytest.mark.parametrize("empty", [0, 1])
def test_no_side_sees_its_future_through_an_empty_one(empty):
    """If one side is all PAD, which callers can pass although it is no real target, the other sees only its past."""
    hparams = registry.hparams("synchronous_transformer_test").replace(sb_lambda=1.0, num_hidden_layers=3)
    model = built(registry.model("synchronous_transformer"), hparams)
    model.assign(random_arrays(model, seed=3))
    targets = np.zeros((1, 2, 6), np.int32)
    targets[0, 1 - empty] = [5, 9, 7, 12, 8, 1]
    changed = targets.copy()
    changed[0, 1 - empty, 4] = 10
    before, after = (model.logits(model.training_features(INPUTS[:1], each)).numpy() for each in (targets, changed))
    np.testing.assert_array_equal(after[0, 1 - empty, :5], before[0, 1 - empty, :5])
    assert np.abs(after[0, 1 - empty, 5:] - before[0, 1 - empty, 5:]).max() > 1e-3


def test_other_encoders_and_views_decode_synchronously():
    """With synchronous=true a subclass keeps its own encoder mixers and views of the source."""
    import tensorflow as tf

    from t2t_ext.layers.attention import SelfAttention
    from t2t_ext.layers.source_views import LastView
    from t2t_ext.models.transformer import Transformer

    class HalvedAttention(SelfAttention):
        def call(self, x, mask, training=False):
            return 0.5 * super().call(x, mask, training)

    class ViewOfEachLayer(LastView):
        def views(self, encoded):
            return encoded.layers

    class Relative(Transformer):
        def make_encoder_mixer(self, layer):
            return HalvedAttention(self.hparams, name="self_attention", dtype=self.dtype_policy)

        def make_source_views(self):
            return ViewOfEachLayer(self.hparams.decoder_layers, name="source_views", dtype=self.dtype_policy)

    hparams = registry.hparams("synchronous_transformer_test").replace(sb_lambda=0.8)
    model, plain = built(Relative, hparams), built(registry.model("synchronous_transformer"), hparams)
    logits = model(INPUTS, TARGETS).numpy()
    assert np.abs(logits - plain(INPUTS, TARGETS).numpy()).max() > 1e-2
    state = model.start(INPUTS)
    fed = np.zeros([2, 2, 1], np.int32)
    for t in range(2):  # until a side has ended
        visible = tf.ones([2, 2, 1, t + 1], tf.bool)
        step, state = model.step(fed, visible, visible, np.zeros([2, 2, 1], np.int32), state)
        np.testing.assert_allclose(step.numpy()[:, :, 0], logits[:, :, t], rtol=0, atol=1e-5)
        fed = TARGETS[:, :, t : t + 1]


@pytest.mark.parametrize(
    "overrides",
    [
        "sb_lambda_trainable=vector,predict_tag=true,sb_layers=2,num_encoder_layers=1",
        pytest.param("sb_fusion=gate", marks=pytest.mark.slow),
    ],
)
def test_compiled_by_xla(overrides):
    """XLA-compiled features and gradients equal those without XLA, with dropout."""
    import tensorflow as tf

    from t2t_ext.layers import dropout

    hparams = registry.hparams("synchronous_transformer_test").override(overrides)
    model = built(registry.model("synchronous_transformer"), hparams)
    variables = list(model.named_variables().values())

    def gradients(inputs, targets):
        with tf.GradientTape() as tape, dropout.seed_scope(tf.constant([1, 2])):
            features = model.training_features(inputs, targets, training=True)
            loss = tf.reduce_sum(tf.square(tf.cast(features, tf.float32))[..., ::2])
        return features, tape.gradient(loss, variables, unconnected_gradients="zero")

    expected, ours = gradients(INPUTS, TARGETS)
    compiled, theirs = tf.function(gradients, jit_compile=True, autograph=False)(INPUTS, TARGETS)
    np.testing.assert_allclose(compiled, expected, rtol=0, atol=1e-4)
    for name, one, other in zip(model.named_variables(), ours, theirs, strict=True):
        one, other = (tf.convert_to_tensor(gradient).numpy() for gradient in (one, other))
        np.testing.assert_allclose(other, one, rtol=0, atol=2e-4 * max(1.0, np.abs(one).max()), err_msg=name)


@pytest.mark.parametrize("name", ["composed_transformer_test", "synchronous_transformer_test"])
def test_the_papers_name_is_for_any_set_with_both_directions(name):
    hparams = registry.hparams(name)
    model = registry.model("synchronous_transformer")(hparams, source_vocab_size=20, target_vocab_size=20)
    assert (model.directions, model.target_sides) == (2, 2)
    with pytest.raises(UserError, match=r"synchronous=false.*Add synchronous=true"):
        registry.model("synchronous_transformer")(
            hparams.replace(synchronous=False), source_vocab_size=20, target_vocab_size=20
        )
