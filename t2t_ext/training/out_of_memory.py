"""Explains errors when memory runs out: which batch it was, and what to change."""

import contextlib
from collections.abc import Callable, Iterator

import tensorflow as tf

from t2t_ext.config.decode import resolve_decode_hparams
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.strict_params import parse_assignments
from t2t_ext.config.training import TrainingSettings
from t2t_ext.errors import UserError, first_line


@contextlib.contextmanager
def explained(what: str, shape: Callable[[], str], ways: str) -> Iterator[None]:
    """Turns running out of memory into a ``UserError``.

    Args:
      what: What was computed, such as ``step 17``.
      shape: Returns its largest batch in words; called only if memory ran out.
      ways: What to change, as returned by ``advice`` or ``evaluation_advice``.

    Raises:
      UserError: Memory ran out within the block.
    """
    try:
        yield
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        raise UserError(
            f"Memory ran out at {what}, with a batch of {shape()} ({first_line(error)}). {ways} The last checkpoint "
            "is untouched."
        ) from error


def advice(hparams: HParams, *, merged: bool = False) -> str:
    """Returns which hparams to change so that a step takes less memory, with their current values.

    Args:
      hparams: The run's hparams.
      merged: Whether the parts of ``length_groups`` are merged, as for XLA.
    """
    half, accumulated = max(1, hparams.batch_size // 2), hparams.gradient_accumulation_steps
    groups = hparams.length_groups
    if groups > 1 and not merged:
        # Parts are computed one after the other, so accumulation would only make an update larger.
        ways = [
            f"a larger length_groups (now {groups}; {2 * groups} makes updates of as many tokens, of smaller parts)",
            f"a smaller batch_size (now {hparams.batch_size}; with gradient_accumulation_steps as it is)",
        ]
    else:
        ways = [
            f"a smaller batch_size (now {hparams.batch_size}; {half} with "
            f"gradient_accumulation_steps={2 * accumulated} makes the same updates)"
        ]
    ways.append(f"a smaller max_length (now {hparams.max_length or hparams.batch_size}; longer pairs are left out)")
    if hparams.parallel_slices > 1:
        ways.append(f"fewer parallel_slices (now {hparams.parallel_slices}; may be changed in a run that has begun)")
    return f"Change --hparams in a new run: {'; '.join(ways)}; or batch_size=auto."


def evaluation_advice(hparams: HParams, settings: TrainingSettings) -> str:
    """Returns what to change so that an evaluation takes less memory.

    Args:
      hparams: The run's hparams.
      settings: The run's other settings, among them how its evaluations translate.
    """
    loss = f"its loss is taken in batches of batch_size tokens (--hparams, now {hparams.batch_size})"
    if settings.eval_bleu_sentences < 0:  # without translations
        return f"Start a new run with a smaller batch_size: {loss}."
    given = settings.decode_hparams
    at_once = resolve_decode_hparams(given, stored=True).batch_size
    smaller = {**parse_assignments(given, "decode_hparams"), "batch_size": max(1, at_once // 4)}
    shown = ",".join(f"{name}={value}" for name, value in smaller.items())
    without = "--eval_bleu_sentences=-1 --best_checkpoint_metric=loss"
    if settings.eval_early_stopping_steps:
        without += " --eval_early_stopping_metric=loss"
    return (
        f'Start again with a smaller batch_size in --decode_hparams (now {at_once}; such as "{shown}"), or '
        f"without translations ({without}). If memory runs out again, "
        f"start a new run with a smaller batch_size in --hparams: {loss}."
    )
