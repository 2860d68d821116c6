"""Settings of one family of hparams as those of another."""

from typing import Any, TypeVar

from t2t_ext.config.hyperparameters import TransformerHParams

F = TypeVar("F", bound=TransformerHParams)


def as_family(hparams: TransformerHParams, family: type[F], **changes: Any) -> F:
    """Returns a family's defaults with what hparams of another one have set, and further changes.

    In how many directions targets are generated, and what they are made of, the family or the changes say.
    """
    names = set(family.names()) & set(hparams.names()) - {"pseudo", "synchronous"}
    values = {name: getattr(hparams, name) for name in names}
    return family().replace(
        **{name: value for name, value in values.items() if value != getattr(family, name)}, **changes
    )
