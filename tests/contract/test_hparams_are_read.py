"""The training code or the model reads every hparam whose condition holds, as recorded reads show."""

import numpy as np
import pytest
import tensorflow as tf
from contract_cases import CASES, VOCAB, sentences, targets_of
from small_step import Bigrams, batch

from t2t_ext import registry
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.data.datasets import target_variants
from t2t_ext.data.datasets.batching import BatchPlanner
from t2t_ext.errors import UserError
from t2t_ext.training.optimizers import make_optimizer
from t2t_ext.training.schedules import Schedule
from t2t_ext.training.state import TrainingState
from t2t_ext.training.step import TrainStep

OF_TRAINING = set(HParams.names())
BY_THE_DATA = {"feature_positions", "sb_loss_on_pseudo", "target_direction"}  # these tests have no data
FIRST = list({case.model: case for case in reversed(CASES)}.values())


def recorded(hparams):
    """Returns a copy of the hparams and the set of the fields that have been read from the copy."""
    read = set()

    class Recorded(type(hparams)):
        def __getattribute__(self, name):
            read.add(name)
            return super().__getattribute__(name)

    copy = object.__new__(Recorded)
    copy.__dict__.update(vars(hparams))
    read.clear()
    return copy, read


def unread(hparams, read, names):
    """Returns the fields that were not read although their conditions hold and another value is allowed."""
    found = {name for name in names if name not in read and not hparams.without_effect([name])}
    return {name for name in found if any(is_allowed(hparams, name, value) for value in other_values(hparams, name))}


def other_values(hparams, name):
    value, choices = getattr(hparams, name), hparams.__dataclass_fields__[name].metadata["choices"]
    if choices:
        return [choice for choice in choices if choice != value]
    return ["1", "all"] if isinstance(value, str) else [not value] if isinstance(value, bool) else [0.5, 1, 2]


def is_allowed(hparams, name, value):
    try:
        return getattr(hparams.replace(**{name: value}), name) != getattr(hparams, name)
    except UserError:
        return False


@pytest.mark.parametrize(
    "case", [case if case in FIRST else pytest.param(case, marks=pytest.mark.slow) for case in CASES], ids=str
)
def test_models_read_what_has_an_effect(case):
    hparams = case.hparams()
    watched, read = recorded(hparams)
    model = registry.model(case.model)(watched, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    inputs = sentences(2, 6, seed=1)
    model.training_features(inputs, targets_of(model, sentences(2, 5, seed=2)), training=True)
    model.label_weights(tf.constant(targets_of(model, sentences(2, 5, seed=2))))
    model.start(inputs)
    assert unread(hparams, read, set(hparams.names()) - OF_TRAINING - BY_THE_DATA) == set()


# Overrides, each with a schedule and an optimizer; together they read every field of HParams.
TRAININGS = [
    "batch_shapes=static,simcut_alpha=3,learning_rate_schedule=constant*legacy*exp_decay,average_last=2",
    "optimizer=adafactor,optimizer_adafactor_beta1=0.9,ema_decay=0.9,r_drop_alpha=5,clip_grad_norm=1",
    "optimizer=adafactor,optimizer_adafactor_decay_type=adam,learning_rate_schedule=constant*cosdecay",
    "optimizer=schedule_free_adam_w,learning_rate_schedule=constant*linear_warmup,weight_decay=0.1,length_groups=2",
]


@pytest.mark.parametrize("overrides", TRAININGS)
def test_training_reads_what_has_an_effect(overrides):
    hparams = registry.resolve_hparams("transformer_test", overrides)
    watched, read = recorded(hparams)
    model = Bigrams()
    variables = model.named_variables()
    optimizer = make_optimizer(watched, variables)
    state = TrainingState(watched, variables, optimizer)
    TrainStep(
        model, optimizer=optimizer, schedule=Schedule(watched, 100), state=state, hparams=watched,
        strategy=tf.distribute.get_strategy(), random_seed=1,
    ).run(batch() if watched.length_groups == 1 else (batch(0), batch(1)))  # fmt: skip
    BatchPlanner(np.full(40, 5), np.full(40, 6), watched, seed=1)
    registry.model("transformer")(watched, source_vocab_size=9, target_vocab_size=9)  # precision
    target_variants.check_model(watched, 1)
    assert unread(hparams, read, OF_TRAINING - BY_THE_DATA) == set()
