"""The classifier of probing tasks: two layers on a sentence's representation (Ampomah et al. 2021, section 7.1).

    p = softmax(W2 relu(W1 x + b1) + b2)

The loss is the mean cross-entropy of a batch plus lambda times the sum of the squares of W1. The paper does not give
the hidden layer's width and activation; here they are D and relu.

Legend: N sentences, D features, C classes.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from t2t_ext.io.chatter import retracing_expected
from t2t_ext.io.progress import Update

_PREDICTED_AT_ONCE = 8192
_UPDATES_A_CALL = 32  # updates per call of the graph, since a call from Python takes longer than an update


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """Training settings of a classifier; the defaults are the paper's as far as it gives them.

    Attributes:
      hidden_size: Width of the hidden layer; 0: D.
      learning_rate: Learning rate of RMSProp.
      l2: The weight lambda of the L2 penalty.
      batch_size: Number of sentences per update.
      epochs: Maximum number of epochs.
      patience: Training stops after this many epochs without improvement in validation accuracy; the weights of the
        best epoch are used.
    """

    hidden_size: int = 0
    learning_rate: float = 2.5e-4
    l2: float = 1e-4
    batch_size: int = 64
    epochs: int = 100
    patience: int = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """The result of a trained classifier.

    Attributes:
      predicted: The predicted classes, int32 [test sentences].
      validation: Accuracy on the validation sentences after each epoch.
      best_epoch: The epoch whose weights were used for prediction, from 1.
    """

    predicted: np.ndarray
    validation: tuple[float, ...]
    best_epoch: int


def make_classifier(width: int, classes: int, settings: ClassifierSettings) -> keras.Sequential:
    """Returns a compiled classifier that maps features float32 [N, D = width] to logits float32 [N, C]."""
    hidden = settings.hidden_size or width
    regularizer = keras.regularizers.L2(settings.l2)
    model = keras.Sequential(
        [
            keras.Input([width]),
            keras.layers.Dense(hidden, activation="relu", kernel_regularizer=regularizer),
            keras.layers.Dense(classes),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.RMSprop(settings.learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=_UPDATES_A_CALL,
        jit_compile=False,
    )
    return model


def shuffled(features: np.ndarray, labels: np.ndarray, batch_size: int, seed: int) -> tf.data.Dataset:
    """Returns batches of features and labels whose order changes in every pass and is determined by the seed.

    ``fit``'s own shuffling would, with a fixed seed, give the same order in every epoch.
    """
    parts = tf.constant(features), tf.constant(labels)
    order = tf.data.Dataset.range(len(labels)).shuffle(len(labels), seed % 2**31, reshuffle_each_iteration=True)
    batches = order.batch(batch_size).map(lambda chosen: tuple(tf.gather(part, chosen) for part in parts))
    return batches.prefetch(tf.data.AUTOTUNE)


def train(
    features: tuple[np.ndarray, np.ndarray, np.ndarray],
    labels: tuple[np.ndarray, np.ndarray],
    classes: int,
    settings: ClassifierSettings,
    seed: int,
    progress: Update = lambda done, total: None,
) -> Trained:
    """Trains a classifier and predicts the classes of the test sentences.

    ``features`` are those of training, validation and test sentences, float32 [N, D] each; ``labels`` are those of the
    first two, int32 [N] each. ``seed`` determines the initial weights and the order of the sentences. ``progress`` is
    called with (epochs done, maximum number of epochs).
    """
    trained, valid, test = features
    keras.utils.set_random_seed(seed % 2**32)  # for the initial weights
    model = make_classifier(trained.shape[1], classes, settings)
    stopping = keras.callbacks.EarlyStopping(
        "val_accuracy", mode="max", patience=settings.patience, restore_best_weights=True
    )
    reporting = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: progress(epoch + 1, settings.epochs))
    with retracing_expected():  # TensorFlow takes the functions of all classifiers for one
        history = model.fit(
            shuffled(trained, labels[0], settings.batch_size, seed),
            epochs=settings.epochs,
            shuffle=False,  # the dataset shuffles
            validation_data=(valid, labels[1]),
            validation_batch_size=_PREDICTED_AT_ONCE,
            callbacks=[stopping, reporting],
            verbose=0,
        )
        predicted = model.predict(test, batch_size=_PREDICTED_AT_ONCE, verbose=0).argmax(axis=1).astype(np.int32)
    accuracies = tuple(round(each, 7) for each in history.history["val_accuracy"])  # Keras's are float32
    return Trained(predicted, accuracies, stopping.best_epoch + 1)
