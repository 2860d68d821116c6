"""Hyper-parameters of dual contextual modules (Ampomah et al. 2021)."""

import dataclasses
from collections.abc import Iterator

from t2t_ext.config.layer_ranges import layer_numbers
from t2t_ext.config.strict_params import NumberList, every, hparam
from t2t_ext.config.variants import TransformerVariant

_STACKS = ("encoder", "decoder")


def _has_modules(hparams: "DualContextFields") -> str:
    if hparams.dc_encoder_layers or hparams.dc_decoder_layers:
        return ""
    return "has no effect: no layer has a dual contextual module; name some in dc_encoder_layers or dc_decoder_layers"


def _has_even_kernel(hparams: "DualContextFields") -> str:
    # With a stack for each side, layer-wise coordination reads the source in the target's layers, too.
    reads_source = hparams.dc_encoder_layers or not getattr(hparams, "lwc_share_weights", True)
    if reads_source and hparams.dc_kernel_size % 2 == 0:
        return ""
    return (
        "is for encoder layers with an even dc_kernel_size: an odd one is centered, and the decoder's ends at the "
        "position itself"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DualContextFields(TransformerVariant):
    """Which layers have dual contextual modules in place of self-attention, and how wide a neighborhood is."""

    dc_encoder_layers: NumberList = hparam(
        "",
        "Encoder layers in which a dual contextual module replaces self-attention: all, none, or numbers and ranges "
        "from 1, such as 1-6 or 1,3-4 (in --hparams: 1+3-4).",
    )
    dc_decoder_layers: NumberList = hparam("", "The same for the decoder, whose modules see no later positions.")
    dc_kernel_size: int = hparam(
        2,
        "f, the number of neighboring positions that the convolution of a dual contextual module combines.",
        minimum=1,
        maximum=64,
        when=_has_modules,
    )
    dc_even_kernel: str = hparam(
        "right",
        "Encoder modules with an even dc_kernel_size: the side of a position on which its neighborhood has one "
        "position more (right: f=2 combines t and t+1, like SAME in TensorFlow; left: t-1 and t).",
        choices=("right", "left"),
        when=every(_has_modules, _has_even_kernel),
    )

    def __post_init__(self) -> None:
        """Replaces ``none``, as ``--hparams`` spells it, by the empty string, and checks all fields."""
        for stack in _STACKS:
            if getattr(self, f"dc_{stack}_layers") == "none":
                object.__setattr__(self, f"dc_{stack}_layers", "")
        super().__post_init__()

    @property
    def dual_encoder_layers(self) -> frozenset[int]:
        """The encoder layers with dual contextual modules, counted from 0."""
        return layer_numbers(self.dc_encoder_layers, self.encoder_layers)

    @property
    def dual_decoder_layers(self) -> frozenset[int]:
        """The decoder layers with dual contextual modules, counted from 0."""
        return layer_numbers(self.dc_decoder_layers, self.decoder_layers)

    def mixer(self, stack: str, layer: int) -> str:
        """Returns the mixer of a layer: a dual contextual module if the fields name it; see TransformerVariant."""
        layers = self.dual_encoder_layers if stack == "encoder" else self.dual_decoder_layers
        return "dual_context" if layer in layers else super().mixer(stack, layer)

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        yield from super().validate()
        for stack in _STACKS:
            name = f"dc_{stack}_layers"
            named = getattr(self, name)
            try:
                if named and not layer_numbers(named, getattr(self, f"{stack}_layers")):
                    yield f"{name}={named!r}: the {stack} has no layers, so that none is named; leave it out"
            except ValueError as error:
                yield f"{name}={named!r}: {error}"
        if self.dc_decoder_layers and self.directions == 2:
            yield (
                f"dc_decoder_layers={self.dc_decoder_layers!r}: a decoder of two directions attends to both of them in "
                "place of the dual contextual module's two attentions; leave it out (dc_encoder_layers goes with it), "
                "or train one direction (synchronous=false)"
            )
        yield from self.without_effect(self.changed("dc_kernel_size", "dc_even_kernel"))
