"""Names for those models of the papers that are a Transformer, or a related model, with a variant set by its hparams.

Each one has the variables, training and search of its base model. Its name determines which variant must be on.
"""

from t2t_ext.config.dynamic_conv import DynamicConvHParams
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.models.layer_coordination import LayerCoordination
from t2t_ext.models.seq2seq import Seq2Seq
from t2t_ext.models.transformer import Transformer
from t2t_ext.registry import register_model


class Named(Seq2Seq):
    """A mixin that declares the variant that a model's name promises, which is then checked.

    It must precede the model among the base classes.

    Attributes:
      slot: The property of the hparams that selects the variant; ``mixers`` covers the mixers of all layers.
      filled_with: The value that the property must have (for ``mixers``, that one of them must have).
      advice: How to switch the variant on, and which model it is without the variant.
    """

    slot: str
    filled_with: object
    advice: str


@register_model("composed_transformer")
class ComposedTransformer(Transformer):
    """The Transformer with any combination of dual context, views of the source and both directions, set by hparams."""


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
    """The Transformer with convolutions in place of self-attention, in one or both stacks (Wu et al. 2019)."""

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
    """One stack of layers, or two aligned stacks, for a source and two targets that attend to each other."""
