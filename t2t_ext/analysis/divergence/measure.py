"""Measures the divergence of local and global attention in dual contextual modules (Ampomah et al. 2021, section 7.2).

    alpha_g = max([alpha_g^1, ..., alpha_g^H]),
    alpha_l = max([alpha_l^1, ..., alpha_l^H])                                           (equation 10)
    dv^l = JS(alpha_g, alpha_l) = KL(alpha_g || m) / 2 + KL(alpha_l || m) / 2,
    m = (alpha_g + alpha_l) / 2                                                          (equations 11 and 12)
    E_d = mean of dv^l over the layers                                                   (equation 13)

Logarithms are natural, so that 0 <= JS <= ln 2. The rows of an element-wise maximum of distributions sum to more than
1. They are divided by their sums, since dv^l would otherwise have no bound and not compare distributions.

Legend: B sentences, H heads, Q queries, K keys, L layers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_ext.analysis.attention.maps import DUAL_CONTEXT
from t2t_ext.analysis.divergence.report import Divergences
from t2t_ext.data.text.special_ids import PAD_ID
from t2t_ext.errors import UserError
from t2t_ext.models.stacked import Record
from t2t_ext.models.transformer import Transformer
from t2t_ext.translation.batches import similar_lengths

# Way of combining the heads' distributions into one -> its description in reports.
HEADS = {
    "max": "the element-wise maximum over the heads, its rows divided by their sums",
    "mean": "the mean over the heads",
    "head": "at every position the head with the largest weight",
}
_MOST_POSITIONS = 2048  # in a batch, padding included: the memory for attention is quadratic in the length
_WIDTH_MULTIPLE = 8
_IDS = tf.TensorSpec([None, None], tf.int32)


def jensen_shannon(p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
    """Returns the Jensen-Shannon divergence of distributions (equations 11 and 12), in nats, float32 [...].

    Both are float32 [..., K] and sum to 1 on the last axis; zeros contribute nothing.
    """
    m = (p + q) / 2
    total = tf.math.xlogy(p, p) + tf.math.xlogy(q, q) - 2 * tf.math.xlogy(m, m)
    # Rounding may give a value slightly below zero for equal distributions.
    return tf.clip_by_value(tf.reduce_sum(total, axis=-1) / 2, 0.0, float(np.log(2)))


def joined_heads(weights: tf.Tensor, heads: str) -> tf.Tensor:
    """Returns one distribution that combines those of all heads (equation 10).

    Args:
      weights: float [B, H, Q, K], distributions on the last axis.
      heads: ``max``: the element-wise maximum, whose rows are divided by their sums; ``mean``: the mean; ``head``: at
        every position, the distribution of the head with the largest single weight there.

    Returns:
      float32 [B, Q, K], distributions on the last axis.
    """
    weights = tf.cast(weights, tf.float32)
    if heads == "head":
        best = tf.argmax(tf.reduce_max(weights, axis=3), axis=1)
        joined = tf.gather(tf.transpose(weights, [0, 2, 1, 3]), best, batch_dims=2)
    else:
        joined = tf.reduce_max(weights, axis=1) if heads == "max" else tf.reduce_mean(weights, axis=1)
    return joined / tf.reduce_sum(joined, axis=-1, keepdims=True)


def module_divergence(weights: tf.Tensor, real: tf.Tensor, heads: str) -> tf.Tensor:
    """Returns the divergence between a module's local and global attention, averaged over each sentence's positions.

    Args:
      weights: float [B, 2 H, Q, K], the H local heads, then the H global ones.
      real: bool [B, Q], False at padding.
      heads: As for ``joined_heads``.

    Returns:
      float32 [B].
    """
    local, globally = (joined_heads(part, heads) for part in tf.split(weights, 2, axis=1))
    counted = tf.cast(real, tf.float32)
    return tf.reduce_sum(jensen_shannon(local, globally) * counted, axis=1) / tf.reduce_sum(counted, axis=1)


def check_model(model_class: type) -> None:
    """Checks that a model's modules can be measured.

    Raises:
      UserError: The model, such as layer-wise coordination, has no separate encoder and decoder stacks.
    """
    if not issubclass(model_class, Transformer):
        raise UserError(
            f"{model_class.__name__} has no encoder and decoder whose layers could be told apart: its modules are not "
            "measured. Divergence is for dual_context_transformer and other relatives of the Transformer; "
            "t2t_ext-analyze attention shows both attentions of any model."
        )


def stacks_with_modules(hparams: Any, with_targets: bool, target_sides: int = 1) -> list[str]:
    """Returns the stacks of a model with these hparams that have dual contextual modules and can be measured.

    A decoder needs translations as input (``with_targets``), and is not measured if the model has two targets.

    Raises:
      UserError: There is no such stack.
    """
    encoder, decoder = (getattr(hparams, f"dual_{stack}_layers", ()) for stack in ("encoder", "decoder"))
    if not encoder and not decoder:
        raise UserError(
            "it has no dual contextual module, so no local attention that could diverge from a global one. Give runs "
            "trained with dc_encoder_layers or dc_decoder_layers, such as those of --hparams_set=dual_context_base."
        )
    if not encoder and target_sides > 1:
        raise UserError(
            "it has dual contextual modules in the decoder alone, and generates two targets, whose decoders "
            "are not measured. Give runs with dc_encoder_layers, or of a model with one."
        )
    if not encoder and not with_targets:
        raise UserError(
            "it has dual contextual modules in the decoder alone, which reads translations: give "
            "--reference_file=FILE beside --sentence_file, or --split."
        )
    return ["encoder"] * bool(encoder) + ["decoder"] * bool(decoder and with_targets and target_sides == 1)


def measure(
    model: Any,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]] | None = None,
    heads: str = "max",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Divergences]:
    """Measures the divergence in every dual contextual module of a Transformer, without dropout.

    Sources and targets are ids with EOS; targets are in the model's generation order (teacher forcing). Without targets
    only the encoder is measured. ``heads`` is as for ``joined_heads``. ``progress`` is called with (sentences done,
    sentences in all). Returns stack (``encoder``, ``decoder``) -> its divergences, with the sentences in the given
    order.

    Raises:
      UserError: The model has no such module.
    """
    stacks = stacks_with_modules(model.hparams, targets is not None, model.target_sides)
    decoder = "decoder" in stacks
    layers = {
        "encoder": tuple(sorted(model.hparams.dual_encoder_layers)),
        "decoder": tuple(sorted(model.hparams.dual_decoder_layers)),
    }

    @tf.function(input_signature=[_IDS, _IDS], autograph=False)
    def of_batch(inputs: tf.Tensor, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        if decoder:
            weights = model.attention_weights(inputs, outputs)
        else:
            record = Record()
            model.encode(inputs, record=record)
            weights = record.weights
        found = {}
        for stack in stacks:
            real = tf.not_equal(inputs if stack == "encoder" else outputs, PAD_ID)
            each = [
                module_divergence(weights[f"{stack}/layer_{layer}/{DUAL_CONTEXT}"], real, heads)
                for layer in layers[stack]
            ]
            found[stack] = tf.stack(each, axis=1)
        return found

    of_batch.get_concrete_function()  # a trace made by a call would count as a retracing of the last model's
    values = {stack: np.zeros([len(sources), len(layers[stack])]) for stack in stacks}
    read = targets if decoder and targets is not None else [[PAD_ID]] * len(sources)
    done = 0
    lengths = [max(map(len, pair)) for pair in zip(sources, read, strict=True)]
    for batch in similar_lengths(lengths, _MOST_POSITIONS, positions=_MOST_POSITIONS):
        found = of_batch(_padded([sources[i] for i in batch]), _padded([read[i] for i in batch]))
        for stack in stacks:
            values[stack][batch] = found[stack].numpy()
        done += len(batch)
        progress(done, len(sources))
    return {stack: Divergences(layers[stack], values[stack]) for stack in stacks}


def _padded(ids: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns ids as int32 [B, T], T a multiple of eight, since oneDNN compiles every matrix product for each shape."""
    width = -(-max(map(len, ids)) // _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE
    return np.array([[*each, *[PAD_ID] * (width - len(each))] for each in ids], np.int32)
