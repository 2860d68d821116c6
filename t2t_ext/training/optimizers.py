"""Adam, AdamW and Adafactor as pure updates of one replica's variables.

They are our own because Keras's optimizers clip, check and accumulate before gradients are summed over
replicas, and to update each variable with one fused operation. ``apply`` expects gradients that are
summed over all replicas, finite and clipped. All state is float32 under stable names: ``adam/m/<variable>``.

Gradients are dense: rows of an embedding that a batch does not contain have gradient zero, so their Adam moments
decay, unlike under tensor2tensor's lazy Adam (with an embedding shared with the softmax both are the same).
"""

import abc

import tensorflow as tf

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.training import handles


class Optimizer(abc.ABC):
    """Updates named variables; its slots are variables under stable names.

    Attributes:
      slots: Name -> variable, float32.
    """

    def __init__(self, hparams: HParams, variables: dict[str, tf.Variable]) -> None:
        """Creates the slots. Call it in the strategy's scope.

        Args:
          hparams: Reads the optimizer_* fields.
          variables: Name -> trainable variable, float32.
        """
        self.hparams = hparams
        self.variables = variables
        self.slots: dict[str, tf.Variable] = {}

    @abc.abstractmethod
    def apply(self, gradients: dict[str, tf.Tensor], learning_rate: tf.Tensor, update: tf.Tensor) -> None:
        """Updates the current replica's components.

        Args:
          gradients: Name -> float32 gradient, of the variable's shape.
          learning_rate: float32 [].
          update: int64 []; number of this update, from 1 on. Skipped steps are not counted.
        """

    def regularised(self, gradients: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the gradients of the loss with an L2 term: ``weight_decay`` times a matrix is added to its own."""
        if not self.hparams.weight_decay:
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


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015) with TensorFlow's epsilon, ``m / (sqrt(v) + epsilon)`` after the bias correction."""

    def __init__(self, hparams: HParams, variables: dict[str, tf.Variable]) -> None:
        super().__init__(hparams, variables)
        for name, variable in variables.items():
            self._add_slot("adam/m", name, variable.shape)
            self._add_slot("adam/v", name, variable.shape)

    def apply(self, gradients: dict[str, tf.Tensor], learning_rate: tf.Tensor, update: tf.Tensor) -> None:
        """See the base class."""
        hparams = self.hparams
        count = tf.cast(update, tf.float32)
        for name, variable in self.variables.items():
            tf.raw_ops.ResourceApplyAdam(
                var=handles.handle(variable),
                m=handles.handle(self.slots[f"adam/m/{name}"]),
                v=handles.handle(self.slots[f"adam/v/{name}"]),
                beta1_power=tf.pow(hparams.optimizer_adam_beta1, count),
                beta2_power=tf.pow(hparams.optimizer_adam_beta2, count),
                lr=learning_rate,
                beta1=hparams.optimizer_adam_beta1,
                beta2=hparams.optimizer_adam_beta2,
                epsilon=hparams.optimizer_adam_epsilon,
                grad=gradients[name],
            )


class AdamW(Adam):
    """Adam with decoupled weight decay of matrices (Loshchilov & Hutter 2019): ``w -= lr * weight_decay * w``."""

    def regularised(self, gradients: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the gradients as they are: this optimizer's weight decay is apart from the loss."""
        return gradients

    def apply(self, gradients: dict[str, tf.Tensor], learning_rate: tf.Tensor, update: tf.Tensor) -> None:
        """See the base class."""
        if self.hparams.weight_decay:
            for variable in self.variables.values():
                if variable.shape.rank >= 2:
                    shrinkage = learning_rate * self.hparams.weight_decay
                    handles.assign_sub(variable, shrinkage * handles.read(variable))
        super().apply(gradients, learning_rate, update)


class Adafactor(Optimizer):
    """Adafactor (Shazeer & Stern 2018) with tensor2tensor's settings: second moments by row and column."""

    _EPSILON_GRADIENT = 1e-30  # added to squared gradients
    _EPSILON_PARAMETER = 1e-3  # least parameter scale

    def __init__(self, hparams: HParams, variables: dict[str, tf.Variable]) -> None:
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
        """Updates the second moments and returns the gradient divided by their root."""
        squared = tf.square(gradient) + self._EPSILON_GRADIENT
        if gradient.shape.rank < 2:
            return gradient * tf.math.rsqrt(self._averaged(f"adafactor/v/{name}", squared, decay))
        rows = self._averaged(f"adafactor/vr/{name}", tf.reduce_mean(squared, -1), decay)
        columns = self._averaged(f"adafactor/vc/{name}", tf.reduce_mean(squared, -2), decay)
        row_factor = tf.math.rsqrt(rows / tf.reduce_mean(rows, -1, keepdims=True))
        return gradient * row_factor[..., :, None] * tf.math.rsqrt(columns)[..., None, :]

    def _averaged(self, slot: str, value: tf.Tensor, decay: tf.Tensor | float) -> tf.Tensor:
        """Updates a moving average and returns it."""
        new = decay * handles.read(self.slots[slot]) + (1.0 - decay) * value
        handles.assign(self.slots[slot], new)
        return new


_OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adam_w": AdamW, "adafactor": Adafactor}


def make_optimizer(hparams: HParams, variables: dict[str, tf.Variable]) -> Optimizer:
    """Creates the optimizer that ``hparams.optimizer`` names. Call it in the strategy's scope."""
    return _OPTIMIZERS[hparams.optimizer](hparams, variables)


def _rms(x: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(x)))
