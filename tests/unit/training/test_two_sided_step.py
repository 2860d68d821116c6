"""Tests of the training step on two targets per sentence: loss and counts equal a computation by hand."""

import numpy as np
import pytest
import tensorflow as tf
from random_weights import random_arrays

from t2t_ext import registry
from t2t_ext.data.datasets import target_variants
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.pipeline import TrainPipeline
from t2t_ext.data.text.special_ids import L2R_ID, R2L_ID
from t2t_ext.layers.label_smoothing import smoothing_terms
from t2t_ext.training.optimizers import make_optimizer
from t2t_ext.training.schedules import Schedule
from t2t_ext.training.state import WINDOW_FIELDS, TrainingState, with_all_sums
from t2t_ext.training.step import TrainStep

VOCAB = 40
NO_DROPOUT = {"layer_prepostprocess_dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0}
# One layer, to save time.
SMALL = {"num_hidden_layers": 1, "pseudo": "two", "batch_size": 200}


def store():
    rng = np.random.default_rng(8)
    fields = [[[*rng.integers(11, VOCAB, rng.integers(1, 9)).tolist(), 1] for _ in range(8)] for _ in range(4)]
    fields[2][3] = []
    return ExampleStore.from_sequences(*fields[:2], (fields[2], fields[3]))


STORE = store()


def make(**changes):
    hparams = registry.hparams("synchronous_transformer_test").replace(
        **NO_DROPOUT, **SMALL, learning_rate_schedule="constant", learning_rate_constant=0.01,
        **changes,
    )  # fmt: skip
    model = registry.model("synchronous_transformer")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=2))
    optimizer = make_optimizer(hparams, model.named_variables())
    state = TrainingState(hparams, model.named_variables(), optimizer)
    step = TrainStep(
        model, optimizer=optimizer, schedule=Schedule(hparams, 100), state=state, hparams=hparams,
        strategy=tf.distribute.get_strategy(), random_seed=1,
    )  # fmt: skip
    return model, state, step, TrainPipeline(STORE, hparams, seed=1, target_sides=2)


def by_hand(model, batch, loss_on=(True, True), tags=False, label_smoothing=0.1):
    """Returns the sums of loss and negative log-likelihood over both sides, and the number of labels, token by token.

    Args:
      loss_on: bool [R, 2], for each row and side, whether it counts for the loss.
      tags: Whether each side predicts its tag first.
    """
    confidence, low, entropy = smoothing_terms(label_smoothing, VOCAB)
    logits = model.logits(model.training_features(batch["inputs"], batch["targets"])).numpy().astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss, nll, count = 0.0, 0.0, 0
    for row, sides in enumerate(batch["targets"].numpy()):
        for side, ids in enumerate(sides):
            expected = ids[ids != 0].tolist()
            if not expected or not loss_on[row][side]:
                continue
            expected = [(L2R_ID, R2L_ID)[side], *expected] if tags else expected
            for position, label in enumerate(expected):
                p = log_probs[row, side, position]
                nll -= p[label]
                loss -= confidence * p[label] + low * (p.sum() - p[label]) + entropy
                count += 1
    return loss, nll, count


@pytest.mark.parametrize(("on_pseudo", "predict_tag"), [(True, False), (False, False), (False, True)])
def test_loss_is_the_mean_over_the_labels_of_both_targets(on_pseudo, predict_tag):
    model, state, step, pipeline = make(sb_loss_on_pseudo=on_pseudo, predict_tag=predict_tag)
    batch = next(iter(pipeline.dataset(0)))
    plan = pipeline.planner.epoch(0)
    numbers = plan.examples[plan.begins[0] : plan.ends[0]]
    # Variant 0 is (pseudo, reference), variant 1 (reference, pseudo); rows after the examples are padding.
    gold = [[number >= 8, number < 8] for number in numbers] + [[False] * 2] * len(batch["inputs"])
    loss_on = [[True, True]] * len(gold) if on_pseudo else gold
    loss, nll, count = by_hand(model, batch, loss_on, predict_tag)
    assert float(step.run(batch)["loss"]) == pytest.approx(loss / count, rel=1e-5)
    sums = dict(zip(WINDOW_FIELDS, state.window.numpy(), strict=True))
    assert sums["loss"] == pytest.approx(loss, rel=1e-5)
    assert sums["nll"] == pytest.approx(nll, rel=1e-5)
    assert sums["labels"] == count
    assert sums["target_tokens"] == np.count_nonzero(batch["targets"])
    assert sums["source_tokens"] == np.count_nonzero(batch["inputs"])
    assert sums["positions"] == batch["targets"].numpy().size + batch["inputs"].numpy().size
    assert sums["examples"] == len(numbers)


@pytest.mark.parametrize("missing", [1, 2])
def test_a_checkpoint_without_the_number_of_labels_or_the_regularizer_is_completed(missing):
    before = np.arange(len(WINDOW_FIELDS) - missing, dtype=np.float32)
    completed = with_all_sums({"metrics/window": before, "step": np.int64(4)})
    sums = dict(zip(WINDOW_FIELDS, completed["metrics/window"], strict=True))
    assert sums["labels"] == (sums["target_tokens"] if missing == 2 else WINDOW_FIELDS.index("labels"))
    assert sums["regularizer"] == 0
    assert with_all_sums(completed)["metrics/window"].shape == (len(WINDOW_FIELDS),)


def test_the_skip_report_shows_both_targets():
    from t2t_ext.training import skip_report

    class Session:
        """The part of a session that the report of a batch reads."""

        pipeline = make()[3]
        encoders = (type("Encoder", (), {"decode": staticmethod(lambda ids: " ".join(map(str, ids)))}),) * 2

    report = skip_report._batch(Session, STORE, step=1)
    first = report["pairs"][0]
    source, targets = target_variants.Examples.sequences(Session.pipeline.examples, STORE, first["example"])
    assert first["source"] == " ".join(map(str, source))
    assert [first["target"], first["target_r2l"]] == [" ".join(map(str, ids)) for ids in targets]
    assert first["pair"] == first["example"] % 8
    assert report["target_lengths"][0] == max(map(len, targets))
