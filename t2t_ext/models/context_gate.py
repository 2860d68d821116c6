"""The Transformer with a context gate in every decoder layer, reconstructed.

Tu et al. (TACL 2017) put a gate between source and target context of a recurrent decoder: z, a sigmoid of the word
before, the decoder's state and the source context, scales what comes of the source, 1 - z what comes of the target. He
et al. (2018, section 5.4) compare with a Transformer that has it, 6+6 layers with 19.08M parameters against 19.07M
without; how it is made stands in a supplement that is not published with the paper's text.

Here, in a decoder layer with what self-attention found (a) and what attention to the source found (c):

    z = sigmoid([a; c] W + b)
    x + (1 - z) a + z c        instead of        x + a + c

in the frame of the attention to the source. The query of the attention to the source is the Transformer's, made of
x + a. The word before is not an input of its own: the residual stream has it. z has one number for as many channels as
a head has (``context_gate=head``: the 0.01M parameters by which the paper's two numbers differ), or one for each
(``channel``, as Tu et al.: 19.85M).

Legend: B sentences, S source positions, T target positions, D width, H heads, R directions, K hypotheses.
"""

import math
from typing import Any

import tensorflow as tf

from t2t_ext.config.layer_coordination import ContextGateHParams
from t2t_ext.layers.attention import StepContext
from t2t_ext.layers.base import Layer, Projection, make_initializer
from t2t_ext.models.seq2seq import State
from t2t_ext.models.transformer import Decoder, DecoderLayer, Record, Transformer
from t2t_ext.registry import register_model


class ContextGate(Layer):
    """Weighs what attention found in the source against what it found in the target."""

    def __init__(self, hparams: ContextGateHParams, **kwargs: Any) -> None:
        """Initialises the gate from the model's hparams."""
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

    def call(self, target: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
        """Returns (1 - z) target + z source for float [..., D] each; z = 1/2 where W and b are 0."""
        gate = tf.sigmoid(self.projection(tf.concat([target, source], axis=-1)))
        if self.gates < self.width:
            gate = tf.repeat(gate, self.width // self.gates, axis=-1)
        return target + gate * (source - target)


class GatedDecoderLayer(DecoderLayer):
    """A decoder layer with a gate between what its two attentions found."""

    def __init__(self, hparams: ContextGateHParams, mixer: Layer, **kwargs: Any) -> None:
        """Initialises the layer around a decoder mixer."""
        super().__init__(hparams, mixer, **kwargs)
        self.context_gate = ContextGate(hparams, name="context_gate", dtype=self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the sublayers' weights."""
        super().build(input_shape)
        self.context_gate.build(None)

    def call(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        view: tf.Tensor,
        source_mask: tf.Tensor,
        training: bool = False,
        record: Record | None = None,
    ) -> tf.Tensor:
        """Transforms whole sequences; see DecoderLayer."""
        y = self.mixer_frame.before(x)
        if record is not None and self.mixer.distributions is not None:
            record.weights[f"decoder/{self.name}/{self.mixer.name}"] = self.mixer.distributions(y, mask)
        target = self.mixer(y, mask, training=training)
        query = self.source_attention_frame.before(self.mixer_frame.after(x, target, training))
        if record is not None:
            record.weights[f"decoder/{self.name}/source_attention"] = self.source_attention.distributions(
                query, view, source_mask
            )
        source = self.source_attention(query, view, source_mask, training=training)
        x = self.source_attention_frame.after(x, self.context_gate(target, source), training)
        y = self.feed_forward(self.feed_forward_frame.before(x), training=training)
        return self.feed_forward_frame.after(x, y, training)

    def step(
        self,
        x: tf.Tensor,
        context: StepContext,
        memory: tuple[tf.Tensor, tf.Tensor],
        source_bias: tf.Tensor,
        state: State,
        record: Record | None = None,
    ) -> tuple[tf.Tensor, State]:
        """Transforms one position of every hypothesis, float [B * R * K, D]; see DecoderLayer."""
        target, state = self.mixer.step(self.mixer_frame.before(x), context, state)
        query = self.source_attention_frame.before(self.mixer_frame.after(x, target))
        arguments = (query, memory, source_bias, math.prod(context.hypotheses))
        if record is not None:
            record.weights[self.name] = self.source_attention.step_distributions(*arguments)
        source = self.source_attention.step(*arguments)
        x = self.source_attention_frame.after(x, self.context_gate(target, source))
        return self.feed_forward_frame.after(x, self.feed_forward(self.feed_forward_frame.before(x))), state


class GatedDecoder(Decoder):
    """A stack of such layers."""

    layer_class = GatedDecoderLayer


@register_model("context_gate_transformer")
class ContextGateTransformer(Transformer):
    """The Transformer with a context gate in every decoder layer (He et al. 2018, section 5.4, reconstructed)."""

    hparams_class = ContextGateHParams

    def make_decoder(self, name: str, decoder_class: type[Decoder] = GatedDecoder) -> Decoder:
        """Returns a stack of decoder layers with gates."""
        return super().make_decoder(name, decoder_class)
