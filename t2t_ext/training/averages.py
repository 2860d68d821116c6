"""Averages of the weights that training keeps beside them, and that users of such a run get instead of the weights."""

import abc
from collections.abc import Collection, Mapping

import tensorflow as tf

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.training import handles


class Averages(abc.ABC):
    """An average of every variable of a model.

    Attributes:
      variables: Name -> the average, float32. For a frozen variable it is the variable itself.
      slots: Name -> other variables that the average is computed from; saved in the checkpoint's training group.
    """

    def __init__(self, hparams: HParams, weights: Mapping[str, tf.Variable], frozen: Collection[str] = ()) -> None:
        """Creates the variables, which start as copies of the weights. Call it in the strategy's scope.

        Args:
          hparams: Reads ema_decay, average_last and average_every.
          weights: Name -> variable of the model.
          frozen: The names of those that are not trained.
        """
        self._hparams = hparams
        self._weights = {name: variable for name, variable in weights.items() if name not in frozen}
        self.variables = {
            name: handles.new_variable(variable, tf.float32, f"ema/{name}") if name in self._weights else variable
            for name, variable in weights.items()
        }
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
        for name, weight in self._weights.items():
            average = self.variables[name]
            distance = handles.read(average) - handles.read(weight)
            handles.assign_sub(average, (1.0 - decay) * distance)


class LastSnapshots(Averages):
    """The mean of the last snapshots of the weights, taken every ``average_every`` updates (LAWA; Kaddour 2022).

    Until the first snapshot it equals the weights themselves.
    """

    def __init__(self, hparams: HParams, weights: Mapping[str, tf.Variable], frozen: Collection[str] = ()) -> None:
        super().__init__(hparams, weights, frozen)
        self._taken = handles.new_variable(0, tf.int64, "snapshots/taken")
        self.slots["snapshots/taken"] = self._taken
        for name, variable in self._weights.items():
            slot = f"snapshots/last/{name}"
            rows = tf.zeros([hparams.average_last, *variable.shape])
            self.slots[slot] = handles.new_variable(rows, tf.float32, slot)

    def update(self, update: tf.Tensor) -> None:
        """See the base class."""

        def take() -> tf.Tensor:
            taken, count = handles.read(self._taken), self._hparams.average_last
            handles.assign_add(self._taken, tf.constant(1, tf.int64))
            share = 1.0 / tf.cast(tf.minimum(taken + 1, count), tf.float32)
            for name, weight in self._weights.items():
                snapshots = self.slots[f"snapshots/last/{name}"]
                tf.raw_ops.ResourceScatterUpdate(
                    resource=handles.handle(snapshots),
                    indices=(taken % count)[None],
                    updates=handles.read(weight)[None],
                )
                # Rows without a snapshot are still zeros.
                handles.assign(self.variables[name], tf.reduce_sum(handles.read(snapshots), 0) * share)
            return tf.constant(True)

        def follow() -> tf.Tensor:
            for name, weight in self._weights.items():
                handles.assign(self.variables[name], handles.read(weight))
            return tf.constant(True)

        def wait() -> tf.Tensor:
            return tf.cond(tf.equal(handles.read(self._taken), 0), follow, lambda: tf.constant(False))

        tf.cond(tf.equal(update % self._hparams.average_every, 0), take, wait)


def make_averages(
    hparams: HParams, weights: Mapping[str, tf.Variable], frozen: Collection[str] = ()
) -> Averages | None:
    """Creates the averages that ``hparams`` ask for, if any; arguments as in ``Averages``."""
    if hparams.average_last:
        return LastSnapshots(hparams, weights, frozen)
    return MovingAverage(hparams, weights, frozen) if hparams.ema_decay else None
