"""What a training run is asked for: ``TrainConfig``. This module imports no TensorFlow."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from t2t_ext.errors import UserError, suggest
from t2t_ext.evaluation import protocols

# Metrics of the dev set that a run logs -> whether smaller is better.
EVAL_METRICS = {
    **{"loss": True, "nll": True, "perplexity": True, "accuracy": False, "bleu": False},
    **protocols.dev_labels(),
}
# Those that are none of its translations.
_WITHOUT_TEXT = ("loss", "nll", "perplexity", "accuracy")

DEFAULT_METRIC = "bleu"
_METRIC_SETTINGS = ("best_checkpoint_metric", "eval_early_stopping_metric")

DEFAULT_RANDOM_SEED = 1
MOST_WORKER_TIMEOUT = 86400  # seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings that may change when a run is resumed: they do not alter what an update computes.

    Attributes:
      train_steps: Updates of the whole run. linear_decay and single_cycle_cos_decay end there.
      local_eval_frequency: Steps between evaluations; a checkpoint is saved with each.
      log_step_count_steps: Steps between lines of the log; the device is read only then.
      keep_checkpoint_max: Checkpoints kept in RUN/checkpoints; 0 keeps all.
      decode_hparams: Search settings of the dev set's BLEU, as ``--decode_hparams`` of the decoder.
      eval_bleu_sentences: Dev sentences that are translated for BLEU, from the first on; 0 = all, -1 = no BLEU.
      best_checkpoint_metric: Metric of the dev set by which the best checkpoint is kept in RUN/best.
      eval_early_stopping_metric: Metric of the dev set that early stopping watches.
      eval_early_stopping_metric_delta: Least change of the metric that counts as better.
      eval_early_stopping_metric_minimize: Whether smaller is better; empty (None): as the metric is defined.
      eval_early_stopping_steps: Steps without improvement after which training stops; 0 = never.
      max_skipped_steps: Steps in a row with gradients that are not finite after which training stops.
      preempted_exit_code: Exit status of the command after SIGTERM, so that a scheduler starts it again.
      deterministic: Use deterministic operations only (TensorFlow's enable_op_determinism).
      distribution: Where to compute: auto, one_device, mirrored, multi_worker_mirrored (TF_CONFIG), tpu.
      tpu: Name or address of the TPU; empty for the local one.
      worker_timeout: Another worker that gives no sign of life for so long is taken for lost, seconds.
      xla_compile: Whether XLA compiles the step; needs the hparam batch_shapes=static.
    """

    train_steps: int = 250000
    local_eval_frequency: int = 1000
    log_step_count_steps: int = 100
    keep_checkpoint_max: int = 20
    decode_hparams: str = "beam_size=4,alpha=0.6"
    eval_bleu_sentences: int = 0
    best_checkpoint_metric: str = DEFAULT_METRIC
    eval_early_stopping_metric: str = "loss"
    eval_early_stopping_metric_delta: float = 0.1
    eval_early_stopping_metric_minimize: bool | None = None
    eval_early_stopping_steps: int = 0
    max_skipped_steps: int = 20
    preempted_exit_code: int = 143
    deterministic: bool = False
    distribution: str = "auto"
    tpu: str = ""
    worker_timeout: float = 30.0
    xla_compile: bool = False

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
          UserError: A value is not allowed.
        """
        for name, kind in typing.get_type_hints(type(self)).items():
            _check_type(name, getattr(self, name), kind)
        for name in ("train_steps", "local_eval_frequency", "log_step_count_steps", "max_skipped_steps"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name}={getattr(self, name)}: it must be at least 1.")
        if not 1 <= self.worker_timeout <= MOST_WORKER_TIMEOUT:  # so written, it refuses nan, too
            raise UserError(
                f"--worker_timeout={self.worker_timeout}: it must be at least 1 s, at most {MOST_WORKER_TIMEOUT:,} s."
            )
        if not 1 <= self.preempted_exit_code <= 255:
            raise UserError(
                f"--preempted_exit_code={self.preempted_exit_code}: it must be at least 1 and at most 255; 0 would say "
                "that the run is finished."
            )
        for name in _METRIC_SETTINGS:
            metric = getattr(self, name)
            if metric not in EVAL_METRICS:
                raise UserError(
                    f"--{name}={metric}: there is no such metric. Metrics of the dev set are "
                    f"{', '.join(EVAL_METRICS)}.{suggest(metric, EVAL_METRICS)}"
                )
            if metric not in _WITHOUT_TEXT and self.eval_bleu_sentences < 0 and self._uses(name):
                default = ", the default," if metric == DEFAULT_METRIC else ""
                raise UserError(
                    f"--{name}={metric}{default} needs translations, which --eval_bleu_sentences=-1 switches off; use "
                    f"--{name}=loss with it."
                )
            if metric in protocols.dev_labels():
                protocols.protocol(protocols.with_label(metric))  # whether it can be used here

    def scored_by(self, scoring: str) -> tuple[str, ...]:
        """Returns the protocols that the dev set's translations are scored by.

        Args:
          scoring: The problem's own.

        Returns:
          One whose main score is a BLEU, and what else the problem and the metrics that are watched need.
        """
        watched = [getattr(self, name) for name in _METRIC_SETTINGS if self._uses(name)]
        needed = [protocols.with_label(label, scoring) for label in watched if label in protocols.dev_labels()]
        bleu = scoring if protocols.protocol(scoring).is_bleu else protocols.DEFAULT
        return tuple(dict.fromkeys((bleu, scoring, *needed)))

    def _uses(self, name: str) -> bool:
        return name == "best_checkpoint_metric" or self.eval_early_stopping_steps > 0

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of all settings."""
        return tuple(field.name for field in dataclasses.fields(cls))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What ``train`` does. Only ``output_dir`` is needed to go on with a run: whatever is None is as it was stored.

    A new run needs ``problem``, ``model``, ``hparams_set`` and ``data_dir``. What an update computes (these four, the
    hparams, the data and the seed) cannot change when a run is resumed; the other fields can.

    Attributes:
      output_dir: The run directory; made where it is missing.
      problem: Registered name of the problem, with ``_rev`` to turn it round.
      problem_options: The problem's constructor arguments, such as the files of translate_parallel_text.
      model: Registered name of the model.
      hparams_set: Registered name of the hparams set.
      hparams: Changes to the set, ``"batch_size=2048,learning_rate_warmup_steps=1000"``.
      data_dir: Directory that t2t_ext-datagen wrote.
      t2t_usr_dir: Directory with the user's own problems, models and hparams sets.
      random_seed: Seed of initial weights, data order and dropout (default 1).
      warm_start_from: A run directory or checkpoint that a new run takes its first weights from.
      warm_start_optimizer: Whether optimizer, steps and learning rate then begin anew (reset, the default) or go on
        where that checkpoint was (keep).
      train_command: The command line, to be stored with the run.
      train_steps: This and all that follow are those of ``TrainingSettings``.
    """

    output_dir: str
    problem: str | None = None
    problem_options: Mapping[str, Any] | None = None
    model: str | None = None
    hparams_set: str | None = None
    hparams: str = ""
    data_dir: str | None = None
    t2t_usr_dir: str | None = None
    random_seed: int | None = None
    warm_start_from: str | None = None
    warm_start_optimizer: str | None = None
    train_command: tuple[str, ...] = ()
    train_steps: int | None = None
    local_eval_frequency: int | None = None
    log_step_count_steps: int | None = None
    keep_checkpoint_max: int | None = None
    decode_hparams: str | None = None
    eval_bleu_sentences: int | None = None
    best_checkpoint_metric: str | None = None
    eval_early_stopping_metric: str | None = None
    eval_early_stopping_metric_delta: float | None = None
    eval_early_stopping_metric_minimize: bool | None = None
    eval_early_stopping_steps: int | None = None
    max_skipped_steps: int | None = None
    preempted_exit_code: int | None = None
    deterministic: bool | None = None
    distribution: str | None = None
    tpu: str | None = None
    worker_timeout: float | None = None
    xla_compile: bool | None = None

    def given_settings(self) -> dict[str, Any]:
        """Returns the names and values of the ``TrainingSettings`` that were given."""
        values = {name: getattr(self, name) for name in TrainingSettings.names()}
        return {name: value for name, value in values.items() if value is not None}


def _check_type(name: str, value: Any, kind: Any) -> None:
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if float in kinds and type(value) is int:
        return
    if type(value) not in kinds:
        raise UserError(f"--{name}={value!r} must be of the type {' or '.join(k.__name__ for k in kinds)}.")
