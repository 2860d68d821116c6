"""The Transformer with a context gate in every decoder layer, reconstructed.

Tu et al. (TACL 2017) put a gate between the source and target contexts of a recurrent decoder. The gate z is a sigmoid
of the previous word, the decoder's state and the source context; it scales the source context, and 1 - z scales the
target context. He et al. (2018, section 5.4) compare with a Transformer that has this gate: it has 6+6 layers and
19.08M parameters, against 19.07M without the gate. Its construction is described in a supplement that is not published
with the paper's text.

Here, a is the result of self-attention in a decoder layer and c the result of cross-attention. In the frame of
cross-attention, the layer computes

    z = sigmoid([a; c] W + b)
    x + (1 - z) a + z c        instead of        x + a + c

The query of cross-attention is computed from x + a, as in the Transformer. The previous word is not a separate input of
the gate, since the residual stream contains it. With ``context_gate=head``, z has one number for as many channels as a
head has, which gives the 0.01M parameters by which the paper's two numbers differ. With ``channel``, it has one number
for each channel, as in Tu et al. (19.85M).

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
    """A gate that weights the results of attention to the source and of attention to the target."""

    def __init__(self, hparams: ContextGateHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width = hparams.hidden_size
        self.gates = hparams.num_heads if hparams.context_gate == "head" else self.width
        initializer = make_initializer(hparams.initializer, hparams.initializer_gain)
        self.projection = Projection(
            self.gates, use_bias=True, initializer=initializer, name="projection", dtype=self.dtype_policy
        )

    def build(self, input_shape: object = None) -> None:
        """Creates W [2 D, H or D] and b [H or D]."""
        self.projection.build((None, 2 * self.width))

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
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
    """A decoder layer with a gate between the results of its two attentions."""

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
        """Joins the results of both attentions, float [..., D] each, with the gate; see DecoderLayer."""
        return self.source_attention_frame.postprocess(x, self.context_gate(mixed, found), training)


class GatedDecoder(Decoder):
    """A stack of GatedDecoderLayers."""

    layer_class = GatedDecoderLayer


@register_model("context_gate_transformer")
class ContextGateTransformer(Transformer[ContextGateHParams]):
    """The Transformer with a context gate in every decoder layer (He et al. 2018, section 5.4, reconstructed)."""

    hparams_class: type[HParams] = ContextGateHParams

    def make_decoder(self, name: str, decoder_class: type[Decoder] = GatedDecoder) -> Decoder:
        """Returns a stack of decoder layers with context gates."""
        return super().make_decoder(name, decoder_class)
