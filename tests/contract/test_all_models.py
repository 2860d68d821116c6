"""The contract that every registered model must fulfill, whatever its parts."""

import numpy as np
import pytest
from contract_cases import (
    SETTINGS,
    VOCAB,
    Case,
    drive,
    few_layers,
    few_models,
    first_settings,
    logits_of,
    model_of,
    new_model,
    sentences,
    targets_of,
    written_of,
    written_otherwise,
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
    [
        pytest.param("float32", 1, 1e-5, marks=pytest.mark.slow),
        ("float32", 3, 1e-5),
        ("mixed_bfloat16", 3, 2e-2),
    ],
)
def test_step_by_step_equals_all_at_once(case, precision, beams, tolerance):
    model, steps = model_of(case, precision), 6
    driven = list(drive(model, INPUTS, steps=steps, beams=beams, seed=5))
    batch, directions, _, _ = driven[0][1].shape
    # The logits at a position do not see its own token, so any token may follow the past. One call has all pasts,
    # padded to one length.
    width = [[0, 0], [0, 0], [0, 0]]
    pasts = [np.pad(past, [*width, [0, 1]], constant_values=7) for _, past in driven]
    targets = np.stack([np.pad(past, [*width, [0, steps - past.shape[-1]]]) for past in pasts])
    targets = targets.swapaxes(2, 3).reshape([-1, *[directions] * (directions > 1), steps])
    whole = logits_of(model, np.tile(np.repeat(INPUTS, beams, axis=0), [steps, 1]), targets)
    whole = whole.reshape([steps, batch, beams, directions, steps, VOCAB]).swapaxes(2, 3)
    for length, (logits, past) in enumerate(driven):
        assert past.shape[-1] == length
        expected = whole[length, ..., length, :]
        scale = np.abs(expected).max() if precision != "float32" else 1.0
        np.testing.assert_allclose(logits, expected, rtol=0, atol=tolerance * scale, err_msg=f"step {length}")


def test_no_position_sees_its_future(model):
    """No position's logits depend on the future of its own side or of the other side."""
    targets = written_of(model, TARGETS)
    before = logits_of(model, INPUTS, targets)
    length = targets.shape[-1]
    for t in range(length):
        after = logits_of(model, INPUTS, written_otherwise(model, targets, t))
        np.testing.assert_array_equal(after[..., : t + 1, :], before[..., : t + 1, :])
        assert t + 1 == length or not np.allclose(after[..., t + 1, :], before[..., t + 1, :], atol=1e-3)


def test_every_past_token_and_every_source_token_matters(model):
    """Every past token and every source token affects the logits, of both sides if there are two.

    Otherwise the checks above would also hold for a model that ignores its inputs.
    """
    inputs, targets = INPUTS[:1], written_of(model, TARGETS)[:1]
    before = logits_of(model, inputs, targets)

    def changed(ids):
        """Returns a row for each word of ids, int32 [1, ..., T], with that word changed, and the words' places."""
        places = np.argwhere(ids[0] > 1)
        rows = np.repeat(ids, len(places), axis=0)
        words = (np.arange(len(places)), *places.T)
        rows[words] = (rows[words] + 1 - 5) % (VOCAB - 5) + 5
        return rows, places

    rows, places = changed(inputs)
    difference = np.abs(logits_of(model, rows, np.repeat(targets, len(rows), axis=0)) - before)
    assert len(rows) == INPUTS.shape[1] - 1
    assert (difference.reshape([len(rows), -1]).max(1) > 1e-3).all()
    last = [(targets[0].reshape(-1, TARGETS.shape[1])[side] != 0).sum() - 1 for side in range(model.directions)]
    rows, places = changed(targets)
    difference = np.abs(logits_of(model, np.repeat(inputs, len(rows), axis=0), rows) - before).max(-1)
    for place, sides in zip(places, difference.reshape([len(rows), -1, TARGETS.shape[1]]), strict=True):
        for side, end in zip(sides, last, strict=True):
            assert end <= place[-1] or side[end] > 1e-4, place


@pytest.mark.parametrize("steps", [1, 3])
def test_a_side_that_has_ended_is_seen_as_it_was(case, steps):
    """With a partner that has ended and gets no more columns, steps equal whole sequences of unequal lengths."""
    model = model_of(case)
    if model.directions == 1:
        pytest.skip("writes in one direction")
    rng = np.random.default_rng(7)
    words = rng.integers(5, VOCAB, [len(INPUTS), 2, 6]).astype(np.int32)
    words[:, 1, steps:] = 0
    words[:, 1, steps - 1] = 1
    expected = logits_of(model, INPUTS, words)
    state, parents = model.start(INPUTS), np.zeros([len(INPUTS), 2, 1], np.int32)
    for t in range(6):
        own = np.ones([len(INPUTS), 2, 1, t + 1], bool)
        partner = own.copy()
        partner[:, 0, :, steps:] = False
        fed = words[:, :, t - 1 : t] if t else parents
        logits, state = model.step(fed, own, partner, parents, state)
        np.testing.assert_allclose(logits[:, 0, 0], expected[:, 0, t], rtol=0, atol=1e-5)


def test_padding_changes_nothing(model):
    targets = targets_of(model, TARGETS)
    before = logits_of(model, INPUTS, targets)
    real = targets != 0
    wider = np.pad(targets, [*[(0, 0)] * (targets.ndim - 1), (0, 3)])
    after = logits_of(model, np.pad(INPUTS, [[0, 0], [0, 5]]), wider)
    np.testing.assert_allclose(after[..., : TARGETS.shape[1], :][real], before[real], rtol=0, atol=1e-5)


def test_padding_changes_nothing_step_by_step(model):
    ours = drive(model, INPUTS, steps=4, beams=2, seed=3)
    padded = drive(model, np.pad(INPUTS, [[0, 0], [0, 5]]), steps=4, beams=2, seed=3)
    for (one, _), (other, _) in zip(ours, padded, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-5)


@first_settings
def test_rows_of_padding_are_finite(model):
    """Rows of only PAD, with which the pipeline fills batches, have finite logits and no loss."""
    ours = targets_of(model, TARGETS)
    inputs, targets = (np.concatenate([ids, np.zeros_like(ids[:2])]) for ids in (INPUTS, ours))
    logits = logits_of(model, inputs, targets)
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(logits[: len(INPUTS)], logits_of(model, INPUTS, ours), rtol=0, atol=1e-5)
    labels = model.training_labels(targets)
    assert not np.any(labels[len(INPUTS) :]), "no loss is taken of them"


@first_settings
def test_the_other_rows_of_a_batch_change_nothing(model):
    targets = targets_of(model, TARGETS)
    together = logits_of(model, INPUTS, targets)
    backwards = logits_of(model, INPUTS[::-1], targets[::-1])[::-1]
    np.testing.assert_allclose(backwards, together, rtol=0, atol=1e-5)
    for row in range(len(INPUTS)):
        alone = logits_of(model, INPUTS[row : row + 1], targets[row : row + 1])
        np.testing.assert_allclose(alone[0], together[row], rtol=0, atol=1e-5)


@first_settings
def test_features_and_softmax_weights_give_the_logits(model):
    targets = targets_of(model, TARGETS)
    features = model.features(INPUTS, targets).numpy()
    kernel, bias = model.softmax_weights()
    logits = features @ np.asarray(kernel).T + (0.0 if bias is None else np.asarray(bias))
    np.testing.assert_allclose(logits, logits_of(model, INPUTS, targets), rtol=0, atol=1e-5)


def test_training_sees_the_targets_and_maybe_more(model):
    """The labels and features of training end with the targets and their features."""
    targets = targets_of(model, TARGETS)
    labels, features = model.training_labels(targets), model.training_features(INPUTS, targets)
    assert tuple(features.shape[:-1]) == tuple(labels.shape)
    np.testing.assert_array_equal(labels[..., -TARGETS.shape[1] :], targets)
    expected = model.features(INPUTS, targets)
    np.testing.assert_allclose(features[..., -TARGETS.shape[1] :, :], expected, rtol=0, atol=1e-6)


def test_attention_weights_are_distributions(model):
    targets = targets_of(model, TARGETS)
    labels = np.asarray(model.training_labels(targets))
    length = labels.shape[-1]
    maps = {name: weights.numpy() for name, weights in model.attention_weights(INPUTS, targets).items()}
    for name, weights in maps.items():
        assert weights.shape[0] == len(INPUTS), name
        assert weights.ndim == 4, name
        assert (weights >= 0).all(), name
        np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=0, atol=1e-5, err_msg=name)
        if weights.shape[2:] == (length, INPUTS.shape[1]) and "self_attention" not in name:
            on_padding = np.where(INPUTS[:, np.newaxis, np.newaxis] == 0, weights, 0.0)
            assert not on_padding.any(), f"{name} attends to padding"
        if "/mixed_attention" in name:
            assert weights.shape[3] == INPUTS.shape[1] + length, name
            on_source, on_target = np.split(weights, [INPUTS.shape[1]], axis=3)
            assert not np.where(INPUTS[:, np.newaxis, np.newaxis] == 0, on_source, 0.0).any(), f"{name}: padding"
            assert not np.triu(on_target, 1).any(), f"{name} attends to what is not written yet"
        if name.endswith("/future"):
            other = labels[:, 0 if "/r2l/" in name else 1]
            assert not np.where(other[:, np.newaxis, np.newaxis] == 0, weights, 0.0).any(), f"{name}: padding"
            written_before = model.directions == 1
            assert written_before or not np.triu(weights, 1).any(), f"{name} attends to what is not written yet"
    to_source = [name for name, weights in maps.items() if weights.shape[2:] == (length, INPUTS.shape[1])]
    assert to_source or any("/mixed_attention" in name for name in maps)
    if model.directions == 2:
        assert sum(name.endswith("/future") for name in maps) == 2 * len(model.hparams.synchronous_layers)
        assert sum(name.endswith("/history") for name in maps) == 2 * model.hparams.decoder_layers


# --- dropout ---


@first_settings
def test_dropout_is_a_function_of_the_seed(model):
    from t2t_ext.layers import dropout

    targets = targets_of(model, TARGETS)

    def trained(seed):
        with dropout.seed_scope(np.array(seed, np.int32)):
            return logits_of(model, INPUTS, targets, training=True)

    first, again, other, third = trained([1, 2]), trained([1, 2]), trained([1, 3]), trained([2, 2])
    np.testing.assert_array_equal(first, again)
    for different in (other, third, logits_of(model, INPUTS, targets)):
        assert np.abs(different - first).max() > 1e-3
    np.testing.assert_array_equal(logits_of(model, INPUTS, targets), logits_of(model, INPUTS, targets))


@first_settings
def test_rows_drop_different_units(model):
    """Two equal sentences in a batch have different dropout masks."""
    from t2t_ext.layers import dropout

    with dropout.seed_scope(np.array([4, 5], np.int32)):
        twice = np.repeat(targets_of(model, TARGETS)[:1], 2, 0)
        logits = logits_of(model, np.repeat(INPUTS[:1], 2, 0), twice, training=True)
    assert np.abs(logits[0] - logits[1]).max() > 1e-3


def test_calls_drop_different_units():
    """Two calls for activations of the same shape draw different masks, inside and outside a seed scope."""
    from t2t_ext.layers import dropout

    ones = np.ones([64, 64], np.float32)
    with dropout.seed_scope(np.array([4, 5], np.int32)):
        first, second = (dropout.dropout(ones, 0.5, training=True).numpy() for _ in range(2))
    third, fourth = (dropout.dropout(ones, 0.5, training=True).numpy() for _ in range(2))
    for one, other in ((first, second), (third, fourth)):
        assert 0.4 < np.mean((one > 0) == (other > 0)) < 0.6


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dropout_keeps_the_mean(dtype):
    """Dropout keeps the mean, because it scales up the kept units.

    Over 250,000 units the mean is 1 within four standard deviations and rounding.
    """
    import tensorflow as tf

    from t2t_ext.layers import dropout

    ones = tf.ones([500, 500], dtype)
    with dropout.seed_scope(np.array([4, 5], np.int32)):
        dropped = dropout.dropout(ones, 0.1, training=True)
    assert dropped.dtype == dtype
    values = tf.cast(dropped, tf.float64).numpy()
    assert values.mean() == pytest.approx(1.0, abs=0.003 + (0.004 if dtype == "bfloat16" else 0.0))
    assert np.mean(values == 0) == pytest.approx(0.1, abs=0.004)


@few_models
def test_every_dropout_rate_is_used(case):
    from t2t_ext import registry
    from t2t_ext.layers import dropout

    one_way = model_of(case).directions == 1  # sb_ rates are not allowed with one direction
    rates = [name for name in case.hparams().to_dict() if name.endswith("_dropout")]
    rates = [name for name in rates if not (one_way and name.startswith("sb_"))]
    assert rates
    arrays = {name: variable.numpy() for name, variable in model_of(case).named_variables().items()}
    targets = targets_of(model_of(case), TARGETS)
    inference = logits_of(model_of(case), INPUTS, targets)
    for used in (None, *rates):
        hparams = case.hparams().replace(**{rate: 0.5 if rate == used else 0.0 for rate in rates})
        model = registry.model(case.model)(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
        model.build()
        model.assign(arrays)
        with dropout.seed_scope(np.array([4, 5], np.int32)):
            difference = np.abs(logits_of(model, INPUTS, targets, training=True) - inference).max()
        assert difference == 0 if used is None else difference > 1e-3, f"{used}: {difference}"


# --- dtype policies ---


@pytest.mark.parametrize(
    "precision", [pytest.param("float32", marks=pytest.mark.slow), "mixed_bfloat16", "mixed_float16"]
)
def test_policies_build_run_and_have_gradients(case, precision):
    import tensorflow as tf

    from t2t_ext.layers import dropout

    model = model_of(case, precision)
    targets = targets_of(model, TARGETS)
    variables = model.named_variables()
    assert {variable.dtype for variable in variables.values()} == {tf.float32}
    with tf.GradientTape() as tape, dropout.seed_scope(np.array([1, 1], np.int32)):
        logits = model(INPUTS, targets, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
        loss = tf.reduce_mean(losses)
    assert logits.dtype == tf.float32
    assert np.isfinite(loss)
    computed = model.features(INPUTS, targets)
    assert computed.dtype.name == precision.removeprefix("mixed_")
    gradients = tape.gradient(loss, list(variables.values()))
    for name, gradient in zip(variables, gradients, strict=True):
        assert gradient is not None, f"{name} has no gradient"
        values = tf.convert_to_tensor(gradient).numpy()
        assert np.isfinite(values).all(), name
        assert np.abs(values).max() > 0, f"{name} has a gradient of zeros"


@first_settings
@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [
        ("mixed_bfloat16", 0.1),
        pytest.param("mixed_float16", 0.02, marks=pytest.mark.slow),
        ("bfloat16", 0.1),
    ],
)
def test_low_precision_is_close_to_float32(case, precision, tolerance):
    targets = targets_of(model_of(case), TARGETS)
    exact = logits_of(model_of(case), INPUTS, targets)
    rounded = logits_of(model_of(case, precision), INPUTS, targets)
    error = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
    assert 0 < error < tolerance
    if precision == "bfloat16":  # the policy of translation
        first, low = (
            next(iter(drive(made, INPUTS, 1, 2, seed=3)))[0] for made in (model_of(case), model_of(case, precision))
        )
        assert np.linalg.norm(low - first) < tolerance * np.linalg.norm(first)


# --- gradients ---


@few_models
def test_gradients_are_summed_in_one_order(case):
    """Sums of gradients always add their terms in the same order.

    AddN begins with the first term whose memory nothing else uses at that moment, then adds the others in order. So a
    sum of three or more terms is reproducible only if this is always the first term, that is, if only AddN reads it.
    Otherwise an interrupted run could differ from an uninterrupted one in the last bits.
    """
    import tensorflow as tf

    from t2t_ext.layers import dropout
    from t2t_ext.training.step import loss_gradients

    model = new_model(case)
    targets = tf.constant(targets_of(model, TARGETS))
    batch = {"inputs": tf.constant(INPUTS), "targets": targets, "labels": model.training_labels(targets)}

    @tf.function(autograph=False)
    def gradients():
        with dropout.seed_scope(tf.constant([1, 2])):
            return loss_gradients(model, list(model.named_variables().values()), batch, 1.0, case.hparams())

    operations = gradients.get_concrete_function().graph.get_operations()
    sums = [op for op in operations if op.type in ("AddN", "AccumulateNV2")]
    assert sums
    assert not [op.name for op in sums if len(op.inputs) > 2 and len(op.inputs[0].consumers()) > 1]


# --- saving ---


@first_settings
def test_save_and_load(case, model, tmp_path):
    from t2t_ext.runs import checkpoints

    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    path = checkpoints.save_checkpoint(tmp_path, 7, arrays)
    fresh, targets = new_model(case), targets_of(model, TARGETS)
    before = logits_of(fresh, INPUTS, targets)
    fresh.assign(checkpoints.load_arrays(path))
    expected = logits_of(model, INPUTS, targets)
    assert not np.allclose(before, expected, atol=1e-2)
    np.testing.assert_array_equal(logits_of(fresh, INPUTS, targets), expected)


@first_settings
def test_names_depend_on_the_structure_alone(case, model):
    again = new_model(case, "mixed_bfloat16")
    assert list(again.named_variables()) == list(model.named_variables())
    assert len(set(map(id, again.variables))) == len(again.named_variables())


@first_settings
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


@first_settings
def test_keras_saves_and_loads_it(model, tmp_path):
    import keras

    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again) is type(model)
    targets = targets_of(model, TARGETS)
    expected = logits_of(model, INPUTS, targets)
    np.testing.assert_array_equal(again({"inputs": INPUTS, "targets": targets}), expected)


def test_describe_lists_every_parameter_once(model):
    rows = model.describe()
    variables = model.named_variables()
    assert sorted(row.path for row in rows) == sorted(variables)
    for row in rows:
        assert tuple(row.shape) == tuple(variables[row.path].shape)
        assert row.parameters == np.prod(variables[row.path].shape)
    assert sum(row.parameters for row in rows) == model.count_params()


@few_models
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


LINES = ["the old cat sees the lamp .", "", "a word that nobody has seen: Ωß", "the door"]


def exported(model_name, encoder, directory, **can):
    """Returns a translator with a model's first setting, its SavedModel's outputs for ``LINES``, and the SavedModel."""
    import tensorflow as tf

    from t2t_ext import registry
    from t2t_ext.config.decode import DecodeHParams
    from t2t_ext.serving.export import export
    from t2t_ext.translation.translator import Translator

    hparams = few_layers(Case(model_name, next(iter(SETTINGS[model_name]))).hparams())  # more are exported alike
    model = registry.model(model_name)(
        hparams, source_vocab_size=encoder.vocab_size, target_vocab_size=encoder.vocab_size
    )
    model.build()
    model.assign(random_arrays(model, seed=1, scale=2.0))
    decode_hparams = DecodeHParams(beam_size=3 if model.directions == 1 else 4, max_length_offset=6)
    kind = type("OfSomeSignatures", (Translator,), can)
    translator = kind(model, encoder, encoder, decode_hparams, "l2r")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("t2t_ext.serving.export._check_outputs", lambda *_: None)  # the tests check the outputs
        loaded = tf.saved_model.load(str(export(translator, directory, version=5)))
    found = loaded.signatures["serving_default"](inputs=tf.constant(LINES))
    assert any(found["outputs"].numpy())
    return translator, found, loaded


@pytest.mark.parametrize("model_name", SETTINGS)
def test_export(model_name, tiny_encoder, tmp_path):
    """The SavedModel translates like the translator.

    Prefixes, constraints and alignments are left out, because their graphs take longer than the others.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    translator, found, _ = exported(
        model_name, tiny_encoder, tmp_path / "export", can_force_prefix=False, can_constrain=False, can_align=False
    )
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "export" / "5" / "saved_model.pb").read_bytes())
    assert not saved.meta_graphs[0].graph_def.library.registered_gradients, "who translates needs none"
    expected = translator.search_batch(tf.constant(LINES), num_hypotheses=1)
    np.testing.assert_array_equal(found["outputs"].numpy(), expected["outputs"].numpy()[:, 0])
    np.testing.assert_allclose(found["scores"].numpy(), expected["scores"].numpy()[:, 0], rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("model_name", SETTINGS)
def test_export_of_every_signature(model_name, tiny_encoder, tmp_path):
    translator, found, loaded = exported(model_name, tiny_encoder, tmp_path / "export")
    expected = [hypotheses[0] for hypotheses in translator.translate(LINES)]
    assert [text.decode() for text in found["outputs"].numpy()] == [best.text for best in expected]
    np.testing.assert_allclose(found["scores"].numpy(), [best.score for best in expected], rtol=0, atol=1e-4)
    assert "translate_with_constraints" in loaded.signatures
    for name, can in (("translate_with_prefix", translator.can_force_prefix), ("align", translator.can_align)):
        assert (name in loaded.signatures) == can
