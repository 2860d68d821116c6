"""Converts the hparams of one model family to those of another."""

from typing import Any, TypeVar

from t2t_ext.config.hyperparameters import TransformerHParams

F = TypeVar("F", bound=TransformerHParams)


def as_family(hparams: TransformerHParams, family: type[F], **changes: Any) -> F:
    """Returns hparams of a family with the values that another family's hparams set, and with further changes.

    ``pseudo`` and ``synchronous`` (what targets are made of, and in how many directions they are generated) are not
    taken over: they come from the family or from the changes.
    """
    names = set(family.names()) & set(hparams.names()) - {"pseudo", "synchronous"}
    values = {name: getattr(hparams, name) for name in names}
    return family().replace(
        **{name: value for name, value in values.items() if value != getattr(family, name)}, **changes
    )
