"""Tests of the asynchronous Transformer: what its decoders see, its backward search, losses and training."""

import functools

import numpy as np
import pytest
from random_weights import random_arrays

VOCAB = 24
rng = np.random.default_rng(5)
INPUTS = np.array([[15, 9, 17, 12, 1], [11, 16, 1, 0, 0], [10, 9, 13, 1, 0]], np.int32)
TARGETS = rng.integers(9, VOCAB, [3, 2, 5]).astype(np.int32)
TARGETS[:, :, -1] = 1


def new_model(overrides=""):
    from t2t_ext import registry

    hparams = registry.hparams("asynchronous_transformer_test")
    hparams = hparams.override(overrides) if overrides else hparams
    model = registry.model("asynchronous_transformer")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=2))
    return model


model_of = functools.cache(new_model)


def changed_at(side, t):
    targets = TARGETS.copy()
    targets[:, side, t] = (targets[:, side, t] + 1 - 9) % (VOCAB - 9) + 9
    return targets


def test_what_the_forward_decoder_sees():
    """The forward decoder sees its own past and all tokens that the backward decoder was given."""
    model = model_of()
    before = model(INPUTS, TARGETS).numpy()[:, 0]
    for t in range(5):
        after = model(INPUTS, changed_at(0, t)).numpy()[:, 0]
        np.testing.assert_array_equal(after[:, : t + 1], before[:, : t + 1])
        assert t == 4 or (np.abs(after - before).max(axis=-1)[:, t + 1 :] > 1e-4).all()
        # Neither decoder is given the last token of the other side.
        differs = np.abs(model(INPUTS, changed_at(1, t)).numpy()[:, 0] - before).max(axis=-1) > 1e-5
        assert differs.all() if t < 4 else not differs.any()


def test_what_the_backward_decoder_sees():
    """The backward decoder sees its own past and nothing of the forward decoder."""
    model = model_of()
    before = model(INPUTS, TARGETS).numpy()[:, 1]
    for t in range(5):
        np.testing.assert_array_equal(model(INPUTS, changed_at(0, t)).numpy()[:, 1], before)
        after = model(INPUTS, changed_at(1, t)).numpy()[:, 1]
        np.testing.assert_array_equal(after[:, : t + 1], before[:, : t + 1])
        assert t == 4 or not np.allclose(after[:, t + 1], before[:, t + 1], atol=1e-4)


def test_a_call_reads_feature_vectors_in_mixed_precision():
    """Keras casts them to bfloat16 before the backward decoder's search, whose length they say."""
    from t2t_ext import registry

    hparams = registry.hparams("asynchronous_transformer_test").override("num_hidden_layers=1,precision=bf16")
    model = registry.model("asynchronous_transformer")(
        hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB, source_feature_size=3
    )
    features = np.ones([2, 4, 3], np.float32)
    assert model({"inputs": features, "targets": TARGETS[:2, 0]}).shape == (2, 5, VOCAB)


def test_lengths_of_the_sides_are_independent():
    model, targets = model_of(), TARGETS.copy()
    targets[0, 0, 1:], targets[1, 1, 2:] = [1, 0, 0, 0], [1, 0, 0]
    together = model(INPUTS, targets).numpy()
    for row, side, length in ((0, 0, 2), (0, 1, 5), (1, 0, 5), (1, 1, 3)):
        cut = np.zeros([1, 2, 5], np.int32)
        cut[0] = targets[row]
        alone = model(INPUTS[row : row + 1], np.pad(cut, [[0, 0], [0, 0], [0, 3]])).numpy()
        np.testing.assert_allclose(alone[0, side, :length], together[row, side, :length], rtol=0, atol=1e-5)


@pytest.mark.parametrize("beam_size", [1, 2])
def test_what_is_written_backwards_does_not_depend_on_the_batch(beam_size):
    model = model_of(f"backward_beam_size={beam_size}")
    together = model.generate_backward(INPUTS, model.encode(INPUTS)).numpy()
    lengths = (together != 0).sum(axis=1)
    for row in range(3):
        # Without the padding that the other sentences need, and with more padding.
        for inputs in (INPUTS[row : row + 1], np.pad(INPUTS[row : row + 1], [[0, 4], [0, 6]])):
            alone = model.generate_backward(inputs, model.encode(inputs)).numpy()[0]
            np.testing.assert_array_equal(alone[: lengths[row]], together[row, : lengths[row]])
            assert not alone[lengths[row] :].any()


def test_a_beam_finds_more_probable_words():
    import tensorflow as tf

    def log_prob(model, ids):
        features = model.features(INPUTS, np.stack([ids, ids], axis=1))[:, 1]
        log_probs = tf.nn.log_softmax(model.logits(features)).numpy()
        chosen = np.take_along_axis(log_probs, ids[..., np.newaxis], axis=2)[..., 0]
        return np.where(ids != 0, chosen, 0.0).sum(axis=1)

    def penalized(model, ids):
        return log_prob(model, ids) / ((5 + (ids != 0).sum(axis=1)) / 6) ** 0.6

    greedy, beam = (model_of(f"backward_beam_size={size},backward_length_offset=2") for size in (1, 4))
    written = [model.generate_backward(INPUTS, model.encode(INPUTS)).numpy() for model in (greedy, beam)]
    scores = [penalized(greedy, ids) for ids in written]
    ended = [(ids == 1).any(axis=1) for ids in written]
    assert (scores[1] > scores[0] + 1e-3).any()
    assert ((scores[1] >= scores[0] - 1e-4) | (ended[1] & ~ended[0])).all()


def test_shares_of_the_losses():
    """The gradient is that of the weighted sum of the losses; the other reported sums are not weighted."""
    import tensorflow as tf

    from t2t_ext.training import losses

    def summed(model, targets, weights):
        kernel = list(model.named_variables().values())
        with tf.GradientTape() as tape:
            features = model.features(INPUTS, TARGETS)
            sums = losses.softmax_cross_entropy(features, *model.softmax_weights(), targets, 0.1, weights=weights)
        return sums, tape.gradient(sums.loss, kernel, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    model = model_of("forward_loss_weight=0.8")
    assert model_of().label_weights(TARGETS) is None
    both, gradients = summed(model, TARGETS, model.label_weights(TARGETS))
    parts = [summed(model, TARGETS * np.array([side == 0, side == 1])[:, np.newaxis], None) for side in range(2)]
    (first, first_gradients), (second, second_gradients) = parts
    np.testing.assert_allclose(both.loss, 1.6 * first.loss + 0.4 * second.loss, rtol=1e-5)
    for name in ("nll", "correct", "tokens"):
        expected = getattr(first, name) + getattr(second, name)
        np.testing.assert_allclose(getattr(both, name), expected, rtol=1e-5, err_msg=name)
    for got, one, other in zip(gradients, first_gradients, second_gradients, strict=True):
        got, one, other = map(tf.convert_to_tensor, (got, one, other))
        np.testing.assert_allclose(got, 1.6 * one + 0.4 * other, rtol=0, atol=1e-4)


def test_the_loss_on_references_has_no_shares():
    """The loss on references is not weighted, so that it can be compared with the loss of other models."""
    import tensorflow as tf

    from t2t_ext.data.datasets import target_variants
    from t2t_ext.data.datasets.example_store import ExampleStore
    from t2t_ext.training.evaluate import _Losses

    store = ExampleStore.from_sequences(
        [[20, 21, 22, 1], [23, 20, 1]],
        [[15, 16, 17, 1], [18, 19, 1]],
        pseudo=([[15, 16, 1], [18, 19, 1]], [[15, 17, 16, 1], [18, 19, 20, 1]]),
    )
    found, losses = [], []
    tf.config.run_functions_eagerly(True)  # tracing would take most of the time
    try:
        for overrides in ("", "forward_loss_weight=0.8"):
            model = model_of(overrides)
            examples = target_variants.examples_of(store, model.hparams, 2)
            losses.append(_Losses(model, store, model.hparams, examples).record("loss")["loss"])
            gold = target_variants.with_loss_on_references(store, examples)
            found.append(_Losses(model, store, model.hparams, gold).record("reference_loss")["reference_loss"])
    finally:
        tf.config.run_functions_eagerly(False)
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert abs(losses[0] - losses[1]) > 1e-3


def test_auto_is_the_pseudo_of_the_family():
    from t2t_ext import registry

    assert registry.hparams("asynchronous_transformer_test").override("pseudo=auto").pseudo == "one"


@pytest.mark.parametrize("overrides", ["sb_loss_on_pseudo=false", "sb_fusion=gate"])
def test_what_is_of_one_decoder_of_two_directions_is_refused(overrides):
    from t2t_ext import registry
    from t2t_ext.errors import UserError

    with pytest.raises(UserError, match=r"a decoder for each direction; leave .* out") as caught:
        registry.resolve_hparams("asynchronous_transformer_test", overrides)
    assert "set synchronous=true" not in str(caught.value), "that is refused, too"


def test_warm_start_fits_a_transformer():
    """The model has all variables of a Transformer; the others belong to the backward decoder and its attention."""
    from t2t_ext import registry

    ours = {name: tuple(variable.shape) for name, variable in model_of().named_variables().items()}
    hparams = registry.hparams("transformer_test").replace(use_target_space_embedding=False)
    transformer = registry.model("transformer")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    transformer.build()
    theirs = {name: tuple(variable.shape) for name, variable in transformer.named_variables().items()}
    assert {name: shape for name, shape in ours.items() if name in theirs} == theirs
    more = {name.split("/")[0] for name in ours.keys() - theirs.keys() if "/backward_attention" not in name}
    assert more == {"backward_decoder"}


def test_it_learns_to_copy_what_was_written_backwards():
    """If the source does not determine the words, the forward decoder learns them from the backward states."""
    import tensorflow as tf

    model = new_model("layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0,hidden_size=32,filter_size=32")
    words = np.random.default_rng(3).integers(9, VOCAB, [64, 1]).astype(np.int32)
    ones = np.ones_like(words)
    inputs = np.concatenate([9 * ones, ones], axis=1)
    targets = np.stack([np.concatenate([words, ones], axis=1)] * 2, axis=1)
    variables = list(model.named_variables().values())

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            logits = model(inputs, targets)[:, :, 0]
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets[:, :, 0], logits=logits)
            losses = tf.reduce_mean(each, axis=0)
            total = tf.reduce_sum(losses)
        for variable, gradient in zip(variables, tape.gradient(total, variables), strict=True):
            if gradient is not None:
                variable.assign_sub(0.1 * tf.clip_by_norm(gradient, 1.0))
        return losses

    for _ in range(80):
        forward, backward = step().numpy()
    assert forward < 0.4 * backward
