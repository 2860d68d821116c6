"""Target order and step contexts of decoders: here one target, from its first token to its last.

Legend: B sentences, T target positions, R directions (1), K hypotheses of a direction, D width.
"""

from typing import Any

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.layers.attention import StepContext, mask_bias
from t2t_ext.layers.masks import causal_mask


@registry.register_layer("target_reading", "one_direction")
class OneDirection:
    """Reads targets int32 [B, T]: position t has the token before it as its input, the first a zero vector.

    Attributes:
      first_is_zero: Whether the input of a search's first step is a zero vector.
    """

    first_is_zero = True

    def __init__(self, hparams: Any) -> None:
        """Initializes the reading from the model's hparams."""

    # === Whole sequences ===

    def labels(self, targets: tf.Tensor) -> tf.Tensor:
        """Returns what is predicted in training, int32 [B, T]; see Seq2Seq.training_labels."""
        return targets

    def read(self, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns what the positions read and what they predict, int32 [B, T] each."""
        # The first position sees PAD, which embeds as a zero vector; the others see the token before them.
        return tf.pad(targets, [[0, 0], [1, 0]])[:, :-1], targets

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns what is read with a sequence in each row, int32 [B, T]."""
        return ids

    def side_by_side(self, x: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the inputs of a decoder, float [B, T, D], of the embedded rows."""
        return x

    def mask(self, labels: tf.Tensor) -> Any:
        """Returns what a target position may see of the targets: bool [1, 1, T, T]."""
        return causal_mask(tf.shape(labels)[1])

    def apart(self, x: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns a decoder's outputs float [B, T, D] in the shape of the labels."""
        return x

    def at_targets(self, features: tf.Tensor) -> tf.Tensor:
        """Returns of the features at all labels those at the targets, float [B, T, D]."""
        return features

    def named(self, weights: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the attention distributions of a decoder under the names that people see."""
        return weights

    # === Step by step ===

    def step_ids(self, ids: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        """Returns what a step reads, int32 [B, R, K]: the tokens that were chosen last."""
        return ids

    def step_context(
        self, position: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor
    ) -> StepContext:
        """Returns what the mixers are told of a step; arguments as in ``Seq2Seq.step``."""
        return StepContext(position, visible, partner_visible, parents, mask_bias(visible)[:, :, tf.newaxis])

    def context_before_search(self, batch: tf.Tensor, position: tf.Tensor) -> StepContext | None:
        """Returns the context of a step from a zero vector that comes before the search; None: there is none."""
        return None
