"""Dropout of units and of whole tokens, with masks that are a pure function of a seed.

Inside ``seed_scope(seed)``, every call draws its mask from ``(seed, number of the
call in the scope)``. Nothing is stored between steps. A training step that is
repeated (after a resume, with another number of replicas, in another process)
therefore drops exactly the same units.

Masks come from 8-bit random numbers, which cost a quarter of 32-bit ones. The rate
is therefore rounded to the nearest 1/256 (but not to 0). The kept units are scaled by the inverse
of the rounded keep probability, so the expectation is exact except for the rounding
of this factor to x's dtype (0.3% in bfloat16).
"""

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf

_LEVELS = 256
_PHILOX = tf.random.Algorithm.PHILOX.value


class _Scopes(threading.local):
    """The active scopes of one thread; each replica is traced in its own thread."""

    def __init__(self) -> None:
        self.stack: list[_Scope] = []
        self.cut_probability = 0.0


class _Scope:
    """A key made from a seed, and the number of times that random bits were drawn with it."""

    def __init__(self, seed: tf.Tensor) -> None:
        self.key = _key(seed)
        self.drawn = 0

    def next_counter(self) -> tf.Tensor:
        self.drawn += 1
        return _counter(self.drawn)


_scopes = _Scopes()


@contextlib.contextmanager
def seed_scope(seed: tf.Tensor) -> Iterator[None]:
    """Makes every dropout inside the scope a pure function of a seed int32 [2]."""
    _scopes.stack.append(_Scope(seed))
    try:
        yield
    finally:
        _scopes.stack.pop()


@contextlib.contextmanager
def token_cut(probability: float) -> Iterator[None]:
    """Makes ``cut_tokens`` zero each vector of a batch's second half with this probability; 0: it does nothing."""
    before, _scopes.cut_probability = _scopes.cut_probability, probability
    try:
        yield
    finally:
        _scopes.cut_probability = before


def cut_tokens(x: tf.Tensor, kept: tf.Tensor | None = None) -> tf.Tensor:
    """Sets random vectors of the second half of a batch to zero inside ``token_cut``, for SimCut's second pass.

    As in the paper (Gao et al. 2022, https://arxiv.org/abs/2206.02368), the other vectors are not scaled up. Outside
    of ``token_cut``, x is returned unchanged.

    Args:
      x: float [2 B, ..., D], the same B sentences twice.
      kept: bool [2 B, ...], True at positions that are never cut; None: any position may be cut.

    Returns:
      float [2 B, ..., D].
    """
    if not _scopes.cut_probability:
        return x
    shape = tf.shape(x)
    key, counter = _next_bits()
    noise = tf.raw_ops.StatelessRandomUniformV2(
        shape=tf.concat([shape[:1] // 2, shape[1:-1]], 0), key=key, counter=counter, alg=_PHILOX
    )
    stays = tf.concat([tf.ones_like(noise, tf.bool), noise >= _scopes.cut_probability], 0)
    stays = stays if kept is None else stays | kept
    return x * tf.cast(stays, x.dtype)[..., tf.newaxis]


def dropout(x: tf.Tensor, rate: float, training: bool) -> tf.Tensor:
    """Sets a share of the units to zero and scales the others up (Srivastava et al. 2014), keeping shape and dtype.

    Outside of a ``seed_scope``, the seed comes from TensorFlow's global generator.

    Args:
      x: float [...].
      rate: Share of units that are dropped, 0 <= rate < 1, rounded to the nearest 1/256.
      training: A Python bool; if False, x is returned unchanged.
    """
    dropped = _of_levels(rate)
    if not training or dropped == 0:
        return x
    dropped_out = x * (_keep(x, dropped) * tf.cast(_LEVELS / (_LEVELS - dropped), x.dtype))
    dropped_out.set_shape(x.shape)
    return dropped_out


def relu_dropout(x: tf.Tensor, rate: float, training: bool) -> tuple[tf.Tensor, float]:
    """Returns relu(x) with dropout but with the kept units not scaled up, and the missing factor.

    The arguments are those of ``dropout``. All positive units of the result were kept, so that the gradient needs
    neither the mask nor relu(x).
    """
    dropped = _of_levels(rate)
    if not training or dropped == 0:
        return tf.nn.relu(x), 1.0

    @tf.custom_gradient
    def kept(x: tf.Tensor) -> tuple:
        y = tf.nn.relu(x)
        y *= _keep(y, dropped)
        return y, lambda dy: tf.raw_ops.ReluGrad(gradients=dy, features=y)

    y = kept(x)
    y.set_shape(x.shape)
    return y, _LEVELS / (_LEVELS - dropped)


def _of_levels(rate: float) -> int:
    """Returns how many of 256 units are dropped: 0 only if the rate is, at most 255 however close to 1 it is."""
    return min(max(round(rate * _LEVELS), int(rate > 0)), _LEVELS - 1)


def _key(seed: tf.Tensor) -> tf.Tensor:
    """Returns the key, uint64 [1], of a seed int32 [2]."""
    return tf.random.stateless_uniform(
        [1], tf.cast(seed, tf.int32), minval=None, maxval=None, dtype=tf.uint64, alg="philox"
    )


def _counter(call: int) -> tf.Tensor:
    """Returns a call's position in a key's random stream, uint64 [2], low half first; calls are 2^64 blocks apart."""
    return tf.constant([0, call], tf.uint64)


def _next_bits() -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the key and counter of the scope's next call, or a key from TensorFlow's global generator."""
    # All calls of a scope share a key: TensorFlow's functions, which take seeds, make a key in each call, with 20 ops.
    if _scopes.stack:
        return _scopes.stack[-1].key, _scopes.stack[-1].next_counter()
    return _key(tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)), _counter(0)


def _keep(x: tf.Tensor, dropped: int) -> tf.Tensor:
    """Draws a mask of x's shape and dtype: 1 where a unit is kept, 0 for ``dropped`` of 256 units."""
    size = tf.size(x)
    key, counter = _next_bits()
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[(size + 3) // 4], key=key, counter=counter, alg=_PHILOX, dtype=tf.uint32
    )
    noise = tf.reshape(tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size], tf.shape(x))
    return tf.cast(noise >= tf.constant(dropped, tf.uint8), x.dtype)
