"""Learning-rate schedules: products of tensor2tensor's factors, such as ``constant*linear_warmup*rsqrt_decay``.

``step`` is the number of the current step, counted from 1 and including skipped steps, so that the first update has a
learning rate above 0 during warm-up. ``legacy`` is then exactly tensor2tensor's (Vaswani et al. 2017, equation 3, which
counts in the same way), and every other factor runs one step ahead of tensor2tensor's.
"""

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.errors import UserError, suggest

Factor = Callable[[tf.Tensor, HParams, int], tf.Tensor | float]
_MOST_STEPS = 1 << 17  # steps at which the peak is searched for; a million would take a second
_EQUAL = 1e-6  # rates with a smaller relative difference differ only by rounding


def _warmup(hparams: HParams) -> float:
    # Without a warm-up the decays start at step 1.
    return float(max(hparams.learning_rate_warmup_steps, 1))


def _width(hparams: HParams) -> int:
    width = getattr(hparams, "hidden_size", None)
    if width is None:
        raise UserError(
            f"learning_rate_schedule={hparams.learning_rate_schedule!r} depends on hidden_size, which "
            f"{type(hparams).__name__} does not have: choose another schedule."
        )
    return width


def _single_cycle_cos_decay(step: tf.Tensor, hparams: HParams, train_steps: int) -> tf.Tensor:
    warmup = hparams.learning_rate_warmup_steps
    if train_steps <= warmup:
        raise UserError(
            f"The schedule single_cycle_cos_decay needs train_steps ({train_steps}) above "
            f"learning_rate_warmup_steps ({warmup}). Set --train_steps higher or the warm-up lower."
        )
    return 0.5 + 0.5 * tf.cos(math.pi * (tf.maximum(step, warmup) - warmup) / (train_steps - warmup))


def _cosdecay(step: tf.Tensor, hparams: HParams, train_steps: int) -> tf.Tensor:
    decayed = 0.5 * (1.0 + tf.cos(math.pi * step / hparams.learning_rate_decay_steps))
    return tf.where(step <= hparams.learning_rate_warmup_steps, 1.0, decayed)


def _exp_decay(step: tf.Tensor, hparams: HParams, train_steps: int) -> tf.Tensor:
    periods = tf.maximum(step - hparams.learning_rate_warmup_steps, 0.0) / hparams.learning_rate_decay_steps
    return tf.pow(float(hparams.learning_rate_decay_rate), periods)


def _legacy(step: tf.Tensor, hparams: HParams, train_steps: int) -> tf.Tensor:
    noam = 5000.0 * _width(hparams) ** -0.5 * tf.minimum(step * _warmup(hparams) ** -1.5, tf.math.rsqrt(step))
    correction = 0.002 if "adam" in hparams.optimizer else 1.0
    return noam * correction * hparams.learning_rate


FACTORS: dict[str, Factor] = {
    "constant": lambda step, hparams, _: hparams.learning_rate_constant,
    "linear_warmup": lambda step, hparams, _: tf.minimum(1.0, step / _warmup(hparams)),
    "rsqrt_decay": lambda step, hparams, _: tf.math.rsqrt(tf.maximum(step, _warmup(hparams))),
    "rsqrt_hidden_size": lambda step, hparams, _: _width(hparams) ** -0.5,
    "single_cycle_cos_decay": _single_cycle_cos_decay,
    "cosdecay": _cosdecay,
    "linear_decay": lambda step, hparams, train_steps: tf.clip_by_value(
        (train_steps - step) / hparams.learning_rate_decay_steps, 0.0, 1.0
    ),
    "exp_decay": _exp_decay,
    "legacy": _legacy,
}


_RISING = ("linear_warmup", "legacy")  # factors that are below their peak before the end of the warm-up


class Schedule:
    """The learning rate as a function of the step, usable in a graph and on the host."""

    def __init__(self, hparams: HParams, train_steps: int) -> None:
        """Checks the schedule of ``hparams``; linear_decay and single_cycle_cos_decay end at ``train_steps``.

        Raises:
          UserError: A factor is unknown, or a setting that it needs is missing.
        """
        self._hparams = hparams
        self._train_steps = train_steps
        self._factors = []
        for name in (part.strip() for part in hparams.learning_rate_schedule.split("*")):
            if name not in FACTORS:
                raise UserError(
                    f"Unknown factor {name!r} in learning_rate_schedule {hparams.learning_rate_schedule!r}; "
                    f"factors are {', '.join(FACTORS)}, joined by '*'.{suggest(name, FACTORS)}"
                )
            self._factors.append(FACTORS[name])
        self(tf.constant(1, tf.int64))  # reports settings that a factor lacks before training starts

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the learning rate, float32 [], of step number ``step`` (int64 [], from 1)."""
        position = tf.cast(step, tf.float32)
        rate = tf.constant(1.0)
        for factor in self._factors:
            rate *= factor(position, self._hparams, self._train_steps)
        return rate

    def peak(self) -> tuple[float, int]:
        """Returns the highest learning rate of the training, and the first step that has it."""
        last = self._train_steps
        steps = np.arange(1, last + 1) if last <= _MOST_STEPS else np.linspace(1, last, _MOST_STEPS).astype(np.int64)
        if self._hparams.learning_rate_warmup_steps in range(1, last + 1):
            steps = np.union1d(steps, [self._hparams.learning_rate_warmup_steps])
        with tf.device("CPU"):
            rates = np.broadcast_to(self(tf.constant(steps, tf.int64)).numpy(), steps.shape)
        found = int(np.argmax(rates >= rates.max() * (1.0 - _EQUAL)))
        return float(rates[found]), int(steps[found])

    def describe(self) -> str:
        """Returns a line with the highest learning rate and its step, or a warning if training ends during warm-up."""
        hparams, (rate, step) = self._hparams, self.peak()
        warmup = hparams.learning_rate_warmup_steps
        # Users of other toolkits may take learning_rate for the rate itself and would train with a millionth of it.
        factor = f" (a product of the schedule legacy; learning_rate={hparams.learning_rate:g} is one factor of it)"
        note = factor if "legacy" in hparams.learning_rate_factors else ""
        if warmup > self._train_steps and any(name in _RISING for name in hparams.learning_rate_factors):
            return (
                f"warning: learning rate: the warm-up of {warmup:,} steps is longer than "
                f"--train_steps={self._train_steps}: the rate reaches {rate:.2e} only, at step {step:,}{note}; "
                "lower learning_rate_warmup_steps, or train longer"
            )
        return f"learning rate: at most {rate:.2e}, at step {step:,}{note}"
