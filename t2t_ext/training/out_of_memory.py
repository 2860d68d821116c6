"""Errors where memory runs out: which batch it was, and what to change."""

import contextlib
from collections.abc import Callable, Iterator

import tensorflow as tf

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.errors import UserError, first_line

EVALUATION_ADVICE = (
    'Start again with a smaller batch_size in --decode_hparams (such as "beam_size=4,alpha=0.6,batch_size=8"), or '
    "without translations (--eval_bleu_sentences=-1 --best_checkpoint_metric=loss)."
)


@contextlib.contextmanager
def explained(what: str, shape: Callable[[], str], ways: str) -> Iterator[None]:
    """Turns running out of memory into a ``UserError``.

    Args:
      what: What was computed, such as ``step 17``.
      shape: Returns the largest batch of it in words; asked only if memory ran out.
      ways: What to change, such as ``advice`` or ``EVALUATION_ADVICE``.
    """
    try:
        yield
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        raise UserError(
            f"Memory ran out at {what}, with a batch of {shape()} ({first_line(error)}). {ways} The last checkpoint "
            "is untouched."
        ) from error


def advice(hparams: HParams) -> str:
    """Returns which hparams to change so that a step takes less memory, with their present values."""
    half, accumulated = max(1, hparams.batch_size // 2), hparams.gradient_accumulation_steps
    ways = [
        f"batch_size (now {hparams.batch_size}; {half} with gradient_accumulation_steps={2 * accumulated} makes the "
        "same updates)",
        f"max_length (now {hparams.max_length or hparams.batch_size}; longer pairs are left out)",
    ]
    if hparams.parallel_slices > 1:
        ways.append(f"parallel_slices (now {hparams.parallel_slices}; may be changed in a run that has begun)")
    return f"Start again with smaller values in --hparams, in a new run: {'; '.join(ways)}; or batch_size=auto."
