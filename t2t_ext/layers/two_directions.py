"""How a decoder reads targets of both directions at once (Zhou et al. 2019), and which context each step has.

Side 0 is left to right, side 1 right to left. The first input of a side is the tag of its direction. If the tag itself
is predicted (``predict_tag``), the first input is a zero vector.

Legend: B sentences, T target positions of a side (with ``predict_tag`` one more, before the first), K hypotheses of a
direction, D width, H heads, S source positions.
"""

from typing import Any

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.variants.synchronous import SynchronousFields
from t2t_ext.data.text.special_ids import L2R_ID, PAD_ID, R2L_ID
from t2t_ext.errors import UserError
from t2t_ext.layers.synchronous_attention import SIDES, SynchronousStepContext, sides_mask, step_context
from t2t_ext.layers.target_reading import OneDirection

_TAGS = (L2R_ID, R2L_ID)
_SIDE_NAMES = ("l2r", "r2l")
_KINDS = ("history", "future")


@registry.register_layer("target_reading", "synchronous")
class TwoDirections(OneDirection):
    """Reads targets int32 [B, 2, T]; in the decoder, both sides of a sentence are one sequence, float [B, 2 * T, D]."""

    first_is_zero = False

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        self.predicts_tag = hparams.part(SynchronousFields).predict_tag

    # === Whole sequences ===

    def labels(self, targets: tf.Tensor) -> tf.Tensor:
        """Returns the targets int32 [B, 2, T]; with ``predict_tag``, each is preceded by its tag, [B, 2, 1 + T].

        A side whose first label is PAD has no loss, and no tag to predict either.
        """
        if not self.predicts_tag:
            return targets
        targets = tf.convert_to_tensor(targets)
        first = targets[:, :, :1]  # [B, 2, 1]
        tags = tf.constant(_TAGS, targets.dtype)[tf.newaxis, :, tf.newaxis]  # [1, 2, 1]
        return tf.concat([tf.where(tf.not_equal(first, PAD_ID), tags, PAD_ID), targets], axis=2)  # [B, 2, 1 + T]

    def read(self, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the input ids and the labels of the positions of both directions, int32 [B, 2, T] each.

        Raises:
          UserError: There are not two targets for each sentence.
        """
        targets = tf.convert_to_tensor(targets)
        if targets.shape.rank != 3 or targets.shape[1] not in (SIDES, None):
            raise UserError(
                f"A model of two directions reads two targets of each sentence at once, [sentences, 2, positions]: "
                f"side 0 from left to right, side 1 from right to left; got {targets.shape}. What one direction says "
                "depends on the other's words: give both."
            )
        labels = self.labels(targets)
        batch = tf.shape(labels)[0]
        if self.predicts_tag:
            first = tf.zeros([batch, SIDES, 1], labels.dtype)  # the embedding of PAD is zero
        else:
            tags = tf.constant(_TAGS, labels.dtype)[tf.newaxis, :, tf.newaxis]
            first = tf.broadcast_to(tags, [batch, SIDES, 1])
        return tf.concat([first, labels[:, :, :-1]], axis=2), labels

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the input ids with one side per row, int32 [B * 2, T]."""
        return tf.reshape(ids, [tf.shape(ids)[0] * SIDES, tf.shape(ids)[2]])

    def side_by_side(self, x: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the decoder's inputs, float [B, 2 * T, D], made from the embedded rows float [B * 2, T, D]."""
        return tf.reshape(x, [tf.shape(labels)[0], SIDES * tf.shape(labels)[2], x.shape[-1]])

    def mask(self, labels: tf.Tensor) -> Any:
        """Returns the mask of both sides, a SidesMask."""
        return sides_mask(labels)

    def apart(self, x: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the decoder's outputs float [B, 2 * T, D] as float [B, 2, T, D]."""
        return tf.reshape(x, [tf.shape(labels)[0], SIDES, tf.shape(labels)[2], x.shape[-1]])

    def at_targets(self, features: tf.Tensor) -> tf.Tensor:
        """Returns the features at the targets, float [B, 2, T, D], from the features at all labels."""
        return features[:, :, 1:] if self.predicts_tag else features

    def named(self, weights: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the attention distributions by direction, float [B, H, T, S] or [B, H, T, T].

        Distributions of the encoder keep the Transformer's names. In the decoder, every name gets the direction that
        attends, ``/l2r`` or ``/r2l``. In self-attention, the part that it attends to follows, ``/history`` or
        ``/future``; key j of the future is input j of the other direction.
        """
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

    def step_ids(self, ids: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        """Returns the input ids of a step, int32 [B, 2, K]; the first ones are the tags, whatever their probability."""
        first = tf.equal(position, int(self.predicts_tag))
        return tf.where(first, tf.constant(_TAGS, ids.dtype)[tf.newaxis, :, tf.newaxis], ids)

    def step_context(
        self, position: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor
    ) -> SynchronousStepContext:
        """Returns the context of a step for the mixers; see ``Seq2Seq.step`` for the arguments."""
        return step_context(position, visible, partner_visible, parents, with_prefix=self.predicts_tag)

    def context_before_search(self, batch: tf.Tensor, position: tf.Tensor) -> SynchronousStepContext | None:
        """Returns the context of the step that predicts the tags; all later steps see its columns.

        Without ``predict_tag``, it is None.
        """
        if not self.predicts_tag:
            return None
        alone = tf.ones([batch, SIDES, 1, 1], tf.bool)
        return step_context(position, alone, alone, tf.zeros([batch, SIDES, 1], tf.int32))
