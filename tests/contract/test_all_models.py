"""What every registered model must do, whatever it is made of."""

import json

import numpy as np
import pytest
from contract_cases import (
    POLICIES,
    SETTINGS,
    VOCAB,
    Case,
    drive,
    logits_of,
    model_of,
    new_model,
    sentences,
)
from random_weights import random_arrays

INPUTS = sentences(4, 7, seed=1)
TARGETS = sentences(4, 6, seed=2)


def test_every_registered_model_has_a_case():
    from t2t_ext import registry

    missing = set(registry.model_names()) - set(SETTINGS)
    assert not missing, f"add tiny settings of {sorted(missing)} to SETTINGS in contract_cases.py"


# --- the mathematics ---


@pytest.mark.parametrize(
    ("precision", "beams", "tolerance"),
    [("float32", 1, 1e-5), ("float32", 3, 1e-5), ("mixed_bfloat16", 3, 2e-2)],
)
def test_step_by_step_equals_all_at_once(case, precision, beams, tolerance):
    model = model_of(case, precision)
    for logits, past in drive(model, INPUTS, steps=6, beams=beams, seed=5):
        batch, _, length = past.shape
        # The token behind the past is not seen by its own logits: any will do.
        targets = np.concatenate([past, np.full([batch, beams, 1], 7, np.int32)], axis=2)
        whole = logits_of(model, np.repeat(INPUTS, beams, axis=0), targets.reshape(batch * beams, length + 1))
        expected = whole[:, -1].reshape(logits.shape)
        scale = np.abs(expected).max() if precision != "float32" else 1.0
        np.testing.assert_allclose(logits, expected, rtol=0, atol=tolerance * scale, err_msg=f"step {length}")


def test_no_position_sees_its_future(model):
    before = logits_of(model, INPUTS, TARGETS)
    for t in range(TARGETS.shape[1]):
        changed = TARGETS.copy()
        changed[:, t:] = (changed[:, t:] + 9) % (VOCAB - 5) + 5
        after = logits_of(model, INPUTS, changed)
        np.testing.assert_array_equal(after[:, : t + 1], before[:, : t + 1])
        assert t + 1 == TARGETS.shape[1] or not np.allclose(after[:, t + 1], before[:, t + 1], atol=1e-3)


def test_every_past_token_and_every_source_token_matters(model):
    """Otherwise the checks above would hold for a model that looks at nothing."""
    before = logits_of(model, INPUTS[:1], TARGETS[:1])
    for s in range(INPUTS.shape[1] - 1):
        changed = INPUTS[:1].copy()
        changed[0, s] = (changed[0, s] + 1 - 5) % (VOCAB - 5) + 5
        assert np.abs(logits_of(model, changed, TARGETS[:1]) - before).max() > 1e-3
    for t in range(TARGETS.shape[1] - 1):
        changed = TARGETS[:1].copy()
        changed[0, t] = (changed[0, t] + 1 - 5) % (VOCAB - 5) + 5
        assert np.abs(logits_of(model, INPUTS[:1], changed)[:, -1] - before[:, -1]).max() > 1e-4


def test_padding_changes_nothing(model):
    before = logits_of(model, INPUTS, TARGETS)
    real = TARGETS != 0
    after = logits_of(model, np.pad(INPUTS, [[0, 0], [0, 5]]), np.pad(TARGETS, [[0, 0], [0, 3]]))
    np.testing.assert_allclose(after[:, : TARGETS.shape[1]][real], before[real], rtol=0, atol=1e-5)


def test_padding_changes_nothing_step_by_step(model):
    ours = drive(model, INPUTS, steps=4, beams=2, seed=3)
    padded = drive(model, np.pad(INPUTS, [[0, 0], [0, 5]]), steps=4, beams=2, seed=3)
    for (one, _), (other, _) in zip(ours, padded, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-5)


def test_rows_of_padding_are_finite(model):
    """The pipeline fills batches up with rows that hold nothing."""
    inputs, targets = (np.concatenate([ids, np.zeros_like(ids[:2])]) for ids in (INPUTS, TARGETS))
    logits = logits_of(model, inputs, targets)
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(logits[: len(INPUTS)], logits_of(model, INPUTS, TARGETS), rtol=0, atol=1e-5)


def test_the_other_rows_of_a_batch_change_nothing(model):
    together = logits_of(model, INPUTS, TARGETS)
    backwards = logits_of(model, INPUTS[::-1], TARGETS[::-1])[::-1]
    np.testing.assert_allclose(backwards, together, rtol=0, atol=1e-5)
    for row in range(len(INPUTS)):
        alone = logits_of(model, INPUTS[row : row + 1], TARGETS[row : row + 1])
        np.testing.assert_allclose(alone[0], together[row], rtol=0, atol=1e-5)


def test_features_and_softmax_weights_give_the_logits(model):
    features = model.features(INPUTS, TARGETS).numpy()
    kernel, bias = model.softmax_weights()
    logits = features @ np.asarray(kernel).T + (0.0 if bias is None else np.asarray(bias))
    np.testing.assert_allclose(logits, logits_of(model, INPUTS, TARGETS), rtol=0, atol=1e-5)


def test_attention_weights_are_distributions(model):
    maps = {name: weights.numpy() for name, weights in model.attention_weights(INPUTS, TARGETS).items()}
    for name, weights in maps.items():
        assert weights.shape[0] == len(INPUTS), name
        assert (weights >= 0).all(), name
        np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=0, atol=1e-5, err_msg=name)
        if weights.shape[2:] == (TARGETS.shape[1], INPUTS.shape[1]):
            on_padding = np.where(INPUTS[:, np.newaxis, np.newaxis] == 0, weights, 0.0)
            assert not on_padding.any(), f"{name} attends to padding"
    assert any(weights.shape[2:] == (TARGETS.shape[1], INPUTS.shape[1]) for weights in maps.values())


# --- dropout ---


def test_dropout_is_a_function_of_the_seed(model):
    from t2t_ext.layers import dropout

    def trained(seed):
        with dropout.seed_scope(np.array(seed, np.int32)):
            return logits_of(model, INPUTS, TARGETS, training=True)

    first, again, other, third = trained([1, 2]), trained([1, 2]), trained([1, 3]), trained([2, 2])
    np.testing.assert_array_equal(first, again)
    for different in (other, third, logits_of(model, INPUTS, TARGETS)):
        assert np.abs(different - first).max() > 1e-3
    np.testing.assert_array_equal(logits_of(model, INPUTS, TARGETS), logits_of(model, INPUTS, TARGETS))


def test_rows_drop_different_units(model):
    """The same sentence twice in a batch is not dropped out twice in the same way."""
    from t2t_ext.layers import dropout

    with dropout.seed_scope(np.array([4, 5], np.int32)):
        logits = logits_of(model, np.repeat(INPUTS[:1], 2, 0), np.repeat(TARGETS[:1], 2, 0), training=True)
    assert np.abs(logits[0] - logits[1]).max() > 1e-3


def test_calls_drop_different_units():
    """Two layers with activations of one shape draw masks of their own; outside of a scope, too."""
    from t2t_ext.layers import dropout

    ones = np.ones([64, 64], np.float32)
    with dropout.seed_scope(np.array([4, 5], np.int32)):
        first, second = (dropout.dropout(ones, 0.5, training=True).numpy() for _ in range(2))
    third, fourth = (dropout.dropout(ones, 0.5, training=True).numpy() for _ in range(2))
    for one, other in ((first, second), (third, fourth)):
        assert 0.4 < np.mean((one > 0) == (other > 0)) < 0.6


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dropout_keeps_the_mean(dtype):
    """The kept units are scaled up: over 250,000 units the mean is 1 within four standard deviations and rounding."""
    import tensorflow as tf

    from t2t_ext.layers import dropout

    ones = tf.ones([500, 500], dtype)
    with dropout.seed_scope(np.array([4, 5], np.int32)):
        dropped = dropout.dropout(ones, 0.1, training=True)
    assert dropped.dtype == dtype
    values = tf.cast(dropped, tf.float64).numpy()
    assert values.mean() == pytest.approx(1.0, abs=0.003 + (0.004 if dtype == "bfloat16" else 0.0))
    assert np.mean(values == 0) == pytest.approx(0.1, abs=0.004)


def test_every_dropout_rate_is_used(case):
    from t2t_ext import registry
    from t2t_ext.layers import dropout

    rates = [name for name in case.hparams().to_dict() if name.endswith("_dropout")]
    assert rates
    arrays = {name: variable.numpy() for name, variable in model_of(case).named_variables().items()}
    inference = logits_of(model_of(case), INPUTS, TARGETS)
    for used in (None, *rates):
        hparams = case.hparams().replace(**{rate: 0.5 if rate == used else 0.0 for rate in rates})
        model = registry.model(case.model)(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
        model.build()
        model.assign(arrays)
        with dropout.seed_scope(np.array([4, 5], np.int32)):
            difference = np.abs(logits_of(model, INPUTS, TARGETS, training=True) - inference).max()
        assert difference == 0 if used is None else difference > 1e-3, f"{used}: {difference}"


# --- dtype policies ---


@pytest.mark.parametrize("precision", POLICIES)
def test_policies_build_run_and_have_gradients(case, precision):
    import tensorflow as tf

    from t2t_ext.layers import dropout

    model = model_of(case, precision)
    variables = model.named_variables()
    assert {variable.dtype for variable in variables.values()} == {tf.float32}
    with tf.GradientTape() as tape, dropout.seed_scope(np.array([1, 1], np.int32)):
        logits = model(INPUTS, TARGETS, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=TARGETS, logits=logits)
        loss = tf.reduce_mean(losses)
    assert logits.dtype == tf.float32
    assert np.isfinite(loss)
    computed = model.features(INPUTS, TARGETS)
    assert computed.dtype.name == precision.removeprefix("mixed_")
    gradients = tape.gradient(loss, list(variables.values()))
    for name, gradient in zip(variables, gradients, strict=True):
        assert gradient is not None, f"{name} has no gradient"
        values = tf.convert_to_tensor(gradient).numpy()
        assert np.isfinite(values).all(), name
        assert np.abs(values).max() > 0, f"{name} has a gradient of zeros"


@pytest.mark.parametrize(("precision", "tolerance"), [("mixed_bfloat16", 0.1), ("mixed_float16", 0.02)])
def test_low_precision_is_close_to_float32(case, precision, tolerance):
    exact = logits_of(model_of(case), INPUTS, TARGETS)
    rounded = logits_of(model_of(case, precision), INPUTS, TARGETS)
    error = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
    assert 0 < error < tolerance


# --- saving ---


def test_save_and_load(case, model, tmp_path):
    from t2t_ext.persistence import checkpoints

    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    path = checkpoints.save_checkpoint(tmp_path, 7, arrays)
    fresh = new_model(case)
    before = logits_of(fresh, INPUTS, TARGETS)
    fresh.assign(checkpoints.load_arrays(path))
    expected = logits_of(model, INPUTS, TARGETS)
    assert not np.allclose(before, expected, atol=1e-2)
    np.testing.assert_array_equal(logits_of(fresh, INPUTS, TARGETS), expected)


def test_names_depend_on_the_structure_alone(case, model):
    again = new_model(case, "mixed_bfloat16")
    assert list(again.named_variables()) == list(model.named_variables())
    assert len(set(map(id, again.variables))) == len(again.named_variables())


def test_assign_is_strict(case):
    from t2t_ext.errors import UserError

    model = new_model(case)
    before = {name: variable.numpy() for name, variable in model.named_variables().items()}
    arrays = random_arrays(model, seed=2)
    name = next(iter(arrays))
    wrong = (
        {k: v for k, v in arrays.items() if k != name},
        {**arrays, "no_such_thing/kernel": np.zeros([2, 2], np.float32)},
        {**arrays, name: np.zeros([3, 5], np.float32)},
    )
    for bad in wrong:
        with pytest.raises(UserError):
            model.assign(bad)
        for path, variable in model.named_variables().items():
            np.testing.assert_array_equal(variable.numpy(), before[path], err_msg=f"{path} was changed")
    model.assign(wrong[0], strict=False)
    np.testing.assert_array_equal(model.named_variables()[name].numpy(), before[name])


def test_config_round_trip(case, model):
    config = json.loads(json.dumps(model.get_config()))
    again = type(model).from_config(config)
    again.build()
    again.assign({name: variable.numpy() for name, variable in model.named_variables().items()})
    np.testing.assert_array_equal(logits_of(again, INPUTS, TARGETS), logits_of(model, INPUTS, TARGETS))


def test_describe_lists_every_parameter_once(model):
    rows = model.describe()
    variables = model.named_variables()
    assert sorted(row.path for row in rows) == sorted(variables)
    for row in rows:
        assert tuple(row.shape) == tuple(variables[row.path].shape)
        assert row.parameters == np.prod(variables[row.path].shape)
    assert sum(row.parameters for row in rows) == model.count_params()


def test_initial_weights_follow_the_seed(case):
    import keras

    def initial(seed):
        keras.utils.set_random_seed(seed)
        return {name: variable.numpy() for name, variable in new_model(case).named_variables().items()}

    first, again, other = initial(3), initial(3), initial(4)
    for name, values in first.items():
        np.testing.assert_array_equal(again[name], values, err_msg=name)
        if name.endswith(("kernel", "embeddings")):
            assert np.abs(other[name] - values).max() > 0, name


# --- export ---


@pytest.mark.parametrize("model_name", SETTINGS)
def test_export(model_name, tiny_encoder, tmp_path):
    import tensorflow as tf

    from t2t_ext.decoding.translator import Translator
    from t2t_ext.hyperparameters import DecodeHParams
    from t2t_ext.serving.export import export

    case = Case(model_name, next(iter(SETTINGS[model_name])))
    model = new_model(case, vocab=tiny_encoder.vocab_size)
    model.assign(random_arrays(model, seed=1, scale=2.0))
    decode_hparams = DecodeHParams(beam_size=3, max_length_offset=6)
    translator = Translator(model, tiny_encoder, tiny_encoder, decode_hparams, "l2r")
    lines = ["the old cat sees the lamp .", "", "a word that nobody has seen: Ωß", "the door"]
    expected = translator.translate(lines)
    loaded = tf.saved_model.load(str(export(translator, tmp_path / "export", version=5)))
    result = loaded.signatures["serving_default"](inputs=tf.constant(lines))
    assert [text.decode() for text in result["outputs"].numpy()] == [hypotheses[0].text for hypotheses in expected]
    assert any(hypotheses[0].text for hypotheses in expected)
    scores = [hypotheses[0].score for hypotheses in expected]
    np.testing.assert_allclose(result["scores"].numpy(), scores, rtol=0, atol=1e-4)
