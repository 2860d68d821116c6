"""A pretrained encoder: a backbone of KerasHub (BERT, RoBERTa, XLM-R, ...) in the Transformer encoder's place.

The backbone reads what it was trained on: its start token, the text, its end token at our EOS. The state at the start
token is left out, so that every state stands at a source position. Its dropout is off, since Keras draws it from states
that a resumed run does not have; its own positions have an end, and a source is truncated there, before its EOS.

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
    """A backbone without its own output heads, and a projection where its width is another than the model's.

    Attributes:
      depth: The number of its layers.
      longest: The most source positions that it reads, EOS included; 0: any number.
    """

    def __init__(self, hparams: TransformerHParams, config: Mapping[str, Any], **kwargs: Any) -> None:
        """Makes the backbone, with fresh weights, from ``PresetTokenizer.encoder_config``.

        Raises:
          UserError: It is no stack of layers over tokens.
        """
        super().__init__(**kwargs)
        self.hparams = hparams
        self.special = {name: config[name] for name in ("start", "end", "pad")}
        self.backbone, self.kind, groups, positions, self.backbone_width = _stack(
            config["backbone"], self.dtype_policy, self.name
        )
        self.longest = positions - (self.special["start"] is not None) if positions else 0
        self.depth = len(groups)
        # Of each variable of the backbone, the layer that it is in, counted from 1; 0: the embeddings.
        inside = {id(v): number for number, layer in enumerate(groups, 1) for v in layer.variables}
        self.layer_of = {id(variable): inside.get(id(variable), 0) for variable in self.backbone.variables}
        for variable in self.backbone.variables:
            variable.trainable = variable.trainable and self.rate_of(variable) != 0  # for ``fit`` of Keras
        self.projection = None
        if self.backbone_width != hparams.hidden_size:
            initializer = make_initializer(hparams.initializer, hparams.initializer_gain)
            self.projection = Projection(
                hparams.hidden_size, use_bias=True, initializer=initializer, name="projection", dtype=self.dtype_policy
            )

    def build(self, input_shape: object = None) -> None:
        """Creates the projection's weights."""
        if self.projection is not None:
            self.projection.build((None, self.backbone_width))

    def described(self, role: str) -> Description:
        """Returns what the layer is; see Layer."""
        width = f"{self.backbone_width}" + ("" if self.projection is None else f" -> {self.hparams.hidden_size}")
        return Description("pretrained encoder", self.kind, f"{self.depth} layers, D = {width}", "KerasHub", "encoder")

    def call(self, ids: tf.Tensor, mask: tf.Tensor, training: bool = False) -> EncoderOutput:
        """Encodes ids int32 [B, S] under mask bool [B, 1, 1, S].

        States of positions that the backbone does not have are zeros, and masked in what is returned; what is truncated
        ends with EOS.
        """
        start, end, pad = self.special["start"], self.special["end"], self.special["pad"]
        before = 0 if start is None else 1
        length = tf.shape(ids)[1]
        if self.longest:
            last = ids[:, self.longest - 1 : self.longest]  # where the source is no longer, it is EOS or PAD already
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
        if self.longest:  # whoever reads attention counts the source's positions, those that are truncated here too
            missing = length - tf.shape(ids)[1]
            layers = [tf.pad(layer, [[0, 0], [0, missing], [0, 0]]) for layer in layers]
            mask = tf.pad(mask, [[0, 0], [0, 0], [0, 0], [0, missing]])
        return EncoderOutput(layers, layers[-1], mask)

    def _projected(self, state: tf.Tensor) -> tf.Tensor:
        state = tf.cast(state, self.compute_dtype)
        return state if self.projection is None else self.projection(state)

    def rate_of(self, variable: Any) -> float:
        """Returns the multiple of the learning rate that a variable learns with; 0: it is frozen."""
        layer, frozen = self.layer_of.get(id(variable)), self.hparams.encoder_preset_frozen_layers
        if layer is None:
            return 1.0
        return 0.0 if frozen and layer <= frozen else self.hparams.encoder_preset_rate

    def weights_of(self, preset: str) -> dict[str, np.ndarray]:
        """Returns the weights of a preset by the paths of this backbone's variables.

        Raises:
          UserError: KerasHub cannot read it.
        """
        import keras_hub

        try:
            found = keras_hub.models.Backbone.from_preset(preset)
        except Exception as error:  # of downloads, of files, of classes that are not there
            reason = " ".join(str(error).split())[:400]
            raise UserError(f"KerasHub could not read the weights of encoder_preset={preset}: {reason}") from error
        by_path = {variable.path: variable for variable in found.variables}
        return {v.path: by_path[v.path.split(f"{self.name}/backbone/", 1)[1]].numpy() for v in self.backbone.variables}


def _stack(description: Mapping[str, Any], policy: Any, name: str) -> tuple[Any, str, list[Any], int, int]:
    """Returns a model of a backbone's layers' outputs, its class, its layers, its most positions and its width."""
    require_package("keras_hub", "keras-hub", "encoder_preset")
    import keras_hub  # noqa: F401 -- registers the classes of backbones

    config = dict(description["config"])
    config |= {key: 0.0 for key in _NO_DROPOUT if key in config}
    config["dtype"] = policy.name
    # Variables are named after where they are, as those of other layers.
    with keras.name_scope("model"), keras.name_scope(name), keras.name_scope("backbone"):
        made = keras.saving.deserialize_keras_object({**description, "config": config})
    kind = type(made).__name__
    layers = getattr(made, "transformer_layers", None)
    inputs = made.input if isinstance(made.input, dict) else {}
    if not layers or "token_ids" not in inputs or "padding_mask" not in inputs:
        raise UserError(
            f"encoder_preset is a {kind}, which is no stack of Transformer layers over tokens. Encoders such as BERT, "
            "RoBERTa, XLM-RoBERTa and DistilBERT are."
        )
    stack = keras.Model(inputs, [layer.output for layer in layers], name="stack")
    return stack, kind, list(layers), int(getattr(made, "max_sequence_length", 0) or 0), int(made.hidden_dim)
