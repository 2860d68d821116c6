"""The child process of ``batch_size=auto``: makes training steps with the batch sizes that it is given.

It reads lines of JSON: first a ``TrainConfig`` (and the parent's process id), then one batch size per line. It answers
each size with one line: ``peak`` (bytes), ``device``, ``shape`` and ``seconds`` (of the slowest batch);
``{"failure": why}`` if memory ran out; or ``{"user_error": text}``. It answers 0 with what the data need: ``most``
(the largest size that makes sense), ``shortest`` and ``longest`` (tokens of the shortest and of the longest pair).
"""

import ctypes
import dataclasses
import json
import os
import signal
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_ext.config.training import TrainConfig
from t2t_ext.data.datasets import batching
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.errors import UserError
from t2t_ext.training import available_memory, setup_run, strategies
from t2t_ext.training.session import Session

_ANY_SIZE = 1 << 20  # tokens; only until the first size is given
_PR_SET_PDEATHSIG = 1


class Probe:
    """Makes steps with batches of any size on a fresh model."""

    def __init__(self, config: TrainConfig) -> None:
        """Builds the model and reads the data; nothing is written.

        Raises:
          UserError: The run cannot be set up.
        """
        run = setup_run.resolve(config)
        if run.settings.deterministic:
            tf.config.experimental.enable_op_determinism()
        self._hparams = run.hparams.replace(batch_size=_ANY_SIZE)
        run = dataclasses.replace(run, hparams=self._hparams)
        strategy = strategies.make_strategy(run.settings.distribution)
        generated = GeneratedData.open(setup_run.make_problem(run), run.config.data_dir)
        self._session = Session(run, generated, strategy)
        self._pipeline = self._session.pipeline

    def needs(self) -> dict[str, Any]:
        """Returns the sizes that the data need so that every pair of at most ``max_length`` takes part."""
        planner = self._pipeline.planner
        parts = self._session.strategy.num_replicas_in_sync * self._hparams.gradient_accumulation_steps
        shortest, longest = planner.sizes
        return {"most": -(-planner.largest_budget // parts), "shortest": shortest, "longest": longest}

    def steps(self, size: int) -> dict[str, Any]:
        """Makes a step with each of the largest batches for a ``batch_size`` in tokens; returns the child's answer."""
        session = self._session
        shortest = self._pipeline.planner.sizes[0]
        if size < shortest:
            return {"failure": f"the shortest pair has {shortest:,} tokens"}
        hparams = self._hparams.replace(batch_size=size)
        session.pipeline = self._pipeline.with_batches_of(hparams)
        planner = session.pipeline.planner
        plan = planner.epoch(0).filled(session.pipeline.row_multiple)
        seconds, shape = 0.0, ""
        sides = session.pipeline.examples.sides
        for number in largest_batches(plan, sides, planner.parts):
            session.step = int(number)
            iterator = session.iterator()
            began = time.monotonic()
            session.train_step(iterator)
            session.read_window()  # waits for the device
            if time.monotonic() - began > seconds:
                seconds = time.monotonic() - began
                shape = batching.describe_shape(plan, number, sides, planner.parts)
        if tf.config.list_logical_devices("GPU"):
            device, peak = "GPU", int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
        else:
            device, peak = "CPU", available_memory.resident_bytes(os.getpid())[1]
        return {"peak": peak, "device": device, "shape": shape, "seconds": seconds}


def largest_batches(plan: batching.EpochPlan, target_sides: int = 1, parts: int = 1) -> list[int]:
    """Returns the numbers of the batches of an epoch that are largest in one way or another.

    The batch that takes the most memory depends on the model: it has the most positions (activations), rows times
    squared lengths (attention), or target positions (logits). The ``target_sides`` of an example attend to the source
    and to each other. A batch has ``parts`` parts.
    """
    rows, inputs, targets = (
        np.asarray(field, np.float64) for field in (plan.rows, plan.input_widths, plan.target_widths)
    )
    targets *= target_sides
    measures = (rows * (inputs + targets), rows * (inputs**2 + targets**2 + inputs * targets), rows * targets)
    return sorted({int(np.argmax(measure)) // parts for measure in measures})


def main() -> None:
    """Answers until standard input ends."""
    # Output of libraries must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = json.loads(sys.stdin.readline())
    if sys.platform == "linux":  # the kernel kills this process when its parent ends, however that happens
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != request.pop("parent"):  # the parent has already ended
        raise SystemExit(1)
    probe = None
    for line in sys.stdin:
        try:
            probe = probe or Probe(TrainConfig(**request))
            size = json.loads(line)
            answer = probe.steps(size) if size else probe.needs()
        except UserError as error:
            answer = {"user_error": str(error)}
        except (tf.errors.ResourceExhaustedError, MemoryError) as error:
            answer = {"failure": str(error).strip().splitlines()[0] if str(error).strip() else "memory ran out"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
