"""Hyper-parameters of the model in which dual context, views of the source and both directions go together."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Self

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.strict_params import hparam
from t2t_ext.config.synchronous import SynchronousHParams

_AUTO = "auto"
# synchronous -> what pseudo may be; the first is what auto stands for.
_PSEUDO = {False: ("none", "l2r", "both"), True: ("two", "one", "six", "none")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComposedHParams(SynchronousHParams):
    """A Transformer with any of the three, each a part of it that is on or off.

    Dual contextual modules are ``dc_encoder_layers`` and ``dc_decoder_layers``, views of the source ``source_view`` and
    ``integration``; ``synchronous`` makes the decoder write in both directions, and the ``sb_`` fields say how.
    """

    synchronous: bool = hparam(
        False, "The decoder writes from left to right and from right to left at once (Zhou et al. 2019)."
    )
    pseudo: str = hparam(
        _AUTO,
        "What targets are made of, of a problem NAME_synchronous. With synchronous=true as synchronous_transformer's "
        "(two, one, six, none), else as transformer's (none, l2r, both). auto: two with synchronous=true, else none.",
        choices=(_AUTO, "none", "l2r", "both", "two", "six", "one"),
    )

    def __post_init__(self) -> None:
        """Puts a value in the place of ``pseudo=auto`` and checks all fields."""
        if self.pseudo == _AUTO and isinstance(self.synchronous, bool):
            object.__setattr__(self, "pseudo", _PSEUDO[self.synchronous][0])
        super().__post_init__()

    @property
    def directions(self) -> int:
        """In how many directions the model writes at once."""
        return super().directions if self.synchronous else 1

    @property
    def early_stopping_metric(self) -> str:
        """Which metric early stopping watches where no flag says so: that of the model that is built."""
        return (SynchronousHParams if self.synchronous else HParams).early_stopping_metric

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other values; where ``synchronous`` changes and ``pseudo`` is not given, that is auto.

        Args:
          **changes: Field -> value.

        Raises:
          UserError: An unknown field or a value that is not allowed.
        """
        if changes.get("synchronous", self.synchronous) != self.synchronous:
            changes.setdefault("pseudo", _AUTO)
        return super().replace(**changes)

    def wrong(self) -> Iterator[str]:
        """Yields what is wrong with fields taken together."""
        yield from super().wrong()
        allowed = _PSEUDO[self.synchronous]
        if self.pseudo not in allowed:
            yield (
                f"pseudo={self.pseudo} is not for synchronous={str(self.synchronous).lower()}, with which it is one of "
                f"{', '.join(allowed)}"
            )
        if self.synchronous:
            return
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if (field.name.startswith("sb_") or field.name == "predict_tag") and value != field.default:
                yield (
                    f"{field.name}={str(value).lower()} is about two directions that see each other, but with "
                    f"synchronous=false there is one: leave {field.name} out, or set synchronous=true"
                )
