"""Hyper-parameters of synchronous bidirectional decoding (Zhou et al. 2019)."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Self

from t2t_ext.config.layer_ranges import layer_numbers
from t2t_ext.config.strict_params import NumberList, every, hparam, only
from t2t_ext.config.variants import TransformerVariant

_AUTO = "auto"
# Number of target sides of an example -> allowed values of pseudo; auto stands for the first.
_PSEUDO = {1: ("none", "l2r", "both"), 2: ("two", "one", "six", "none")}


def _two_directions(hparams: "SynchronousFields") -> str:
    if hparams.synchronous:
        return ""
    if hparams.target_sides == 2:
        return (
            "is about one decoder of two directions that see each other, but this model has a decoder for each "
            "direction; leave {name} out, or take --model=synchronous_transformer and an hparams set of it"
        )
    return (
        "is about two directions that see each other, but with synchronous=false there is one: leave {name} out, or "
        "set synchronous=true"
    )


def _has_lambda(hparams: "SynchronousFields") -> str:
    if hparams.sb_fusion != "gate":
        return ""
    return (
        "has no effect: sb_fusion=gate has no lambda, its gates weigh both attentions; leave {name} out, or choose "
        "sb_fusion=linear, tanh or relu"
    )


def _has_pseudo_references(hparams: "SynchronousFields") -> str:
    return "is about pseudo references, but with pseudo=none there are none" if hparams.pseudo == "none" else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SynchronousFields(TransformerVariant):
    """Whether the decoder generates in both directions at once, and how they see each other."""

    synchronous: bool = hparam(
        False, "The decoder generates left to right and right to left at once (Zhou et al. 2019)."
    )
    sb_fusion: str = hparam(
        "tanh",
        "How to combine the attention to a position's own past with the attention to the other direction (future): "
        "past + lambda * future (linear, equation 4 of Zhou et al. 2019), past + lambda * tanh or relu of future "
        "(equation 5), or learned gates for both (gate, equation 6).",
        choices=("linear", "tanh", "relu", "gate"),
        when=_two_directions,
    )
    sb_lambda: float = hparam(
        0.1,
        "lambda, the weight of the other direction; its initial value if it is trained.",
        minimum=-1000,
        maximum=1000,
        when=every(_two_directions, _has_lambda),
    )
    sb_lambda_trainable: str = hparam(
        "none",
        "Whether each layer learns its lambda: not at all (none), as one number (scalar), or as one number for each of "
        "its channels (vector).",
        choices=("none", "scalar", "vector"),
        when=every(_two_directions, _has_lambda),
    )
    sb_gate: str = hparam(
        "head",
        "sb_fusion=gate: one matrix per layer that all its heads share (head; its size is twice a head's width, "
        "squared), or one for all heads side by side (model).",
        choices=("head", "model"),
        when=every(_two_directions, only("sb_fusion", "gate")),
    )
    sb_layers: NumberList = hparam(
        "all",
        "Decoder layers that attend to the other direction: all, or numbers and ranges from 1, such as 1-3 or 1,3-4 "
        "(in --hparams: 1+3-4).",
        when=_two_directions,
    )
    sb_future_dropout: float = hparam(
        0.0,
        "Dropout of the attention to the other direction, before its activation.",
        minimum=0,
        below=1,
        when=_two_directions,
    )
    predict_tag: bool = hparam(
        False,
        "Predict the direction's tag from a zero vector, as the authors' program does, instead of giving it as the "
        "first input.",
        when=_two_directions,
    )
    pseudo: str = hparam(
        _AUTO,
        "Training targets for a problem NAME_synchronous. With synchronous=true: the reference paired with the "
        "translation of a left-to-right model and with that of a right-to-left model (two: two triples, section 3.4 of "
        "Zhou et al. 2019), all pairings (six, section 4.7), the reference paired only with the right-to-left model's "
        "translation (one), or the reference for both directions (none; leaky, because each direction sees in the "
        "other what it has to predict). Otherwise: the references (none), also the pseudo references of a "
        "left-to-right model (l2r), or those of both directions' models (both). auto = two with synchronous=true, "
        "otherwise none.",
        choices=(_AUTO, "none", "l2r", "both", "two", "six", "one"),
    )
    sb_loss_on_pseudo: bool = hparam(
        True,
        "Whether to train also on translations that stand in for a target.",
        when=every(_two_directions, _has_pseudo_references),
    )

    def __post_init__(self) -> None:
        """Replaces ``pseudo=auto`` by the value that it stands for, and checks all fields."""
        if self.pseudo == _AUTO and isinstance(self.synchronous, bool):
            default = self.__dataclass_fields__["pseudo"].default
            meant = _PSEUDO[self.target_sides][0] if default == _AUTO else default  # a family may have its own default
            object.__setattr__(self, "pseudo", meant)
        super().__post_init__()

    @property
    def directions(self) -> int:
        """The number of directions in which a sentence is generated at once."""
        return 2 if self.synchronous else super().directions

    @property
    def early_stopping_metric(self) -> str:
        """The metric that early stopping watches if no flag names one.

        It is not the loss, because the loss on pseudo references differs from the loss on references and cannot be
        compared with a Transformer's.
        """
        return "bleu" if self.synchronous else super().early_stopping_metric

    @property
    def target_reading(self) -> str:
        """The name of the way in which targets are read and generated; see TransformerVariant."""
        return "synchronous" if self.synchronous else super().target_reading

    @property
    def synchronous_layers(self) -> frozenset[int]:
        """The decoder layers that attend to the other direction, counted from 0."""
        return layer_numbers(self.sb_layers, self.decoder_layers)

    def mixer(self, stack: str, layer: int) -> str:
        """Returns the name of the mixer of a layer; see TransformerVariant."""
        if self.synchronous and stack == "decoder" and layer in self.synchronous_layers:
            return "synchronous"
        return super().mixer(stack, layer)

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other values; if ``synchronous`` changes and ``pseudo`` is not given, it becomes auto.

        Args:
          **changes: Field -> value.

        Raises:
          UserError: An unknown field or a value that is not allowed.
        """
        if changes.get("synchronous", self.synchronous) != self.synchronous:
            changes.setdefault("pseudo", _AUTO)
        return super().replace(**changes)

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        yield from super().validate()
        allowed = _PSEUDO[self.target_sides]
        if self.pseudo not in allowed:
            yield (
                f"pseudo={self.pseudo} is not for synchronous={str(self.synchronous).lower()}, with which it is one of "
                f"{', '.join(allowed)}"
            )
        if not self.synchronous:
            fields = [field.name for field in dataclasses.fields(SynchronousFields) if field.metadata.get("when")]
            yield from self.without_effect(self.changed(*fields))
            return
        try:
            if not self.synchronous_layers:
                yield "sb_layers names no layer: without one this is a Transformer"
        except ValueError as error:
            yield f"sb_layers={self.sb_layers!r}: {error}"
        yield from self.without_effect(self.changed("sb_lambda_trainable", "sb_lambda", "sb_gate"))
