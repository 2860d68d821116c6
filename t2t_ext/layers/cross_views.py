"""Layer-wise cross-view decoding (Liu et al. 2020, section 2.2): every decoder layer has its own view of the encoder.

The view R_i is joined with the last encoder layer or replaces it.

Legend: B sentences, S source positions, D width, N encoder layers, M decoder layers. e_j is the normalized output of
encoder layer j, from e_1 to e_N; R_i is the view of decoder layer i.
"""

from collections.abc import Sequence
from typing import Any, Self

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.variants.source_views import SourceViewFields
from t2t_ext.errors import UserError
from t2t_ext.layers.attention import SourceAttention
from t2t_ext.layers.base import Description, Layer, LayerNormalization, add_bias
from t2t_ext.layers.cross_view_attention import AdaptiveAttention, TwoAttentions, Weighing
from t2t_ext.layers.source_views import EncoderOutput, Reading, SourceViews, ViewNormalization


class SeenLayerNormalization(ViewNormalization):
    """Normalizes the layer outputs of a pre-norm encoder that the views use; by themselves they are not normalized.

    With ``source_view_norm=separate``, every layer that a view uses has its own normalization, except the last one,
    which has the stack's final normalization. With ``shared``, all use the final normalization.
    """

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width = hparams.hidden_size
        fields = hparams.part(SourceViewFields)
        self.seen = sorted(fields.seen_layers - {hparams.encoder_layers - 1})
        self.norms = None
        if fields.source_view_norm == "separate":
            args = {"epsilon": hparams.norm_epsilon, "dtype": self.dtype_policy}
            self.norms = [LayerNormalization(name=f"layer_{j}", **args) for j in self.seen]

    def build(self, input_shape: object = None) -> None:
        """Creates the weights of the normalizations."""
        for norm in self.norms or ():
            norm.build((None, self.width))

    def normalized(
        self, states: Sequence[tf.Tensor], final: tf.Tensor, final_norm: LayerNormalization
    ) -> list[tf.Tensor]:
        """Returns ``EncoderOutput.layers``; see ViewNormalization."""
        layers = [*states[:-1], final]
        for j, norm in zip(self.seen, self.norms or [final_norm] * len(self.seen), strict=True):
            layers[j] = norm(states[j])
        return layers


class Combination(Layer):
    """Full matching attention, R = [e_1; ...; e_N] W + b; initially the mean of the layers."""

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layers, self.width = hparams.encoder_layers, hparams.hidden_size

    def build(self, input_shape: object = None) -> None:
        """Creates W [N * D, D], initially N blocks I / N stacked vertically, and b [D], initially zero."""

        def mean(shape: Sequence[int], dtype: str | None = None) -> tf.Tensor:
            return tf.tile(tf.eye(self.width, dtype=dtype) / self.layers, [self.layers, 1])

        self.matrix = self.add_weight(name="matrix", shape=(self.layers * self.width, self.width), initializer=mean)
        self.bias = self.add_weight(name="bias", shape=(self.width,), initializer="zeros")

    def call(self, layers: tf.Tensor) -> tf.Tensor:
        """Combines float [B, S, N * D] to float [B, S, D]."""
        rows = tf.matmul(tf.reshape(layers, [-1, layers.shape[-1]]), self.value(self.matrix))
        shape = tf.concat([tf.shape(layers)[:-1], [self.width]], axis=0)
        return tf.reshape(add_bias(rows, self.value(self.bias)), shape)


class ScalarCombination(Layer):
    """Full matching attention with one weight w_j per layer, R = sum_j w_j e_j; initially the mean of the layers."""

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layers = hparams.encoder_layers

    def build(self, input_shape: object = None) -> None:
        """Creates w [N]."""
        self.weights_of_layers = self.add_weight(
            name="weights", shape=(self.layers,), initializer=tf.constant_initializer(1.0 / self.layers)
        )


class LayerView(Layer):
    """The weights of one decoder layer's view, if it has any."""

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width = hparams.hidden_size
        args = {"dtype": self.dtype_policy}
        fields = hparams.part(SourceViewFields)
        self.combination: Any = None
        self.weighing: Weighing | None = None
        self.norm: LayerNormalization | None = None
        if fields.source_view == "fma":
            kind = Combination if fields.fma == "full" else ScalarCombination
            self.combination = kind(hparams, name="combination", **args)
        if fields.source_view == "ama" and not fields.ama_share_layers:
            self.weighing = Weighing(hparams, name="weighing", **args)
        if fields.integration == "soft":
            self.norm = LayerNormalization(hparams.norm_epsilon, name="norm", **args)

    def build(self, input_shape: object = None) -> None:
        """Creates the weights of all parts."""
        for part in (self.combination, self.weighing):
            if part is not None:
                part.build(None)
        if self.norm is not None:
            self.norm.build((None, self.width))

    def integrated(self, final: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        """Returns LN_i(e_N + R_i) with soft integration, otherwise R_i, float [B, S, D]."""
        return other if self.norm is None else self.norm(final + other)


@registry.register_layer("source_views", "cross_view")
class CrossViews(SourceViews):
    """The views of layer-wise cross-view decoding and their integration (Liu et al. 2020, equations 5 and 7)."""

    def __init__(self, hparams: TransformerHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        fields = hparams.part(SourceViewFields)
        self.viewed_layers = fields.viewed_layers
        self.source_view, self.integration = fields.source_view, fields.integration
        self.scalar = fields.fma == "scalar"
        self.by_query = fields.ama_query == "decoder"
        args = {"dtype": self.dtype_policy}
        self.layers = [LayerView(hparams, name=f"layer_{i}", **args) for i in range(hparams.decoder_layers)]
        shared = fields.source_view == "ama" and fields.ama_share_layers
        self.weighing = Weighing(hparams, name="weighing", **args) if shared else None

    @classmethod
    def make(cls, hparams: TransformerHParams, **kwargs: Any) -> Self:
        """Returns the layer for the views that the model's hparams select.

        Raises:
          UserError: The views do not fit the layers of a pretrained encoder.
        """
        if problems := list(hparams.part(SourceViewFields).validate_views()):
            raise UserError(
                f"The encoder of encoder_preset={hparams.encoder_preset} has {hparams.encoder_layers} layers: "
                f"{'; '.join(problems)}."
            )
        return cls(hparams, **kwargs)

    @classmethod
    def normalization(cls, hparams: TransformerHParams, **kwargs: Any) -> ViewNormalization | None:
        """Returns the normalization of the encoder layers that the views use; None in post-norm stacks."""
        return SeenLayerNormalization(hparams, **kwargs) if hparams.layer_preprocess_sequence == "n" else None

    def build(self, input_shape: object = None) -> None:
        """Creates the views' weights."""
        for layer in self.layers:
            layer.build(None)
        if self.weighing is not None:
            self.weighing.build(None)

    def make_attention(self, hparams: TransformerHParams, layer: int, **kwargs: Any) -> SourceAttention:
        """Returns the cross-attention of a decoder layer, counted from 0, to its view."""
        weighing = self._weighing_of(layer) if self.by_query else None
        if self.integration == "soft_two_attention":
            return TwoAttentions(hparams, weighing, **kwargs)
        if weighing is not None:
            return AdaptiveAttention(hparams, weighing, self.layers[layer].norm, **kwargs)
        return SourceAttention(hparams, **kwargs)

    def read_by(self, decoder_layers: int, encoder_layers: int) -> Reading:
        """Returns the encoder layers that the decoder's layers read; see SourceViews."""
        last = f"e_{encoder_layers}"
        formula = ""  # of an R_i that combines several layers
        if self.source_view == "fma" and self.scalar:
            formula = f"R_i = sum of w_ij e_j, j = 1 to {encoder_layers}"
        elif self.source_view == "fma":
            formula = f"R_i = [e_1; ...; {last}] W_i + b_i"
        elif self.source_view == "ama":
            formula = f"R_i = sum of a_ij e_j, a_ij of each {'query' if self.by_query else 'source position'}"
        everything = (tuple(range(1, encoder_layers + 1)),) * decoder_layers
        layers = tuple((j + 1,) for j in self.viewed_layers) or everything
        what = {"hard": "R_i", "soft": f"LN_i({last} + R_i)", "soft_two_attention": f"LN_i(MHA({last}) + MHA(R_i))"}
        kind = f"{self.source_view}, {self.integration.replace('_', ' ')} integration"
        part = Description("views of the source", kind, formula, "Liu et al. 2020", last)
        return Reading(what[self.integration], layers, 0 if self.integration == "hard" else encoder_layers, part)

    def views(self, encoded: EncoderOutput) -> list[Any]:
        """Returns the view of each decoder layer.

        Each is float [B, S, D]: R_i, or LN_i(e_N + R_i). For two attentions, it is the pair of e_N and R_i. If R_i
        depends on the decoder's state, all encoder layers take its place, float [B, N, S, D].
        """
        others = self._other_views(encoded.layers)
        if self.integration == "soft_two_attention":
            return [(encoded.final, other) for other in others]
        if self.by_query:
            return others
        return [layer.integrated(encoded.final, other) for layer, other in zip(self.layers, others, strict=True)]

    def _weighing_of(self, layer: int) -> Weighing:
        weighing = self.weighing or self.layers[layer].weighing
        if weighing is None:
            raise ValueError(f"source_view={self.source_view} has no weights for each encoder layer.")
        return weighing

    def _other_views(self, layers: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns R_1 to R_M, float [B, S, D] each; if queries weight the layers, all layers, float [B, N, S, D]."""
        if self.viewed_layers:
            return [layers[j] for j in self.viewed_layers]
        if self.by_query:
            return [tf.stack(layers, axis=1)] * len(self.layers)
        if self.source_view == "ama":
            return self._weighed(layers)
        if not self.scalar:
            side_by_side = tf.concat(layers, axis=-1)
            return [layer.combination(side_by_side) for layer in self.layers]
        # One product for all decoder layers, so that the states are read only once.
        weights = tf.stack([self.value(layer.combination.weights_of_layers) for layer in self.layers])
        combined = tf.matmul(weights, tf.reshape(tf.stack(layers), [len(layers), -1]))
        return [tf.reshape(part, tf.shape(layers[0])) for part in tf.unstack(combined)]

    def _weighed(self, layers: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the views of adaptive matching attention, R_i = sum_j alpha_ij e_j, alpha_i = softmax_j(v_ij e_j)."""
        shared = self.weighing is not None
        vectors = [self.value(self._weighing_of(i).vectors) for i in range(1 if shared else len(self.layers))]
        of_layers = tf.stack(vectors, axis=2)  # [N, D, M], or [N, D, 1] if all decoder layers share the vectors
        rows = [tf.reshape(layer, [-1, layer.shape[-1]]) for layer in layers]
        scores = tf.stack([tf.matmul(row, of_layers[j]) for j, row in enumerate(rows)], axis=2)
        alphas = tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32)), rows[0].dtype)  # [B * S, M, N]
        views = tf.unstack(tf.matmul(alphas, tf.stack(rows, axis=1)), axis=1)
        views = [tf.reshape(view, tf.shape(layers[0])) for view in views]
        return views * len(self.layers) if shared else views
