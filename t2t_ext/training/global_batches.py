"""Lets a run resume with another number of replicas if the global batches stay the same. Imports no TensorFlow."""

import pathlib
from collections.abc import Callable
from typing import Any

from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints

WithSizes = Callable[[int, int], dict[str, Any]]
_FACTORS = ("replicas", "batch_size", "gradient_accumulation_steps")


def describe(hparams: Any, replicas: int, planner: Any) -> dict[str, Any]:
    """Returns what a checkpoint records: the factors of the global batch size, the pairs, and a hash of the plan."""
    return {
        "replicas": replicas,
        "batch_size": hparams.batch_size,
        "gradient_accumulation_steps": hparams.gradient_accumulation_steps,
        "pairs": planner.num_examples,
        "batches": planner.fingerprint,
    }


def check(
    path: pathlib.Path,
    now: dict[str, Any],
    with_sizes: WithSizes,
    say: Callable[[str], None],
) -> None:
    """Checks that a run would resume with the batches that it would have had without interruption.

    Args:
      path: The checkpoint that the run would resume from.
      now: What ``describe`` returns for the run now.
      with_sizes: Returns what ``describe`` would return with another ``batch_size`` and
        ``gradient_accumulation_steps``; raises a ``UserError`` if these are not allowed.
      say: Receives messages about harmless changes.

    Raises:
      UserError: The global batches would be different; the message says what keeps them the same.
    """
    info = checkpoints.read_info(path)
    before = info.metadata
    if not all(name in before for name in _FACTORS):
        return
    if _tokens(before) != _tokens(now):
        raise UserError(
            f"Up to step {info.step} this run had global batches of {_product(before)}; now they would have "
            f"{_product(now)}, and the run would learn something else. {_advice(before, now, with_sizes)} Or start a "
            f"new run with --warm_start_from={path}."
        )
    if _other_pairs(before, now):
        raise UserError(
            f"Up to step {info.step} this run trained on {before['pairs']:,} pairs; now it would train on "
            f"{now['pairs']:,}, since a pair must fit one replica's batch (batch_size was {before['batch_size']}, now "
            f"{now['batch_size']}). Reach the same global batch with gradient_accumulation_steps or another number of "
            "replicas, at the batch_size that it had."
        )
    if _other_groups(before, now):
        raise UserError(
            f"Up to step {info.step} this run had batches planned for batch_size={before['batch_size']}; with "
            f"{now['batch_size']} pairs would be grouped otherwise. Reach the same global batch with "
            "gradient_accumulation_steps or another number of replicas, at the batch_size that it had."
        )
    if before["batches"] != now["batches"]:
        say(f"warning: another version of t2t_ext planned the batches up to step {info.step}: the order is another.")
    if before["replicas"] != now["replicas"]:
        say(
            f"up to step {info.step} this run had {before['replicas']} replicas, now {now['replicas']}: the global "
            f"batches are the same ({_product(now)}), the dropout masks are others."
        )


def _tokens(factors: dict[str, Any]) -> int:
    return factors["replicas"] * factors["batch_size"] * factors["gradient_accumulation_steps"]


def _other_pairs(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Returns whether different pairs fit one replica's batch."""
    return bool(before["pairs"] != now["pairs"])


def _other_groups(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Returns whether another batch_size groups pairs differently: it limits the static buckets if max_length is 0."""
    return bool(before["batches"] != now["batches"] and before["batch_size"] != now["batch_size"])


def _product(factors: dict[str, Any]) -> str:
    return (
        f"{_tokens(factors):,} tokens ({factors['replicas']} replicas x batch_size {factors['batch_size']} x "
        f"{factors['gradient_accumulation_steps']} accumulated)"
    )


def _advice(before: dict[str, Any], now: dict[str, Any], with_sizes: WithSizes) -> str:
    """Returns which hparams keep the global batch: another number of the old slices, or slices of another size."""
    wanted, replicas = _tokens(before), now["replicas"]
    pairs = [
        (size, wanted // (replicas * size))
        for size in (before["batch_size"], now["batch_size"])
        if wanted % (replicas * size) == 0
    ]
    pairs += [
        (wanted // (replicas * accumulated), accumulated)
        for accumulated in (before["gradient_accumulation_steps"], now["gradient_accumulation_steps"])
        if wanted % (replicas * accumulated) == 0
    ]

    def keeps(size: int, accumulated: int) -> bool:
        try:
            then = with_sizes(size, accumulated)
        except UserError:  # because of length_groups, or no pair is short enough
            return False
        return not _other_pairs(before, then) and not _other_groups(before, then)

    ways = [
        f"batch_size={size},gradient_accumulation_steps={accumulated}"
        for size, accumulated in dict.fromkeys(pairs)
        if keeps(size, accumulated)
    ]
    if ways:
        return "These keep them: " + " or ".join(f'--hparams="{way}"' for way in ways) + "."
    slices = before["replicas"] * before["gradient_accumulation_steps"]
    others = f", or another number that divides {slices:,}, with batch_size={before['batch_size']}" * (slices > 1)
    return f"Use {before['replicas']} replicas again{others}."
