"""SimCut and R-Drop on every registered model: the loss does not change, and the gradients are the objective's."""

import numpy as np
import pytest
from contract_cases import OF_EACH_KIND, SETTINGS, VOCAB, Case, few_layers, sentences, targets_of
from random_weights import random_arrays

NO_DROPOUT = {"layer_prepostprocess_dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0}
FIRST = [Case(model, next(iter(settings))) for model, settings in SETTINGS.items()]
SIZE = 5  # width of feature vectors


def objective_of(model, batch, hparams, seed=(1, 2)):
    """Returns a compiled function without arguments that computes one slice of a step: gradients and sums."""
    import tensorflow as tf

    from t2t_ext.layers import dropout
    from t2t_ext.training.step import loss_gradients

    @tf.function(autograph=False)
    def computed():
        with dropout.seed_scope(tf.constant(seed)):
            return loss_gradients(model, list(model.named_variables().values()), batch, tf.constant(1.0), hparams)

    return computed


def batch_of(model, inputs, targets):
    import tensorflow as tf

    targets = tf.constant(targets_of(model, targets))
    return {"inputs": tf.constant(inputs), "targets": targets, "labels": model.training_labels(targets)}


def model_and_batch(case):
    from t2t_ext import registry

    model = registry.model(case.model)(few_layers(case.hparams()), source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=1))
    return model, batch_of(model, sentences(4, 7, seed=1), sentences(4, 6, seed=2))


def assert_same_gradients(ones, others):
    """Asserts that gradients are equal bit for bit, or on a GPU, which sums in any order, up to float32 rounding."""
    import tensorflow as tf

    for one, other in zip(ones, others, strict=True):
        if tf.config.list_physical_devices("GPU"):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * max(1.0, np.abs(one).max()))
        else:
            np.testing.assert_array_equal(one, other)


def check(model, batch, hparams, alphas):
    """Asserts that calls are reproducible and that the objective's slope along its gradient is the gradient squared."""
    computed = objective_of(model, batch, hparams.replace(**alphas))
    gradients, sums = computed()
    loss, _, _, regularizer = sums.numpy()
    assert np.isfinite(sums).all()
    assert regularizer > 0
    again, _ = computed()
    assert_same_gradients(gradients, again)
    variables = list(model.named_variables().values())
    square = sum(np.vdot(gradient, gradient) for gradient in gradients)
    rate, before = 1e-3 * (loss + regularizer) / square, [variable.numpy() for variable in variables]
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.assign_sub(rate * gradient)
    moved = computed()[1].numpy()
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    assert (loss + regularizer - moved[0] - moved[3]) / rate == pytest.approx(square, rel=0.1)
    return loss


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.model in OF_EACH_KIND else pytest.mark.slow) for case in FIRST],
    ids=str,
)
def test_simcut_trains_every_model(case):
    import tensorflow as tf

    from t2t_ext.layers import dropout

    model, batch = model_and_batch(case)

    def features():
        with dropout.seed_scope(tf.constant([1, 2])):
            return model.training_features(batch["inputs"], batch["targets"], training=True).numpy()

    before = features()
    check(model, batch, case.hparams(), {"simcut_alpha": 3.0, "simcut_probability": 0.3})
    np.testing.assert_array_equal(features(), before)  # SimCut leaves no trace


@pytest.mark.parametrize(
    "case", [case for case in FIRST if case.model in ("transformer", "synchronous_transformer")], ids=str
)
def test_r_drop_trains_models_of_one_and_two_targets(case):
    model, batch = model_and_batch(case)
    usual = objective_of(model, batch, case.hparams())
    before, sums = usual()
    assert sums[3] == 0
    check(model, batch, case.hparams(), {"r_drop_alpha": 5.0})
    # With alphas of 0, loss and gradients are the usual ones.
    after, same = objective_of(model, batch, case.hparams().replace(simcut_probability=0.3))()
    np.testing.assert_array_equal(same, sums)
    assert_same_gradients(after, before)


@pytest.mark.parametrize(
    "case", [case for case in FIRST if case.model in ("transformer", "synchronous_transformer")], ids=str
)
@pytest.mark.parametrize(
    "precision",
    ["float32", *(pytest.param(other, marks=pytest.mark.slow) for other in ("mixed_bfloat16", "mixed_float16"))],
)
def test_the_loss_is_that_of_the_whole_sentence(case, precision):
    from t2t_ext import registry

    hparams = few_layers(case.hparams(precision)).replace(**NO_DROPOUT)
    model = registry.model(case.model)(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    batch = batch_of(model, sentences(4, 7, seed=1), sentences(4, 6, seed=2))
    _, usual = objective_of(model, batch, hparams)()
    _, simcut = objective_of(model, batch, hparams.replace(simcut_alpha=3.0, simcut_probability=0.3))()
    np.testing.assert_allclose(simcut[:3], usual[:3], rtol=1e-5 if precision == "float32" else 1e-2)
    assert simcut[3] > 1e-3
    # Without dropout both passes of R-Drop are equal.
    _, r_drop = objective_of(model, batch, hparams.replace(r_drop_alpha=5.0))()
    np.testing.assert_allclose(r_drop[:3], usual[:3], rtol=1e-5 if precision == "float32" else 1e-2)
    assert abs(r_drop[3]) < 1e-3


def test_feature_vectors_are_cut_whole():
    from t2t_ext import registry

    hparams = few_layers(registry.hparams("transformer_test"))
    model = registry.model("transformer")(
        hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB, source_feature_size=SIZE
    )
    model.build()
    features = np.random.default_rng(1).standard_normal([4, 6, SIZE]).astype(np.float32)
    features[1, 4:] = 0
    batch = batch_of(model, features, sentences(4, 6, seed=2))
    check(model, batch, hparams, {"simcut_alpha": 3.0, "simcut_probability": 0.3})
