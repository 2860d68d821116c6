"""Checks which hparams a model takes, without importing TensorFlow."""

import itertools
from collections.abc import Mapping
from typing import Any

from t2t_ext import registry
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.strict_params import FLAG
from t2t_ext.errors import UserError
from t2t_ext.index import snake_case

_MOST_NAMED = 4


def check_hparams(model: str, hparams: HParams, hparams_set: str) -> None:
    """Checks that a model takes the given hparams and reads all hparams that the user has set.

    Args:
      model: The model's name.
      hparams: The hparams.
      hparams_set: The name of the hparams set on which they are based.

    Raises:
      UserError: The model does not; the message names hparams sets that it takes, or models that read the hparams.
    """
    attributes = registry.model_attributes(model)
    if wrong := misfit(attributes, hparams, hparams_set):
        raise UserError(wrong)
    read = _family(attributes, hparams).names()
    unread = [name for name, origin in hparams.origins().items() if origin == FLAG and name not in read]
    if unread:
        others = {name: registry.model_attributes(name) for name in registry.model_names()}
        readers = [
            name
            for name, each in others.items()
            if _fits(each, hparams) and unread[0] in _family(each, hparams).names()
        ]
        raise UserError(
            f"--hparams: {', '.join(unread)} is no hparam of --model={model}"
            + (f"; choose --model={' or '.join(readers)}." if readers else ".")
        )


def made_for_others(model: str, hparams: Any, hparams_set: str) -> str:
    """Returns the message for a plain Transformer with an hparams set made for other models, or "" if there is none.

    A ``Transformer`` takes every hparams set of its related models. It has the variants that the hparams switch on,
    although its name does not say so. There is no message about variants that the user, and not the set, switches on.

    Args:
      model: The model's name.
      hparams: The hparams, which the model takes.
      hparams_set: The name of the hparams set on which they are based.
    """
    attributes = registry.model_attributes(model)
    if attributes["title"] != "Transformer":
        return ""
    suited = []
    for name in registry.model_names():
        other = registry.model_attributes(name)
        narrower = "slot" in other or other["hparams_class"] != attributes["hparams_class"]
        if narrower and _fits(other, hparams) and _fits(other, registry.hparams(hparams_set)):
            suited.append(name)
    if not suited:
        return ""
    has = {"layers": ", ".join(sorted(hparams.mixers)), "source views": hparams.source_views}
    return (
        f"--hparams_set={hparams_set} is made for --model={' or '.join(suited)}. --model={model} takes it, too, and "
        f"what is trained is a Transformer with {'; '.join(f'{what}: {filled}' for what, filled in has.items())}; "
        f"directions: {hparams.directions}"
    )


def misfit(attributes: Mapping[str, Any], hparams: HParams, hparams_set: str = "") -> str:
    """Returns the reason why a model does not take the given hparams, or "" if it does.

    Args:
      attributes: Attributes of the model's class, see ``registry.model_attributes``: ``title``, ``hparams_class`` and
        ``target_sides`` (default: 1); for a ``Named`` model also ``slot``, ``filled_with`` and ``advice``.
      hparams: The hparams.
      hparams_set: The name of the hparams set on which they are based; the message prefers sets of the same size.
    """
    if _fits(attributes, hparams):
        return ""
    title, family = attributes["title"], attributes["hparams_class"]
    if family in _families(hparams) and _lacks_a_target(attributes, hparams):
        others = [name for name in registry.model_names() if _fits(registry.model_attributes(name), hparams)]
        wrong = f"{type(hparams).__name__} are the hparams of a model with a second decoder, which {title} lacks: "
        wrong += f"choose --model={' or '.join(others)}, or an hparams set made for this model"
    elif family in _families(hparams):
        wrong = f"{title} without {attributes['advice']}"
    else:
        wrong = f"{title} needs hparams of the family {family}, got {type(hparams).__name__}: choose an hparams set "
        wrong += "made for this model"
    size = hparams_set.rpartition("_")[2]
    fitting = [name for name in registry.hparams_names() if _fits(attributes, registry.hparams(name))]
    fitting.sort(key=lambda each: (-_words_in_common(each, snake_case(title)), not each.endswith(f"_{size}"), each))
    more = f" and {len(fitting) - _MOST_NAMED} more (--registry_help lists all)" if len(fitting) > _MOST_NAMED else ""
    return wrong + (f". Sets for it: {', '.join(fitting[:_MOST_NAMED])}{more}." if fitting else ".")


def _words_in_common(one: str, other: str) -> int:
    """Returns the number of leading words that two names have in common."""
    pairs = zip(one.split("_"), other.split("_"), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _fits(attributes: Mapping[str, Any], hparams: Any) -> bool:
    """Returns whether a model, given by its attributes, takes the hparams."""
    if attributes["hparams_class"] not in _families(hparams) or _lacks_a_target(attributes, hparams):
        return False
    slot = attributes.get("slot")
    found = () if not slot else hparams.mixers if slot == "mixers" else (getattr(hparams, slot),)
    return not slot or attributes["filled_with"] in found


def _lacks_a_target(attributes: Mapping[str, Any], hparams: Any) -> bool:
    """Returns whether the hparams are of a model that learns more targets of a sentence than this model can.

    Hparams may give any model a second direction, but not a second decoder, which is a part of the model's class.
    """
    learned = max(attributes.get("target_sides", 1), getattr(hparams, "directions", 1))
    return getattr(hparams, "target_sides", 1) > learned


def _families(hparams: HParams) -> list[str]:
    return [kind.__name__ for kind in type(hparams).__mro__]


def _family(attributes: Mapping[str, Any], hparams: HParams) -> type[HParams]:
    """Returns the class of hparams that a model reads; it is a base class of the given hparams, or their class."""
    return next(kind for kind in type(hparams).__mro__ if kind.__name__ == attributes["hparams_class"])
