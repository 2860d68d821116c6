"""A very small model, its training step and its batches, which tests in several folders share."""

import numpy as np
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.layers import dropout
from t2t_ext.training.optimizers import make_optimizer
from t2t_ext.training.schedules import Schedule
from t2t_ext.training.state import TrainingState
from t2t_ext.training.step import TrainStep

VOCAB = 12
WIDTH = 6


class Bigrams:
    """Predicts a token from the previous token and the mean of the source embeddings."""

    def __init__(self, rate=0.0, learning_rates=None, added_loss=None, unused=1.0):
        rng = np.random.default_rng(0)
        self.rate = rate
        self.learning_rates = learning_rates or {}
        self.added_loss = added_loss
        self.table = tf.Variable(rng.standard_normal((VOCAB, WIDTH)), dtype=tf.float32)
        self.kernel = tf.Variable(rng.standard_normal((VOCAB, WIDTH)), dtype=tf.float32)
        self.unused = tf.Variable([unused] * 3)

    def named_variables(self):
        return {"table": self.table, "kernel": self.kernel, "unused": self.unused}

    def rates(self):
        return self.learning_rates

    def softmax_weights(self):
        return self.kernel, None

    def features(self, inputs, targets, training=False):
        previous = tf.pad(targets, [[0, 0], [1, 0]])[:, :-1]
        source = tf.reduce_mean(tf.gather(self.table, inputs), 1, keepdims=True)
        return dropout.dropout(tf.gather(self.table, previous) + source, self.rate, training)

    def training_features(self, inputs, targets, training=False):
        return self.features(inputs, targets, training)

    def features_and_losses(self, inputs, targets):
        added = [self.added_loss(self, targets)] if self.added_loss else []
        return self.training_features(inputs, targets, training=True), added

    def training_labels(self, targets):
        return targets

    def label_weights(self, labels):
        return None


def make(rate=0.0, seed=1, learning_rates=None, added_loss=None, unused=1.0, **changes):
    hparams = registry.hparams("transformer_test").replace(
        learning_rate_schedule="constant", learning_rate_constant=0.01, **changes
    )
    model = Bigrams(rate, learning_rates, added_loss, unused)
    frozen = [name for name, rate in (learning_rates or {}).items() if not rate]
    optimizer = make_optimizer(hparams, model.named_variables(), frozen)
    state = TrainingState(hparams, model.named_variables(), optimizer)
    step = TrainStep(
        model,
        optimizer=optimizer,
        schedule=Schedule(hparams, 100),
        state=state,
        hparams=hparams,
        strategy=tf.distribute.get_strategy(),
        random_seed=seed,
    )
    return model, state, step


def batch(seed=0, rows=4, length=5):
    rng = np.random.default_rng(seed)
    targets = rng.integers(1, VOCAB, (rows, length)).astype(np.int32)
    targets[0, 2:] = 0
    return {
        "inputs": tf.constant(rng.integers(1, VOCAB, (rows, length + 1)), tf.int32),
        "targets": tf.constant(targets),
    }
