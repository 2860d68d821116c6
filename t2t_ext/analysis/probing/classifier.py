"""The classifier of probing tasks: two layers on a sentence's representation (Ampomah et al. 2021, section 7.1).

    p = softmax(W2 relu(W1 x + b1) + b2)

The loss is the mean cross-entropy of a batch and lambda times the sum of the squares of W1. The paper says neither the
hidden layer's width nor its activation; here they are D and relu. An epoch is one call of one graph.

Legend: N sentences, D features, H hidden units, C classes.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

_DECAY, _EPSILON = 0.9, 1e-7  # of RMSProp, as Keras's
_PREDICTED_AT_ONCE = 8192
_FEATURES = tf.TensorSpec([None, None], tf.float32)
_LABELS = tf.TensorSpec([None], tf.int32)

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """Training settings of a classifier; the defaults are the paper's where it says.

    Attributes:
      hidden_size: H; 0: D.
      learning_rate: Of RMSProp.
      l2: lambda.
      batch_size: Sentences of an update.
      epochs: The most.
      patience: Training stops after this many epochs in which the accuracy on the validation sentences has not become
        better; the weights are those of the best epoch.
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
      predicted: int32 [test sentences], classes.
      validation: Accuracy on the validation sentences after each epoch.
      best_epoch: The epoch whose weights predicted, from 1.
    """

    predicted: np.ndarray
    validation: tuple[float, ...]
    best_epoch: int


class Classifier:
    """Two layers and their RMSProp averages."""

    def __init__(self, width: int, classes: int, settings: ClassifierSettings, seed: int) -> None:
        """Makes a classifier with Glorot's uniform weights, a function of the seed.

        Args:
          width: D.
          classes: C.
          settings: How it is trained.
          seed: Of the weights, and of the order of the sentences.
        """
        self.settings, self.seed = settings, seed
        random = np.random.default_rng([seed, 0])
        hidden = settings.hidden_size or width
        self.weights = [
            tf.Variable(values)
            for rows, columns in ((width, hidden), (hidden, classes))
            for values in (_glorot(random, rows, columns), np.zeros(columns, np.float32))
        ]
        self._squares = [tf.Variable(tf.zeros_like(each)) for each in self.weights]
        self._momenta = [tf.Variable(tf.zeros_like(each)) for each in self.weights]
        # Of its own for each: the shapes of the variables are another classifier's.
        self._epoch = tf.function(self._run_epoch, input_signature=[_FEATURES, _LABELS, _LABELS], autograph=False)
        self._classes = tf.function(self._best_classes, input_signature=[_FEATURES], autograph=False)

    def train_epoch(self, features: tf.Tensor, labels: tf.Tensor, epoch: int) -> float:
        """Passes once through the sentences, in an order that is a function of seed and epoch.

        Args:
          features: float32 [N, D].
          labels: int32 [N].
          epoch: From 1.

        Returns:
          The mean cross-entropy.
        """
        order = np.random.default_rng([self.seed, epoch]).permutation(len(labels)).astype(np.int32)
        return float(self._epoch(features, labels, order))

    def predict(self, features: tf.Tensor) -> np.ndarray:
        """Returns the classes int32 [N] that are the likeliest for features float32 [N, D]."""
        parts = [
            self._classes(features[start : start + _PREDICTED_AT_ONCE]).numpy()
            for start in range(0, len(features), _PREDICTED_AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)

    def _logits(self, x: tf.Tensor) -> tf.Tensor:
        kernel, bias, out_kernel, out_bias = self.weights
        return tf.nn.relu(tf.matmul(x, kernel) + bias) @ out_kernel + out_bias

    def _best_classes(self, x: tf.Tensor) -> tf.Tensor:
        return tf.argmax(self._logits(x), axis=1, output_type=tf.int32)

    def _run_epoch(self, features: tf.Tensor, labels: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
        size = self.settings.batch_size

        def update(start: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            chosen = order[start : start + size]
            x, y = tf.gather(features, chosen), tf.gather(labels, chosen)
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, self._logits(x))
                loss = tf.reduce_mean(losses) + self.settings.l2 * tf.reduce_sum(tf.square(self.weights[0]))
            self._apply(tape.gradient(loss, self.weights))
            return start + size, total + tf.reduce_sum(losses)

        count = tf.shape(order)[0]
        _, total = tf.while_loop(
            lambda start, _: start < count, update, (tf.constant(0), tf.constant(0.0)), parallel_iterations=1
        )
        return total / tf.cast(count, tf.float32)

    def _apply(self, gradients: list[tf.Tensor]) -> None:
        # One operation a variable: written out, the update would take longer than the gradient.
        for each, squares, momenta, gradient in zip(self.weights, self._squares, self._momenta, gradients, strict=True):
            tf.raw_ops.ResourceApplyRMSProp(
                var=each.handle,
                ms=squares.handle,
                mom=momenta.handle,
                lr=tf.constant(self.settings.learning_rate, tf.float32),
                rho=tf.constant(_DECAY, tf.float32),
                momentum=tf.constant(0.0, tf.float32),
                epsilon=tf.constant(_EPSILON, tf.float32),
                grad=gradient,
            )


def _glorot(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    limit = math.sqrt(6 / (rows + columns))
    return random.uniform(-limit, limit, [rows, columns]).astype(np.float32)


def train(
    features: tuple[np.ndarray, np.ndarray, np.ndarray],
    labels: tuple[np.ndarray, np.ndarray],
    classes: int,
    settings: ClassifierSettings,
    seed: int,
    progress: Progress = lambda done, total: None,
) -> Trained:
    """Trains a classifier and lets it predict the test sentences.

    Args:
      features: Of training, validation and test sentences, float32 [N, D] each.
      labels: Of training and validation sentences, int32 [N] each.
      classes: C.
      settings: How.
      seed: Of the weights, and of the order of the sentences.
      progress: Called with (epochs done, the most epochs).
    """
    trained, valid, test = (tf.constant(part) for part in features)
    known = tf.constant(labels[0])
    classifier = Classifier(trained.shape[1], classes, settings, seed)
    best, best_epoch, kept = -1.0, 0, []
    accuracies: list[float] = []
    for epoch in range(1, settings.epochs + 1):
        classifier.train_epoch(trained, known, epoch)
        accuracies.append(float((classifier.predict(valid) == labels[1]).mean()))
        progress(epoch, settings.epochs)
        if accuracies[-1] > best:
            best, best_epoch = accuracies[-1], epoch
            kept = [each.numpy() for each in classifier.weights]
        elif epoch - best_epoch >= settings.patience:
            break
    for variable, values in zip(classifier.weights, kept, strict=True):
        variable.assign(values)
    return Trained(classifier.predict(test), tuple(accuracies), best_epoch)
