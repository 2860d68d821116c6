"""Layer-wise coordination between encoder and decoder (He et al., NeurIPS 2018).

Source and target go through one stack of layers side by side. In every layer a source position attends to the source,
and a target position to the source and its own past in one softmax (``layers/mixed_attention.py``), both as they were
when they entered this layer. Learned vectors tell the sides apart, positions begin at 0 on either side, and one matrix
embeds both and is the softmax's.

Nothing reads what the source would become in the last layer: there it is projected to keys and values, and left out of
the rest.

With ``lwc_share_weights=false`` there are two stacks, ``encoder`` and ``decoder``; layer i of the target then reads
what layer i of the source wrote, with projections of its own (docs/decisions/0016).

Legend: B sentences, S source positions, T target positions, D width, V vocabulary, R directions (1), K hypotheses,
H heads, d a head's width.
"""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from t2t_ext.errors import UserError
from t2t_ext.hyperparameters import TransformerHParams
from t2t_ext.layer_coordination_hyperparameters import LayerCoordinationHParams
from t2t_ext.layers.attention import SelfAttention, mask_bias
from t2t_ext.layers.base import Layer
from t2t_ext.layers.dropout import dropout
from t2t_ext.layers.embeddings import LearnedVectors, TokenEmbedding, sinusoids
from t2t_ext.layers.feed_forward import FeedForward
from t2t_ext.layers.masks import padding_mask
from t2t_ext.layers.mixed_attention import Memory, MixedAttention, MixedStepContext, SideBySide, source_part
from t2t_ext.layers.sublayer import Frame, final_normalization
from t2t_ext.models.seq2seq import Seq2Seq, State
from t2t_ext.models.transformer import EncoderLayer, Record
from t2t_ext.registry import register_model

_SOURCE, _TARGET = 0, 1  # rows of the side embedding


class CoordinatedLayer(Layer):
    """A layer of both sides: mixed attention and a feed-forward sublayer.

    Without mixed attention a target position attends to its past and then to the source, in two sublayers with the same
    projections and norm.
    """

    def __init__(self, hparams: LayerCoordinationHParams, **kwargs: object) -> None:
        """Initialises the layer from the model's hparams."""
        super().__init__(**kwargs)
        self.mixed = hparams.lwc_mixed_attention
        self.attention = MixedAttention(hparams, name="attention", dtype=self.dtype_policy)
        self.attention_frame = Frame(hparams, name="attention_frame", dtype=self.dtype_policy)
        self.feed_forward = FeedForward(hparams, name="feed_forward", dtype=self.dtype_policy)
        self.feed_forward_frame = Frame(hparams, name="feed_forward_frame", dtype=self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the sublayers' weights."""
        for layer in (self.attention_frame, self.attention, self.feed_forward_frame, self.feed_forward):
            layer.build(None)

    # === Whole sequences ===

    def call(
        self,
        x: tf.Tensor,
        sides: SideBySide,
        with_source: bool = True,
        training: bool = False,
        record: Record | None = None,
    ) -> tf.Tensor:
        """Transforms both sides.

        Args:
          x: float [B * S + B * T, D], the source's rows before the target's.
          sides: What is where.
          with_source: Whether the source is transformed, too; otherwise it is only attended to.
          training: Whether dropout is applied.
          record: Where to put attention distributions.

        Returns:
          float [B * S + B * T, D], or [B * T, D] without the source.
        """
        projected = self.attention.qkv(self.attention_frame.before(x))
        source, target = (
            self.attention.heads_of(rows, [length])
            for rows, length in zip(sides.split(projected), (sides.source, sides.target), strict=True)
        )
        found = []
        if with_source:
            found.append(self._look("source_self_attention", *source, sides.source_bias, training, record))
        if self.mixed:
            keys, values = (tf.concat([source[part], target[part]], axis=2) for part in (1, 2))
            found.append(self._look("mixed_attention", target[0], keys, values, sides.target_bias, training, record))
        else:
            found.append(self._look("self_attention", *target, sides.target_bias, training, record))
        if not with_source:
            x = sides.split(x)[_TARGET]
        x = self.attention_frame.after(x, self.attention.output_projection(_joined(found)), training)
        if not self.mixed:
            x = self._attend_to_source(x, sides, source[1:], with_source, training, record)
        return self._fed_forward(x, training)

    def _look(
        self,
        name: str,
        query: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        bias: tf.Tensor,
        training: bool,
        record: Record | None,
    ) -> tf.Tensor:
        found, weights = self.attention.look(query, keys, values, bias, training)
        if record is not None:
            record.weights[f"{self.name}/{name}"] = weights
        return found

    def _attend_to_source(
        self,
        x: tf.Tensor,
        sides: SideBySide,
        memory: Memory,
        with_source: bool,
        training: bool,
        record: Record | None,
    ) -> tf.Tensor:
        """Adds what the target's rows find in the source; arguments as of ``call``."""
        rest, x = sides.split(x) if with_source else (None, x)
        query = self.attention.queries(self.attention_frame.before(x), [sides.target])
        found = self._look("source_attention", query, *memory, sides.source_bias, training, record)
        x = self.attention_frame.after(x, self.attention.output_projection(found), training)
        return x if rest is None else tf.concat([rest, x], axis=0)

    def _fed_forward(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        y = self.feed_forward(self.feed_forward_frame.before(x), training=training)
        return self.feed_forward_frame.after(x, y, training)

    # === Step by step ===

    def memory(self, x: tf.Tensor, length: tf.Tensor) -> Memory:
        """Returns the keys and values of source rows float [B * S, D]: float [B, 1, H, S, d] each."""
        return self.attention.source_memory(self.attention_frame.before(x), length)

    def encode(self, x: tf.Tensor, length: tf.Tensor, bias: tf.Tensor) -> tuple[Memory, tf.Tensor]:
        """Transforms source rows float [B * S, D] under bias float32 [B, 1, 1, S]; returns their memory and output."""
        query, keys, values = self.attention.project_step(self.attention_frame.before(x), [length])
        found = self.attention.look(query, keys, values, bias)[0]
        x = self.attention_frame.after(x, self.attention.output_projection(found))
        return self.attention.as_memory(keys, values), self._fed_forward(x)

    def step(
        self,
        x: tf.Tensor,
        context: MixedStepContext,
        source: Memory,
        state: State,
        record: Record | None = None,
    ) -> tuple[tf.Tensor, State]:
        """Transforms one position of every hypothesis.

        Args:
          x: float [B * K, D].
          context: The step.
          source: The layer's memory of the source.
          state: The attention's state.
          record: Where to put, under the layer's name, how the source is looked at, float [B, 1, H, K, S or more].

        Returns:
          float [B * K, D] and the new state.
        """
        y = self.attention_frame.before(x)
        if self.mixed:
            y, weights, state = self.attention.mixed_step(y, context, source, state)
            x = self.attention_frame.after(x, y)
        else:
            y, state = self.attention.step(y, context, state)
            x = self.attention_frame.after(x, y)
            y, weights = self.attention.source_step(self.attention_frame.before(x), context, source)
            x = self.attention_frame.after(x, y)
        if record is not None:
            record.weights[self.name] = weights
        return self._fed_forward(x), state


def _joined(parts: list[tf.Tensor]) -> tf.Tensor:
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=0)


class Stack(Layer):
    """Layers under one name."""

    def __init__(self, layers: list[Layer], **kwargs: object) -> None:
        """Initialises the stack of these layers."""
        super().__init__(**kwargs)
        self.layers = layers

    def build(self, input_shape: object = None) -> None:
        """Creates the layers' weights."""
        for layer in self.layers:
            layer.build(None)


@register_model("layer_coordination")
class LayerCoordination(Seq2Seq):
    """One stack of layers for source and target, or two that are aligned layer by layer."""

    hparams_class = LayerCoordinationHParams

    def __init__(self, hparams: LayerCoordinationHParams, **kwargs: Any) -> None:
        """Initialises the model; see Seq2Seq.

        Raises:
          UserError: Source and target have vocabularies of their own.
        """
        super().__init__(hparams, **kwargs)
        if not self.joint_vocabulary:
            raise UserError(
                "layer_coordination embeds source and target with one matrix, which needs one vocabulary for both, but "
                "this data has two: generate it with --noseparate_vocab, in a data directory of its own."
            )
        width, args = hparams.hidden_size, {"dtype": self.dtype_policy}
        embedding = TokenEmbedding(
            self.target_vocab_size,
            width,
            multiply=hparams.multiply_embedding_mode == "sqrt_depth",
            name="embedding",
            **args,
        )
        self.source_embedding = self.target_embedding = self.softmax = embedding
        self.side_embedding = (
            LearnedVectors(2, width, name="side_embedding", **args) if hparams.lwc_side_embedding else None
        )
        self.sos = LearnedVectors(1, width, name="sos", **args) if hparams.use_sos else None
        count = range(hparams.num_hidden_layers)
        coordinated = [CoordinatedLayer(hparams, name=f"layer_{i}", **args) for i in count]
        self.encoder = self.decoder = None
        if not hparams.lwc_share_weights:
            self.encoder = Stack([_source_layer(hparams, i, self.dtype_policy) for i in count], name="encoder", **args)
            self.decoder = Stack(coordinated, name="decoder", **args)
        self.coordinated = coordinated
        self.final_norm = final_normalization(hparams, name="final_norm", **args)

    def build(self, input_shape: object = None) -> None:
        """Creates all variables; a second call does nothing."""
        if self.built:
            return
        stacks = self.coordinated if self.encoder is None else [self.encoder, self.decoder]
        for part in (self.softmax, self.side_embedding, self.sos, *stacks):
            if part is not None:
                part.build(None)
        if self.final_norm is not None:
            self.final_norm.build((None, self.hparams.hidden_size))

    # === Whole sequences ===

    def _embed(self, ids: tf.Tensor, side: int) -> tf.Tensor:
        """Embeds ids int32 [B, T] of a side as float [B, T, D], with its positions from 0 and its vector."""
        x = self.softmax(ids)
        if side == _TARGET and self.sos is not None:
            first = tf.one_hot(0, tf.shape(ids)[1], dtype=x.dtype)[:, tf.newaxis]
            x += first * self.sos.vector(0)
        if self.hparams.pos == "timing":
            signal = sinusoids(tf.range(tf.shape(ids)[1]), self.hparams.hidden_size, self.hparams.pos_encoding)
            x += tf.cast(signal, x.dtype)
        return x if self.side_embedding is None else x + self.side_embedding.vector(side)

    def _rows(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [-1, self.hparams.hidden_size])

    def features(self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the output float [B, T, D] at the target's positions; see Seq2Seq."""
        return self._features(inputs, targets, training)

    def _features(
        self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False, record: Record | None = None
    ) -> tf.Tensor:
        sides = SideBySide.of(inputs, targets, self.hparams.lwc_mixed_attention)
        # The first position sees PAD, which embeds as a zero vector; the others see the token before them.
        before = tf.pad(targets, [[0, 0], [1, 0]])[:, :-1]
        x = tf.concat([self._rows(self._embed(inputs, _SOURCE)), self._rows(self._embed(before, _TARGET))], axis=0)
        x = dropout(x, self.hparams.layer_prepostprocess_dropout, training)
        if self.encoder is None:
            for layer in self.coordinated:
                x = layer(
                    x, sides=sides, with_source=layer is not self.coordinated[-1], training=training, record=record
                )
        else:
            source, x = sides.split(x)
            source = tf.reshape(source, [-1, sides.source, self.hparams.hidden_size])
            states = self._source_states(source, padding_mask(inputs), training, record)
            for layer, state in zip(self.coordinated, states, strict=True):
                x = tf.concat([self._rows(state), x], axis=0)
                x = layer(x, sides=sides, with_source=False, training=training, record=record)
        if self.final_norm is not None:
            x = self.final_norm(x)
        return tf.reshape(x, [-1, sides.target, self.hparams.hidden_size])

    def _source_states(
        self, x: tf.Tensor, mask: tf.Tensor, training: bool = False, record: Record | None = None
    ) -> Iterator[tf.Tensor]:
        """Yields what each layer of the source's own stack makes of float [B, S, D]."""
        for layer in self.encoder.layers:
            x = layer(x, mask, training=training, record=record)
            yield x

    def softmax_weights(self) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the embedding matrix [V, D]; there is no bias."""
        return self.softmax.matrix.value, None

    def attention_weights(self, inputs: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns every layer's attention distributions.

        ``layer_i/mixed_attention`` is float [B, H, T, S + T]: source positions, then target inputs. Without mixed
        attention there are ``layer_i/self_attention`` [B, H, T, T] and ``layer_i/source_attention`` [B, H, T, S]
        instead. ``layer_i/source_self_attention`` is [B, H, S, S]; a stack that both sides share has none in its last
        layer, where nothing would read it.
        """
        record = Record()
        self._features(inputs, targets, record=record)
        return {_shown_as(name): weights for name, weights in record.weights.items()}

    # === Step by step ===

    def start(self, inputs: tf.Tensor) -> State:
        """Passes inputs int32 [B, S] through the layers once; returns their keys and values of every layer."""
        mask, length = padding_mask(inputs), tf.shape(inputs)[1]
        x = self._embed(inputs, _SOURCE)
        if self.encoder is not None:
            states = self._source_states(x, mask)
            source = [layer.memory(self._rows(y), length) for layer, y in zip(self.coordinated, states, strict=True)]
        else:
            source, x, bias = [], self._rows(x), mask_bias(mask)
            for layer in self.coordinated[:-1]:
                memory, x = layer.encode(x, length, bias)
                source.append(memory)
            source.append(self.coordinated[-1].memory(x, length))
        return {
            "source_bias": mask_bias(mask)[:, tf.newaxis],
            "source": source,
            "layers": [layer.attention.start(tf.shape(inputs)[0], self.directions) for layer in self.coordinated],
            "position": tf.constant(0, tf.int32),
        }

    def step(
        self,
        ids: tf.Tensor,
        visible: tf.Tensor,
        partner_visible: tf.Tensor | None,
        parents: tf.Tensor,
        state: State,
    ) -> tuple[tf.Tensor, State]:
        """Feeds ids int32 [B, R, K]; returns logits float32 [B, R, K, V] and the new state; see Seq2Seq."""
        return self._step(ids, visible, parents, state)

    def step_with_attention(
        self,
        ids: tf.Tensor,
        visible: tf.Tensor,
        partner_visible: tf.Tensor | None,
        parents: tf.Tensor,
        state: State,
    ) -> tuple[tf.Tensor, tf.Tensor, State]:
        """As ``step``, with the last layer's attention to the source, the mean over its heads; see Seq2Seq.

        In mixed attention a part of every distribution is on the target's past. What is returned is the rest, the part
        on the source, divided by its sum: each row adds up to 1, heads that look more at the source count for more.
        """
        record = Record()
        logits, state = self._step(ids, visible, parents, state, record)
        weights = tf.reduce_mean(tf.cast(record.weights[self.coordinated[-1].name], tf.float32), axis=2)
        length = tf.shape(state["source_bias"])[-1]
        return logits, tf.reshape(source_part(weights, length), [-1, *ids.shape[1:], length]), state

    def _step(
        self,
        ids: tf.Tensor,
        visible: tf.Tensor,
        parents: tf.Tensor,
        state: State,
        record: Record | None = None,
    ) -> tuple[tf.Tensor, State]:
        context = MixedStepContext.of(state["position"], visible, parents, state["source_bias"])
        x = self._rows(self._step_input(ids, state["position"]))
        states = []
        for layer, source, layer_state in zip(self.coordinated, state["source"], state["layers"], strict=True):
            x, new_state = layer.step(x, context, source, layer_state, record)
            states.append(new_state)
        if self.final_norm is not None:
            x = self.final_norm(x)
        logits = tf.reshape(self.logits(x), [-1, *context.hypotheses, self.target_vocab_size])
        return logits, {**state, "layers": states, "position": state["position"] + 1}

    def _step_input(self, ids: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        """Returns the input float [B, R, K, D] of a step for ids int32 [B, R, K]."""
        x = self.softmax(ids)
        later = tf.cast(position > 0, x.dtype)
        x *= later  # the first input is a zero vector
        if self.sos is not None:
            x += (1 - later) * self.sos.vector(0)
        if self.hparams.pos == "timing":
            signal = sinusoids(position[tf.newaxis], self.hparams.hidden_size, self.hparams.pos_encoding)
            x += tf.cast(signal, x.dtype)
        return x if self.side_embedding is None else x + self.side_embedding.vector(_TARGET)


def _source_layer(hparams: TransformerHParams, number: int, policy: Any) -> EncoderLayer:
    """Returns a layer of the source's own stack: a Transformer's encoder layer."""
    mixer = SelfAttention(hparams, name="self_attention", dtype=policy)
    return EncoderLayer(hparams, mixer, name=f"layer_{number}", dtype=policy)


def _shown_as(name: str) -> str:
    """Returns the name of a distribution, of the source's own stack as of one that both sides share."""
    if not name.startswith("encoder/"):
        return name
    return name.removeprefix("encoder/").replace("/self_attention", "/source_self_attention")
