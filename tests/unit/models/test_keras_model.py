"""Tests of the models as Keras models: input structure, loss, errors.

tests/contract covers saving, and the examples in docs cover fit.
"""

import functools
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.errors import UserError
from t2t_ext.layers.label_smoothing import SmoothedCrossEntropy
from t2t_ext.models.seq2seq import build_model
from t2t_ext.training.losses import softmax_cross_entropy
from t2t_ext.training.step import loss_gradients

INPUTS = np.array([[7, 8, 9, 1], [9, 1, 0, 0]])  # int64, as NumPy makes them
TARGETS = np.array([[11, 12, 1], [13, 1, 0]])
PAIR = tf.constant(INPUTS, tf.int32), tf.constant(TARGETS, tf.int32)


@pytest.fixture(scope="module")
def model():
    hparams = registry.hparams("transformer_test").override("num_hidden_layers=1,label_smoothing=0.1")
    return registry.model("transformer")(hparams, source_vocab_size=20, target_vocab_size=20)


def test_it_is_built_by_the_first_call(model):
    both = {"inputs": INPUTS, "targets": TARGETS}
    assert model(both).shape == (2, 3, 20)
    np.testing.assert_array_equal(model([INPUTS, TARGETS]), model(both))
    # Variable names in checkpoints do not depend on how the model was built.
    other = registry.model("transformer")(model.hparams, source_vocab_size=20, target_vocab_size=20)
    other.build()
    assert list(other.named_variables()) == list(model.named_variables())


@pytest.mark.parametrize("given", [INPUTS, {"inputs": INPUTS}, {"x": INPUTS, "targets": TARGETS}, [INPUTS]])
def test_what_it_takes_is_said(model, given):
    with pytest.raises(UserError, match=r"takes both sides' ids.*To translate without targets, use t2t_ext.Translator"):
        model(given)


def test_the_loss_without_one_is_the_trainers(model):
    model.compile("adam")
    logits = model([INPUTS, TARGETS])
    found = model.compute_loss({"inputs": INPUTS, "targets": TARGETS}, None, logits)
    features = model.features(tf.constant(INPUTS, tf.int32), tf.constant(TARGETS, tf.int32))
    sums = softmax_cross_entropy(features, *model.softmax_weights(), tf.constant(TARGETS, tf.int32), 0.1)
    assert float(found) == pytest.approx(float(sums.loss / sums.tokens), abs=1e-5)


@pytest.mark.parametrize(
    ("given", "compiles"), [({}, False), ({"jit_compile": "auto"}, False), ({"jit_compile": True}, True)]
)
def test_xla_is_used_only_on_request(model, given, compiles):
    again = registry.model("transformer")(model.hparams, source_vocab_size=20, target_vocab_size=20)
    again.compile("adam", **given)
    assert again.jit_compile is compiles


def test_a_compiled_model_is_loaded_with_its_optimizer(model, tmp_path):
    data = {"inputs": INPUTS, "targets": TARGETS}
    saved = registry.model("transformer")(model.hparams, source_vocab_size=20, target_vocab_size=20)
    saved.compile(keras.optimizers.Adam(0.125), metrics=[keras.metrics.SparseCategoricalAccuracy()])
    saved.fit(data, verbose=0)
    saved.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert (int(loaded.optimizer.iterations), float(loaded.optimizer.learning_rate)) == (1, 0.125)
    for ours, theirs in zip(loaded.optimizer.variables, saved.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert list(loaded.fit(data, verbose=0).history) == ["loss", "sparse_categorical_accuracy"]


def test_weights_of_losses():
    loss, logits = SmoothedCrossEntropy(), np.log([[[0.25, 0.75], [0.5, 0.5]], [[0.75, 0.25], [0.5, 0.5]]])
    labels = np.array([[1, 1], [1, 0]])
    each = -np.log([0.75, 0.5, 0.25])
    assert float(loss(labels, logits)) == pytest.approx(each.mean())
    assert float(loss(labels, logits, [2.0, 0.0])) == pytest.approx(2 * each[:2].sum() / 3)
    assert float(loss(labels, logits, [[1.0, 0.0], [1.0, 5.0]])) == pytest.approx((each[0] + each[2]) / 3)


def test_each_of_several_replicas_has_its_share_of_the_loss(monkeypatch):
    """Gradients are summed over them; Keras multiplies the losses that it reports by their number."""
    labels, logits = np.array([[1, 1, 0]]), np.log([[[0.25, 0.75], [0.5, 0.5], [0.5, 0.5]]])
    whole = float(SmoothedCrossEntropy()(labels, logits))
    two = types.SimpleNamespace(num_replicas_in_sync=2)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: two)
    assert float(SmoothedCrossEntropy()(labels, logits)) == pytest.approx(whole / 2)


def test_ids_may_be_float(model):
    """As Keras has them when it builds a model for several replicas."""
    both = [INPUTS.astype(np.float32), TARGETS.astype(np.float32)]
    np.testing.assert_array_equal(model(both), model([INPUTS, TARGETS]))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16", "mixed_float16"])
def test_large_ids_may_be_float_in_low_precision(dtype):
    """Keras does not round them to the compute dtype, in which 4,099 is another number."""
    hparams = registry.hparams("transformer_test").override("num_hidden_layers=1")
    model = registry.model("transformer")(hparams, source_vocab_size=4100, target_vocab_size=4100, dtype=dtype)
    both = [np.array([[257, 4099, 2051, 1]]), np.array([[4099, 301, 1]])]
    for kind in (np.float32, np.float64):
        np.testing.assert_array_equal(model([each.astype(kind) for each in both]), model(both))


def test_the_loss_is_saved():
    again = keras.losses.deserialize(keras.losses.serialize(SmoothedCrossEntropy(0.2)))
    assert isinstance(again, SmoothedCrossEntropy)
    assert again.label_smoothing == 0.2


def test_models_of_a_users_folder_are_registered_too():
    class MyModel(registry.model("transformer")):
        pass

    assert keras.saving.get_registered_name(MyModel) == f"{__name__}>{MyModel.__qualname__}"
    assert keras.saving.get_registered_object(f"{__name__}>{MyModel.__qualname__}") is MyModel


def test_a_users_model_does_not_take_the_place_of_one_of_its_name(model, tmp_path):
    class Transformer(registry.model("transformer")):
        pass

    for kind in (registry.model("transformer"), Transformer):
        saved = kind(model.hparams, source_vocab_size=20, target_vocab_size=20)
        saved.build()
        saved.save(tmp_path / "model.keras")
        assert type(keras.models.load_model(tmp_path / "model.keras")) is kind


def test_given_weights_multiply_the_models_own():
    hparams = registry.hparams("asynchronous_transformer_tiny").replace(num_hidden_layers=1, forward_loss_weight=0.9)
    model = registry.model("asynchronous_transformer")(hparams, source_vocab_size=20, target_vocab_size=20)
    model.compile("adam")
    data = {"inputs": INPUTS, "targets": np.stack([TARGETS, TARGETS], 1)}
    logits = np.random.default_rng(0).normal(size=(2, 2, 3, 20)).astype(np.float32) * [[[[1]], [[5]]]]
    own = model.compute_loss(data, None, logits)
    for weights in (np.ones(2), np.ones((2, 2, 3))):
        assert float(model.compute_loss(data, None, logits, weights)) == pytest.approx(float(own), rel=1e-5)
    first = model.compute_loss(data, None, logits, np.array([1.0, 0.0]))
    second = model.compute_loss(data, None, logits, np.array([0.0, 1.0]))
    assert float(first + second) == pytest.approx(float(own), rel=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "mixed_bfloat16"])
def test_weights_that_no_update_would_change_are_not_trained(model, dtype):
    low = registry.model("transformer")(model.hparams, source_vocab_size=20, target_vocab_size=20, dtype=dtype)
    low.compile(keras.optimizers.Adam(1e-5))
    data = {"inputs": INPUTS, "targets": TARGETS}
    low.evaluate(data, verbose=0)
    if dtype == "mixed_bfloat16":
        before = [weight.numpy() for weight in low.trainable_weights]
        low.fit(data, verbose=0)
        changed = [np.any(a != b.numpy()) for a, b in zip(before, low.trainable_weights, strict=True)]
        assert all(changed)
        return
    for train in (low.fit, low.train_on_batch):
        with pytest.raises(UserError, match=rf'weights are {dtype}.*for_training=True.*dtype="mixed_{dtype}"'):
            train(data)


def test_labels_in_place_of_targets_are_explained(model):
    model.compile("adam")
    with pytest.raises(UserError, match=r'fit, evaluate and predict take \{"inputs": x, "targets": y\} and no labels'):
        model.fit(INPUTS, TARGETS, verbose=0)


@pytest.mark.parametrize(
    ("inputs", "targets", "told"),
    [
        (INPUTS[0], TARGETS, r"a source of the shape \[sentences, positions\], and this one is \[4\]"),
        (INPUTS, TARGETS[0], r"a target of the shape \[sentences, positions\], and this one is \[3\]"),
        (INPUTS, np.stack([TARGETS, TARGETS], 1), r"a target of the shape .* this one is \[2, 2, 3\]"),
        (tf.RaggedTensor.from_tensor(INPUTS, padding=0), TARGETS, r"source is a RaggedTensor.*to_tensor\(\)"),
    ],
)
def test_shapes_of_other_ranks(model, inputs, targets, told):
    with pytest.raises(UserError, match=told):
        model.unpacked(inputs, targets)


def test_what_layers_add_to_the_loss():
    class Adding(registry.model("transformer")):
        def features(self, inputs, targets, training=False):
            self.add_loss(tf.constant([40.0, 60.0]))
            return super().features(inputs, targets, training=training)

    hparams = registry.hparams("transformer_test").replace(num_hidden_layers=1)
    adding = Adding(hparams, source_vocab_size=20, target_vocab_size=20)
    adding.compile("adam")
    assert 100 < adding.evaluate({"inputs": INPUTS, "targets": TARGETS}, verbose=0) < 110


def test_a_model_without_variables_is_saved(model, tmp_path):
    registry.model("transformer")(model.hparams, source_vocab_size=20, target_vocab_size=20).save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert not loaded.built
    assert loaded([INPUTS, TARGETS]).shape == (2, 3, 20)


class WithKerasLayers(registry.model("transformer")):
    """Has layers without names, seeds, and a part that is frozen."""

    def __init__(self, hparams, **kwargs):
        super().__init__(hparams, **kwargs)
        self.dense = keras.layers.Dense(hparams.hidden_size, kernel_regularizer="l2")
        self.dropouts = [keras.layers.Dropout(0.1), keras.layers.Dropout(0.2)]

    def build(self, input_shape=None):
        super().build()
        self.dense.build((None, self.hparams.hidden_size))
        self.encoder.trainable = False


def test_layers_of_keras_have_names_that_depend_only_on_the_model(model):
    encoder = types.SimpleNamespace(vocab_size=20, ids_sha256="same", kind="sentencepiece")
    made = [build_model(WithKerasLayers, model.hparams, encoder, encoder) for _ in range(2)]
    made.append(WithKerasLayers.from_config(made[0].get_config()))
    made[-1].build()
    plain = registry.model("transformer")(model.hparams, source_vocab_size=20, target_vocab_size=20)
    plain.build()
    others = set(made[0].named_variables()) - set(plain.named_variables())
    assert others == {"dense/kernel", "dense/bias"}  # the seeds of dropout are no weights
    assert all(set(each.named_variables()) == set(made[0].named_variables()) for each in made)
    assert not any("seed" in row.path for row in made[0].describe())


def test_frozen_parts_have_no_learning_rate(model):
    frozen = WithKerasLayers(model.hparams, source_vocab_size=20, target_vocab_size=20)
    frozen.build()
    assert frozen.rates() == {name: 0.0 for name in frozen.named_variables() if name.startswith("encoder/")}
    assert not model.rates()


class Penalty(keras.layers.Layer):
    """Adds the mean of the squares of its input to the loss, and a tenth of it as its activity regularizer."""

    def __init__(self):
        super().__init__(activity_regularizer=lambda x: 0.1 * tf.reduce_mean(tf.square(x)))

    def call(self, x):
        self.add_loss(tf.reduce_mean(tf.square(x)))
        return x


class WithLosses(WithKerasLayers):
    """Calls one layer twice, which adds two losses to the loss each time."""

    def __init__(self, hparams, **kwargs):
        super().__init__(hparams, **kwargs)
        self.penalty = Penalty()

    def features(self, inputs, targets, training=False):
        features = super().features(inputs, targets, training=training)
        return self.penalty(features + self.penalty(self.dense(features)))


def test_the_trainer_and_fit_add_the_same_losses(model):
    hparams = model.hparams.replace(
        layer_prepostprocess_dropout=0.0, attention_dropout=0.0, relu_dropout=0.0, label_smoothing=0.1
    )
    made = WithLosses(hparams, source_vocab_size=20, target_vocab_size=20)
    made.build()
    variables = [variable.value for variable in made.trainable_variables]
    batch = {"inputs": PAIR[0], "targets": PAIR[1], "labels": PAIR[1]}
    labels = np.count_nonzero(TARGETS)
    for _ in range(2):  # nothing is left of the first time
        in_graph = functools.partial(loss_gradients, made, variables, batch, 1 / labels, hparams)
        gradients, sums = tf.function(in_graph, autograph=False)()
        with tf.GradientTape() as tape:
            logits = made({"inputs": INPUTS, "targets": TARGETS}, training=True)
            loss = made.compute_loss({"inputs": INPUTS, "targets": TARGETS}, y_pred=logits)
        assert len(made.losses) == 5  # of two calls, and of the weights of the dense layer
        np.testing.assert_allclose((sums[0] + sums[3]) / labels, loss, rtol=1e-5)
        np.testing.assert_allclose(sums[3] / labels, sum(map(float, made.losses)), rtol=1e-5)
        for gradient, expected in zip(gradients, tape.gradient(loss, variables), strict=True):
            np.testing.assert_allclose(gradient, tf.convert_to_tensor(expected), rtol=2e-4, atol=1e-6)


def test_what_is_frozen_has_no_regularizer(model):
    made = WithKerasLayers(model.hparams, source_vocab_size=20, target_vocab_size=20)
    made.build()
    [added] = made.features_and_losses(*PAIR)[1]
    assert float(added) == pytest.approx(0.01 * float(tf.reduce_sum(tf.square(made.dense.kernel))))
    made.dense.trainable = False
    assert not made.features_and_losses(*PAIR)[1]


class Failing(registry.model("transformer")):
    """Fails with a message for users."""

    def features(self, inputs, targets, training=False):
        raise UserError("Give another number.")


def test_errors_of_training_are_those_of_the_model(model):
    made = Failing(model.hparams, source_vocab_size=20, target_vocab_size=20)
    made.build()
    with pytest.raises(UserError) as error:
        made.features_and_losses(*PAIR)
    assert str(error.value) == "Give another number."
