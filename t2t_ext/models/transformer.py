"""The Transformer (Vaswani et al. 2017), built from named parts that other models replace.

Three parts are looked up by the names that the hparams give (``config/variants``, ``registry.register_layer``): the
mixers of the layers, the decoder's views of the encoder, and the way of reading targets. A related model with other
parts overrides ``make_encoder_mixer``, ``make_decoder_mixer`` or ``make_source_views``.

Legend: B sentences, S source positions, T target positions, D width, R directions,
K hypotheses of a direction.
"""

import math
import os
from typing import Any

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.hyperparameters import HParams, TransformerHParams
from t2t_ext.errors import UserError
from t2t_ext.layers.attention import SourceAttention, StepContext, mask_bias
from t2t_ext.layers.base import Layer, Mixer, make_initializer
from t2t_ext.layers.dropout import dropout
from t2t_ext.layers.embeddings import FeatureEmbedding, TargetSpaceEmbedding, TokenEmbedding
from t2t_ext.layers.feed_forward import FeedForward
from t2t_ext.layers.masks import padding_mask
from t2t_ext.layers.preset_encoder import PresetEncoder
from t2t_ext.layers.source_views import EncoderOutput, SourceViews
from t2t_ext.layers.sublayer import Frame, final_normalization
from t2t_ext.models.seq2seq import State
from t2t_ext.models.stacked import Record, StackedSeq2Seq, T
from t2t_ext.registry import register_model


class EncoderLayer(Layer):
    """An encoder layer: a mixer (usually self-attention) and a feed-forward sublayer."""

    def __init__(self, hparams: TransformerHParams, mixer: Mixer, **kwargs: Any) -> None:
        """Initializes the layer around a mixer, which is named ``self_attention`` or after its kind."""
        super().__init__(**kwargs)
        self.mixer = mixer
        self.mixer_frame = Frame(hparams, name=f"{mixer.name}_frame", dtype=self.dtype_policy)
        self.feed_forward = FeedForward(hparams, name="feed_forward", dtype=self.dtype_policy)
        self.feed_forward_frame = Frame(hparams, name="feed_forward_frame", dtype=self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the sublayers' weights."""
        for layer in (self.mixer_frame, self.mixer, self.feed_forward_frame, self.feed_forward):
            layer.build(None)

    def call(self, x: tf.Tensor, mask: tf.Tensor, training: bool = False, record: Record | None = None) -> tf.Tensor:
        """Transforms float [B, S, D] under mask bool [B, 1, 1, S]."""
        y = self.mixer_frame.preprocess(x)
        if record is not None and self.mixer.distributions is not None:
            record.weights[f"encoder/{self.name}/{self.mixer.name}"] = self.mixer.distributions(y, mask)
        x = self.mixer_frame.postprocess(x, self.mixer(y, mask, training=training), training)
        y = self.feed_forward(self.feed_forward_frame.preprocess(x), training=training)
        return self.feed_forward_frame.postprocess(x, y, training)


class DecoderLayer(Layer):
    """A decoder layer: a causal mixer, cross-attention to a view of the source, and a feed-forward sublayer."""

    def __init__(
        self, hparams: TransformerHParams, mixer: Mixer, source_attention: SourceAttention | None = None, **kwargs: Any
    ) -> None:
        """Initializes the layer around a decoder mixer and cross-attention, by default a SourceAttention.

        Only ``source_attention`` knows the form of a view of the source and of the cache that it makes of the view.
        """
        super().__init__(**kwargs)
        args = {"dtype": self.dtype_policy}
        self.mixer = mixer
        self.mixer_frame = Frame(hparams, name=f"{mixer.name}_frame", **args)
        self.source_attention = source_attention or SourceAttention(hparams, name="source_attention", **args)
        self.source_attention_frame = Frame(hparams, name="source_attention_frame", **args)
        self.feed_forward = FeedForward(hparams, name="feed_forward", **args)
        self.feed_forward_frame = Frame(hparams, name="feed_forward_frame", **args)

    def build(self, input_shape: object = None) -> None:
        """Creates the sublayers' weights."""
        for frame, layer in (
            (self.mixer_frame, self.mixer),
            (self.source_attention_frame, self.source_attention),
            (self.feed_forward_frame, self.feed_forward),
        ):
            frame.build(None)
            layer.build(None)

    def call(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        view: Any,
        source_mask: Any,
        training: bool = False,
        record: Record | None = None,
    ) -> tf.Tensor:
        """Transforms whole sequences.

        Args:
          x: float [B, T, D].
          mask: bool [1 or B, 1, T, T], the target positions that each one may see; some mixers take another form.
          view: This layer's view of the source, float [B, S, D] or whatever ``source_attention`` attends to.
          source_mask: bool [B, 1, 1, S].
          training: Whether dropout is applied.
          record: Collects the attention distributions if given.

        Returns:
          float [B, T, D].
        """
        y = self.mixer_frame.preprocess(x)
        if record is not None and self.mixer.distributions is not None:
            record.weights[f"decoder/{self.name}/{self.mixer.name}"] = self.mixer.distributions(y, mask)
        x = self.attend(x, self.mixer(y, mask, training=training), view, source_mask, training, record)
        y = self.feed_forward(self.feed_forward_frame.preprocess(x), training=training)
        return self.feed_forward_frame.postprocess(x, y, training)

    def attend(
        self, x: tf.Tensor, mixed: tf.Tensor, view: Any, source_mask: Any, training: bool, record: Record | None
    ) -> tf.Tensor:
        """Joins the layer's input x and the mixer's result, attends to the source, and joins the attention's result.

        x, ``mixed`` and the returned tensor are float [B, T, D]; for the other arguments, see ``call``.
        """
        before = self.mixer_frame.postprocess(x, mixed, training)
        y = self.source_attention_frame.preprocess(before)
        if record is not None:
            record.weights[f"decoder/{self.name}/source_attention"] = self.source_attention.distributions(
                y, view, source_mask
            )
        y = self.source_attention(y, view, source_mask, training=training)
        return self.join(x, before, mixed, y, training)

    def join(
        self, x: tf.Tensor, before: tf.Tensor, mixed: tf.Tensor, found: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Joins the layer's input and the results of the mixer and of cross-attention, float [..., D] each.

        Args:
          x: The layer's input.
          before: The input joined with the mixer's result; cross-attention attends from it.
          mixed: The mixer's result.
          found: The result of cross-attention.
          training: Whether dropout is applied.

        Returns:
          float [..., D], the input of the feed-forward sublayer.
        """
        return self.source_attention_frame.postprocess(before, found, training)

    def step(
        self,
        x: tf.Tensor,
        context: StepContext,
        memory: Any,
        source_bias: Any,
        state: State,
        record: Record | None = None,
    ) -> tuple[tf.Tensor, State]:
        """Transforms one position of every hypothesis, float [B * R * K, D].

        Returns:
          float [B * R * K, D] and the mixer's new state.
        """
        mixed, state = self.mixer.step(self.mixer_frame.preprocess(x), context, state)
        x = self.attend_step(x, mixed, memory, source_bias, math.prod(context.hypotheses), record)
        return self.feed_forward_frame.postprocess(x, self.feed_forward(self.feed_forward_frame.preprocess(x))), state

    def attend_step(
        self, x: tf.Tensor, mixed: tf.Tensor, memory: Any, source_bias: Any, hypotheses: int, record: Record | None
    ) -> tf.Tensor:
        """Does the same as ``attend`` for rows float [B * hypotheses, D] of one step; see ``step``."""
        before = self.mixer_frame.postprocess(x, mixed)
        y = self.source_attention_frame.preprocess(before)
        if record is not None:
            record.weights[self.name] = self.source_attention.step_distributions(y, memory, source_bias, hypotheses)
        return self.join(x, before, mixed, self.source_attention.step(y, memory, source_bias, hypotheses))


class Encoder(Layer):
    """A stack of encoder layers."""

    def __init__(self, hparams: TransformerHParams, mixers: list[Mixer], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width = hparams.hidden_size
        self.layers = [
            EncoderLayer(hparams, mixer, name=f"layer_{i}", dtype=self.dtype_policy) for i, mixer in enumerate(mixers)
        ]
        self.final_norm = final_normalization(hparams, name="final_norm", dtype=self.dtype_policy)
        views = registry.layer("source_views", hparams.source_views)
        self.view_norms = views.normalization(hparams, name="view_norms", dtype=self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the layers' weights."""
        for layer in self.layers:
            layer.build(None)
        if self.final_norm is not None:
            self.final_norm.build((None, self.width))
        if self.view_norms is not None:
            self.view_norms.build(None)

    def call(
        self, x: tf.Tensor, mask: tf.Tensor, training: bool = False, record: Record | None = None
    ) -> EncoderOutput:
        """Encodes embeddings float [B, S, D] under mask bool [B, 1, 1, S]."""
        states = []
        for layer in self.layers:
            x = layer(x, mask, training=training, record=record)
            states.append(x)
        final = x if self.final_norm is None else self.final_norm(x)
        if self.view_norms is not None:
            states = self.view_norms.normalized(states, final, self.final_norm)
        return EncoderOutput(states, final, mask)


class Decoder(Layer):
    """A stack of decoder layers for whole sequences or single steps."""

    layer_class: type[DecoderLayer] = DecoderLayer

    def __init__(
        self, hparams: TransformerHParams, mixers: list[Mixer], source_views: SourceViews, **kwargs: Any
    ) -> None:
        """Initializes one layer for each mixer; ``source_views`` defines what the layers attend to."""
        super().__init__(**kwargs)
        self.width = hparams.hidden_size
        self.source_views = source_views
        args = {"dtype": self.dtype_policy}
        self.layers = [
            self.layer_class(
                hparams,
                mixer,
                source_attention=source_views.make_attention(hparams, i, name="source_attention", **args),
                name=f"layer_{i}",
                **args,
            )
            for i, mixer in enumerate(mixers)
        ]
        self.final_norm = final_normalization(hparams, name="final_norm", dtype=self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the layers' weights."""
        self.source_views.build(None)
        for layer in self.layers:
            layer.build(None)
        if self.final_norm is not None:
            self.final_norm.build((None, self.width))

    def call(
        self, x: tf.Tensor, mask: tf.Tensor, encoded: Any, training: bool = False, record: Record | None = None
    ) -> tf.Tensor:
        """Decodes embeddings float [B, T, D] under mask bool [1 or B, 1, T, T]; ``encoded`` is an EncoderOutput."""
        for layer, view in zip(self.layers, self.source_views.views(encoded), strict=True):
            x = layer(x, mask, view, encoded.mask, training=training, record=record)
        return x if self.final_norm is None else self.final_norm(x)

    def start(self, encoded: Any, directions: int) -> State:
        """Returns the state before the first step: the source's keys and values, and empty caches of the target."""
        batch = tf.shape(encoded.mask)[0]
        views = self.source_views.views(encoded)
        return {
            "source_bias": mask_bias(encoded.mask),
            "source": [layer.source_attention.memory(view) for layer, view in zip(self.layers, views, strict=True)],
            "layers": [layer.mixer.start(batch, directions) for layer in self.layers],
        }

    def step(
        self, x: tf.Tensor, context: StepContext, state: State, record: Record | None = None
    ) -> tuple[tf.Tensor, State]:
        """Decodes one position of every hypothesis, float [B * R * K, D]; returns the same shape and the new state."""
        layer_states = []
        for layer, memory, layer_state in zip(self.layers, state["source"], state["layers"], strict=True):
            x, new_state = layer.step(x, context, memory, state["source_bias"], layer_state, record)
            layer_states.append(new_state)
        if self.final_norm is not None:
            x = self.final_norm(x)
        return x, {**state, "layers": layer_states}


@register_model("transformer")
class Transformer(StackedSeq2Seq[T]):
    """The Transformer, pre-norm or post-norm, with shared or separate embeddings and softmax."""

    hparams_class: type[HParams] = TransformerHParams
    takes_source_features = True
    takes_encoder_preset = True

    def __init__(self, hparams: T, **kwargs: Any) -> None:
        preset = None
        if hparams.encoder_preset and kwargs.get("encoder_config"):
            preset = PresetEncoder(
                hparams, kwargs["encoder_config"], name="encoder", dtype=kwargs.get("dtype") or hparams.precision
            )
            # Views of the encoder's layers depend on the number of layers.
            hparams = hparams.replace(num_encoder_layers=preset.depth, use_target_space_embedding=False)
        super().__init__(hparams, **kwargs)
        self.longest_source = preset.longest if preset else 0
        policy = self.dtype_policy
        self.source_embedding, self.target_embedding, self.softmax = self._make_embeddings()
        self.source_features: Any = None  # replaces a source embedding
        if self.source_feature_size:
            args = {"initializer": make_initializer(hparams.initializer, hparams.initializer_gain), "dtype": policy}
            size, width = self.source_feature_size, hparams.hidden_size
            self.source_features = FeatureEmbedding(size, width, name="source_features", **args)
        self.target_space = (
            TargetSpaceEmbedding(hparams.hidden_size, hparams.target_space_id, name="target_space", dtype=policy)
            if hparams.use_target_space_embedding
            else None
        )
        if preset is None:
            mixers = [self.make_encoder_mixer(i) for i in range(hparams.encoder_layers)]
            self.encoder: Any = Encoder(hparams, mixers, name="encoder", dtype=policy)
        else:
            self.encoder = preset
        self.decoder = self.make_decoder("decoder")

    # === Parts that related models replace ===

    def make_decoder(self, name: str, decoder_class: type[Decoder] = Decoder) -> Decoder:
        """Returns a stack of decoder layers with this name and with its own mixers and views of the source."""
        mixers = [self.make_decoder_mixer(i) for i in range(self.hparams.decoder_layers)]
        return decoder_class(self.hparams, mixers, self.make_source_views(), name=name, dtype=self.dtype_policy)

    def make_encoder_mixer(self, layer: int) -> Mixer:
        """Returns the mixer of an encoder layer, counted from 0."""
        return self.make_mixer("encoder_mixer", self.hparams.mixer("encoder", layer), layer)

    def make_decoder_mixer(self, layer: int) -> Mixer:
        """Returns the causal mixer of a decoder layer, counted from 0."""
        slot = "decoder_mixer" if self.directions == 1 else "two_way_mixer"
        return self.make_mixer(slot, self.hparams.mixer("decoder", layer), layer)

    def make_source_views(self) -> SourceViews:
        """Returns the layer that computes each decoder layer's view of the encoder."""
        views = registry.layer("source_views", self.hparams.source_views)
        return views.make(self.hparams, name="source_views", dtype=self.dtype_policy)

    # === Construction ===

    def _make_embeddings(self) -> tuple[TokenEmbedding | None, TokenEmbedding, TokenEmbedding]:
        """Returns the source embedding, the target embedding and the softmax; shared ones are the same object.

        The source embedding is None if the source consists of feature vectors or the encoder is pretrained.

        Raises:
          UserError: The embeddings are to be shared, but the vocabulary is not joint.
        """
        hparams = self.hparams
        if hparams.shared_embedding and not self.joint_vocabulary:
            other = "" if hparams.encoder_preset else ", or generate the data with a joint vocabulary"
            raise UserError(
                "shared_embedding=True needs one vocabulary for source and target, but this data has two: "
                f"set shared_embedding=False{other}."
            )

        multiply = hparams.multiply_embedding_mode == "sqrt_depth"

        def table(name: str, size: int) -> TokenEmbedding:
            return TokenEmbedding(size, hparams.hidden_size, multiply=multiply, name=name, dtype=self.dtype_policy)

        tied_softmax = hparams.shared_embedding_and_softmax_weights
        tied_source = self.joint_vocabulary and (hparams.shared_embedding or tied_softmax)
        target = table("embedding" if tied_source else "target_embedding", self.target_vocab_size)
        source = target if tied_source else None
        if self.source_feature_size or self.encoder_config:
            source = None
        elif source is None:
            source = table("source_embedding", self.source_vocab_size)
        softmax = target if tied_softmax else table("softmax", self.target_vocab_size)
        return source, target, softmax

    def build(self, input_shape: object = None) -> None:
        """Creates all variables; a second call does nothing."""
        if self.built:
            return
        parts = [self.source_embedding, self.source_features, self.target_embedding, self.softmax]
        parts += [self.target_space, self.encoder, self.decoder]
        for part in parts:
            if part is not None and not part.built:
                part.build(None)

    def rate_of(self, variable: Any) -> float:
        """Returns the factor on the learning rate for a Keras variable; 0: the variable is frozen."""
        return super().rate_of(variable) * (self.encoder.rate_of(variable) if self.encoder_config else 1.0)

    def pretrained(self) -> dict[str, Any]:
        """Returns the weights of ``encoder_preset`` by the names of ``named_variables``."""
        if not self.encoder_config:
            return {}
        found = self.encoder.weights_of(os.path.expanduser(self.hparams.encoder_preset))
        return {path.split("/", 1)[1]: array for path, array in found.items()}

    # === Whole sequences ===

    def _add_positions(self, x: tf.Tensor, training: bool, ordered: bool = True) -> tf.Tensor:
        """Adds position vectors, counted from 0, to float [B, T, D] if it is ordered, and applies dropout."""
        if ordered:
            x = self.positions_added(x, tf.range(tf.shape(x)[1]))
        return dropout(x, self.hparams.layer_prepostprocess_dropout, training)

    def encode(self, inputs: tf.Tensor, training: bool = False, record: Record | None = None) -> EncoderOutput:
        """Encodes inputs int32 [B, S], or feature vectors float [B, S, F]."""
        if self.encoder_config:
            return self.encoder(inputs, padding_mask(inputs), training=training)
        if self.source_embedding is not None:
            x, ordered = self.source_embedding(inputs), True
        else:
            x, ordered = self.source_features(inputs), self.hparams.feature_positions == "timing"
        if self.target_space is not None:
            x += self.target_space.call()
        x = self._add_positions(x, training, ordered)
        return self.encoder(x, padding_mask(inputs), training=training, record=record)

    def _decode(
        self,
        targets: tf.Tensor,
        encoded: EncoderOutput,
        training: bool = False,
        record: Record | None = None,
        decoder: Decoder | None = None,
    ) -> tf.Tensor:
        ids, labels = self.reading.read(targets)
        x = self._add_positions(self.target_embedding(self.reading.rows(ids)), training)
        x = (decoder or self.decoder)(
            self.reading.side_by_side(x, labels),
            self.reading.mask(labels),
            encoded=encoded,
            training=training,
            record=record,
        )
        return self.reading.apart(x, labels)

    def _features(
        self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False, record: Record | None = None
    ) -> tf.Tensor:
        return self._decode(targets, self.encode(inputs, training, record), training, record)

    def attention_weights(self, inputs: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns every layer's attention distributions, float [B, H, T, S] each.

        For two directions, see ``TwoDirections.named``. With ``predict_tag`` there is one more position, before the
        first.
        """
        record = Record()
        self._features(inputs, targets, record=record)
        return self.reading.named(record.weights)

    # === Step by step ===

    def start(self, inputs: tf.Tensor) -> State:
        """Encodes inputs int32 [B, S] and returns the state before the first step."""
        state = {**self.decoder.start(self.encode(inputs), self.directions), "position": tf.constant(0, tf.int32)}
        return self._before_search(state, tf.shape(inputs)[0])

    def step_with_attention(
        self, ids: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor, state: State
    ) -> tuple[tf.Tensor, tf.Tensor, State]:
        """Does the same as ``step`` and returns the last layer's attention, averaged over the heads; see Seq2Seq."""
        record = Record()
        logits, state = self.step(ids, visible, partner_visible, parents, state, record)
        weights = tf.cast(record.weights[self.decoder.layers[-1].name], tf.float32)
        attention = tf.reduce_mean(weights, axis=1)
        return logits, tf.reshape(attention, [-1, *ids.shape[1:], tf.shape(attention)[2]]), state

    def _step_decoder(
        self,
        x: tf.Tensor,
        context: StepContext,
        state: State,
        record: Record | None = None,
        decoder: Decoder | None = None,
    ) -> tuple[tf.Tensor, State]:
        """Decodes one position of every hypothesis, float [B, R, K, D], to rows float [B * R * K, D]."""
        position = context.position
        x = self.positions_added(x, position[tf.newaxis])
        # The layers work on rows: reshaping to and from [B, R, K] around every product would be half of all operations.
        x, state = (decoder or self.decoder).step(tf.reshape(x, [-1, x.shape[-1]]), context, state, record)
        return x, {**state, "position": position + 1}
