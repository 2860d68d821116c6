"""Names of the papers' models that are a Transformer, or a relative of it, with a variant in its hparams.

Variables, training and search are those of the model that each stands for; the name says which variant has to be on.
"""

from t2t_ext.config.dynamic_conv import DynamicConvHParams
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.models.layer_coordination import LayerCoordination
from t2t_ext.models.seq2seq import Seq2Seq
from t2t_ext.models.transformer import Transformer
from t2t_ext.registry import register_model


class Named(Seq2Seq):
    """Says which variant a model's name promises, which is then checked; comes before the model among the bases.

    Attributes:
      slot: The property of the hparams that the variant fills, ``mixers`` for the mixers of any layer.
      filled_with: What fills it.
      advice: How the variant is switched on, and what the model is without it.
    """

    slot: str
    filled_with: object
    advice: str


@register_model("composed_transformer")
class ComposedTransformer(Transformer):
    """The Transformer with any of dual context, views of the source and both directions, by its hparams alone."""


@register_model("dual_context_transformer")
class DualContextTransformer(Named, Transformer):
    """The Transformer with dual contextual modules in chosen layers (Ampomah et al. 2021)."""

    slot, filled_with = "mixers", "dual_context"
    advice = (
        "dual contextual modules is a Transformer. Add dc_encoder_layers=all or dc_decoder_layers=all to --hparams, "
        "take an hparams set whose name begins with dual_context_, or choose --model=transformer"
    )


class _CrossView(Named):
    slot, filled_with = "source_views", "cross_view"


@register_model("cross_view_transformer")
class CrossViewTransformer(_CrossView, Transformer):
    """The Transformer with layer-wise cross-view decoding (Liu et al. 2020)."""

    advice = (
        "cross-view decoding (source_view=last) is another model. cross_view_transformer needs a view: "
        "source_view=gca,integration=soft in --hparams (or gpa, fga, fma, ama), or an hparams set whose name begins "
        "with cross_view_. Without a view, it is --model=transformer"
    )


@register_model("dynamic_conv")
class DynamicConv(Transformer):
    """The Transformer with convolutions for self-attention, in both stacks or in one (Wu et al. 2019)."""

    hparams_class: type[HParams] = DynamicConvHParams


@register_model("cross_view_dynamic_conv")
class CrossViewDynamicConv(_CrossView, DynamicConv):
    """DynamicConv (Wu et al. 2019) with layer-wise cross-view decoding (Liu et al. 2020)."""

    advice = (
        "cross-view decoding (source_view=last) is another model. cross_view_dynamic_conv needs a view: "
        "source_view=gca,integration=soft in --hparams (or gpa, fga, fma, ama). Without a view, it is "
        "--model=dynamic_conv"
    )


class _Synchronous(Named):
    slot, filled_with = "directions", 2
    advice = (
        "both directions (synchronous=false) is another model. Add synchronous=true to --hparams, take an hparams set "
        "whose name begins with synchronous_, or choose --model=transformer or layer_coordination"
    )


@register_model("synchronous_transformer")
class SynchronousTransformer(_Synchronous, Transformer):
    """The Transformer with synchronous bidirectional attention in its decoder (Zhou et al. 2019)."""


@register_model("synchronous_layer_coordination")
class SynchronousLayerCoordination(_Synchronous, LayerCoordination):
    """One stack of layers, or two that are aligned, for a source and two targets that attend to each other."""
