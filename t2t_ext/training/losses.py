"""The output head: logits, label-smoothed cross-entropy and its gradients in one fused pass.

The logits of a batch are the largest tensor of a training step ([tokens, vocabulary] in float32), and a
chain of whole-tensor operations on them is memory-bound. Here the rows are split into chunks whose logits
stay in the cache, and both gradient products are computed while they are there. With softmax
``p = e / z`` (``e = exp(logits - max)``, ``z`` its sum) the gradients need no normalized copy of e::

    f = e - (confidence - low) z onehot(target)
    d loss / d features = (f @ kernel) / z - low sum_v kernel[v]
    d loss / d kernel   = f^T @ (features / z) - low 1 sum_n features[n]

The target's own part is subtracted in float32 before the products, which may run in 16 bits, since for a
well-predicted token the two nearly cancel. The rank-one parts are added once for all rows. The graph contains nothing
that is not needed: each pass over the logits takes a tenth of the time of their product in 16 bits.

If the model sees every sentence twice (``Consistency``), one chunk holds the logits of both passes for the same
tokens, so that the divergence between their distributions p and q needs no further product::

    d KL(p || q) / d logits of p = p (log p - log q - KL(p || q))
    d KL(p || q) / d logits of q = q - p
"""

import functools
import math
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_ext.data.text.text_encoder import PAD_ID
from t2t_ext.layers.label_smoothing import smoothing_terms

CHUNK_ROWS = 256
_ROW_MULTIPLE = 16
# Gradients of two passes are multiplied by it before they are cast, so that float16 can hold probabilities of 1e-7.
_PAIR_SCALE = 256.0
_MOST_IN_HALF = 65_000  # float16 has numbers up to 65,504


class LossSums(NamedTuple):
    """Sums over the tokens that are not padding; float32 scalars.

    Attributes:
      loss: Label-smoothed cross-entropy in nats, 0 at its optimum.
      nll: Negative log-likelihood without smoothing, in nats (perplexity is exp of its mean).
      correct: Tokens that have the largest logit. If n logits are as large, which is frequent in bfloat16, the token
        counts as 1 / n, but as 1 in training.
      tokens: Tokens that are not padding.
      regularizer: What ``consistency`` adds to the loss, in nats; 0 without it.
      objective: ``loss + regularizer``. The only differentiable sum.
    """

    loss: tf.Tensor
    nll: tf.Tensor
    correct: tf.Tensor
    tokens: tf.Tensor
    regularizer: tf.Tensor
    objective: tf.Tensor


class Consistency(NamedTuple):
    """The objective if the model sees every sentence twice, with different dropout or input.

    Attributes:
      shares: The weights of the first and the second pass in loss, nll and correct; they sum to 1.
      divergences: The factors of KL(first || second) and KL(second || first), which are added to the loss.
    """

    shares: tuple[float, float]
    divergences: tuple[float, float]

    @classmethod
    def of(cls, hparams: Any) -> "Consistency | None":
        """Returns the objective that the hparams ask for, or None if they ask for neither SimCut nor R-Drop.

        SimCut (Gao et al. 2022, https://arxiv.org/abs/2206.02368): the cross-entropy of the unchanged sentence, plus
        alpha KL(unchanged || with words cut out); the gradient flows through both, as in the authors' program.

        R-Drop (Liang et al. 2021, https://arxiv.org/abs/2106.14448) adds up the cross-entropies of two dropout masks
        and alpha / 2 (KL(first || second) + KL(second || first)). Half of that is used here, so that the loss stays
        comparable; alpha has the same meaning.
        """
        if hparams.simcut_alpha:
            return cls((1.0, 0.0), (hparams.simcut_alpha, 0.0))
        if hparams.r_drop_alpha:
            return cls((0.5, 0.5), (hparams.r_drop_alpha / 4, hparams.r_drop_alpha / 4))
        return None


def softmax_cross_entropy(
    features: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor | None,
    targets: tf.Tensor,
    label_smoothing: float,
    *,
    weights: tf.Tensor | None = None,
    consistency: Consistency | None = None,
    differentiable: bool = True,
    compact: bool = True,
) -> LossSums:
    """Computes the summed loss of ``logits = features @ kernel^T + bias`` without keeping the logits.

    Products run in the dtype of ``features``; logits, log-sum-exp and all sums are float32.

    Args:
      features: float [..., D]; the decoder's output. With ``consistency``, the outputs of the first and the second pass
        are concatenated on the first axis, which is then twice as long as the targets'.
      kernel: float32 [V, D]; tensor or variable.
      bias: float32 [V] or None.
      targets: int32 [...]; padding (id 0) has weight 0.
      label_smoothing: As in ``smoothing_terms``.
      weights: float32 [...]; factors of each target's loss and regularizer, but not of nll and correct. None: 1.
      consistency: How the two passes are weighted; None: there is only one.
      differentiable: Whether gradients with respect to features, kernel and bias are prepared.
      compact: Whether padding rows are removed first. Needs dynamic shapes, so it does not work with XLA.

    Returns:
      The sums. Only ``objective`` has gradients.
    """
    rows = tf.reshape(features, [-1, features.shape[-1]])  # [N, D], or [2 N, D]
    labels = tf.reshape(targets, [-1])  # [N]
    real = tf.not_equal(labels, PAD_ID)
    tokens = tf.reduce_sum(tf.cast(real, tf.float32))
    weights = None if weights is None else tf.reshape(weights, [-1])
    weighted = tokens if weights is None else tf.reduce_sum(tf.where(real, weights, 0.0))
    if compact:
        kept = tf.squeeze(tf.where(real), -1)
        both = tf.concat([kept, kept + tf.size(labels, kept.dtype)], 0) if consistency else kept
        rows, labels = tf.gather(rows, both), tf.gather(labels, kept)
        weights = None if weights is None else tf.gather(weights, kept)
    kernel = tf.convert_to_tensor(kernel)
    vocab_size = kernel.shape[0]
    confidence, low, entropy = smoothing_terms(label_smoothing, vocab_size)
    biases = () if bias is None else (tf.convert_to_tensor(bias),)
    head = functools.partial(
        _head, labels=labels, weights=weights, smoothing=(confidence, low), consistency=consistency
    )

    @tf.custom_gradient
    def differentiable_head(rows: tf.Tensor, kernel: tf.Tensor, *bias: tf.Tensor) -> tuple:
        sums, (d_rows, *d_weights) = head(rows, kernel, *bias, gradients=True)

        def gradients(d_loss: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return tf.cast(d_loss * d_rows, rows.dtype), *(d_loss * gradient for gradient in d_weights)

        return sums, gradients

    sums = differentiable_head(rows, kernel, *biases) if differentiable else head(rows, kernel, *biases)[0]
    objective, nll, correct, regularizer = sums
    objective -= entropy * weighted
    return LossSums(objective - regularizer, nll, correct, tokens, regularizer, objective)


def _head(
    rows: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor | None = None,
    *,
    labels: tf.Tensor,
    weights: tf.Tensor | None,
    smoothing: tuple[float, float],
    consistency: Consistency | None,
    gradients: bool = False,
) -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
    """Returns the sums [objective, nll, correct, regularizer] and, on request, the objective's gradients (float32)."""
    confidence, low = smoothing
    real = tf.cast(tf.not_equal(labels, PAD_ID), tf.float32)
    every_weight = weights = real if weights is None else real * weights
    if consistency is not None:
        labels, every_weight = tf.tile(labels, [2]), tf.tile(weights, [2])
        shares = tf.repeat(tf.constant(consistency.shares), tf.shape(real)[0])
        real, weights = tf.tile(real, [2]) * shares, every_weight * shares
    rows32 = tf.cast(rows, tf.float32) * weights[:, None]
    kernel_sum = tf.reduce_sum(tf.cast(kernel, tf.float32), 0)
    passes = (confidence - low, -low * tf.reduce_sum(rows32, 0)) if gradients else None
    parts = _chunked(rows, tf.cast(kernel, rows.dtype), bias, labels, every_weight, passes, consistency)
    log_sum_exp, label_logit, hit, *parts = parts
    # sum_v logits[n, v] = features[n] . sum_v kernel[v] + sum(bias): no pass over the logits.
    logit_sum = tf.linalg.matvec(rows32, kernel_sum)
    if bias is not None:
        logit_sum += weights * tf.reduce_sum(bias)
    nll = real * (log_sum_exp - label_logit)
    cross_entropy = weights * (log_sum_exp - (confidence - low) * label_logit) - low * logit_sum
    correct = real * hit
    objective, regularizer = tf.reduce_sum(cross_entropy), tf.constant(0.0)
    if consistency is not None:
        divergence, *parts = parts
        regularizer = tf.reduce_sum(every_weight * divergence) / 2  # it occurs in the rows of both passes
        objective += regularizer
    sums = (objective, tf.reduce_sum(nll), tf.reduce_sum(correct), regularizer)
    if not gradients:
        return sums, ()
    d_rows, *d_weights = parts
    d_rows -= low * weights[:, None] * kernel_sum
    if bias is not None:
        d_weights[1] -= low * tf.reduce_sum(weights)
    return sums, (d_rows, *d_weights)


class _Layout(NamedTuple):
    """How rows are divided into chunks that hold every pass of their tokens; ints, or tensors if shapes are dynamic.

    Attributes:
      sides: Number of passes.
      count: Rows per pass.
      chunks: Number of chunks.
      size: Rows per pass in a chunk.
    """

    sides: int
    count: Any
    chunks: Any
    size: Any

    @classmethod
    def of(cls, rows: tf.Tensor, sides: int) -> "_Layout":
        """Returns the layout of rows float [sides * N, D]."""
        static = rows.shape[0]
        count = (tf.shape(rows)[0] if static is None else static) // sides
        largest = tf.maximum if static is None else max
        chunks = largest(1, (sides * count + CHUNK_ROWS - 1) // CHUNK_ROWS)
        # Equal chunks need little filling, and few sizes suit CPUs, whose kernels are made for each shape.
        size = (largest(1, (count + chunks - 1) // chunks) + _ROW_MULTIPLE - 1) // _ROW_MULTIPLE * _ROW_MULTIPLE
        return cls(sides, count, chunks, size)

    def divided(self, x: tf.Tensor) -> tf.Tensor:
        """Returns [sides * N, ...] as [chunks, rows per chunk, ...], padded with zeros."""
        others = x.shape[1:]
        x = tf.reshape(x, [self.sides, self.count, *others])
        x = tf.pad(x, [[0, 0], [0, self.chunks * self.size - self.count], *[[0, 0]] * len(others)])
        x = _swapped(tf.reshape(x, [self.sides, self.chunks, self.size, *others]))
        return tf.reshape(x, [self.chunks, self.sides * self.size, *others])

    def joined(self, x: tf.Tensor) -> tf.Tensor:
        """Undoes ``divided``."""
        others = x.shape[2:]
        x = _swapped(tf.reshape(x, [self.chunks, self.sides, self.size, *others]))
        x = tf.reshape(x, [self.sides, self.chunks * self.size, *others])
        return tf.reshape(x[:, : self.count], [self.sides * self.count, *others])


def _swapped(x: tf.Tensor) -> tf.Tensor:
    """Returns x with its first two axes swapped."""
    return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def _chunked(
    rows: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor | None,
    labels: tf.Tensor,
    weights: tf.Tensor,
    passes: tuple[float, tf.Tensor] | None,
    consistency: Consistency | None,
) -> list[tf.Tensor]:
    """Runs the passes over the logits of N rows, chunk by chunk.

    For gradients, ``passes`` contains ``confidence - low``, which is subtracted from the target's probability, and the
    part of the kernel's gradient that is the same for all of its rows (float32 [D]).
    With ``consistency``, the rows are the model's first pass over all tokens, followed by its second one.

    Returns:
      log-sum-exp, logit of the label, and whether it is the largest (float32 [N]; if n logits are as large, 1 / n, or 1
      with gradients); with ``consistency`` also the divergence of the row's token, times its factors (float32 [N]);
      with gradients also those of the objective with respect to rows [N, D], kernel [V, D] and, if there is one, bias
      [V] (float32), without the rank-one parts of rows and bias.
    """
    vocab_size, depth = kernel.shape
    layout = _Layout.of(rows, 2 if consistency else 1)
    # z may be as large as V. If that exceeds the range of float16, both z and f are divided by a power of 2.
    fitting = 2.0 ** min(0, math.floor(math.log2(_MOST_IN_HALF / vocab_size))) if rows.dtype == tf.float16 else 1.0
    chunk_rows, chunk_labels, chunk_weights = map(layout.divided, (rows, labels, weights))

    def body(i: tf.Tensor, arrays: list[tf.TensorArray], totals: list[tf.Tensor]) -> tuple:
        x = chunk_rows[i]
        logits = tf.cast(tf.matmul(x, kernel, transpose_b=True), tf.float32)  # [rows of a chunk, V]
        if bias is not None:
            logits += bias
        top = tf.reduce_max(logits, -1)  # [rows]
        label_logit = tf.gather(logits, chunk_labels[i], batch_dims=1)  # [rows]
        e = tf.exp(logits - top[:, None])
        z = tf.reduce_sum(e, -1)
        hit = tf.cast(label_logit >= top, tf.float32)
        if passes is None:
            # Several logits may be the largest, above all in bfloat16. In training this pass would take time.
            hit /= tf.reduce_sum(tf.cast(tf.equal(logits, top[:, None]), tf.float32), -1)
        values = [top + tf.math.log(z), label_logit, hit]
        # The gradient of the logits, without the target's part, times unit.
        if consistency is None:
            f, unit, confidence = (e, z, 1.0) if fitting == 1 else (e * fitting, z * fitting, 1.0)
        else:
            halves, divergence = _of_pairs(logits, e, z, top, consistency)
            unit, confidence = _PAIR_SCALE, tf.repeat(tf.constant(consistency.shares), layout.size)
            values.append(tf.tile(divergence, [2]))
        if passes is not None:
            scale = chunk_weights[i] / unit
            if consistency is None:
                at_target = tf.exp(label_logit - top) * fitting
            else:
                labels_of_pairs = tf.split(chunk_labels[i], 2)
                pairs = zip(halves, labels_of_pairs, strict=True)
                at_target = tf.concat([tf.gather(half, of_half, batch_dims=1) for half, of_half in pairs], 0)
                f = tf.concat([tf.cast(half, x.dtype) for half in halves], 0)
            at_target -= passes[0] * unit * confidence
            target = tf.stack([tf.range(tf.shape(e)[0]), chunk_labels[i]], 1)
            f = tf.tensor_scatter_nd_update(tf.cast(f, x.dtype), target, tf.cast(at_target, x.dtype))
            scaled = tf.cast(tf.cast(x, tf.float32) * scale[:, None], x.dtype)
            values.append(tf.cast(tf.matmul(f, kernel), tf.float32) * scale[:, None])
            d_weights = [tf.matmul(f, scaled, transpose_a=True)]  # [V, D]
            if bias is not None:
                d_weights.append(tf.linalg.matvec(f, tf.cast(scale, x.dtype), transpose_a=True))
            totals = [total + tf.cast(part, tf.float32) for total, part in zip(totals, d_weights, strict=True)]
        return i + 1, [array.write(i, value) for array, value in zip(arrays, values, strict=True)], totals

    row_size = None if rows.shape[0] is None else layout.sides * layout.size
    shapes = [[row_size]] * (2 + layout.sides) + ([[row_size, depth]] if passes is not None else [])
    arrays = [tf.TensorArray(tf.float32, layout.chunks, element_shape=shape) for shape in shapes]
    totals = []
    if passes is not None:
        totals.append(tf.broadcast_to(passes[1], [vocab_size, depth]))
        totals += [] if bias is None else [tf.zeros([vocab_size])]
    # One chunk after the other: in parallel they would not stay in the cache.
    _, arrays, totals = tf.while_loop(lambda i, *_: i < layout.chunks, body, (0, arrays, totals), parallel_iterations=1)
    return [layout.joined(array.stack()) for array in arrays] + list(totals)


def _of_pairs(
    logits: tf.Tensor, e: tf.Tensor, z: tf.Tensor, top: tf.Tensor, consistency: Consistency
) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns the gradients of two passes over the same tokens, without the targets' part, and their divergences.

    Probabilities and differences of log-probabilities are not computed, since every pass over all of them takes time.
    The latter equal the differences of the logits plus one number for each row.

    Args:
      logits: float32 [2 n, V]: n tokens in the first pass, then the same tokens in the second one.
      e: float32 [2 n, V], exp(logits - top), whose sums over the vocabulary are ``z``.
      z: float32 [2 n].
      top: float32 [2 n], the largest logits.
      consistency: The factors.

    Returns:
      The gradients with respect to the logits, times ``_PAIR_SCALE``, float32 [n, V] for each pass, and the weighted
      sum of both divergences, float32 [n], in nats.
    """
    (e_p, e_q), (z_p, z_q) = tf.split(e, 2), tf.split(z, 2)
    distance = tf.subtract(*tf.split(logits, 2))
    normalizers = tf.subtract(*tf.split(top + tf.math.log(z), 2))
    forward, backward = consistency.divergences
    mean = tf.reduce_sum(e_p * distance, -1) / z_p
    divergence = forward * (mean - normalizers)
    share, other_share = consistency.shares

    def row(factor: tf.Tensor | float, z: tf.Tensor) -> tf.Tensor:
        return (_PAIR_SCALE * factor / z)[:, None]

    d_first = e_p * (row(forward, z_p) * distance + row(share + backward - forward * mean, z_p))
    if backward:
        mean = tf.reduce_sum(e_q * distance, -1) / z_q
        divergence += backward * (normalizers - mean)
        d_first -= row(backward, z_q) * e_q
        own = row(other_share + forward + backward * mean, z_q) - row(backward, z_q) * distance
    else:
        own = row(other_share + forward, z_q)
    return (d_first, own * e_q - row(forward, z_p) * e_p), divergence
