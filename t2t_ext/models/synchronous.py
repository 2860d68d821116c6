"""Synchronous bidirectional decoding (Zhou, Zhang & Zong, TACL 2019).

One decoder writes a sentence from left to right and from right to left at the same time; every
position sees what both directions have written until then (``layers/synchronous_attention.py``). The
encoder and all weights are the Transformer's.

``SynchronousDecoding`` is a mixin over the Transformer's hooks, so that a relative with another
encoder or other views of the source can decode synchronously, too:
``class Mine(SynchronousDecoding, CrossViewTransformer)`` with hparams of both families.

Legend: B sentences, S source positions, T target positions of a direction, D width, V target
vocabulary, K hypotheses of a direction.
"""

import tensorflow as tf

from t2t_ext.config.synchronous import SynchronousHParams
from t2t_ext.data.text.special_ids import L2R_ID, PAD_ID, R2L_ID
from t2t_ext.errors import UserError
from t2t_ext.layers.base import Layer
from t2t_ext.layers.source_views import EncoderOutput
from t2t_ext.layers.synchronous_attention import (
    SIDES,
    SynchronousStepContext,
    make_mixer,
    sides_mask,
    step_context,
)
from t2t_ext.models.seq2seq import State
from t2t_ext.models.transformer import Record, Transformer
from t2t_ext.registry import register_model

_TAGS = (L2R_ID, R2L_ID)
_SIDE_NAMES = ("l2r", "r2l")
_KINDS = ("history", "future")


class SynchronousDecoding:
    """Makes the decoder of a Transformer, or of a relative of it, write in both directions at once.

    Comes before the model among the bases. The model's hparams are ``SynchronousHParams``.
    """

    hparams_class = SynchronousHParams
    directions = SIDES
    target_sides = SIDES

    def make_decoder_mixer(self, layer: int) -> Layer:
        """Returns SBAtt, or self-attention of each side alone, for a decoder layer, counted from 0."""
        return make_mixer(self.hparams, layer, name="self_attention", dtype=self.dtype_policy)

    # === Whole sequences ===

    def features(self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the decoder's output float [B, 2, T, D] for targets int32 [B, 2, T]; see Seq2Seq."""
        features = self.training_features(inputs, targets, training)
        return features[:, :, 1:] if self.hparams.predict_tag else features

    def training_features(self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the decoder's output float [B, 2, T, D], with ``predict_tag`` [B, 2, 1 + T, D]; see Seq2Seq."""
        return self._decode(targets, self.encode(inputs, training), training)

    def training_labels(self, targets: tf.Tensor) -> tf.Tensor:
        """Returns the targets int32 [B, 2, T], with ``predict_tag`` behind their tags, [B, 2, 1 + T]; see Seq2Seq.

        A side without a first label, where no loss is taken, has no tag to predict either.
        """
        if not self.hparams.predict_tag:
            return targets
        targets = tf.convert_to_tensor(targets)
        first = targets[:, :, :1]
        tags = tf.constant(_TAGS, targets.dtype)[tf.newaxis, :, tf.newaxis]
        return tf.concat([tf.where(tf.not_equal(first, PAD_ID), tags, PAD_ID), targets], axis=2)

    def _read(self, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns what the positions of both directions read and what they predict, int32 [B, 2, T] each."""
        targets = tf.convert_to_tensor(targets)
        if targets.shape.rank != 3 or targets.shape[1] not in (SIDES, None):
            raise UserError(
                f"{type(self).__name__} reads two targets of each sentence at once, [sentences, 2, positions]: side 0 "
                f"from left to right, side 1 from right to left; got {targets.shape}. What one direction says depends "
                "on the other's words: give both."
            )
        labels = self.training_labels(targets)
        batch = tf.shape(labels)[0]
        if self.hparams.predict_tag:
            first = tf.zeros([batch, SIDES, 1], labels.dtype)  # PAD embeds as a zero vector
        else:
            tags = tf.constant(_TAGS, labels.dtype)[tf.newaxis, :, tf.newaxis]
            first = tf.broadcast_to(tags, [batch, SIDES, 1])
        return tf.concat([first, labels[:, :, :-1]], axis=2), labels

    def _decode(
        self, targets: tf.Tensor, encoded: EncoderOutput, training: bool = False, record: Record | None = None
    ) -> tf.Tensor:
        ids, labels = self._read(targets)
        batch, length = tf.shape(labels)[0], tf.shape(labels)[2]
        ids = tf.reshape(ids, [batch * SIDES, length])
        x = self._add_positions(self.embed(ids, self.target_embedding), training)
        x = tf.reshape(x, [batch, SIDES * length, x.shape[-1]])
        x = self.decoder(x, sides_mask(labels), encoded=encoded, training=training, record=record)
        return tf.reshape(x, [batch, SIDES, length, x.shape[-1]])

    def attention_weights(self, inputs: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the attention distributions, float [B, H, T, S] or [B, H, T, T].

        Those of the encoder are as the Transformer's. In the decoder, every name ends with the direction that looks,
        ``/l2r`` or ``/r2l``, and in self-attention with what it looks at, ``/history`` or ``/future``: of the future,
        key j is the other direction's input j. With ``predict_tag`` there is a position more, before the first.
        """
        weights = super().attention_weights(inputs, targets)
        named = {}
        for name, weight in weights.items():
            if not name.startswith("decoder/"):
                named[name] = weight
            elif name.endswith("/source_attention"):
                for side, part in zip(_SIDE_NAMES, tf.split(weight, SIDES, axis=2), strict=True):
                    named[f"{name}/{side}"] = part
            else:
                for kind, of_sides in zip(_KINDS[: weight.shape[1]], tf.unstack(weight, axis=1), strict=True):
                    for side, part in zip(_SIDE_NAMES, tf.unstack(of_sides, axis=1), strict=True):
                        named[f"{name}/{side}/{kind}"] = part
        return named

    # === Step by step ===

    def start(self, inputs: tf.Tensor) -> State:
        """Encodes inputs int32 [B, S] and returns the state before the first step.

        With ``predict_tag`` the step from the zero vector is in it: its columns are visible to all that follows, and
        the tag is given, whatever its probability.
        """
        state = super().start(inputs)
        if not self.hparams.predict_tag:
            return state
        shape = [tf.shape(inputs)[0], SIDES, 1]
        alone = tf.ones([*shape, 1], tf.bool)
        context = step_context(state["position"], alone, alone, tf.zeros(shape, tf.int32))
        return self._step_decoder(tf.zeros([*shape, self.hparams.hidden_size], self.compute_dtype), context, state)[1]

    def _step_input(self, ids: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        first = tf.equal(position, int(self.hparams.predict_tag))
        ids = tf.where(first, tf.constant(_TAGS, ids.dtype)[tf.newaxis, :, tf.newaxis], ids)
        return self.embed(ids, self.target_embedding)

    def _step_context(
        self, position: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor
    ) -> SynchronousStepContext:
        return step_context(position, visible, partner_visible, parents, with_prefix=self.hparams.predict_tag)


@register_model("synchronous_transformer")
class SynchronousTransformer(SynchronousDecoding, Transformer):
    """The Transformer with synchronous bidirectional attention in its decoder (Zhou et al. 2019)."""
