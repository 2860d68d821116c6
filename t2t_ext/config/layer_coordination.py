"""Hyper-parameters of layer-wise coordination (He et al. 2018)."""

import dataclasses
from collections.abc import Iterator

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.strict_params import hparam
from t2t_ext.config.variants.dual_context import DualContextFields
from t2t_ext.config.variants.source_views import SourceViewFields
from t2t_ext.config.variants.talking_heads import TalkingHeadsFields

# Transformer fields that one stack with one embedding matrix has no use for: name -> (the only allowed value, why).
_FIXED = {
    "num_encoder_layers": (0, "source and target have the same layers, num_hidden_layers of them"),
    "num_decoder_layers": (0, "source and target have the same layers, num_hidden_layers of them"),
    "shared_embedding_and_softmax_weights": (True, "one matrix embeds both sides and is the softmax's"),
    "use_target_space_embedding": (False, "the vectors of the two sides are lwc_side_embedding"),
    "shared_embedding": (False, "one matrix embeds both sides always"),
    "feature_positions": ("none", "the source is words, which have the positions that pos says"),
}


def _two_stacks_or_last(hparams: "LayerCoordinationHParams") -> str:
    """Returns "" if ``lwc_source`` has an effect (with two stacks, or if it is ``last``), otherwise why not."""
    if not hparams.lwc_share_weights or hparams.lwc_source == "last":
        return ""
    return (
        "is about two stacks: layers that both sides share read both as they entered them; leave it out, take "
        "lwc_source=last, or set lwc_share_weights=false"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerCoordinationHParams(TransformerHParams):
    """One stack of layers for source and target; ``num_hidden_layers`` is its depth.

    With ``pos=none`` neither side has positions. ``dc_encoder_layers`` names the layers that have dual contextual
    modules, for both sides. With two stacks (``lwc_share_weights=false``), it names layers of the source's stack, and
    ``dc_decoder_layers`` those of the target's.
    """

    lwc_share_weights: bool = hparam(
        True,
        "Source and target go through the same layers; false = two stacks of num_hidden_layers layers each, with "
        "separate weights for source and target.",
    )
    lwc_source: str = hparam(
        "output",
        "With two stacks (lwc_share_weights=false): target layer i reads what source layer i writes (output, section 3 "
        "of He et al.) or what it reads (input, section 1, as in shared layers; the source then has one layer less, "
        "since nothing would read the last one). With two stacks or shared layers: every target layer reads what the "
        "last source layer writes, as in a Transformer (last; not in the paper).",
        choices=("output", "input", "last"),
        when=_two_stacks_or_last,
    )
    lwc_mixed_attention: bool = hparam(
        True,
        "A target position attends to the source and to its own past in one softmax; false = to its past, then to the "
        "source, in two sublayers with the same weights.",
    )
    lwc_side_embedding: bool = hparam(
        True, "Add a learned vector for the source and one for the target to their embeddings."
    )
    use_sos: bool = hparam(
        False, "The first target position reads a learned vector (start of sentence) instead of a zero vector."
    )

    @property
    def encoder_layers(self) -> int:
        """Number of source layers; with ``lwc_source=input`` one less, since nothing would read the last one."""
        return self.num_hidden_layers - (self.lwc_source == "input")

    def shared_mixer(self, layer: int) -> str:
        """Returns what mixes the target's positions with the source's in a layer; see TransformerVariant.mixer."""
        mixer = self.mixer("decoder", layer)
        return self.mixer("encoder", layer) if self.lwc_share_weights and mixer == "self_attention" else mixer

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        yield from super().validate()
        dual_context, views = self.part(DualContextFields), self.part(SourceViewFields)
        for name, (only, why) in _FIXED.items():
            value = getattr(self, name)
            if value != only:
                yield f"{name}={value}: layer-wise coordination has no such choice, {why}; leave it out"
        yield from self.without_effect(self.changed("lwc_source"))
        if self.lwc_share_weights and dual_context.dc_decoder_layers:
            yield (
                f"dc_decoder_layers={dual_context.dc_decoder_layers!r}: layers that source and target share have one "
                "module for both sides, and dc_encoder_layers names them; leave dc_decoder_layers out, or set "
                "lwc_share_weights=false"
            )
        heads = self.part(TalkingHeadsFields).talking_heads
        if heads not in ("none", "encoder") or (self.lwc_share_weights and heads != "none"):
            yield (
                f"talking_heads={heads}: in layer-wise coordination only a stack of the source's own has "
                "self-attention whose heads can talk; leave it out, or set lwc_share_weights=false and "
                "talking_heads=encoder"
            )
        if views.source_view != "last":
            yield (
                f"source_view={views.source_view} chooses among an encoder's layers, but in layer-wise coordination a "
                "target layer reads the source at its own layer; leave it out, or take cross_view_transformer"
            )
        if self.directions > 1:
            yield from self._validate_two_directions(dual_context.dc_encoder_layers)

    def _validate_two_directions(self, dc_encoder_layers: str) -> Iterator[str]:
        if self.use_sos:
            yield (
                "use_sos=true: the first input of a direction is its tag, a learned vector already; set use_sos=false, "
                "or take --model=synchronous_layer_coordination and an hparams set of it"
            )
        if self.lwc_share_weights and dc_encoder_layers:
            yield (
                f"dc_encoder_layers={dc_encoder_layers!r}: a shared layer is the target's, too, which attends to "
                "both directions in place of the dual contextual module's two attentions; leave it out, or set "
                "lwc_share_weights=false, where the source's layers are its own"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SynchronousLayerCoordinationHParams(LayerCoordinationHParams):
    """Layer-wise coordination in both directions at once by default; ``sb_layers`` refers to its layers."""

    synchronous: bool = hparam(
        True, "The target is generated left to right and right to left at once (Zhou et al. 2019)."
    )
