"""A pretrained encoder: a KerasHub backbone (BERT, RoBERTa, XLM-R, ...) in place of the Transformer's encoder.

The backbone reads the form of input that it was trained on: its start token, the text, and its end token in place of
our EOS. The state at the start token is left out, so that every state belongs to a source position. The backbone's
dropout is off, since Keras draws it from generator states that a resumed run does not have. The number of its positions
is limited; a longer source is truncated before its EOS.

Legend: B sentences, S source positions, D width of the model.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.data.text.preset_tokenizer import own_ids
from t2t_ext.data.text.special_ids import EOS_ID, PAD_ID
from t2t_ext.errors import UserError, require_package
from t2t_ext.layers.base import Description, Layer, Projection, make_initializer
from t2t_ext.layers.dropout import dropout
from t2t_ext.layers.source_views import EncoderOutput

_NO_DROPOUT = ("dropout", "attention_dropout", "hidden_dropout", "embedding_dropout")


class PresetEncoder(Layer):
    """A backbone without its output heads, followed by a projection if its width differs from the model's.

    Attributes:
      depth: The number of the backbone's layers.
      longest: The largest number of source positions that it reads, including EOS; 0: no limit.
    """

    def __init__(self, hparams: TransformerHParams, config: Mapping[str, Any], **kwargs: Any) -> None:
        """Makes the backbone, with newly initialized weights, from ``PresetTokenizer.encoder_config``.

        Raises:
          UserError: The backbone is not a stack of layers over tokens.
        """
        super().__init__(**kwargs)
        self.hparams = hparams
        self.special = {name: config[name] for name in ("start", "end", "pad")}
        self.backbone, self.kind, groups, positions, self.backbone_width = _stack(
            config["backbone"], self.dtype_policy, self.name
        )
        self.longest = positions - (self.special["start"] is not None) if positions else 0
        self.depth = len(groups)
        if hparams.encoder_preset_frozen_layers > self.depth:
            raise UserError(
                f"encoder_preset_frozen_layers={hparams.encoder_preset_frozen_layers}: {hparams.encoder_preset} has "
                f"{self.depth} layers; encoder_preset_rate=0 freezes them all."
            )
        # For each variable of the backbone, its layer, counted from 1; 0: the embeddings.
        inside = {id(v): number for number, layer in enumerate(groups, 1) for v in layer.variables}
        self.layer_of = {id(variable): inside.get(id(variable), 0) for variable in self.backbone.variables}
        for variable in self.backbone.variables:
            variable.trainable = variable.trainable and self.rate_of(variable) != 0  # for Keras's ``fit``
        self.projection = None
        if self.backbone_width != hparams.hidden_size:
            initializer = make_initializer(hparams.initializer, hparams.initializer_gain)
            self.projection = Projection(
                hparams.hidden_size, use_bias=True, initializer=initializer, name="projection", dtype=self.dtype_policy
            )

    def build(self, input_shape: object = None) -> None:
        """Creates the weights of the projection if there is one."""
        if self.projection is not None:
            self.projection.build((None, self.backbone_width))

    def described(self, role: str) -> Description:
        """Returns the layer's description; see Layer."""
        width = f"{self.backbone_width}" + ("" if self.projection is None else f" -> {self.hparams.hidden_size}")
        return Description("pretrained encoder", self.kind, f"{self.depth} layers, D = {width}", "KerasHub", "encoder")

    def call(self, ids: tf.Tensor, mask: tf.Tensor, training: bool = False) -> EncoderOutput:
        """Encodes ids int32 [B, S] under mask bool [B, 1, 1, S].

        A truncated source ends with EOS. Beyond the backbone's last position, the states are zero and the returned mask
        is False.
        """
        start, end, pad = self.special["start"], self.special["end"], self.special["pad"]
        before = 0 if start is None else 1
        length = tf.shape(ids)[1]
        if self.longest:
            last = ids[:, self.longest - 1 : self.longest]  # if the source is not longer, this is already EOS or PAD
            last = tf.where(tf.equal(last, PAD_ID), PAD_ID, EOS_ID)
            ids, mask = tf.concat([ids[:, : self.longest - 1], last], axis=1), mask[..., : self.longest]
        real = tf.cast(mask[:, 0, 0], tf.int32)
        given = {"token_ids": own_ids(ids, pad, end), "padding_mask": real}
        if start is not None:
            given = {
                name: tf.pad(part, [[0, 0], [1, 0]], constant_values=value)
                for (name, part), value in zip(given.items(), (start, 1), strict=True)
            }
        given["segment_ids"] = tf.zeros_like(given["token_ids"])
        states = self.backbone({name: given[name] for name in self.backbone.input}, training=training)
        layers = [self._projected(state[:, before:]) for state in states]
        layers[-1] = dropout(layers[-1], self.hparams.layer_prepostprocess_dropout, training)
        if self.longest:  # attention distributions must cover all source positions, including the truncated ones
            missing = length - tf.shape(ids)[1]
            layers = [tf.pad(layer, [[0, 0], [0, missing], [0, 0]]) for layer in layers]
            mask = tf.pad(mask, [[0, 0], [0, 0], [0, 0], [0, missing]])
        return EncoderOutput(layers, layers[-1], mask)

    def _projected(self, state: tf.Tensor) -> tf.Tensor:
        state = tf.cast(state, self.compute_dtype)
        return state if self.projection is None else self.projection(state)

    def rate_of(self, variable: Any) -> float:
        """Returns the factor on the learning rate for a variable; 0: the variable is frozen."""
        layer, frozen = self.layer_of.get(id(variable)), self.hparams.encoder_preset_frozen_layers
        if layer is None:
            return 1.0
        return 0.0 if frozen and layer <= frozen else self.hparams.encoder_preset_rate

    def weights_of(self, preset: str) -> dict[str, np.ndarray]:
        """Returns the weights of a preset by the paths of this backbone's variables.

        Raises:
          UserError: KerasHub cannot read the preset.
        """
        import keras_hub

        try:
            found = keras_hub.models.Backbone.from_preset(preset)
        except Exception as error:  # failed downloads, unreadable files, missing classes
            reason = " ".join(str(error).split())[:400]
            raise UserError(f"KerasHub could not read the weights of encoder_preset={preset}: {reason}") from error
        by_path = {variable.path: variable for variable in found.variables}
        return {v.path: by_path[v.path.split(f"{self.name}/backbone/", 1)[1]].numpy() for v in self.backbone.variables}


def _stack(description: Mapping[str, Any], policy: Any, name: str) -> tuple[Any, str, list[Any], int, int]:
    """Returns a model of the outputs of a backbone's layers, and its class name, layers, maximum length and width.

    Raises:
      UserError: The backbone is not a stack of Transformer layers over tokens, or KerasHub is not installed.
    """
    require_package("keras_hub", "keras-hub", "encoder_preset")
    import keras_hub  # noqa: F401 -- registers the classes of backbones

    config = dict(description["config"])
    config |= {key: 0.0 for key in _NO_DROPOUT if key in config}
    config["dtype"] = policy.name
    # The scopes name the backbone's variables by their place in the model, as in other layers.
    with keras.name_scope("model"), keras.name_scope(name), keras.name_scope("backbone"):
        made = keras.saving.deserialize_keras_object({**description, "config": config})
    kind = type(made).__name__
    layers = list(getattr(made, "transformer_layers", None) or ())
    inputs = made.input if isinstance(made.input, dict) else {}
    # The layers of ALBERT are lists, and are called several times.
    stacked = layers and all(isinstance(each, keras.Layer) and len(each._inbound_nodes) == 1 for each in layers)
    if not stacked or "token_ids" not in inputs or "padding_mask" not in inputs:
        raise UserError(
            f"encoder_preset is a {kind}, which is no stack of Transformer layers over tokens, each called once. "
            "Encoders such as BERT, RoBERTa, XLM-RoBERTa and DistilBERT are."
        )
    if decoders := [type(layer).__name__ for layer in layers if "Decoder" in type(layer).__name__]:
        raise UserError(
            f"encoder_preset is a {kind}, a language model whose layers ({decoders[0]}) see no later words, but an "
            "encoder must see the whole source. Choose one such as BERT, RoBERTa, XLM-RoBERTa or DistilBERT."
        )
    # What the backbone gives may follow its last layer, such as a normalization.
    last = made.output.get("sequence_output") if isinstance(made.output, dict) else made.output
    states = [layer.output for layer in layers]
    stack = keras.Model(inputs, [*states[:-1], states[-1] if last is None else last], name="stack")
    return stack, kind, layers, int(getattr(made, "max_sequence_length", 0) or 0), int(made.hidden_dim)
