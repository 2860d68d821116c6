"""Adam, AdamW, Schedule-Free AdamW and Adafactor as pure updates of one replica's variables.

Keras's optimizers are not used, because they clip, check and accumulate before gradients are summed over
replicas, and because here one fused operation updates each variable. ``apply`` expects gradients that are
summed over all replicas, finite and clipped. All state is float32 under stable names: ``adam/m/<variable>``.

Gradients are dense: rows of an embedding that a batch does not contain have gradient zero, so their Adam moments
decay, unlike with tensor2tensor's lazy Adam (if the embedding is shared with the softmax, both are the same).
"""

import abc
from collections.abc import Collection, Mapping
from typing import ClassVar

import numpy as np
import tensorflow as tf

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.training import handles


class Optimizer(abc.ABC):
    """Updates named variables; its slots are variables under stable names.

    Attributes:
      slots: Name -> variable, float32.
      averages: Name -> variable, float32: the weights that users get, if these are not the trained variables.
    """

    decouples_decay: ClassVar[bool] = False  # whether weight decay is part of ``apply``, not of the loss

    def __init__(self, hparams: HParams, variables: Mapping[str, tf.Variable]) -> None:
        """Creates the slots of ``variables``, trainable float32 variables by name. Call it in the strategy's scope."""
        self.hparams = hparams
        self.variables = variables
        self.slots: dict[str, tf.Variable] = {}
        self.averages: dict[str, tf.Variable] = {}

    @abc.abstractmethod
    def apply(self, gradients: dict[str, tf.Tensor], learning_rate: tf.Tensor, update: tf.Tensor) -> None:
        """Updates the current replica's components.

        Args:
          gradients: Name -> float32 gradient, of the variable's shape.
          learning_rate: float32 [].
          update: int64 []; number of this update, counted from 1. Skipped steps are not counted.
        """

    def begin(self, weights: Mapping[str, np.ndarray]) -> None:  # noqa: B027 - most optimizers copy no weights
        """Sets the slots that start as copies of the weights; needed after new initial weights were assigned."""

    def regularised(self, gradients: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the gradients of the loss with an L2 term: ``weight_decay`` times a matrix is added to its gradient.

        Optimizers that decouple weight decay leave the gradients as they are.
        """
        if self.decouples_decay or not self.hparams.weight_decay:
            return gradients
        return {
            name: gradient + self.hparams.weight_decay * handles.read(self.variables[name])
            if gradient.shape.rank >= 2
            else gradient
            for name, gradient in gradients.items()
        }

    def _add_slot(self, kind: str, name: str, shape: tuple[int, ...]) -> None:
        slot = f"{kind}/{name}"
        self.slots[slot] = handles.new_variable(tf.zeros(shape), tf.float32, slot)

    def _averaged(self, slot: str, value: tf.Tensor, decay: tf.Tensor | float) -> tf.Tensor:
        """Updates a slot that is a moving average and returns it."""
        new = decay * handles.read(self.slots[slot]) + (1.0 - decay) * value
        handles.assign(self.slots[slot], new)
        return new


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015, the form before section 2.1: ``m / (sqrt(v) + epsilon)`` times the bias correction)."""

    def __init__(self, hparams: HParams, variables: Mapping[str, tf.Variable]) -> None:
        super().__init__(hparams, variables)
        for name, variable in variables.items():
            self._add_slot("adam/m", name, variable.shape)
            self._add_slot("adam/v", name, variable.shape)

    def apply(self, gradients: dict[str, tf.Tensor], learning_rate: tf.Tensor, update: tf.Tensor) -> None:
        """See the base class."""
        hparams = self.hparams
        count = tf.cast(update, tf.float32)
        # Once for all variables: two small kernels on a GPU instead of two per variable.
        beta1_power = tf.pow(hparams.optimizer_adam_beta1, count)
        beta2_power = tf.pow(hparams.optimizer_adam_beta2, count)
        for name, variable in self.variables.items():
            tf.raw_ops.ResourceApplyAdam(
                var=handles.handle(variable),
                m=handles.handle(self.slots[f"adam/m/{name}"]),
                v=handles.handle(self.slots[f"adam/v/{name}"]),
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=learning_rate,
                beta1=hparams.optimizer_adam_beta1,
                beta2=hparams.optimizer_adam_beta2,
                epsilon=hparams.optimizer_adam_epsilon,
                grad=gradients[name],
            )


class AdamW(Adam):
    """Adam with decoupled weight decay of matrices (Loshchilov & Hutter 2019): ``w -= lr * weight_decay * w``."""

    decouples_decay = True

    def apply(self, gradients: dict[str, tf.Tensor], learning_rate: tf.Tensor, update: tf.Tensor) -> None:
        """See the base class."""
        if self.hparams.weight_decay:
            for variable in self.variables.values():
                if variable.shape.rank >= 2:
                    shrinkage = learning_rate * self.hparams.weight_decay
                    handles.assign_sub(variable, shrinkage * handles.read(variable))
        super().apply(gradients, learning_rate, update)


class ScheduleFreeAdamW(Optimizer):
    """Schedule-Free AdamW (Defazio et al. 2024, "The Road Less Scheduled", algorithm 1).

    The trained variables are y, where gradients are taken. Adam's steps, without the first moment, move z (slots).
    x (``averages``, which users get) is the weighted mean of every z so far, and y = (1 - beta1) z + beta1 x. The
    weight of a z is the square of the largest learning rate up to it, bias correction included, so that warm-up counts
    for little, times its number to the power ``optimizer_schedule_free_power``. Weight decay of matrices is taken at y,
    as in the authors' code: ``z -= lr * weight_decay * y``.
    """

    decouples_decay = True

    def __init__(self, hparams: HParams, variables: Mapping[str, tf.Variable]) -> None:
        super().__init__(hparams, variables)
        for name, variable in variables.items():
            self._add_slot("schedule_free/v", name, variable.shape)
            z = f"schedule_free/z/{name}"
            self.slots[z] = handles.new_variable(variable, tf.float32, z)
            self.averages[name] = handles.new_variable(variable, tf.float32, f"schedule_free/x/{name}")
        self._add_slot("schedule_free", "largest_rate", ())
        self._add_slot("schedule_free", "sum_of_weights", ())

    def begin(self, weights: Mapping[str, np.ndarray]) -> None:
        """See the base class."""
        for name in self.variables:
            self.slots[f"schedule_free/z/{name}"].assign(weights[name])

    def apply(self, gradients: dict[str, tf.Tensor], learning_rate: tf.Tensor, update: tf.Tensor) -> None:
        """See the base class."""
        hparams = self.hparams
        count = tf.cast(update, tf.float32)
        beta2_power = tf.pow(hparams.optimizer_adam_beta2, count)
        rate = learning_rate * tf.sqrt(1.0 - beta2_power)
        largest = self.slots["schedule_free/largest_rate"]
        handles.assign(largest, tf.maximum(handles.read(largest), rate))
        weight = tf.pow(count, hparams.optimizer_schedule_free_power) * tf.square(handles.read(largest))
        handles.assign_add(self.slots["schedule_free/sum_of_weights"], weight)
        total = handles.read(self.slots["schedule_free/sum_of_weights"])
        # If the sum overflows, as with power 8 after 65,000 updates, integrals replace the sums of powers.
        limit = 1.0 - tf.pow((count - 0.5) / (count + 0.5), hparams.optimizer_schedule_free_power + 1.0)
        share = tf.where(tf.math.is_finite(total), tf.math.divide_no_nan(weight, total), limit)
        for name, variable in self.variables.items():
            slots = {kind: self.slots[f"schedule_free/{kind}/{name}"] for kind in "vz"}
            if hparams.weight_decay and variable.shape.rank >= 2:
                _subtract(slots["z"], rate * hparams.weight_decay, handles.read(variable))
            # One fused operation instead of seven. With beta1 = 0, its first moment is the gradient; y serves as that
            # slot, since y is computed anew below.
            handles.assign(variable, gradients[name])
            tf.raw_ops.ResourceApplyAdam(
                var=handles.handle(slots["z"]),
                m=handles.handle(variable),
                v=handles.handle(slots["v"]),
                beta1_power=0.0,
                beta2_power=beta2_power,
                lr=learning_rate,
                beta1=0.0,
                beta2=hparams.optimizer_adam_beta2,
                epsilon=hparams.optimizer_adam_epsilon,
                grad=gradients[name],
            )
            z = handles.read(slots["z"])
            distance = handles.read(self.averages[name]) - z
            _subtract(self.averages[name], share, distance)
            handles.assign(variable, z)
            _subtract(variable, hparams.optimizer_adam_beta1 * (share - 1.0), distance)


class Adafactor(Optimizer):
    """Adafactor (Shazeer & Stern 2018) with tensor2tensor's settings: second moments by row and column."""

    _EPSILON_GRADIENT = 1e-30  # added to squared gradients
    _EPSILON_PARAMETER = 1e-3  # minimum parameter scale

    def __init__(self, hparams: HParams, variables: Mapping[str, tf.Variable]) -> None:
        super().__init__(hparams, variables)
        for name, variable in variables.items():
            shape = tuple(variable.shape)
            if len(shape) >= 2:
                self._add_slot("adafactor/vr", name, shape[:-1])
                self._add_slot("adafactor/vc", name, shape[:-2] + shape[-1:])
            else:
                self._add_slot("adafactor/v", name, shape)
            if hparams.optimizer_adafactor_beta1:
                self._add_slot("adafactor/m", name, shape)

    def apply(self, gradients: dict[str, tf.Tensor], learning_rate: tf.Tensor, update: tf.Tensor) -> None:
        """See the base class."""
        hparams, count = self.hparams, tf.cast(update, tf.float32)
        beta1, beta2 = hparams.optimizer_adafactor_beta1, hparams.optimizer_adafactor_beta2
        if hparams.optimizer_adafactor_decay_type == "pow":
            decay = 1.0 - tf.pow(count, -hparams.optimizer_adafactor_memory_exponent)
        else:
            decay = beta2 * (1.0 - tf.pow(beta2, count - 1.0)) / (1.0 - tf.pow(beta2, count))
        threshold = hparams.optimizer_adafactor_clipping_threshold
        for name, variable in self.variables.items():
            scale = learning_rate
            if hparams.optimizer_adafactor_multiply_by_parameter_scale:
                scale *= tf.maximum(_rms(handles.read(variable)), self._EPSILON_PARAMETER)
            step = self._normalized(name, gradients[name], decay)
            if threshold:
                step /= tf.maximum(1.0, _rms(step) / threshold)
            step *= scale
            if beta1:
                step = self._averaged(f"adafactor/m/{name}", step, beta1)
            handles.assign_sub(variable, step)

    def _normalized(self, name: str, gradient: tf.Tensor, decay: tf.Tensor) -> tf.Tensor:
        """Updates the second moments and returns the gradient divided by their square root."""
        squared = tf.square(gradient) + self._EPSILON_GRADIENT
        if gradient.shape.rank < 2:
            return gradient * tf.math.rsqrt(self._averaged(f"adafactor/v/{name}", squared, decay))
        rows = self._averaged(f"adafactor/vr/{name}", tf.reduce_mean(squared, -1), decay)
        columns = self._averaged(f"adafactor/vc/{name}", tf.reduce_mean(squared, -2), decay)
        row_factor = tf.math.rsqrt(rows / tf.reduce_mean(rows, -1, keepdims=True))
        return gradient * row_factor[..., :, None] * tf.math.rsqrt(columns)[..., None, :]


_OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adam": Adam,
    "adam_w": AdamW,
    "schedule_free_adam_w": ScheduleFreeAdamW,
    "adafactor": Adafactor,
}


def make_optimizer(hparams: HParams, variables: Mapping[str, tf.Variable], frozen: Collection[str] = ()) -> Optimizer:
    """Creates the optimizer that ``hparams.optimizer`` names. Call it in the strategy's scope.

    Args:
      hparams: The settings.
      variables: Name -> variable of the model; float32 unless it is frozen.
      frozen: The names of those that are not trained. They have no slots; if the optimizer keeps averages, theirs are
        the variables themselves.
    """
    learning = {name: variable for name, variable in variables.items() if name not in frozen}
    optimizer = _OPTIMIZERS[hparams.optimizer](hparams, learning)
    if optimizer.averages:
        optimizer.averages = {name: optimizer.averages.get(name, variable) for name, variable in variables.items()}
    return optimizer


def _subtract(variable: tf.Variable, factor: tf.Tensor, value: tf.Tensor) -> None:
    """Subtracts a factor times a value from the current replica's component, in one pass."""
    tf.raw_ops.ResourceApplyGradientDescent(var=handles.handle(variable), alpha=factor, delta=value)


def _rms(x: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(x)))
