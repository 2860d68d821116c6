"""Averages of the weights that training keeps beside them, and that users of such a run get instead of the weights."""

import abc
from collections.abc import Mapping

import tensorflow as tf

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.training import handles


class Averages(abc.ABC):
    """An average of every variable of a model.

    Attributes:
      variables: Name -> the average, float32.
      slots: Name -> other variables that the average is computed from; saved in the checkpoint's training group.
    """

    def __init__(self, hparams: HParams, weights: Mapping[str, tf.Variable]) -> None:
        """Creates the variables, which start as copies of the weights. Call it in the strategy's scope.

        Args:
          hparams: Reads ema_decay, average_last and average_every.
          weights: Name -> trained variable.
        """
        self._hparams = hparams
        self._weights = weights
        self.variables = {name: handles.new_variable(weights[name], tf.float32, f"ema/{name}") for name in weights}
        self.slots: dict[str, tf.Variable] = {}

    @abc.abstractmethod
    def update(self, update: tf.Tensor) -> None:
        """Includes the weights after an update in the average, on the current replica.

        Args:
          update: int64 []; number of the update, counted from 1. Skipped steps are not counted.
        """


class MovingAverage(Averages):
    """An exponential moving average, with a shorter memory during the first updates."""

    def update(self, update: tf.Tensor) -> None:
        """See the base class."""
        # Otherwise the random initial weights would stay in the average for a long time.
        count = tf.cast(update, tf.float32)
        decay = tf.minimum(self._hparams.ema_decay, (1.0 + count) / (10.0 + count))
        for name, average in self.variables.items():
            distance = handles.read(average) - handles.read(self._weights[name])
            handles.assign_sub(average, (1.0 - decay) * distance)


class LastSnapshots(Averages):
    """The mean of the last snapshots of the weights, taken every ``average_every`` updates (LAWA; Kaddour 2022).

    Until the first snapshot it equals the weights themselves.
    """

    def __init__(self, hparams: HParams, weights: Mapping[str, tf.Variable]) -> None:
        super().__init__(hparams, weights)
        self._taken = handles.new_variable(0, tf.int64, "snapshots/taken")
        self.slots["snapshots/taken"] = self._taken
        for name, variable in weights.items():
            slot = f"snapshots/last/{name}"
            rows = tf.zeros([hparams.average_last, *variable.shape])
            self.slots[slot] = handles.new_variable(rows, tf.float32, slot)

    def update(self, update: tf.Tensor) -> None:
        """See the base class."""

        def take() -> tf.Tensor:
            taken, count = handles.read(self._taken), self._hparams.average_last
            handles.assign_add(self._taken, tf.constant(1, tf.int64))
            share = 1.0 / tf.cast(tf.minimum(taken + 1, count), tf.float32)
            for name, average in self.variables.items():
                snapshots = self.slots[f"snapshots/last/{name}"]
                tf.raw_ops.ResourceScatterUpdate(
                    resource=handles.handle(snapshots),
                    indices=(taken % count)[None],
                    updates=handles.read(self._weights[name])[None],
                )
                # Rows without a snapshot are still zeros.
                handles.assign(average, tf.reduce_sum(handles.read(snapshots), 0) * share)
            return tf.constant(True)

        def follow() -> tf.Tensor:
            for name, average in self.variables.items():
                handles.assign(average, handles.read(self._weights[name]))
            return tf.constant(True)

        def wait() -> tf.Tensor:
            return tf.cond(tf.equal(handles.read(self._taken), 0), follow, lambda: tf.constant(False))

        tf.cond(tf.equal(update % self._hparams.average_every, 0), take, wait)


def make_averages(hparams: HParams, weights: Mapping[str, tf.Variable]) -> Averages | None:
    """Creates the averages that ``hparams`` ask for, if any. Call it in the strategy's scope."""
    if hparams.average_last:
        return LastSnapshots(hparams, weights)
    return MovingAverage(hparams, weights) if hparams.ema_decay else None
