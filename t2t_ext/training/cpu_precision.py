"""Says whether a CPU trains faster in the other precision: some multiply bfloat16 twice as fast, some half as fast.

The presence of the instructions (AVX512-BF16) does not tell: with them an AMD EPYC is faster, but an Intel Xeon without
AMX units is slower. The speed is therefore measured, which takes some 50 milliseconds.
"""

import time
from collections.abc import Callable

import tensorflow as tf

# The other operations of a step take equally long in both, so a small difference of the products says nothing.
_CLEARLY = 1.3
# From this many parameters on, matrix products take most of a step's time.
_FEWEST_PARAMETERS = 1_000_000
_SIDE, _ROUNDS = 512, 7
_OTHER = {"float32": "mixed_bfloat16", "mixed_bfloat16": "float32"}


def hint(precision: str, parameters: int, seconds: Callable[[tf.DType], float] | None = None) -> str:
    """Returns a hint if the other precision's matrix products are clearly faster on this CPU, otherwise "".

    Args:
      precision: The precision in the hparams.
      parameters: The model's number of parameters; small models are not worth the measurement.
      seconds: Measures a product in a dtype; ``product_seconds`` unless a test replaces it.
    """
    if precision not in _OTHER or parameters < _FEWEST_PARAMETERS:
        return ""
    measure = seconds or product_seconds
    times = {"float32": measure(tf.float32), "mixed_bfloat16": measure(tf.bfloat16)}
    other = _OTHER[precision]
    ratio = times[precision] / times[other]
    if ratio < _CLEARLY:
        return ""
    return (
        f"precision={precision} is slow on this CPU: its matrix products take {ratio:.1f} times as long as with "
        f"precision={other}, which trains faster here, in a new run"
    )


def product_seconds(dtype: tf.DType) -> float:
    """Returns the shortest of several times, in seconds, of a product of two square matrices on the CPU."""
    with tf.device("/CPU:0"):
        matrix = tf.cast(tf.ones((_SIDE, _SIDE)), dtype)
        shortest = float("inf")
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            tf.linalg.matmul(matrix, matrix)
            shortest = min(shortest, time.perf_counter() - start)
    return shortest
