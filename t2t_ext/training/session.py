"""A run in memory: model, optimizer, state and data under a strategy, restored from the run's last checkpoint."""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.data.datasets import target_variants
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.pipeline import TrainPipeline
from t2t_ext.errors import UserError
from t2t_ext.io import files
from t2t_ext.models.seq2seq import build_model
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory
from t2t_ext.training import global_batches, warm_start
from t2t_ext.training.optimizers import make_optimizer
from t2t_ext.training.schedules import Schedule
from t2t_ext.training.setup_run import ResolvedRun
from t2t_ext.training.state import WINDOW_FIELDS, TrainingState
from t2t_ext.training.step import TrainStep
from t2t_ext.training.workers import Workers

Say = Callable[[str], None]


class Session:
    """The objects that a training loop works with.

    Attributes:
      strategy: The distribution strategy.
      model: The model that is trained.
      state: Step, loss scale, metric sums and so on.
      schedule: The learning-rate schedule.
      train_step: Makes one update.
      pipeline: The training batches.
      step: Number of the last finished step, on the host.
    """

    def __init__(self, run: ResolvedRun, generated: GeneratedData, strategy: tf.distribute.Strategy) -> None:
        """Builds a fresh model and its optimizer; ``restore`` or ``warm_start`` replaces the weights.

        Raises:
          UserError: The model does not fit the hparams, or the data are damaged.
        """
        hparams, settings, seed = run.hparams, run.settings, run.config.random_seed
        self.strategy = strategy
        self.hparams = hparams
        self.encoders = generated.text_encoders()
        self.schedule = Schedule(hparams, settings.train_steps)
        keras.utils.set_random_seed(seed % 2**32)
        model_class = registry.model(run.config.model)
        target_sides = model_class.sides(hparams).target_sides
        target_variants.check_model(hparams, target_sides)
        with strategy.scope():
            self.model = build_model(
                model_class, hparams, *self.encoders, source_feature_size=generated.source_feature_size
            )
            variables = self.model.named_variables()
            frozen = [name for name, rate in self.model.rates().items() if not rate]
            optimizer = make_optimizer(hparams, variables, frozen)
            self.state = TrainingState(hparams, variables, optimizer)
        self._variables = variables
        self.train_step = TrainStep(
            self.model,
            optimizer=optimizer,
            schedule=self.schedule,
            state=self.state,
            hparams=hparams,
            strategy=strategy,
            random_seed=seed,
            jit_compile=settings.xla_compile,
        )
        self.pipeline = TrainPipeline(
            ExampleStore.load(generated, "train"),
            hparams,
            seed=seed,
            num_replicas=strategy.num_replicas_in_sync,
            target_sides=target_sides,
            fixed_shapes=settings.xla_compile or settings.distribution == "tpu",
        )
        self.step = 0

    def restore(self, run: files.PathLike, workers: Workers, say: Say) -> bool:
        """Restores the newest intact checkpoint of a run, the same one on all workers; all of them must call this.

        ``say`` is told about damaged checkpoints and a changed number of replicas. Returns whether there was a
        checkpoint.

        Raises:
          UserError: A worker cannot read it, it does not fit this version, or its batches were different.
        """
        path = _common_checkpoint(pathlib.Path(run), workers, say)
        if path is None:
            return False
        global_batches.check(path, self.global_batches(), self._global_batches_with, say)
        # Not verified again: the checksums have just been checked.
        self.model.assign(checkpoints.load_arrays(path, "model", verify=False), origin=path)
        training = checkpoints.load_arrays(path, "training", verify=False)
        _assign(self.state.named_variables(), self.state.fitted(training), path)
        if self.state.averages:
            averages = checkpoints.load_arrays(path, "ema", verify=False)
            trained = {name: array for name, array in averages.items() if name not in self.state.frozen}
            _assign(self.state.trained_averages, trained, path)
        self.step = int(_value(self.state.step))
        return True

    def global_batches(self) -> dict[str, Any]:
        """Returns what a checkpoint records about the batches that it was trained on."""
        return global_batches.describe(self.hparams, self.strategy.num_replicas_in_sync, self.pipeline.planner)

    def _global_batches_with(self, batch_size: int, accumulated: int) -> dict[str, Any]:
        """Returns what ``global_batches`` would return with other sizes."""
        hparams = self.hparams.replace(batch_size=batch_size, gradient_accumulation_steps=accumulated)
        planner = self.pipeline.planner.with_batches_of(hparams)
        return global_batches.describe(hparams, self.strategy.num_replicas_in_sync, planner)

    def begin_with_preset(self) -> None:
        """Loads the weights of a pretrained encoder into the fresh model if the hparams name one."""
        pretrained = self.model.pretrained()
        if pretrained:
            self.model.assign(pretrained, strict=False)
            self.state.begin({name: _value(variable) for name, variable in self._variables.items()})

    def warm_start(self, origin: str, *, keep: bool = False) -> warm_start.WarmStartReport:
        """Takes the first weights from another run, or from a checkpoint in one.

        With ``keep``, training continues with that run's optimizer state and after its steps instead of starting anew.
        """
        fresh = {name: _value(variable) for name, variable in self._variables.items()}
        sides = warm_start.vocabulary_sides(self.model)
        arrays, report = warm_start.warm_start(fresh, self.encoders, sides, origin, self.hparams, keep=keep)
        self.model.assign(arrays)
        self.state.begin(arrays)
        if keep:
            variables = self.state.named_variables()
            fresh = {name: _value(variable) for name, variable in variables.items()}
            training, report = warm_start.kept_training(fresh, report)
            _assign(variables, training, report.origin)
            averages = {name: arrays[name] for name in self.state.trained_averages}
            _assign(self.state.trained_averages, warm_start.kept_averages(averages, report), report.origin)
            self.step = int(_value(self.state.step))
        return report

    def save(self, run: RunDirectory, *, at_interrupt: bool = False) -> pathlib.Path:
        """Saves everything that training resumes from; ``at_interrupt`` marks a checkpoint between two evaluations."""
        return checkpoints.save_checkpoint(
            run.checkpoints_dir,
            self.step,
            {name: _value(variable) for name, variable in self._variables.items()},
            training={name: _value(variable) for name, variable in self.state.named_variables().items()},
            ema={name: _value(variable) for name, variable in self.state.averages.items()} or None,
            metadata=self.global_batches() | ({"at_interrupt": True} if at_interrupt else {}),
        )

    def weights_for_users(self) -> dict[str, tf.Variable]:
        """Returns the weights that a decoder would use: the averages if the run keeps them."""
        return self.state.averages or self._variables

    def iterator(self, first: int | None = None) -> Iterator[Any]:
        """Returns the batches from a step on (by default the next one), per replica if there are several.

        Args:
          first: Number of steps before that of the first batch.
        """
        strategy, first = self.strategy, self.step if first is None else first
        total = strategy.num_replicas_in_sync
        if total == 1:
            return iter(self.pipeline.dataset(first))

        def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
            local = total // context.num_input_pipelines
            mine = [self.pipeline.dataset(first, context.input_pipeline_id * local + i) for i in range(local)]
            # Elements are dealt to the local replicas in turn.
            dealt = tf.data.Dataset.choose_from_datasets(mine, tf.data.Dataset.range(local).repeat())
            # Declared infinite; otherwise every step would first ask all replicas whether they have a batch.
            return dealt.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))

        return iter(strategy.distribute_datasets_from_function(of_worker))

    def read_window(self) -> dict[str, float]:
        """Returns the metric sums since the last ``clear_window``; waits for the device."""
        return dict(zip(WINDOW_FIELDS, map(float, _value(self.state.window)), strict=True))

    def read_gradient_norms(self) -> tuple[dict[str, float], int]:
        """Returns each group's mean gradient norm since the last ``clear_window``, and the number of steps averaged.

        The norms are those of the global gradient before clipping. If all steps were skipped, there are none.
        """
        *sums, steps = map(float, _value(self.state.gradient_norms))
        if not steps:
            return {}, 0
        return {group: total / steps for group, total in zip(self.state.gradient_groups, sums, strict=True)}, int(steps)

    def clear_window(self) -> None:
        """Sets the metric sums to zero."""
        self.state.window.assign(tf.zeros([len(WINDOW_FIELDS)]))
        self.state.gradient_norms.assign(tf.zeros(self.state.gradient_norms.shape))

    def counter(self, name: str) -> int:
        """Returns one of the state's counters (``skipped/total``, ``skipped/in_a_row``)."""
        return int(_value(self.state.named_variables()[name]))

    def loss_scale(self) -> float:
        """Returns the loss scale; 1 unless the precision is mixed_float16."""
        return float(_value(self.state.loss_scale))

    def longest_skipped_row(self) -> tuple[int, int]:
        """Returns the length of the longest row of skipped steps since the last call, and the number of its last step.

        A row that has not ended counts from its first step. Waits for the device.
        """
        found = int(_value(self.state.longest_row)), int(_value(self.state.longest_row_end))
        self.state.longest_row.assign(_value(self.state.skipped_in_a_row))
        return found


def _common_checkpoint(run: pathlib.Path, workers: Workers, say: Say) -> pathlib.Path | None:
    """Returns the newest intact checkpoint that the chief finds, verified by every worker; None if it finds none."""
    path = checkpoints.latest(run, warn=say) if workers.is_chief else None
    own = checkpoints.checkpoint_step(path) if path else None
    step = int(workers.of_chief(-1 if own is None else own))
    if step < 0:
        return None
    path = path or run / "checkpoints" / checkpoints.checkpoint_name(step)
    problem = ""
    if not workers.is_chief:
        try:
            checkpoints.verify_checkpoint(path)
        except UserError as error:
            problem = str(error)
    if workers.any(bool(problem)):
        raise UserError(
            f"{problem or 'Another worker cannot read a checkpoint.'} The chief resumes from step {step}, and all "
            f"workers must read the same checkpoint, {path}: --output_dir must be on a file system that all of them "
            "share."
        )
    return path


def _value(variable: tf.Variable) -> np.ndarray:
    """Returns a variable's value on the host; for a mirrored one, the value of this process's first component."""
    return np.asarray(tf.convert_to_tensor(variable))


def _assign(variables: dict[str, tf.Variable], arrays: dict[str, np.ndarray], path: pathlib.Path) -> None:
    odd = [f"{name} is in one only" for name in sorted(variables.keys() ^ arrays.keys())]
    odd += [
        f"{name} has shape {list(arrays[name].shape)}, not {list(variable.shape)}"
        for name, variable in variables.items()
        if name in arrays and tuple(arrays[name].shape) != tuple(variable.shape)
    ]
    if odd:
        raise UserError(
            f"The training state in {path} does not fit this version of t2t_ext or these modules ({odd[0]}). Continue "
            f"with those that wrote it, or start a new run with --warm_start_from={path}."
        )
    for name, variable in variables.items():
        variable.assign(tf.cast(arrays[name], variable.dtype))
