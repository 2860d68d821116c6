"""Asynchronous bidirectional decoding, ABD-NMT (Zhang et al., AAAI 2018), built from the Transformer's parts.

Decoding has two phases. First, a backward decoder generates the sentence from right to left. Then the forward decoder
generates it from left to right and attends to the source and to the states of the backward decoder. This is the
baseline ABD-NMT of Zhou et al. (2019, section 4.3 and table 6), who base it on the Transformer and describe it in two
sentences.

The details that they leave open are reconstructed here. Their 333.8M parameters are the Transformer's 207.8M (with
biases in the projections), six more decoder layers (16 D^2 each) and six more attentions (4 D^2 each). It follows that
there is a complete second decoder, that every layer of the forward decoder attends to the backward states with its own
projections, and that both decoders share the target embedding and the softmax. The attention to the backward states
follows cross-attention, in its own frame (dropout, residual sum, normalization). The backward states are the outputs of
the backward decoder's last layer, after its final normalization if there is one. State j is the state from which it
generated token j; the tokens include EOS. Both losses are trained together, and the gradient of the forward loss also
flows through the backward decoder. The backward decoder generates greedily by default (``backward_beam_size``).

In training, side 0 is the target of the forward decoder, and side 1 is that of the backward decoder. If both were the
reference, the forward decoder could read its future from the backward states. By default, side 1 is therefore the
translation of a right-to-left model (``pseudo=one``), which also resembles the backward decoder's own output.

Legend: B sentences, S source positions, T target positions, U positions that the backward decoder generated, D width, V
target vocabulary, K hypotheses.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from t2t_ext.config.asynchronous import AsynchronousHParams
from t2t_ext.config.hyperparameters import HParams, TransformerHParams
from t2t_ext.data.text.special_ids import EOS_ID, FIRST_TEXT_ID
from t2t_ext.layers.attention import SourceAttention, mask_bias
from t2t_ext.layers.base import Mixer
from t2t_ext.layers.gradients import forward_only
from t2t_ext.layers.masks import padding_mask, words_of_source
from t2t_ext.layers.source_views import EncoderOutput
from t2t_ext.layers.sublayer import Frame
from t2t_ext.models.seq2seq import State
from t2t_ext.models.stacked import Record
from t2t_ext.models.transformer import Decoder, DecoderLayer, Transformer
from t2t_ext.registry import register_model
from t2t_ext.search.beam_search import MIN_ROWS, at_least_wide, beam_search
from t2t_ext.search.search_state import SearchConfig

# Never generated: PAD, UNK and the control symbols.
_NEVER_GENERATED = tuple(sorted(set(range(FIRST_TEXT_ID)) - {EOS_ID}))

Memory = tuple[tf.Tensor, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class BothSources(EncoderOutput):
    """The encoder's output together with the backward decoder's states, for the forward decoder.

    Attributes:
      backward: float [B, U, D], the backward decoder's states.
      backward_mask: bool [B, 1, 1, U], True where it generated a token.
    """

    backward: tf.Tensor
    backward_mask: tf.Tensor


class ForwardDecoderLayer(DecoderLayer):
    """A decoder layer that attends first to the source and then to the backward decoder's states.

    Each argument of the Transformer's layer that concerns the source is a pair here: one for the source and one for the
    backward states.
    """

    def __init__(self, hparams: TransformerHParams, mixer: Mixer, **kwargs: Any) -> None:
        super().__init__(hparams, mixer, **kwargs)
        self.backward_attention = SourceAttention(hparams, name="backward_attention", dtype=self.dtype_policy)
        self.backward_attention_frame = Frame(hparams, name="backward_attention_frame", dtype=self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the sublayers' weights."""
        super().build(input_shape)
        self.backward_attention_frame.build(None)
        self.backward_attention.build(None)

    def attend(
        self,
        x: tf.Tensor,
        mixed: tf.Tensor,
        view: tuple[tf.Tensor, tf.Tensor],
        source_mask: tuple[tf.Tensor, tf.Tensor],
        training: bool,
        record: Record | None,
    ) -> tf.Tensor:
        """Attends from float [B, T, D] to the source, then to the backward states."""
        x = super().attend(x, mixed, view[0], source_mask[0], training, record)
        y = self.backward_attention_frame.preprocess(x)
        if record is not None:
            record.weights[f"decoder/{self.name}/backward_attention/future"] = self.backward_attention.distributions(
                y, view[1], source_mask[1]
            )
        y = self.backward_attention(y, view[1], source_mask[1], training=training)
        return self.backward_attention_frame.postprocess(x, y, training)

    def attend_step(
        self,
        x: tf.Tensor,
        mixed: tf.Tensor,
        memory: tuple[Memory, Memory],
        source_bias: tuple[tf.Tensor, tf.Tensor],
        hypotheses: int,
        record: Record | None,
    ) -> tf.Tensor:
        """Attends from rows float [B * K, D] to the source, then to the backward states."""
        x = super().attend_step(x, mixed, memory[0], source_bias[0], hypotheses, record)
        y = self.backward_attention_frame.preprocess(x)
        return self.backward_attention_frame.postprocess(
            x, self.backward_attention.step(y, memory[1], source_bias[1], hypotheses)
        )


class ForwardDecoder(Decoder):
    """A stack of ForwardDecoderLayers, which reads ``BothSources`` in place of an EncoderOutput."""

    layer_class = ForwardDecoderLayer

    def call(
        self, x: tf.Tensor, mask: tf.Tensor, encoded: Any, training: bool = False, record: Record | None = None
    ) -> tf.Tensor:
        """Decodes float [B, T, D] under mask bool [1, 1, T, T]; ``encoded`` is BothSources."""
        masks = (encoded.mask, encoded.backward_mask)
        for layer, view in zip(self.layers, self.source_views.views(encoded), strict=True):
            x = layer(x, mask, view=(view, encoded.backward), source_mask=masks, training=training, record=record)
        return x if self.final_norm is None else self.final_norm(x)

    def start(self, encoded: Any, directions: int) -> State:
        """Returns the state before the first step, with keys and values of the source and of the backward states."""
        state = super().start(encoded, directions)
        memories = [layer.backward_attention.memory(encoded.backward) for layer in self.layers]
        return {
            **state,
            "source": list(zip(state["source"], memories, strict=True)),
            "source_bias": (state["source_bias"], mask_bias(encoded.backward_mask)),
        }


@register_model("asynchronous_transformer")
class AsynchronousTransformer(Transformer[AsynchronousHParams]):
    """A Transformer with a backward decoder that generates first.

    For targets int32 [B, 2, T], features and logits are those of both decoders on these targets. For targets int32
    [B, T], the backward decoder first generates the sentence to which the forward decoder attends; features and logits
    are only those of the forward decoder. Translations are searched and scored in this way.

    The attention distributions of the forward decoder have the Transformer's names; the attention to the backward
    states is ``decoder/layer_i/backward_attention/future``. The names for the backward decoder begin with
    ``backward_decoder`` and end with ``/r2l``.
    """

    hparams_class: type[HParams] = AsynchronousHParams
    target_sides = 2

    def __init__(self, hparams: AsynchronousHParams, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.backward_decoder = super().make_decoder("backward_decoder")
        states = tf.TensorSpec([None, None, hparams.hidden_size], self.compute_dtype)
        size = self.source_feature_size
        inputs = tf.TensorSpec([None, None, size], tf.float32) if size else tf.TensorSpec([None, None], tf.int32)
        mask = tf.TensorSpec([None, 1, 1, None], tf.bool)
        # A separate graph, which all graphs that translate or score call; outside of graphs, it would take seconds.
        self._write = tf.function(
            self._search_backward,
            input_signature=[inputs, [states] * self.hparams.encoder_layers, states, mask],
            autograph=False,
        )

    def make_decoder(self, name: str, decoder_class: type[Decoder] = ForwardDecoder) -> Decoder:
        """Returns the forward decoder."""
        return super().make_decoder(name, decoder_class)

    def build(self, input_shape: object = None) -> None:
        """Creates all variables; a second call does nothing."""
        if self.built:
            return
        super().build(input_shape)
        self.backward_decoder.build(None)

    # === Whole sequences ===

    def _features(
        self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False, record: Record | None = None
    ) -> tf.Tensor:
        """Returns the outputs of both decoders on targets int32 [B, 2, T], or of the forward decoder on [B, T].

        For two targets, they are float [B, 2, T, D]. The output at [:, 0, t] depends on side 0 before t and on all
        tokens of side 1 that the backward decoder reads (all except the last); the output at [:, 1, t] depends on side
        1 before t. For one target, they are float [B, T, D].
        """
        targets, encoded = tf.convert_to_tensor(targets), self.encode(inputs, training, record)
        if targets.shape.rank == 2:
            backward_ids = self.generate_backward(inputs, encoded)
            both = self._both_sources(encoded, backward_ids, training, record)
            return self._decode(targets, both, training, record)
        both = self._both_sources(encoded, targets[:, 1], training, record)
        return tf.stack([self._decode(targets[:, 0], both, training, record), both.backward], axis=1)

    def _both_sources(
        self, encoded: EncoderOutput, ids: tf.Tensor, training: bool = False, record: Record | None = None
    ) -> BothSources:
        """Adds the states from which the backward decoder generates ids int32 [B, U] to the encoder's output."""
        own = Record()
        states = self._decode(ids, encoded, training, record and own, decoder=self.backward_decoder)
        if record is not None:
            record.weights.update({f"backward_{name}/r2l": weights for name, weights in own.weights.items()})
        return BothSources(encoded.layers, encoded.final, encoded.mask, states, padding_mask(ids))

    def label_weights(self, labels: tf.Tensor) -> tf.Tensor | None:
        """Returns the weights of both decoders' losses, float32 with the shape of labels int32 [B, 2, T].

        The weights are twice the shares of the losses, so that equal shares give the usual loss; None: all are 1.
        """
        forward = 2 * self.hparams.forward_loss_weight
        if forward == 1:
            return None
        return tf.broadcast_to(tf.constant([forward, 2 - forward])[:, tf.newaxis], tf.shape(labels))

    # === The backward decoder's own search ===

    def generate_backward(self, inputs: tf.Tensor, encoded: EncoderOutput) -> tf.Tensor:
        """Generates sentences with the backward decoder: int32 [B, U] from right to left, U >= 4, padded with 0.

        A sentence ends with EOS unless it reaches its limit first. The search is the one that all models use
        (``backward_beam_size`` hypotheses, length penalty 0.6). Each sentence has its own length limit, computed from
        its length in inputs int32 [B, S], so that its output does not depend on the batch.
        """
        if self.source_feature_size:  # Keras casts the arguments of a call to the compute dtype
            inputs = tf.cast(inputs, tf.float32)
        return self._write(inputs, encoded.layers, encoded.final, encoded.mask)

    # Traced once for all callers, with and without gradients, since the result of a search has no gradient.
    @forward_only()
    def _search_backward(
        self, inputs: tf.Tensor, layers: list[tf.Tensor], final: tf.Tensor, mask: tf.Tensor
    ) -> tf.Tensor:
        """Runs the search of ``generate_backward`` on the parts of the encoded inputs."""
        hparams = self.hparams
        lengths = tf.reduce_sum(tf.cast(words_of_source(inputs), tf.int32), axis=1)
        limits = tf.cast(hparams.backward_length_ratio * tf.cast(lengths, tf.float32), tf.int32)
        limits = tf.where(lengths > 0, limits + hparams.backward_length_offset, 1)
        batch = tf.shape(inputs)[0]
        # Products over fewer rows may round differently, so that the output would depend on the rest of the batch.
        missing = tf.maximum(-(-MIN_ROWS // hparams.backward_beam_size) - batch, 0)

        def filled_up(x: tf.Tensor) -> tf.Tensor:
            return tf.pad(x, [[0, missing], *([[0, 0]] * (x.shape.rank - 1))])

        padded = EncoderOutput([filled_up(x) for x in layers], filled_up(final), filled_up(mask))
        state = {**self.backward_decoder.start(padded, 1), "position": tf.constant(0, tf.int32)}
        banned = tuple(i for i in _NEVER_GENERATED if i < self.target_vocab_size)
        config = SearchConfig(beam_size=hparams.backward_beam_size, banned=banned)
        found = beam_search(self._backward_step, state, tf.pad(limits, [[0, missing]], constant_values=1), config)
        return at_least_wide(found.ids[:batch, 0])

    def _backward_step(
        self, ids: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor, state: State
    ) -> tuple[tf.Tensor, State]:
        context = self.reading.step_context(state["position"], visible, partner_visible, parents)
        x = self._step_input(ids, state["position"])
        x, state = self._step_decoder(x, context, state, decoder=self.backward_decoder)
        return tf.reshape(self.logits(x), [-1, *context.hypotheses, self.target_vocab_size]), state

    # === Step by step ===

    def start(self, inputs: tf.Tensor) -> State:
        """Encodes inputs int32 [B, S], runs the backward decoder, and returns the state before the first step."""
        encoded = self.encode(inputs)
        both = self._both_sources(encoded, self.generate_backward(inputs, encoded))
        return {**self.decoder.start(both, self.directions), "position": tf.constant(0, tf.int32)}
