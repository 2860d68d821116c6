"""The training loop: trains, logs, evaluates and saves checkpoints until the run is finished or interrupted."""

import contextlib
import dataclasses
import functools
import math
import pathlib
import time

import numpy as np
import tensorflow as tf

from t2t_ext.config.training import KEEP, TrainConfig
from t2t_ext.data.datasets import target_variants
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.errors import UserError
from t2t_ext.io import files, locks, log
from t2t_ext.io.interruption import Agreement, Interrupted, SignalWatch
from t2t_ext.runs import checkpoints
from t2t_ext.training import (
    auto_batch_size,
    best_checkpoint,
    cpu_allocator,
    cpu_precision,
    graph_options,
    losses,
    out_of_memory,
    setup_run,
    skip_report,
    strategies,
    warm_start,
)
from t2t_ext.training.evaluate import Evaluator
from t2t_ext.training.monitor import Board
from t2t_ext.training.progress import Progress, describe_evaluation, describe_sample, describe_training
from t2t_ext.training.records import Best, Record, Records, gradient_norms_record, stopped_improving
from t2t_ext.training.session import Session
from t2t_ext.training.workers import Workers

_ACKNOWLEDGEMENT = "stopping after this step, which is saved; one more Ctrl-C stops at once, without saving"
_ADVICE = "Wait until it has ended (what it saved, this command then resumes), or choose another --output_dir."


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """The result of a call to ``train``.

    Attributes:
      step: Number of steps that the run has made, including skipped ones.
      stop_reason: ``train_steps``, ``early_stopping``, ``SIGTERM`` or ``SIGINT``.
      evaluation: Metrics of the last evaluation, None before the first.
      best: Step and value of the best checkpoint's metric, None before the first evaluation.
    """

    step: int
    stop_reason: str
    evaluation: Record | None
    best: Best | None

    @property
    def finished(self) -> bool:
        """Whether the run is complete rather than interrupted."""
        return self.stop_reason in ("train_steps", "early_stopping")


def _left_by_an_interrupt(checkpoint: pathlib.Path) -> bool:
    """Returns whether a checkpoint was saved at an interrupt; False if it is damaged, so that this is unknown."""
    try:
        return bool(checkpoints.read_info(checkpoint).metadata.get("at_interrupt"))
    except UserError:
        return False


def train(config: TrainConfig | setup_run.ResolvedRun, *, quiet: bool = False) -> TrainResult:
    """Trains a model, or resumes a run where it stopped; ``setup_run.resolve`` may already have resolved ``config``.

    A run that is killed at any moment and restarted computes what it would have computed without interruption. On
    SIGTERM or Ctrl-C, training finishes the current step and saves a checkpoint.

    Raises:
      UserError: The user has made a mistake; nothing half-made is left behind.
    """
    say = Progress(0, quiet=quiet).line
    resolved = setup_run.resolve(config) if isinstance(config, TrainConfig) else config
    setup_run.check_checkpoints(resolved)
    run = auto_batch_size.fill_in(resolved, say)
    if run.settings.deterministic:
        tf.config.experimental.enable_op_determinism()
    # Before anything else, since workers must connect before TensorFlow is used.
    strategy = strategies.make_strategy(run.settings.distribution, run.settings.tpu, run.settings.worker_timeout)
    workers = Workers(strategy, run.settings.worker_timeout, functools.partial(_resume_point, run.output_dir))
    with workers.watching():
        generated = GeneratedData.open(setup_run.make_problem(run), run.config.data_dir)
        setup_run.check_stored(run, generated)
        workers.check_same(setup_run.what_workers_share(run, generated))
        with locks.in_directory(run.output_dir, "trains", _ADVICE) if workers.is_chief else contextlib.nullcontext():
            return _Loop(run, generated, strategy, workers, quiet=quiet).run()


class _Loop:
    """The state of one call to ``train``."""

    def __init__(
        self,
        run: setup_run.ResolvedRun,
        generated: GeneratedData,
        strategy: tf.distribute.Strategy,
        workers: Workers,
        *,
        quiet: bool,
    ) -> None:
        self._settings = run.settings
        self._generated = generated
        self._workers = workers
        self._is_chief = workers.is_chief
        self._progress = Progress(run.settings.train_steps, quiet=quiet or not self._is_chief)
        self._say = self._progress.line
        # The model is built first, so that a mistake in the hparams leaves no run directory behind.
        self._session = Session(run, generated, strategy)
        first_weights = setup_run.first_weights(run)
        setup_run.check_first_weights(run)
        if not checkpoints.list_checkpoints(run.output_dir):
            self._session.begin_with_preset()
        keep = run.config.warm_start_optimizer == KEEP
        report = self._session.warm_start(first_weights, keep=keep) if first_weights else None
        self._evaluator = Evaluator(run, generated, self._session.encoders)
        # Restored before the run is opened, so that a run that cannot resume keeps its stored configuration.
        self._restored = self._session.restore(run.output_dir, workers, self._say)
        self._run = setup_run.open_run(run, generated, is_chief=self._is_chief)
        step = self._session.step
        self._records = Records(self._run.metrics_path, step, writable=self._is_chief)
        self._gradient_norms = Records(self._run.gradient_norms_path, step, writable=self._is_chief)
        evaluated = self._records.has_evaluation(step)
        restored_step = step if self._restored else None
        self._board = Board(self._run.path, restored_step, evaluated=evaluated, enabled=self._is_chief)
        if not self._restored:
            named = {name: getattr(run.config, name) for name in ("problem", "model", "hparams_set", "random_seed")}
            rows = [(name, value, "flag") for name, value in named.items()]
            rows += [(row.name, row.value, row.origin) for row in run.hparams.explain(run.config.origins)]
            self._board.hparams(rows)
        self._damaged: set[int] = set()  # steps of checkpoints too damaged to be kept as the best
        self._signals = SignalWatch(_ACKNOWLEDGEMENT if not quiet and log.shows_info() else "")
        self._agreement = Agreement(workers, self._signals, run.settings.log_step_count_steps, step)
        self._clock = _Clock(self._session.read_window())
        self._describe(run, report)

    def _describe(self, run: setup_run.ResolvedRun, report: warm_start.WarmStartReport | None) -> None:
        session, hparams = self._session, run.hparams
        parameters = sum(int(np.prod(variable.shape)) for variable in session.model.named_variables().values())
        replicas = session.strategy.num_replicas_in_sync
        accumulated, pipeline = hparams.gradient_accumulation_steps, session.pipeline
        dropped = ", ".join(f"{count:,} {why}" for why, count in pipeline.dropped.items() if count) or "none"
        self._say(
            f"{run.config.model} with {parameters:,} parameters, {hparams.precision}, on "
            f"{strategies.describe(session.strategy)}; run directory {self._run.path}"
        )
        self._say(
            f"a step: at most {hparams.batch_size * replicas * accumulated:,} tokens ({hparams.batch_tokens}) = "
            f"{hparams.batch_size:,} x {replicas} replicas x {accumulated} accumulated; "
            f"{100 * pipeline.fill_rate():.0f}% of positions filled; {pipeline.batches_per_epoch:,} steps an "
            f"epoch; training {'examples' if pipeline.examples.identity else 'pairs'} left out: {dropped}"
        )
        batches, row_multiple = pipeline.batches_per_epoch, pipeline.row_multiple
        if hint := auto_batch_size.hint(hparams.batch_size, pipeline.planner.num_examples / batches, batches):
            self._say(hint)
        share = pipeline.planner.largest_share(row_multiple)
        on_cpu, merged = strategies.on_cpu(session.strategy), pipeline.planner.merged
        if hint := auto_batch_size.hint_of_filling(hparams, share, row_multiple, merged=merged, on_cpu=on_cpu):
            self._say(hint)
        self._say(session.schedule.describe())
        if on_cpu:
            for hint in (cpu_precision.hint(hparams.precision, parameters), cpu_allocator.hint(parameters)):
                if hint:
                    self._say(hint)
        if session.state.averages:
            self._say(f"weights that are evaluated, kept as the best and translate: {hparams.weights_for_users}")
        examples = pipeline.examples
        told = target_variants.describe(examples), target_variants.failure_warning(examples)
        for line in (*told, self._evaluator.describe()):
            if line:
                self._say(line)
        has_pseudo = self._generated.pseudo is not None
        for line in target_variants.notes(hparams, pipeline.examples.sides, has_pseudo=has_pseudo):
            self._say(line)
        for line in report.lines() if report else []:
            self._say(line)
        if self._restored:
            self._say(f"resuming after step {session.step}")
            evaluations, metric = self._records.evaluations(), self._settings.best_checkpoint_metric
            if line := best_checkpoint.without_a_best(self._run, evaluations, metric):
                self._say(line)

    def run(self) -> TrainResult:
        """Trains until the run is finished or interrupted, and returns the result."""
        try:
            with self._signals.watching():
                reason = self._train()
        finally:
            self._progress.stop()
            self._board.close()
        evaluations = self._records.evaluations()
        result = TrainResult(
            self._session.step, reason, evaluations[-1] if evaluations else None, self._best(evaluations)
        )
        metric = self._settings.best_checkpoint_metric.replace("bleu", "BLEU")
        best = (
            f"; best checkpoint: step {result.best.step}, dev {metric} {result.best.value:.4g}" if result.best else ""
        )
        if result.finished:
            self._say(f"finished at step {result.step} ({reason}){best}")
        else:
            self._say(f"stopped by {reason} after step {result.step}; the same command resumes from here{best}")
        return result

    def _train(self) -> str:
        session, settings = self._session, self._settings
        self._progress.start(session.step)
        reason = self._finish_interrupted_evaluation()
        iterator = session.iterator() if session.step < settings.train_steps and not reason else None
        advice = out_of_memory.advice(session.hparams, merged=session.pipeline.planner.merged)
        while not reason and session.step < settings.train_steps:
            self._clock.start()
            shape = functools.partial(session.pipeline.shape, session.step)
            with out_of_memory.explained(f"step {session.step + 1}", shape, advice):
                session.train_step(iterator)
            session.step += 1
            reason = self._after_step()
        return reason or "train_steps"

    def _after_step(self) -> str:
        """Logs, evaluates and saves when due; returns why training ends, or an empty string."""
        session, settings = self._session, self._settings
        step, last = session.step, session.step == settings.train_steps
        if self._clock.first_step:
            graph_options.release_unused()
            seconds = self._clock.after_first_step(session.read_window(), step)
            self._say(f"first step after {seconds:.1f} s")
        self._progress.advance(step)
        if last or step % settings.log_step_count_steps == 0:
            self._log()
        # Not at every step, since reading the counters waits for the device.
        if step % settings.max_skipped_steps == 0:
            self._check_skipped()
        if step % settings.local_eval_frequency == 0 or last:
            self._save()
            return self._evaluate()
        reason = self._agreement.stop_reason(step)
        if reason:
            self._save(at_interrupt=True)
        return reason

    def _log(self) -> None:
        session = self._session
        window = session.read_window()
        norms, norm_steps = session.read_gradient_norms()
        seconds, tokens = self._clock.stop(window)
        session.clear_window()
        applied = max(window["steps"] - window["skipped"], 1.0)
        labels = max(window["labels"], 1.0)
        real = window["source_tokens"] + window["target_tokens"]
        means = {
            "loss": window["loss"] / labels,
            "nll": window["nll"] / labels,
            "perplexity": math.exp(min(window["nll"] / labels, 700.0)),
            "accuracy": window["correct"] / labels,
            "gradient_norm": window["gradient_norm"] / applied,
        }
        if losses.Consistency.of(session.hparams) or window["regularizer"]:
            means["regularizer"] = window["regularizer"] / labels
        record: Record = {
            "kind": "train",
            "step": session.step,
            **(means if window["steps"] > window["skipped"] else {}),  # without an update they would be 0
            "learning_rate": float(session.schedule(tf.constant(session.step, tf.int64))),
            "target_tokens_per_step": window["target_tokens"] / applied,
            "source_tokens_per_step": window["source_tokens"] / applied,
            "examples_per_step": window["examples"] / applied,
            "fill_rate": real / max(window["positions"], 1.0),
            "skipped_steps": session.counter("skipped/total"),
            "loss_scale": session.loss_scale(),
            "tokens_per_second": tokens / max(seconds, 1e-9),
            "seconds": seconds,
        }
        self._records.append(record)
        self._board.record(record)
        if norms:
            # In a file of their own, since there is one norm for each layer.
            norms_record = gradient_norms_record(session.step, norm_steps, norms, record["gradient_norm"])
            self._gradient_norms.append(norms_record)
            self._board.gradient_norms(norms_record)
        shown = f"loss {record['loss']:.3f}" if "loss" in record else "steps skipped"
        self._progress.note(f"{shown}, {record['tokens_per_second']:,.0f} tokens/s")
        self._say(describe_training(record, self._settings.train_steps, self._seconds_left()))
        self._check_skipped()

    def _seconds_left(self) -> float:
        """Returns the estimated time until the last step with its evaluations, or 0 if it cannot be estimated yet."""
        step, last, frequency = self._session.step, self._settings.train_steps, self._settings.local_eval_frequency
        seconds_a_step = self._clock.seconds_a_step(step)
        if not seconds_a_step:
            return 0.0
        evaluations = self._records.evaluations()  # of earlier processes, too, so that a resumed run knows their time
        seconds = evaluations[-1].get("seconds", 0.0) if evaluations else 0.0
        # One every ``frequency`` steps and after the last. If one is due at this step, it follows the line in the log.
        number = math.ceil(last / frequency) - (step - 1) // frequency
        return (last - step) * seconds_a_step + number * seconds

    def _check_skipped(self) -> None:
        """Stops training and reports the batches if too many steps in a row were skipped since the last call."""
        row, last = self._session.longest_skipped_row()
        if row < self._settings.max_skipped_steps:
            return
        report = skip_report.make_report(self._session, self._generated, row, last)
        path = self._run.skipped_steps_path
        if self._is_chief:
            files.write_text_atomically(path, skip_report.to_json(report))
        raise UserError(
            f"Training stopped at step {self._session.step}: the gradients of {row} steps in a row, "
            f"{last - row + 1} to {last}, were not finite, and these steps were skipped (loss scale "
            f"{report['loss_scale']:g}). "
            f"{skip_report.summary(report)} More is in {path}. {_against_skips(self._session.hparams.precision)} "
            f"This one would resume from {_resume_point(self._run.path)}."
        )

    def _save(self, *, at_interrupt: bool = False) -> None:
        self._check_skipped()
        self._clock.pause()  # the device has finished the step by now
        if self._is_chief:
            # A run that resumes from this checkpoint does not log earlier steps again.
            self._board.flush()
            path = self._session.save(self._run, at_interrupt=at_interrupt)
            self._say(f"saved {path}")

    def _finish_interrupted_evaluation(self) -> str:
        """Evaluates a restored step whose evaluation was interrupted; returns why training ends, or an empty string."""
        step = self._session.step
        due = self._restored and (step % self._settings.local_eval_frequency == 0 or step >= self._settings.train_steps)
        # Only the chief has the records.
        if self._workers.of_chief(bool(due and not self._records.has_evaluation(step))):
            return self._evaluate()
        self._keep_best()
        if self._restored and self._is_chief:  # a killed evaluation may not have come this far
            self._prune()
        return "early_stopping" if self._workers.any(self._stops_early()) else ""

    def _evaluate(self) -> str:
        """Evaluates on the chief and keeps the best checkpoint; returns why training ends, or an empty string."""
        stops = False
        if self._is_chief:
            # A signal leaves the evaluation to the next start, but the other workers must still be told.
            with contextlib.suppress(Interrupted):
                self._evaluate_here()
                stops = self._stops_early()
        stopped, interrupted = self._workers.sum([stops, bool(self._signals.received)])
        if stopped:
            return "early_stopping"
        return (self._signals.received or "SIGTERM") if interrupted else ""

    def _evaluate_here(self) -> None:
        """Evaluates and records the results; at a signal, raises ``Interrupted`` without recording anything."""
        step, began = self._session.step, time.monotonic()
        advice = out_of_memory.evaluation_advice(self._session.hparams, self._settings)
        memory = out_of_memory.explained(f"the evaluation after step {step}", lambda: "dev sentences", advice)
        with self._signals.abandoning(), memory:
            metrics, hypotheses = self._evaluator.evaluate(self._session.weights_for_users(), self._progress.note)
            self._evaluator.show(self._board, step, hypotheses)
        record = {"kind": "eval", "step": step, **metrics, "seconds": time.monotonic() - began}
        best_checkpoint.forget(self._run, step)
        # The record comes last: it marks the evaluation as done, so that it is not repeated after a kill.
        self._board.record(record)
        self._board.flush()
        self._records.append(record)
        self._say(describe_evaluation(record))
        if hypotheses and len(self._records.evaluations()) == 1:  # source and reference only once: they never change
            self._say(describe_sample(hypotheses[0], *self._evaluator.first_sentence()))
        elif hypotheses:
            self._say(f"  first dev sentence: {hypotheses[0]}")
        self._keep_best()
        self._prune()

    def _prune(self) -> None:
        """Deletes old checkpoints and those saved at interrupts, leaving the checkpoints of an uninterrupted run.

        The checkpoint of the current step always stays: any newer ones are damaged and will be made again.
        """
        run, keep, now = self._run, self._settings.keep_checkpoint_max, self._session.step
        last = run.checkpoints_dir / checkpoints.checkpoint_name(now)
        if keep > 0:
            for path in checkpoints.list_checkpoints(run.path):
                step = checkpoints.checkpoint_step(path)
                if step is not None and step < now and _left_by_an_interrupt(path):
                    checkpoints.remove(path)
        checkpoints.prune(run.path, keep, protect=[last])

    def _stops_early(self) -> bool:
        settings = self._settings
        best = stopped_improving(self._records.evaluations(), settings)
        if best is not None:
            self._say(
                f"early stopping: {settings.eval_early_stopping_metric} has not improved by more than "
                f"{settings.eval_early_stopping_metric_delta:g} since step {best.step} ({best.value:.4f})"
            )
        return best is not None

    def _best(self, evaluations: list[Record]) -> Best | None:
        readable = [each for each in evaluations if each["step"] not in self._damaged]
        return best_checkpoint.find(self._run, readable, self._settings.best_checkpoint_metric)

    def _keep_best(self) -> None:
        # Only the chief has records.
        while (best := self._best(self._records.evaluations())) is not None:
            try:
                best_checkpoint.keep(self._run, best, self._settings.best_checkpoint_metric)
            except checkpoints.DamagedCheckpointError as error:
                self._damaged.add(best.step)
                self._say(f"warning: {error} It was the best one; the next best is kept in its place")
            else:
                return


def _against_skips(precision: str) -> str:
    """Returns advice on what to change if gradients are not finite."""
    ways = "Use a lower learning rate, a longer warm-up"
    # The other precisions have the range of float32.
    if precision == "mixed_float16":
        return f"{ways}, clip_grad_norm, or precision=mixed_bfloat16 or float32, in a new run."
    return f"{ways}, or clip_grad_norm, in a new run."


def _resume_point(output_dir: files.PathLike) -> str:
    saved = checkpoints.list_checkpoints(output_dir)
    return str(saved[-1]) if saved else "the beginning, since it has no checkpoint yet"


class _Clock:
    """Measures training time without evaluations, and the tokens processed in that time."""

    def __init__(self, window: dict[str, float]) -> None:
        self._began: float | None = None
        self._seconds = 0.0
        self._seconds_before = 0.0  # of the windows before this one, without the first step
        self._tokens_before = _real_tokens(window)  # a restored window has tokens of the previous process
        self.first_step = True
        self._ready_after: int | None = None  # the step that built the graph

    def after_first_step(self, window: dict[str, float], step: int) -> float:
        """Leaves the first step, which built the graph, out of the measurement and returns its seconds.

        They do not include an interrupted evaluation that a resumed run makes up for before its first step.
        """
        self.first_step = False
        self._ready_after = step
        self.pause()
        seconds = self._seconds
        self._seconds = 0.0
        self._tokens_before = _real_tokens(window)
        return seconds

    def seconds_a_step(self, step: int) -> float:
        """Returns the mean seconds per step so far, without evaluations, or 0 if it is not known yet."""
        if self._ready_after is None or step <= self._ready_after:
            return 0.0
        return (self._seconds_before + self._seconds) / (step - self._ready_after)

    def start(self) -> None:
        """Starts the clock unless it is running."""
        if self._began is None:
            self._began = time.monotonic()

    def pause(self) -> None:
        """Stops the clock for a while."""
        if self._began is not None:
            self._seconds += time.monotonic() - self._began
            self._began = None

    def stop(self, window: dict[str, float]) -> tuple[float, float]:
        """Returns (seconds, real tokens) since the last call and resets both to zero."""
        self.pause()
        seconds, tokens = self._seconds, _real_tokens(window) - self._tokens_before
        self._seconds_before += seconds
        self._seconds, self._tokens_before = 0.0, 0.0
        return seconds, tokens


def _real_tokens(window: dict[str, float]) -> float:
    return window["source_tokens"] + window["target_tokens"]
