"""Shared by benchmarks that measure models in one process: models with random weights, searches, training steps, turns.

The functions import TensorFlow and the toolkit themselves, so that ``--help`` is fast.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import _report

FIRST_TEXT_ID = 9


def run(args: argparse.Namespace, measure: Callable[[str, str], Any], show: Callable[[str, Any], None]) -> None:
    """Measures every part in every precision, prints the results and stores them.

    Args:
      args: Has ``parts`` and ``precision`` (comma-separated), ``out`` and TensorFlow's numbers of threads.
      measure: (part, precision) -> the result, ready for JSON.
      show: Prints (part, result).
    """
    from t2t_ext.bin._flags import start_tensorflow

    start_tensorflow(args.inter_op_parallelism_threads, args.intra_op_parallelism_threads)
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # no warnings about retracing: one function has many graphs on purpose
    stored: dict[str, Any] = {}
    for precision in args.precision.split(","):
        for part in args.parts.split(","):
            print(f"{part} {precision}", flush=True)
            found = measure(part, precision)
            show(part, found)
            stored[f"{part} {precision}"] = found
    _report.write_report(args.out, _report.report({"configurations": stored}))
    print(f"written to {args.out}")


def sized(model: str, hparams_set: str, precision: str, **changes: Any) -> Any:
    """Returns hparams of a model's family with a Transformer set's sizes; synchronous if the model is."""
    from t2t_ext import registry

    sizes = registry.hparams(hparams_set)
    family = registry.model(model).hparams_class
    fields = {field.name: getattr(sizes, field.name) for field in dataclasses.fields(sizes) if field.name != "pseudo"}
    fields["synchronous"] = model.startswith("synchronous_")
    return family(**{**fields, "precision": precision, **changes})


def build(model: str, hparams: Any, vocab_size: int) -> Any:
    """Returns a model with random weights, the same at every call, for which EOS is never the best token."""
    import keras

    from t2t_ext import registry

    keras.utils.set_random_seed(1)
    built = registry.model(model)(hparams, source_vocab_size=vocab_size, target_vocab_size=vocab_size)
    built.build()
    matrix = built.softmax.matrix.numpy().copy()
    matrix[1] = 0
    built.softmax.matrix.assign(matrix)
    return built


def words(rows: int, length: int, vocab_size: int, seed: int) -> Any:
    """Returns random sentences, int32 [rows, length], with EOS at the end."""
    import numpy as np

    ids = np.random.default_rng(seed).integers(FIRST_TEXT_ID, vocab_size, [rows, length]).astype(np.int32)
    ids[:, -1] = 1
    return ids


def searcher(model: Any, beam_size: int, num_hypotheses: int, steps: int) -> Callable[[Any], Any]:
    """Returns a function of int32 [B, S] that searches for translations of exactly ``steps`` tokens."""
    import tensorflow as tf

    from t2t_ext.search.beam_search import beam_search
    from t2t_ext.search.search_state import SearchConfig

    config = SearchConfig(
        beam_size=beam_size, num_hypotheses=num_hypotheses, directions=model.directions, banned=(0, 1)
    )

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def search(inputs: tf.Tensor) -> tf.Tensor:
        limits = tf.fill([tf.shape(inputs)[0]], steps)
        return beam_search(model.step, model.start(inputs), limits, config).ids

    return search


def trainer(model: Any, *batches: Mapping[str, Any]) -> Callable[[], Any]:
    """Returns a function that updates the model once with each of the batches."""
    import tensorflow as tf

    from t2t_ext.training.optimizers import make_optimizer
    from t2t_ext.training.schedules import Schedule
    from t2t_ext.training.state import TrainingState
    from t2t_ext.training.step import TrainStep

    hparams, variables = model.hparams, model.named_variables()
    optimizer = make_optimizer(hparams, variables)
    step = TrainStep(
        model,
        optimizer=optimizer,
        schedule=Schedule(hparams, 1000),
        state=TrainingState(hparams, variables, optimizer),
        hparams=hparams,
        strategy=tf.distribute.get_strategy(),
        random_seed=1,
    )
    constants = [{name: tf.constant(ids) for name, ids in batch.items()} for batch in batches]

    def train() -> Any:
        return [step.run(batch)["loss"].numpy() for batch in constants]

    return train


def take_turns(
    work: Mapping[str, Callable[[], Any]], amounts: float | Mapping[str, float], rounds: int
) -> dict[str, Any]:
    """Calls several functions in turns, after two unmeasured rounds each; prints its progress.

    Args:
      work: Name -> the function to measure; the others are compared with the first.
      amounts: Number of sentences or tokens in one call; the same for all functions, or by name.
      rounds: The number of measured rounds.

    Returns:
      ``seconds`` and ``cpu_seconds`` of every call, ``per_second`` (amounts over the median time), and ``ratios`` and
      ``cpu_ratios`` of the speeds to the first function's.
    """
    if not isinstance(amounts, Mapping):
        amounts = dict.fromkeys(work, amounts)
    for number, (name, call) in enumerate(work.items(), 1):
        print(f"  warming up {name}, {number} of {len(work)}", flush=True)
        call(), call()
    seconds: dict[str, list[float]] = {name: [] for name in work}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in work}
    for number in range(1, rounds + 1):
        print(f"  round {number} of {rounds}", flush=True)
        for name, call in work.items():
            started, cpu_started = time.perf_counter(), time.process_time()
            call()
            seconds[name].append(time.perf_counter() - started)
            cpu_seconds[name].append(time.process_time() - cpu_started)
    return {
        "per_second": {name: amounts[name] / statistics.median(times) for name, times in seconds.items()},
        "ratios": ratios(seconds, amounts),
        "cpu_ratios": ratios(cpu_seconds, amounts),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
    }


def ratios(seconds: Mapping[str, list[float]], amounts: Mapping[str, float]) -> dict[str, float]:
    """Returns the speed of each function relative to the first: the median over the rounds of the ratio in a round.

    Whatever slows down a whole round, such as other work on the machine, affects both times of a ratio.
    """
    base, first = next(iter(seconds.items()))
    return {
        name: amounts[name]
        / amounts[base]
        * statistics.median(one / other for one, other in zip(first, times, strict=True))
        for name, times in seconds.items()
    }
