"""How a decoder reads its target, and which context each step has; here, one target, from first to last token.

Legend: B sentences, T target positions, R directions (1), K hypotheses of a direction, D width.
"""

from typing import Any

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.layers.attention import StepContext, mask_bias
from t2t_ext.layers.masks import causal_mask


@registry.register_layer("target_reading", "one_direction")
class OneDirection:
    """Reads targets int32 [B, T]: the input of a position is the previous token, for the first one a zero vector.

    Attributes:
      first_is_zero: Whether the input of the first search step is a zero vector.
    """

    first_is_zero = True

    def __init__(self, hparams: Any) -> None:
        """Initializes the reading from the model's hparams."""

    # === Whole sequences ===

    def labels(self, targets: tf.Tensor) -> tf.Tensor:
        """Returns the labels that are predicted in training, int32 [B, T]; see Seq2Seq.training_labels."""
        return targets

    def read(self, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the input ids and the labels of the positions, int32 [B, T] each."""
        # The first position reads PAD, whose embedding is zero; each other one reads the token before it.
        return tf.pad(targets, [[0, 0], [1, 0]])[:, :-1], targets

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the input ids with one sequence per row, int32 [B, T]."""
        return ids

    def side_by_side(self, x: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the decoder's inputs, float [B, T, D], made from the embedded rows."""
        return x

    def mask(self, labels: tf.Tensor) -> Any:
        """Returns the mask of the target positions that each one may see, bool [1, 1, T, T]."""
        return causal_mask(tf.shape(labels)[1])

    def apart(self, x: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the decoder's outputs, float [B, T, D], arranged like the labels."""
        return x

    def at_targets(self, features: tf.Tensor) -> tf.Tensor:
        """Returns the features at the targets, float [B, T, D], from the features at all labels."""
        return features

    def named(self, weights: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns attention distributions under the names that users see."""
        return weights

    # === Step by step ===

    def step_ids(self, ids: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        """Returns the input ids of a step, int32 [B, R, K]: the tokens chosen last."""
        return ids

    def step_context(
        self, position: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor
    ) -> StepContext:
        """Returns the context of a step for the mixers; see ``Seq2Seq.step`` for the arguments."""
        return StepContext(position, visible, partner_visible, parents, mask_bias(visible)[:, :, tf.newaxis])

    def context_before_search(self, batch: tf.Tensor, position: tf.Tensor) -> StepContext | None:
        """Returns the context of a step with a zero vector as input that precedes the search; None: there is none."""
        return None
