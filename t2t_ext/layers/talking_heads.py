"""Talking-heads attention (Shazeer, Lan, Cheng, Ding & Hou 2020, arXiv 2003.02436) as self-attention.

With the logits J_h = Q_h K_h^T of the heads h = 1 to H, and matrices P_l and P_w [H, H]:

    L_g = sum_h J_h P_l[h, g],  W = softmax(L + mask),  U_g = sum_h W_h P_w[h, g],  O_g = U_g V_g

The paper's three numbers of heads are equal here, and J is scaled as in other attention. Both matrices are initially
the identity, which gives ordinary self-attention. Its weights have the same names, so that a run can start from them.

Legend: H heads, T query positions, S key positions, d width of a head, B sentences.
"""

from typing import Any

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.layers.attention import SelfAttention, mask_bias
from t2t_ext.layers.base import Description, shape_of_heads


@registry.register_layer("encoder_mixer", "talking_heads")
@registry.register_layer("decoder_mixer", "talking_heads")
class TalkingHeads(SelfAttention):
    """Self-attention whose heads are mixed before and after the softmax."""

    def build(self, input_shape: Any = None) -> None:
        """Creates the projections, P_l and P_w."""
        super().build(input_shape)
        self.mix_logits, self.mix_weights = (
            self.add_weight(name=name, shape=(self.heads, self.heads), initializer="identity")
            for name in ("mix_logits", "mix_weights")
        )

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        return Description("talking-heads attention", "", shape_of_heads(self), "Shazeer et al. 2020", "self-attention")

    def weights_of(self, query: tf.Tensor, keys: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
        """Returns U float [..., H, T, S], whose rows need not sum to 1; see SelfAttention."""
        return _mixed(self._softmax(query, keys, bias), self.mix_weights.value)

    def distributions(self, x: tf.Tensor, mask: Any) -> tf.Tensor:
        """Returns the attention distributions W float [B, H, T, T] for float [B, T, D]."""
        query, keys, _ = self.project(x)
        return self._softmax(query, keys, None if mask is None else mask_bias(mask))

    def _softmax(self, query: tf.Tensor, keys: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
        logits = tf.matmul(query * tf.cast(self.scale, query.dtype), keys, transpose_b=True)  # [..., H, T, S]
        logits = _mixed(tf.cast(logits, tf.float32), self.mix_logits.value)
        return tf.cast(tf.nn.softmax(logits if bias is None else logits + bias), query.dtype)


def _mixed(x: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """Mixes the heads of float [..., H, T, S] by a matrix [H, H]."""
    return tf.einsum("...hts,hg->...gts", x, tf.cast(matrix, x.dtype))
