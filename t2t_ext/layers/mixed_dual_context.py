"""The dual contextual module in layers that source and target share: Ampomah et al. (2021) in He et al. (2018).

Let r be the normalized states of both sides, l_c their local contexts, and Mixed the mixed attention of
``layers/mixed_attention.py``. A target position computes

    h_l = Mixed(r, [l_c of the source; l_c of the past]),  h_g = Mixed(r, [r of the source; r of the past])
    z_hat = [h_l; h_g] W_z + b_z

h_l and h_g have separate projections. A source position computes the same from only the source, as in the module of an
encoder. Both sides share one set of weights. If a target position attends to its past and to the source in two
sublayers, both sublayers are this module.

The local context of a side depends only on that side. The source's neighborhood is that of an encoder: it is centered,
an even size has one more position on the right or left (``dc_even_kernel``), and padding is zero. The target's
neighborhood is that of a decoder: it ends at the position itself. There is only one matrix W^r, so that the same tap
has a different distance on each side.

Legend: B sentences, S source positions, T target positions, K hypotheses, H heads, D width of the model, d width of a
head.
"""

from typing import Any

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.layers.attention import StepContext
from t2t_ext.layers.dual_context import DecoderDualContext, LocalContext, centered_before
from t2t_ext.layers.mixed_attention import BothSides, Show, SideBySide


@registry.register_layer("shared_mixer", "dual_context")
class MixedDualContext(BothSides, DecoderDualContext):
    """The module of a layer for both sides, with the weights of a dual contextual module under the same names.

    Both attentions are computed as one with 2 H heads, the local heads first. ``BothSides`` implements the mixed
    attention of each head.
    """

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        args = {"name": "local", "dtype": self.dtype_policy}
        self.source_local = _OtherNeighborhood(hparams, centered_before(hparams), self.local, **args)

    # === Both sides ===

    def project_rows(self, y: tf.Tensor, sides: SideBySide) -> list[list[tf.Tensor]]:
        """Projects the rows of both sides in one product each; see BothSides."""
        source, target = sides.split(y)
        (length,) = sides.target
        after = self.local(tf.reshape(target, [-1, length, self.width]))
        local = tf.concat([self._local_of_source(source, sides.real), tf.reshape(after, [-1, self.width])], axis=0)
        by_side = zip(*(sides.split(part) for part in self._projected(y, local)), strict=True)
        return [
            [self._heads_of(part, [n]) for part in parts]
            for parts, n in zip(by_side, (sides.source, length), strict=True)
        ]

    def project_source(self, y: tf.Tensor, real: tf.Tensor) -> list[tf.Tensor]:
        """Projects source rows float [B * S, D] to queries, keys and values; see BothSides."""
        projected = self._projected(y, self._local_of_source(y, real))
        return [self._heads_of(part, [tf.shape(real)[1]]) for part in projected]

    def queries(self, y: tf.Tensor, parts: list[Any]) -> tf.Tensor:
        """Projects rows to the queries of both attentions; see BothSides."""
        projection, width = self.global_projection, 2 * self.key_width
        rows = tf.matmul(y, self.value(projection.kernel)[:, :width])
        if projection.bias is not None:
            rows += self.value(projection.bias)[:width]
        return self._heads_of(rows, parts)

    def extend(self, y: tf.Tensor, context: StepContext, state: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Any]:
        """Projects a new position of every hypothesis, using also the f - 1 positions before it; see BothSides."""
        local, inputs = self._local_step(y, context, state["memories"]["inputs"])
        parts = list(context.hypotheses)
        query, keys, values = (self._heads_of(part, parts) for part in self._projected(y, local))
        keys = tf.concat([state["memories"]["keys"], keys], axis=3)
        values = tf.concat([state["memories"]["values"], values], axis=3)
        return query, keys, values, {"memories": {"keys": keys, "values": values, "inputs": inputs}}

    def joined(self, found: tf.Tensor) -> tf.Tensor:
        """Returns z_hat, float [N, D], for rows [h_l; h_g] float [N, 2 H * d]."""
        return self.aggregation(found)

    @property
    def found_width(self) -> int:
        """The width of the values of both attentions together."""
        return 2 * self.value_width

    def show(self, show: Show | None, name: str, weights: tf.Tensor) -> None:
        """Splits distributions float [B, 2 H, T, S] into two, ``NAME/local_context`` and ``NAME/global_context``."""
        if show is not None:
            for kind, part in zip(("local_context", "global_context"), tf.split(weights, 2, axis=1), strict=True):
                show(f"{name}/{kind}", part)

    # === Parts ===

    def _local_of_source(self, rows: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """Returns l_c of source rows float [B * S, D], in the same shape; ``real`` bool [B, S] is False at padding."""
        r = tf.reshape(rows, [-1, tf.shape(real)[1], self.width])
        return tf.reshape(self.source_local(r * tf.cast(real[..., tf.newaxis], r.dtype)), [-1, self.width])

    def _heads_of(self, rows: tf.Tensor, parts: list[Any]) -> tf.Tensor:
        """Splits rows float [B * ... * K, 2 H * d] into float [B, ..., 2 H, K, d]; parts is [K] or [R, K]."""
        columns = self._columns(rows, [1, *parts][-2:])
        return columns if len(parts) == 2 else columns[:, 0]


class _OtherNeighborhood(LocalContext):
    """A local context unit that uses the weights of another unit."""

    def __init__(self, hparams: TransformerHParams, before: int, unit: LocalContext, **kwargs: Any) -> None:
        """Initializes the unit; see LocalContext for ``before``. ``unit`` is built by its owner."""
        super().__init__(hparams, before, **kwargs)
        self.convolution, self.norm = unit.convolution, unit.norm

    def build(self, input_shape: object = None) -> None:
        """Creates nothing, since the weights belong to the other unit."""
