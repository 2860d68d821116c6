"""The output head: logits, label-smoothed cross-entropy and its gradients in one fused pass.

Logits of a batch are the largest tensor of a training step ([tokens, vocabulary] in float32), and a
chain of whole-tensor operations on them is bound by memory. Here the rows are split into chunks whose logits
stay in the cache, and both gradient products are computed while they are there. With softmax
``p = e / z`` (``e = exp(logits - max)``, ``z`` its sum) the gradients need no normalized copy of e::

    f = e - (confidence - low) z onehot(target)
    d loss / d features = (f @ kernel) / z - low sum_v kernel[v]
    d loss / d kernel   = f^T @ (features / z) - low 1 sum_n features[n]

The target's own part is subtracted in float32 before the products, which may run in 16 bits: for a token that is
well predicted the two nearly cancel. The rank-one parts are added once for all rows. What is not needed is left out
of the graph: every pass over the logits takes as long as a tenth of their product in 16 bits.
"""

import functools
import math
from typing import NamedTuple

import tensorflow as tf

from t2t_ext.data.text.text_encoder import PAD_ID

CHUNK_ROWS = 256
_ROW_MULTIPLE = 16


class LossSums(NamedTuple):
    """Sums over the tokens that are not padding; float32 scalars.

    Attributes:
      loss: Label-smoothed cross-entropy in nats, 0 at its optimum. The only differentiable one.
      nll: Negative log-likelihood without smoothing, in nats (perplexity is exp of its mean).
      correct: Tokens that have the largest logit.
      tokens: Tokens that are not padding.
    """

    loss: tf.Tensor
    nll: tf.Tensor
    correct: tf.Tensor
    tokens: tf.Tensor


def smoothing_terms(label_smoothing: float, vocab_size: int) -> tuple[float, float, float]:
    """Returns T2T's smoothed distribution and its entropy.

    Args:
      label_smoothing: Probability given to all wrong tokens together (Szegedy et al. 2016, section 7).
      vocab_size: Number of classes V.

    Returns:
      (confidence 1 - ls, probability ls / (V - 1) of each wrong token, entropy in nats: the least
      cross-entropy that can be reached, which the loss is reduced by).
    """
    confidence = 1.0 - label_smoothing
    low = label_smoothing / (vocab_size - 1)
    entropy = -sum(count * p * math.log(p) for count, p in ((1, confidence), (vocab_size - 1, low)) if p > 0)
    return confidence, low, entropy


def softmax_cross_entropy(
    features: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor | None,
    targets: tf.Tensor,
    label_smoothing: float,
    *,
    weights: tf.Tensor | None = None,
    differentiable: bool = True,
    compact: bool = True,
) -> LossSums:
    """Computes the summed loss of ``logits = features @ kernel^T + bias`` without keeping the logits.

    Products run in the dtype of ``features``; logits, log-sum-exp and all sums are float32.

    Args:
      features: float [..., D]; the decoder's output.
      kernel: float32 [V, D]; tensor or variable.
      bias: float32 [V] or None.
      targets: int32 [...]; padding (id 0) has weight 0.
      label_smoothing: As in ``smoothing_terms``.
      weights: float32 [...], what the loss of each target is multiplied by, and nothing else; None: 1.
      differentiable: Whether gradients with respect to features, kernel and bias are prepared.
      compact: Whether rows of padding are taken out first. Needs dynamic shapes, so not for XLA.

    Returns:
      The sums. Only ``loss`` has gradients.
    """
    rows = tf.reshape(features, [-1, features.shape[-1]])  # [N, D]
    labels = tf.reshape(targets, [-1])  # [N]
    real = tf.not_equal(labels, PAD_ID)
    tokens = tf.reduce_sum(tf.cast(real, tf.float32))
    weights = None if weights is None else tf.reshape(weights, [-1])
    weighted = tokens if weights is None else tf.reduce_sum(tf.where(real, weights, 0.0))
    if compact:
        kept = tf.squeeze(tf.where(real), -1)
        rows, labels = tf.gather(rows, kept), tf.gather(labels, kept)
        weights = None if weights is None else tf.gather(weights, kept)
    kernel = tf.convert_to_tensor(kernel)
    vocab_size = kernel.shape[0]
    confidence, low, entropy = smoothing_terms(label_smoothing, vocab_size)
    biases = () if bias is None else (tf.convert_to_tensor(bias),)
    head = functools.partial(_head, labels=labels, weights=weights, smoothing=(confidence, low))

    @tf.custom_gradient
    def differentiable_head(rows: tf.Tensor, kernel: tf.Tensor, *bias: tf.Tensor) -> tuple:
        sums, (d_rows, *d_weights) = head(rows, kernel, *bias, gradients=True)

        def gradients(d_loss: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return tf.cast(d_loss * d_rows, rows.dtype), *(d_loss * gradient for gradient in d_weights)

        return sums, gradients

    sums = differentiable_head(rows, kernel, *biases) if differentiable else head(rows, kernel, *biases)[0]
    cross_entropy, nll, correct = sums
    return LossSums(cross_entropy - entropy * weighted, nll, correct, tokens)


def _head(
    rows: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor | None = None,
    *,
    labels: tf.Tensor,
    weights: tf.Tensor | None,
    smoothing: tuple[float, float],
    gradients: bool = False,
) -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
    """Returns the three sums and, if asked for, the gradients of the first (float32)."""
    confidence, low = smoothing
    real = tf.cast(tf.not_equal(labels, PAD_ID), tf.float32)
    weights = real if weights is None else real * weights
    rows32 = tf.cast(rows, tf.float32) * weights[:, None]
    kernel_sum = tf.reduce_sum(tf.cast(kernel, tf.float32), 0)
    passes = (confidence - low, -low * tf.reduce_sum(rows32, 0)) if gradients else None
    parts = _chunked(rows, tf.cast(kernel, rows.dtype), bias, labels, weights, passes)
    log_sum_exp, label_logit, largest = parts[:3]
    # sum_v logits[n, v] = features[n] . sum_v kernel[v] + sum(bias): no pass over the logits.
    logit_sum = tf.linalg.matvec(rows32, kernel_sum)
    if bias is not None:
        logit_sum += weights * tf.reduce_sum(bias)
    nll = real * (log_sum_exp - label_logit)
    cross_entropy = weights * (log_sum_exp - (confidence - low) * label_logit) - low * logit_sum
    correct = real * tf.cast(label_logit >= largest, tf.float32)
    sums = (tf.reduce_sum(cross_entropy), tf.reduce_sum(nll), tf.reduce_sum(correct))
    if not gradients:
        return sums, ()
    d_rows, *d_weights = parts[3:]
    d_rows -= low * weights[:, None] * kernel_sum
    if bias is not None:
        d_weights[1] -= low * tf.reduce_sum(weights)
    return sums, (d_rows, *d_weights)


def _chunked(
    rows: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor | None,
    labels: tf.Tensor,
    weights: tf.Tensor,
    passes: tuple[float, tf.Tensor] | None,
) -> list[tf.Tensor]:
    """Runs the passes over the logits of N rows, chunk by chunk.

    For the gradients, ``passes`` are ``confidence - low``, which is subtracted from the target's probability, and the
    part of the kernel's gradient that is the same for all of its rows (float32 [D]).

    Returns:
      log-sum-exp, logit of the label and largest logit (float32 [N]); with gradients also those of the
      cross-entropy with respect to rows [N, D], kernel [V, D] and, if there is one, bias [V] (float32), but for
      the rank-one parts of rows and bias.
    """
    vocab_size, depth = kernel.shape
    static = rows.shape[0]
    count = tf.shape(rows)[0] if static is None else static
    largest = tf.maximum if static is None else max
    chunks = largest(1, (count + CHUNK_ROWS - 1) // CHUNK_ROWS)
    # Equal chunks, for little filling; few sizes of them, since a CPU's kernels are made for each shape.
    size = (largest(1, (count + chunks - 1) // chunks) + _ROW_MULTIPLE - 1) // _ROW_MULTIPLE * _ROW_MULTIPLE
    filling = chunks * size - count
    chunk_rows = tf.reshape(tf.pad(rows, [[0, filling], [0, 0]]), [chunks, size, depth])
    chunk_labels = tf.reshape(tf.pad(labels, [[0, filling]]), [chunks, size])
    chunk_weights = tf.reshape(tf.pad(weights, [[0, filling]]), [chunks, size])

    def body(i: tf.Tensor, arrays: list[tf.TensorArray], totals: list[tf.Tensor]) -> tuple:
        x = chunk_rows[i]
        logits = tf.cast(tf.matmul(x, kernel, transpose_b=True), tf.float32)  # [rows of a chunk, V]
        if bias is not None:
            logits += bias
        top = tf.reduce_max(logits, -1)  # [rows]
        label_logit = tf.gather(logits, chunk_labels[i], batch_dims=1)  # [rows]
        e = tf.exp(logits - top[:, None])
        z = tf.reduce_sum(e, -1)
        values = [top + tf.math.log(z), label_logit, top]
        if passes is not None:
            scale = chunk_weights[i] / z
            off_target = tf.exp(label_logit - top) - passes[0] * z
            target = tf.stack([tf.range(tf.shape(e)[0]), chunk_labels[i]], 1)
            f = tf.tensor_scatter_nd_update(tf.cast(e, x.dtype), target, tf.cast(off_target, x.dtype))
            scaled = tf.cast(tf.cast(x, tf.float32) * scale[:, None], x.dtype)
            values.append(tf.cast(tf.matmul(f, kernel), tf.float32) * scale[:, None])
            d_weights = [tf.matmul(f, scaled, transpose_a=True)]  # [V, D]
            if bias is not None:
                d_weights.append(tf.linalg.matvec(f, tf.cast(scale, x.dtype), transpose_a=True))
            totals = [total + tf.cast(part, tf.float32) for total, part in zip(totals, d_weights, strict=True)]
        return i + 1, [array.write(i, value) for array, value in zip(arrays, values, strict=True)], totals

    row_size = None if static is None else size
    shapes = [[row_size]] * 3 + ([[row_size, depth]] if passes is not None else [])
    arrays = [tf.TensorArray(tf.float32, chunks, element_shape=shape) for shape in shapes]
    totals = []
    if passes is not None:
        totals.append(tf.broadcast_to(passes[1], [vocab_size, depth]))
        totals += [] if bias is None else [tf.zeros([vocab_size])]
    # One after the other: side by side they would not stay in the cache.
    _, arrays, totals = tf.while_loop(lambda i, *_: i < chunks, body, (0, arrays, totals), parallel_iterations=1)
    stacked = [array.stack() for array in arrays]
    flat = [tf.reshape(value, [chunks * size, *value.shape[2:]])[:count] for value in stacked]
    return flat + list(totals)
