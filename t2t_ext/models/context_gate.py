"""The Transformer with a context gate in every decoder layer, reconstructed.

Tu et al. (TACL 2017) put a gate between source and target context of a recurrent decoder: z, a sigmoid of the word
before, the decoder's state and the source context, scales what comes of the source, 1 - z what comes of the target. He
et al. (2018, section 5.4) compare with a Transformer that has it, 6+6 layers with 19.08M parameters against 19.07M
without; how it is made stands in a supplement that is not published with the paper's text.

Here, in a decoder layer with what self-attention found (a) and what cross-attention found (c):

    z = sigmoid([a; c] W + b)
    x + (1 - z) a + z c        instead of        x + a + c

in the frame of cross-attention. The query of cross-attention is the Transformer's, made of
x + a. The word before is not an input of its own: the residual stream has it. z has one number for as many channels as
a head has (``context_gate=head``: the 0.01M parameters by which the paper's two numbers differ), or one for each
(``channel``, as Tu et al.: 19.85M).

Legend: B sentences, S source positions, T target positions, D width, H heads, R directions, K hypotheses.
"""

from typing import Any

import tensorflow as tf

from t2t_ext.config.context_gate import ContextGateHParams
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.layers.base import Description, Layer, Mixer, Projection, make_initializer
from t2t_ext.models.transformer import Decoder, DecoderLayer, Transformer
from t2t_ext.registry import register_model


class ContextGate(Layer):
    """Weighs what attention found in the source against what it found in the target."""

    def __init__(self, hparams: ContextGateHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width = hparams.hidden_size
        self.gates = hparams.num_heads if hparams.context_gate == "head" else self.width
        initializer = make_initializer(hparams.initializer, hparams.initializer_gain)
        self.projection = Projection(
            self.gates, use_bias=True, initializer=initializer, name="projection", dtype=self.dtype_policy
        )

    def build(self, input_shape: object = None) -> None:
        """Creates W [2 D, H or D] and b."""
        self.projection.build((None, 2 * self.width))

    def described(self, role: str) -> Description:
        """Returns what the layer is; see Layer."""
        of = "each channel" if self.gates == self.width else "each head"
        shape = f"2 x {self.width} -> {self.gates}"
        return Description("context gate", f"z of {of}", shape, "Tu et al. 2017", "the sum of both attentions")

    def call(self, target: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
        """Returns (1 - z) target + z source for float [..., D] each; z = 1/2 where W and b are 0."""
        gate = tf.sigmoid(self.projection(tf.concat([target, source], axis=-1)))
        if self.gates < self.width:
            gate = tf.repeat(gate, self.width // self.gates, axis=-1)
        return target + gate * (source - target)


class GatedDecoderLayer(DecoderLayer):
    """A decoder layer with a gate between what its two attentions found."""

    def __init__(self, hparams: ContextGateHParams, mixer: Mixer, **kwargs: Any) -> None:
        super().__init__(hparams, mixer, **kwargs)
        self.context_gate = ContextGate(hparams, name="context_gate", dtype=self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the sublayers' weights."""
        super().build(input_shape)
        self.context_gate.build(None)

    def join(
        self, x: tf.Tensor, before: tf.Tensor, mixed: tf.Tensor, found: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Joins the results of both sublayers by the gate, float [..., D] each; see DecoderLayer."""
        return self.source_attention_frame.postprocess(x, self.context_gate(mixed, found), training)


class GatedDecoder(Decoder):
    """A stack of such layers."""

    layer_class = GatedDecoderLayer


@register_model("context_gate_transformer")
class ContextGateTransformer(Transformer[ContextGateHParams]):
    """The Transformer with a context gate in every decoder layer (He et al. 2018, section 5.4, reconstructed)."""

    hparams_class: type[HParams] = ContextGateHParams

    def make_decoder(self, name: str, decoder_class: type[Decoder] = GatedDecoder) -> Decoder:
        """Returns a stack of decoder layers with gates."""
        return super().make_decoder(name, decoder_class)
