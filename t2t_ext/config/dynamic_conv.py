"""Hyper-parameters of lightweight and dynamic convolutions (Wu et al. 2019)."""

import dataclasses
import re
from collections.abc import Iterator

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.strict_params import Condition, NumberList, every, hparam
from t2t_ext.config.variants import own_encoder

_SEPARATORS = r"[,+]"
_MOST_TAPS = 10_000


def kernel_sizes(text: str, layers: int) -> tuple[int, ...]:
    """Returns the kernel size of each layer of a stack.

    Args:
      text: Sizes joined by ``,`` or (in ``--hparams``, where a comma ends the value) ``+``, starting with the first
        layer. The last size repeats for all further layers; sizes beyond the last layer are not used.
      layers: The number of layers.

    Raises:
      ValueError: The text is not a list of kernel sizes from 1 to 10,000; the message says what is wrong.
    """
    sizes = []
    for part in re.split(_SEPARATORS, text):
        if not re.fullmatch(r"\s*\d+\s*", part) or not 1 <= int(part) <= _MOST_TAPS:
            raise ValueError(
                f"{part.strip()!r} is no kernel size: write whole numbers from 1 to {_MOST_TAPS}, such as 3,7,15,31 "
                "(in --hparams: 3+7+15+31)"
            )
        sizes.append(int(part))
    return tuple((sizes + sizes[-1:] * layers)[:layers])


def _convolutions_in(stack: str) -> Condition:
    """Returns the condition that a stack has convolutions."""

    def why_not(hparams: "DynamicConvHParams") -> str:
        if hparams.conv_stacks not in ("both", stack):
            return f"has no effect: with conv_stacks={hparams.conv_stacks} the {stack} has self-attention; leave it out"
        if hparams.lacks("dynamic_convolution", stack):
            return f"has no effect: dual contextual modules have the place of all convolutions of the {stack}"
        return ""

    return why_not


def _even_kernels(hparams: "DynamicConvHParams") -> str:
    """Returns "" if a convolution of the encoder has an even number of taps, otherwise why the field has no effect."""
    if why := _convolutions_in("encoder")(hparams):
        return why
    sizes = enumerate(hparams.encoder_kernels)
    if any(taps % 2 == 0 for layer, taps in sizes if hparams.mixer("encoder", layer) == "dynamic_convolution"):
        return ""
    return (
        f"has no effect: with encoder_kernel_sizes={hparams.encoder_kernel_sizes} no convolution of the encoder has an "
        "even number of taps; leave it out"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicConvHParams(TransformerHParams):
    """A Transformer with convolutions in place of self-attention."""

    conv_type: str = hparam(
        "dynamic",
        "Kernels are computed from each position's own input (dynamic, section 4) or learned and the same at all "
        "positions (lightweight, section 3).",
        choices=("dynamic", "lightweight"),
    )
    conv_stacks: str = hparam(
        "both",
        "Stacks in which convolutions replace self-attention. Decoding in two directions at once needs attention in "
        "the decoder, so set encoder.",
        choices=("both", "encoder", "decoder"),
        when=lambda hparams: own_encoder(hparams) if hparams.conv_stacks == "encoder" else "",
    )
    conv_heads: int = hparam(
        0,
        "H, the number of channel groups, each with a kernel of its own; 0 = num_heads, the number of heads in "
        "cross-attention.",
        minimum=0,
        maximum=65_536,
    )
    encoder_kernel_sizes: NumberList = hparam(
        "3,7,15,31",
        "Kernel size (number of taps) of each encoder layer, starting with the first; the last size repeats. Kernels "
        "are centered. (In --hparams: 3+7+15+31.)",
        when=every(own_encoder, _convolutions_in("encoder")),
    )
    decoder_kernel_sizes: NumberList = hparam(
        "3,7,15,31",
        "The same for each decoder layer; these kernels end at the position itself.",
        when=_convolutions_in("decoder"),
    )
    conv_even_kernel: str = hparam(
        "right",
        "Encoder kernels with an even number of taps: the side of a position on which they have one more, left (Wu et "
        "al., section 2, and the sets) or right (fairseq).",
        choices=("right", "left"),
        when=every(own_encoder, _even_kernels),
    )
    conv_glu: bool = hparam(True, "Whether the input projection has a gate (GLU) and twice the width.")
    weight_softmax: bool = hparam(True, "Whether kernels are normalized by a softmax over their taps.")
    weight_dropout: float = hparam(0.1, "Dropout of the kernels' normalized weights (DropConnect).", minimum=0, below=1)
    conv_input_dropout: float = hparam(
        0.0, "Dropout of a convolution's input, before its input projection.", minimum=0, below=1
    )

    @property
    def convolution_heads(self) -> int:
        """H, the number of channel groups: conv_heads, or num_heads if that is 0."""
        return self.conv_heads or self.num_heads

    @property
    def encoder_kernels(self) -> tuple[int, ...]:
        """The kernel size of each encoder layer."""
        return kernel_sizes(self.encoder_kernel_sizes, self.encoder_layers)

    @property
    def decoder_kernels(self) -> tuple[int, ...]:
        """The kernel size of each decoder layer."""
        return kernel_sizes(self.decoder_kernel_sizes, self.decoder_layers)

    def mixer(self, stack: str, layer: int) -> str:
        """Returns what mixes the positions in a layer: convolutions replace self-attention; see TransformerVariant."""
        mixer = super().mixer(stack, layer)
        has_convolutions = self.conv_stacks in ("both", stack)
        is_self_attention = mixer in ("self_attention", "talking_heads")
        return "dynamic_convolution" if has_convolutions and is_self_attention else mixer

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        yield from super().validate()
        for stack in ("encoder", "decoder"):
            name = f"{stack}_kernel_sizes"
            try:
                kernel_sizes(getattr(self, name), 1)
            except ValueError as error:
                yield f"{name}={getattr(self, name)!r}: {error}"
            if self.conv_stacks not in ("both", stack):
                yield from self.without_effect(self.changed(name))
        if self.directions > 1 and self.conv_stacks != "encoder":
            yield (
                f"conv_stacks={self.conv_stacks}: a decoder of two directions has no convolutions, since its positions "
                "see each other by attention; set conv_stacks=encoder"
            )
        elif self.lacks("dynamic_convolution", "encoder", "decoder"):
            yield (
                "no layer has a convolution: others (dc_encoder_layers, dc_decoder_layers) are in the place of all of "
                f"them (conv_stacks={self.conv_stacks}); name fewer layers, or take --model=transformer"
            )
        if self.conv_heads and self.hidden_size % self.conv_heads:
            yield f"hidden_size={self.hidden_size} is not a multiple of conv_heads={self.conv_heads}"
