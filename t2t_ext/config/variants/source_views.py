"""Hyper-parameters of what each decoder layer sees of the source (cross-view decoding, Liu et al. 2020)."""

import dataclasses
import re
from collections.abc import Iterator

from t2t_ext.config.strict_params import every, hparam, only
from t2t_ext.config.variants import TransformerVariant, own_encoder

_ROUTED = ("gca", "gpa")  # every decoder layer reads one encoder layer, which a map may name


def _separate_norms(hparams: "SourceViewFields") -> str:
    if hparams.source_view == "last":
        return "has no effect with source_view=last"
    if hparams.layer_preprocess_sequence == "n":
        return ""
    return "is for pre-norm stacks: with layer_preprocess_sequence=none the layers' outputs are normalized"


def _has_view(hparams: "SourceViewFields") -> str:
    # hard joins nothing: together with source_view=last it switches off the view of an hparams set.
    if hparams.source_view != "last" or hparams.integration == "hard":
        return ""
    return (
        "joins another view of the source to the last layer, but source_view is last: set source_view, such as gca; "
        "or, for a model without cross-view decoding (--model=transformer or dynamic_conv, not cross_view_...), add "
        "integration=hard"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceViewFields(TransformerVariant):
    """Which encoder layers the decoder's layers attend to, and how."""

    source_view: str = hparam(
        "last",
        "R_i, what decoder layer i of M sees of the encoder layers e_1 to e_N: e_N (last, as in Vaswani et al.), one "
        "layer per decoder layer, from e_N down to e_1 (gca) or from e_1 up to e_N (gpa), e_1 (fga), a learned linear "
        "combination of all layers (fma), or one whose weights are computed for each position (ama).",
        choices=("last", "gca", "gpa", "fga", "fma", "ama"),
    )
    source_view_map: str = hparam(
        "",
        "source_view=gca or gpa: the encoder layer that each decoder layer sees, starting with the first decoder "
        "layer, counted from 1, such as 6,5,4,3,2,1 (in --hparams: 6+5+4+3+2+1); empty = evenly spread from one end to "
        "the other.",
        when=only("source_view", *_ROUTED),
    )
    source_view_norm: str = hparam(
        "separate",
        "Pre-norm stacks, whose layer outputs are not normalized: the stack's last norm is applied to e_N only, and "
        "every other layer that is seen has its own norm (separate), or the last norm is applied to all of them "
        "(shared).",
        choices=("separate", "shared"),
        when=every(own_encoder, _separate_norms),
    )
    fma: str = hparam(
        "full",
        "source_view=fma: each decoder layer has a matrix over all encoder layers side by side and a bias (full), or "
        "one weight per encoder layer (scalar); both begin as the mean.",
        choices=("full", "scalar"),
        when=only("source_view", "fma"),
    )
    ama_share_layers: bool = hparam(
        False,
        "source_view=ama: whether all decoder layers share the vectors that weigh the encoder layers (one vector per "
        "encoder layer).",
        when=only("source_view", "ama"),
    )
    ama_query: str = hparam(
        "source",
        "source_view=ama: what the vectors are multiplied by to weigh the encoder layers: the state of each layer at a "
        "source position (source), or the decoder's state, so that every target position has its own weights (decoder; "
        "slower).",
        choices=("source", "decoder"),
        when=only("source_view", "ama"),
    )
    integration: str = hparam(
        "hard",
        "What the decoder attends to: R_i instead of e_N (hard), the layer norm of e_N + R_i (soft, equation 7 of Liu "
        "et al. 2020), or e_N and R_i with two attentions, whose sum is layer-normalized (soft_two_attention).",
        choices=("hard", "soft", "soft_two_attention"),
        when=_has_view,
    )
    integration_attention: str = hparam(
        "shared",
        "integration=soft_two_attention: whether the two attentions share their projections (shared) or have their own "
        "(separate).",
        choices=("shared", "separate"),
        when=only("integration", "soft_two_attention"),
    )

    @property
    def source_views(self) -> str:
        """The name of the view that the decoder's layers have of the encoder; see TransformerVariant."""
        return super().source_views if self.source_view == "last" else "cross_view"

    @property
    def viewed_layers(self) -> tuple[int, ...]:
        """The encoder layer that each decoder layer sees as R_i, counted from 0; () if R_i is made of all layers."""
        last, decoder_layers = self.encoder_layers - 1, self.decoder_layers
        if self.source_view in ("fma", "ama"):
            return ()
        if self.source_view_map:
            return _layers_of(self.source_view_map, self.encoder_layers, decoder_layers)
        if self.source_view in ("last", "fga"):
            return (last if self.source_view == "last" else 0,) * decoder_layers
        # From e_1 to e_N in equal steps, rounding halves up. A single decoder layer sees the end where the view begins.
        steps = max(decoder_layers - 1, 1)
        upwards = [(2 * i * last + steps) // (2 * steps) for i in range(decoder_layers)]
        if self.source_view == "gpa":
            return tuple(upwards)
        return (last,) if decoder_layers == 1 else tuple(reversed(upwards))

    @property
    def seen_layers(self) -> frozenset[int]:
        """The encoder layers, counted from 0, that the decoder reads."""
        if self.source_view in ("fma", "ama"):
            return frozenset(range(self.encoder_layers))
        with_last = () if self.integration == "hard" else (self.encoder_layers - 1,)
        return frozenset((*self.viewed_layers, *with_last))

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        yield from super().validate()
        fields = [field.name for field in dataclasses.fields(SourceViewFields) if field.metadata.get("when")]
        yield from self.without_effect(self.changed(*fields))
        if not self.encoder_preset:  # the number of its layers is known only when a model is made
            yield from self.validate_views()

    def validate_views(self) -> Iterator[str]:
        """Yields contradictions between the views and the number of encoder layers."""
        if self.source_view == "last":
            return
        if self.encoder_layers == 1:
            yield f"source_view={self.source_view} needs several encoder layers; of one, every view is source_view=last"
        else:
            yield from self._validate_map()

    def _validate_map(self) -> Iterator[str]:
        if self.source_view_map and self.source_view in _ROUTED:
            try:
                layers = self.viewed_layers
            except ValueError as error:
                yield f"source_view_map={self.source_view_map!r}: {error}"
                return
            wrong_way = sorted(layers, reverse=self.source_view == "gpa")
            if list(layers) == wrong_way and len(set(layers)) > 1:
                other = _ROUTED[1 - _ROUTED.index(self.source_view)]
                direction = "upwards" if other == "gpa" else "downwards"
                yield f"source_view_map={self.source_view_map!r} goes {direction}, which is source_view={other}"
        if self.source_view not in _ROUTED or self.integration != "hard":
            return
        highest = max(self.viewed_layers)
        if min(self.viewed_layers) == self.encoder_layers - 1:
            yield f"source_view={self.source_view}: every decoder layer sees the last layer, which is source_view=last"
        elif highest < self.encoder_layers - 1:
            yield (
                f"source_view={self.source_view} with integration=hard: no decoder layer sees more than encoder layer "
                f"{highest + 1} of {self.encoder_layers}; name {self.encoder_layers} in source_view_map, or set "
                "integration=soft"
            )


def _layers_of(text: str, encoder_layers: int, decoder_layers: int) -> tuple[int, ...]:
    """Returns the layers that a map names, counted from 0.

    Raises:
      ValueError: The text is not a list of existing encoder layers, one for each decoder layer.
    """
    parts = [part.strip() for part in re.split("[,+]", text)]
    if not all(re.fullmatch(r"\d{1,9}", part) for part in parts):
        raise ValueError("write numbers of encoder layers, such as 6,5,4,3,2,1 (in --hparams: 6+5+4+3+2+1)")
    if len(parts) != decoder_layers:
        raise ValueError(f"it names {len(parts)} encoder layers, but there are {decoder_layers} decoder layers")
    outside = [part for part in parts if not 1 <= int(part) <= encoder_layers]
    if outside:
        raise ValueError(f"{outside[0]} is outside of the {encoder_layers} encoder layers, which count from 1")
    return tuple(int(part) - 1 for part in parts)
