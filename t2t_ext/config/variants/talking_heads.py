"""Hyper-parameters of talking-heads attention (Shazeer et al. 2020)."""

import dataclasses
from collections.abc import Iterator

from t2t_ext.config.strict_params import hparam
from t2t_ext.config.variants import TransformerVariant, own_encoder


def _own_self_attention(hparams: "TalkingHeadsFields") -> str:
    """Requires that the named stacks are the Transformer's own; returns "" or what is wrong."""
    if hparams.talking_heads == "both" and hparams.encoder_preset:
        return (
            f"has no effect on the encoder of encoder_preset={hparams.encoder_preset}, which is as it is; set "
            "talking_heads=decoder"
        )
    return own_encoder(hparams) if hparams.talking_heads == "encoder" else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TalkingHeadsFields(TransformerVariant):
    """In which stacks the heads of self-attention talk to each other."""

    talking_heads: str = hparam(
        "none",
        "Stacks in whose self-attention learned matrices mix the heads, before and after the softmax.",
        choices=("none", "encoder", "decoder", "both"),
        when=_own_self_attention,
    )

    def mixer(self, stack: str, layer: int) -> str:
        """Returns the mixer of a layer: talking heads in place of self-attention; see TransformerVariant."""
        mixer = super().mixer(stack, layer)
        return "talking_heads" if mixer == "self_attention" and self.talking_heads in ("both", stack) else mixer

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        yield from super().validate()
        if self.directions > 1 and self.talking_heads in ("decoder", "both"):
            yield (
                f"talking_heads={self.talking_heads}: a decoder of two directions has synchronous attention in the "
                "place of self-attention; set talking_heads=encoder, or train one direction (synchronous=false)"
            )
            return
        for stack in ("encoder", "decoder"):
            if self.talking_heads in (stack, "both") and self.lacks("talking_heads", stack):
                yield (
                    f"talking_heads={self.talking_heads} has no effect on the {stack}: others (dual contextual "
                    "modules, convolutions) are in the place of self-attention in all its layers; leave the "
                    f"{stack} out of talking_heads"
                )
