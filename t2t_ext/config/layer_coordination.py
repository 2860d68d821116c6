"""Hyper-parameters of layer-wise coordination (He et al. 2018) and of the Transformer with a context gate."""

import dataclasses
from collections.abc import Iterator

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.strict_params import hparam
from t2t_ext.config.synchronous import SynchronousHParams

# Fields of a Transformer that one stack with one matrix has no use for: name -> (the only value, why).
_FIXED = {
    "num_encoder_layers": (0, "source and target have the same layers, num_hidden_layers of them"),
    "num_decoder_layers": (0, "source and target have the same layers, num_hidden_layers of them"),
    "shared_embedding_and_softmax_weights": (True, "one matrix embeds both sides and is the softmax's"),
    "use_target_space_embedding": (False, "the vectors of the two sides are lwc_side_embedding"),
    "shared_embedding": (False, "one matrix embeds both sides always"),
    "feature_positions": ("none", "the source is words, which have the positions that pos says"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerCoordinationHParams(TransformerHParams):
    """One stack of layers for source and target; ``num_hidden_layers`` is its depth.

    Without positions (``pos=none``) neither side has any. ``dc_encoder_layers`` names the layers that have dual
    contextual modules, for both sides; of two stacks (``lwc_share_weights=false``) the source's, and
    ``dc_decoder_layers`` the target's.
    """

    lwc_share_weights: bool = hparam(
        True,
        "Source and target go through the same layers; false: num_hidden_layers each, the source's and the target's "
        "with weights of their own.",
    )
    lwc_mixed_attention: bool = hparam(
        True,
        "A target position attends to the source and to its own past in one softmax; false: to its past, then to the "
        "source, two sublayers with the same weights.",
    )
    lwc_side_embedding: bool = hparam(
        True, "A learned vector for the source and one for the target are added to their embeddings."
    )
    use_sos: bool = hparam(
        False, "The first target position reads a learned vector (start of sentence) instead of a zero vector."
    )

    def wrong(self) -> Iterator[str]:
        """Yields what is wrong with fields taken together."""
        yield from super().wrong()
        for name, (only, why) in _FIXED.items():
            value = getattr(self, name)
            if value != only:
                yield f"{name}={value}: layer-wise coordination has no such choice, {why}; leave it out"
        if self.lwc_share_weights and self.dc_decoder_layers:
            yield (
                f"dc_decoder_layers={self.dc_decoder_layers!r}: layers that source and target share have one module "
                "for both sides, and dc_encoder_layers names them; leave dc_decoder_layers out, or set "
                "lwc_share_weights=false"
            )
        if self.source_view != "last":
            yield (
                f"source_view={self.source_view} chooses among an encoder's layers, but in layer-wise coordination a "
                "target layer reads the source at its own layer; leave it out, or take cross_view_transformer"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SynchronousLayerCoordinationHParams(SynchronousHParams, LayerCoordinationHParams):
    """Layer-wise coordination that writes in both directions at once; ``sb_layers`` counts num_hidden_layers."""

    def wrong(self) -> Iterator[str]:
        """Yields what is wrong with fields taken together."""
        yield from super().wrong()
        if self.use_sos:
            yield "use_sos=true: the first input of a direction is its tag, a learned vector already; leave it out"
        if self.lwc_share_weights and self.dc_encoder_layers:
            yield (
                f"dc_encoder_layers={self.dc_encoder_layers!r}: a shared layer is the target's, too, which attends to "
                "both directions in place of the dual contextual module's two attentions; leave it out, or set "
                "lwc_share_weights=false, where the source's layers are its own"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextGateHParams(TransformerHParams):
    """A Transformer whose decoder weighs what it attends to in the source against what it attends to in its past."""

    context_gate: str = hparam(
        "head",
        "A gate of a decoder layer is one number for as many channels as a head has (head: num_heads numbers) or for "
        "each channel (channel: hidden_size numbers).",
        choices=("head", "channel"),
    )
