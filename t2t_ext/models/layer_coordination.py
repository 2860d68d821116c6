"""Layer-wise coordination between encoder and decoder (He et al., NeurIPS 2018).

Source and target go through one stack of layers side by side. In every layer, a source position attends to the source,
and a target position attends to the source and its own past in one softmax (``layers/mixed_attention.py``). Both sides
are read as they enter the layer. Learned vectors distinguish the sides, and positions start at 0 on each side. One
matrix embeds both sides and is also the softmax matrix.

Nothing reads the source's output of the last layer. There, the source is only projected to keys and values.

With ``lwc_share_weights=false`` there are two stacks, ``encoder`` and ``decoder``. Layer i of the target then reads the
output of layer i of the source (with ``lwc_source=input``, its input) with its own projections (docs/decisions/0016).
With ``lwc_source=last``, in one stack or two, every layer of the target reads the output of the source's last layer:
this is the paper's model without its alignment of layers.

Layers may have dual contextual modules (``layers/mixed_dual_context.py``). With ``synchronous=true`` there are two
targets that attend to each other (``layers/synchronous_mixed_attention.py``). Positions start at 0 in the source and in
each target (docs/decisions/0026).

Legend: B sentences, S source positions, T target positions, D width, V vocabulary, R directions (1; 2 in
synchronous_layer_coordination), K hypotheses of a direction, H heads, d width of a head.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.layer_coordination import LayerCoordinationHParams
from t2t_ext.errors import UserError
from t2t_ext.layers.attention import StepContext, mask_bias
from t2t_ext.layers.base import Layer
from t2t_ext.layers.dropout import dropout
from t2t_ext.layers.embeddings import LearnedVectors, TokenEmbedding
from t2t_ext.layers.feed_forward import FeedForward
from t2t_ext.layers.masks import padding_mask
from t2t_ext.layers.mixed_attention import BothSides, Memory, MixedStepContext, Show, SideBySide, source_part
from t2t_ext.layers.sublayer import Frame, final_normalization
from t2t_ext.layers.synchronous_mixed_attention import SynchronousMixedContext, SynchronousSideBySide
from t2t_ext.models.seq2seq import State
from t2t_ext.models.stacked import Record, StackedSeq2Seq
from t2t_ext.models.transformer import EncoderLayer
from t2t_ext.registry import register_model

_SOURCE, _TARGET = 0, 1  # rows of the side embedding


class CoordinatedLayer(Layer):
    """A layer for both sides: mixed attention and a feed-forward sublayer.

    Without mixed attention, a target position attends first to its past and then to the source, in two sublayers with
    the same projections and normalization.
    """

    def __init__(self, hparams: LayerCoordinationHParams, attention: BothSides, **kwargs: Any) -> None:
        """Initializes the layer around its attention, which is named ``attention`` or after its kind."""
        super().__init__(**kwargs)
        self.mixed = hparams.lwc_mixed_attention
        self.attention = attention
        self.attention_frame = Frame(hparams, name="attention_frame", dtype=self.dtype_policy)
        self.feed_forward = FeedForward(hparams, name="feed_forward", dtype=self.dtype_policy)
        self.feed_forward_frame = Frame(hparams, name="feed_forward_frame", dtype=self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the sublayers' weights."""
        parts: tuple[Layer, ...] = (self.attention_frame, self.attention, self.feed_forward_frame, self.feed_forward)
        for layer in parts:
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
          x: float [B * S + B * R * T, D], the rows of the source, then the rows of the target.
          sides: The layout of the rows.
          with_source: Whether the source is also transformed; otherwise it is only attended to.
          training: Whether dropout is applied.
          record: Collects the attention distributions if given.

        Returns:
          float [B * S + B * R * T, D], or [B * R * T, D] without the source.
        """
        show = None if record is None else self._shown_in(record)
        y, memory = self.attention.mix_rows(self.attention_frame.preprocess(x), sides, with_source, training, show)
        if not with_source:
            x = sides.split(x)[_TARGET]
        x = self.attention_frame.postprocess(x, y, training)
        if not self.mixed:
            rest, x = sides.split(x) if with_source else (None, x)
            y = self.attention.attend_to_source(self.attention_frame.preprocess(x), memory, sides, training, show)
            x = self.attention_frame.postprocess(x, y, training)
            x = x if rest is None else tf.concat([rest, x], axis=0)
        return self._fed_forward(x, training)

    def _shown_in(self, record: Record) -> Show:
        def show(name: str, weights: tf.Tensor) -> None:
            record.weights[f"{self.name}/{name}"] = weights

        return show

    def _fed_forward(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        y = self.feed_forward(self.feed_forward_frame.preprocess(x), training=training)
        return self.feed_forward_frame.postprocess(x, y, training)

    # === Step by step ===

    def memory(self, x: tf.Tensor, real: tf.Tensor) -> Memory:
        """Returns the keys and values, float [B, 1, H, S, d], of source rows float [B * S, D].

        ``real`` bool [B, S] is False at padding.
        """
        return self.attention.source_memory(self.attention_frame.preprocess(x), real)

    def encode(
        self,
        x: tf.Tensor,
        real: tf.Tensor,
        bias: tf.Tensor,
        training: bool = False,
        record: Record | None = None,
    ) -> tuple[Memory, tf.Tensor]:
        """Transforms source rows float [B * S, D] with bias float32 [B, 1, 1, S].

        Returns:
          Their keys and values, as from ``memory``, and the layer's output float [B * S, D].
        """
        show = None if record is None else self._shown_in(record)
        memory, y = self.attention.mix_source(self.attention_frame.preprocess(x), real, bias, training, show)
        return memory, self._fed_forward(self.attention_frame.postprocess(x, y, training), training)

    def step(
        self, x: tf.Tensor, context: MixedStepContext, source: Memory, state: State, record: Record | None = None
    ) -> tuple[tf.Tensor, State]:
        """Transforms one position of every hypothesis, float [B * R * K, D]; also returns the attention's new state.

        ``source`` holds the layer's keys and values of the source. The record gets the attention to the source under
        the layer's name, float [B, R, H, K, S or more], or [B, 1, H, R * K, S or more] with directions side by side.
        """
        y = self.attention_frame.preprocess(x)
        if self.mixed:
            y, weights, state = self.attention.mixed_step(y, context, source, state)
            x = self.attention_frame.postprocess(x, y)
        else:
            y, state = self.attention.step(y, context, state)
            x = self.attention_frame.postprocess(x, y)
            y, weights = self.attention.source_step(self.attention_frame.preprocess(x), context, source)
            x = self.attention_frame.postprocess(x, y)
        if record is not None:
            record.weights[self.name] = weights
        return self._fed_forward(x), state


class Stack(Layer):
    """A group of layers under one name."""

    def __init__(self, layers: list[Layer], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layers = layers

    def build(self, input_shape: object = None) -> None:
        """Creates the layers' weights."""
        for layer in self.layers:
            layer.build(None)


@register_model("layer_coordination")
class LayerCoordination(StackedSeq2Seq[LayerCoordinationHParams]):
    """One stack of layers for source and target, or two that are aligned layer by layer."""

    hparams_class: type[HParams] = LayerCoordinationHParams

    def __init__(self, hparams: LayerCoordinationHParams, **kwargs: Any) -> None:
        """Initializes the model; see Seq2Seq.

        Raises:
          UserError: Source and target have separate vocabularies.
        """
        super().__init__(hparams, **kwargs)
        if not self.joint_vocabulary:
            raise UserError(
                "Layer-wise coordination embeds source and target with one matrix, which needs one vocabulary for "
                "both, but this data has two: generate it with --noseparate_vocab, in a data directory of its own."
            )
        width, args = hparams.hidden_size, {"dtype": self.dtype_policy}
        multiply = hparams.multiply_embedding_mode == "sqrt_depth"
        embedding = TokenEmbedding(self.target_vocab_size, width, multiply=multiply, name="embedding", **args)
        self.source_embedding = self.target_embedding = self.softmax = embedding
        self.side_embedding = (
            LearnedVectors(2, width, name="side_embedding", **args) if hparams.lwc_side_embedding else None
        )
        self.sos = LearnedVectors(1, width, name="sos", **args) if hparams.use_sos else None
        count = range(hparams.num_hidden_layers)
        coordinated = [CoordinatedLayer(hparams, self.make_attention(i), name=f"layer_{i}", **args) for i in count]
        self.encoder: Stack | None = None
        self.decoder: Stack | None = None
        if not hparams.lwc_share_weights:
            own = range(hparams.encoder_layers)
            mixers = [self.make_mixer("encoder_mixer", hparams.mixer("encoder", i), i) for i in own]
            layers = [EncoderLayer(hparams, mixer, name=f"layer_{i}", **args) for i, mixer in enumerate(mixers)]
            self.encoder = Stack(layers, name="encoder", **args)
            self.decoder = Stack(coordinated, name="decoder", **args)
        self.coordinated = coordinated
        # Whether source and target go through the layers side by side; otherwise, the source goes before the target.
        self.side_by_side = hparams.lwc_share_weights and hparams.lwc_source != "last"
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

    def make_attention(self, layer: int) -> Any:
        """Returns the attention, a BothSides, of a target layer; with shared weights, the source uses it too."""
        return self.make_mixer("shared_mixer", self.hparams.shared_mixer(layer), layer)

    # === Whole sequences ===

    def _embed(self, ids: tf.Tensor, side: int) -> tf.Tensor:
        """Embeds ids int32 [..., T] of a side as float [..., T, D], with positions from 0 and the side's vector."""
        x = self.softmax(ids)
        length = tf.shape(ids)[-1]
        if side == _TARGET and self.sos is not None:
            first = tf.one_hot(0, length, dtype=x.dtype)[:, tf.newaxis]
            x += first * self.sos.vector(0)
        return self._placed(x, tf.range(length), side)

    def _placed(self, x: tf.Tensor, positions: tf.Tensor, side: int) -> tf.Tensor:
        """Adds the vectors of positions int32 [T], or of one shared position [1], and the side to float [..., T, D]."""
        x = self.positions_added(x, positions)
        return x if self.side_embedding is None else x + self.side_embedding.vector(side)

    def _rows(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [-1, self.hparams.hidden_size])

    def _features(
        self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False, record: Record | None = None
    ) -> tf.Tensor:
        """Returns the output at all labels: float [B, T, D], or [B, 2, T, D] for two directions."""
        inputs = tf.convert_to_tensor(inputs)
        before, labels = self.reading.read(tf.convert_to_tensor(targets))
        sides = (SideBySide if self.directions == 1 else SynchronousSideBySide).of(
            inputs, labels, self.hparams.lwc_mixed_attention
        )
        x = tf.concat([self._rows(self._embed(inputs, _SOURCE)), self._rows(self._embed(before, _TARGET))], axis=0)
        x = dropout(x, self.hparams.layer_prepostprocess_dropout, training)
        if self.side_by_side:
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
        return tf.reshape(x, [-1, *sides.target, self.hparams.hidden_size])

    def _source_states(
        self, x: tf.Tensor, mask: tf.Tensor, training: bool = False, record: Record | None = None
    ) -> Iterator[tf.Tensor]:
        """Yields the source states that each layer of the target reads, float [B, S, D]; x holds the source embeddings.

        It is not used if both sides go through one stack side by side.
        """
        states = self._written(x, mask, training, record)
        if self.hparams.lwc_source == "last":
            *_, last = states
            yield from [last] * len(self.coordinated)
            return
        if self.hparams.lwc_source == "input":
            yield x
        yield from states

    def _written(
        self, x: tf.Tensor, mask: tf.Tensor, training: bool = False, record: Record | None = None
    ) -> Iterator[tf.Tensor]:
        """Yields each layer's output for the source only, float [B, S, D]; x holds the source embeddings."""
        for layer in self.encoder.layers if self.encoder else ():
            x = layer(x, mask, training=training, record=record)
            yield x
        real, bias, shape = mask[:, 0, 0], mask_bias(mask), tf.shape(x)
        for layer in self.coordinated if self.encoder is None else ():
            rows = layer.encode(self._rows(x), real, bias, training, record)[1]
            x = tf.reshape(rows, shape)
            yield x

    def source_states(self, inputs: tf.Tensor) -> list[tf.Tensor]:
        """Returns each layer's output for the source ids int32 [B, S], float [B, S, D] each, without dropout.

        If both sides go through one stack side by side, the last layer has no output for the source, and none is
        returned. In pre-norm stacks, the states are running sums; only the last one is normalized, as the target's last
        layer reads it.
        """
        mask = padding_mask(inputs)
        x = self._embed(inputs, _SOURCE)
        written = self._written(x, mask)
        # A last layer that nothing reads is not computed.
        states = list(itertools.islice(written, len(self.coordinated) - 1) if self.side_by_side else written) or [x]
        return [*states[:-1], self.coordinated[-1].attention_frame.preprocess(states[-1])]

    def attention_weights(self, inputs: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns every layer's attention distributions by name.

        ``layer_i/mixed_attention`` is float [B, H, T, S + T]: source positions, then target inputs. Without mixed
        attention there are ``layer_i/self_attention`` [B, H, T, T] and ``layer_i/source_attention`` [B, H, T, S]
        instead. ``layer_i/source_self_attention`` is [B, H, S, S]; it is missing in the last layer if both sides go
        through one stack side by side, since nothing would read it. A dual contextual module has two distributions in
        place of each; their names end with ``/local_context`` and ``/global_context``.

        With two directions, DIRECTION is ``l2r`` or ``r2l`` in ``layer_i/mixed_attention/DIRECTION/history`` (or
        ``layer_i/self_attention/DIRECTION/history``), ``layer_i/source_attention/DIRECTION``, and
        ``layer_i/self_attention/DIRECTION/future`` [B, H, T, T], which is over the other direction's inputs. With
        ``predict_tag`` there is one more position, before the first.
        """
        record = Record()
        self._features(inputs, targets, record=record)
        return dict(shown for name, weights in record.weights.items() for shown in _shown_as(name, weights))

    # === Step by step ===

    def start(self, inputs: tf.Tensor) -> State:
        """Encodes inputs int32 [B, S]; returns the state before the first step, with every layer's keys and values."""
        mask = padding_mask(inputs)
        real = mask[:, 0, 0]
        x = self._embed(inputs, _SOURCE)
        if not self.side_by_side:
            states = self._source_states(x, mask)
            source = [layer.memory(self._rows(y), real) for layer, y in zip(self.coordinated, states, strict=True)]
        else:
            source, x, bias = [], self._rows(x), mask_bias(mask)
            for layer in self.coordinated[:-1]:
                memory, x = layer.encode(x, real, bias)
                source.append(memory)
            source.append(self.coordinated[-1].memory(x, real))
        state = {
            "source_bias": mask_bias(mask)[:, tf.newaxis],
            "source": source,
            "layers": [layer.attention.start(tf.shape(inputs)[0], self.directions) for layer in self.coordinated],
            "position": tf.constant(0, tf.int32),
        }
        return self._before_search(state, tf.shape(inputs)[0])

    def step_with_attention(
        self, ids: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor, state: State
    ) -> tuple[tf.Tensor, tf.Tensor, State]:
        """Does the same as ``step`` and returns the last layer's attention to the source; see Seq2Seq.

        The attention is averaged over the heads. In mixed attention, a part of every distribution is on the target's
        past. Only the part on the source is returned, divided by its sum: each row sums to 1, and heads that attend
        more to the source count for more.
        """
        record = Record()
        logits, state = self.step(ids, visible, partner_visible, parents, state, record)
        weights = tf.reduce_mean(tf.cast(record.weights[self.coordinated[-1].name], tf.float32), axis=2)
        length = tf.shape(state["source_bias"])[-1]
        return logits, tf.reshape(source_part(weights, length), [-1, *ids.shape[1:], length]), state

    def _step_input(self, ids: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        """Returns a step's input, float [B, R, K, D], without position and side vectors, for ids int32 [B, R, K]."""
        x = super()._step_input(ids, position)
        return x if self.sos is None else x + (1 - tf.cast(position > 0, x.dtype)) * self.sos.vector(0)

    def _step_decoder(
        self, x: tf.Tensor, context: StepContext, state: State, record: Record | None = None
    ) -> tuple[tf.Tensor, State]:
        """Passes one position of every hypothesis, float [B, R, K, D], through the layers; see StackedSeq2Seq."""
        x = self._rows(self._placed(x, context.position[tf.newaxis], _TARGET))
        kind: type[MixedStepContext] = MixedStepContext if self.directions == 1 else SynchronousMixedContext
        context = kind.of(context, state["source_bias"])
        states = []
        for layer, source, layer_state in zip(self.coordinated, state["source"], state["layers"], strict=True):
            x, new_state = layer.step(x, context, source, layer_state, record)
            states.append(new_state)
        if self.final_norm is not None:
            x = self.final_norm(x)
        return x, {**state, "layers": states, "position": context.position + 1}


def _shown_as(name: str, weights: tf.Tensor) -> Iterator[tuple[str, tf.Tensor]]:
    """Yields a distribution of a separate source stack under the names that a shared stack has."""
    if not name.startswith("encoder/"):
        yield name, weights
        return
    layer, mixer = name.removeprefix("encoder/").split("/")
    name = f"{layer}/source_self_attention"
    if mixer == "self_attention":
        yield name, weights
    else:
        for kind, part in zip(("local_context", "global_context"), tf.split(weights, 2, axis=1), strict=True):
            yield f"{name}/{kind}", part
