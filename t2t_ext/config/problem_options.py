"""Options of problems given as text: ``--problem_options="test=paper,layout=plain"``."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from t2t_ext.errors import UserError, suggest

_ASSIGNMENT_STARTS = re.compile(r",(?=\s*\w+\s*=)")
_NO_OPTIONS = ("self", "name", "was_reversed")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse(text: str, flag: str = "problem_options") -> dict[str, str]:
    """Splits ``"a=1,b=x,y"`` into names and raw values; a comma belongs to the value unless ``name=`` follows it.

    Raises:
      UserError: A part is not an assignment or has no value, or a name is given twice.
    """
    options: dict[str, str] = {}
    for part in _ASSIGNMENT_STARTS.split(text) if text.strip() else []:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not re.fullmatch(r"\w+", name):
            raise UserError(f"--{flag}={text!r}: {part.strip()!r} is not of the form name=value.")
        if not value:
            raise UserError(f"--{flag}={text!r}: {name} has no value; leave it out for its default.")
        if name in options:
            raise UserError(f"--{flag}={text!r}: {name} is given twice ({options[name]} and {value}).")
        options[name] = value
    return options


def checked(problem: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a problem, with text values converted to the types that it declares.

    Args:
      problem: The problem's name, for messages.
      factory: Its class or factory. The fields of its ``options_class`` or, if it has none, the parameters of its
        signature declare the options and their types.
      options: Option -> value as given; values that are not text stay as they are.

    Raises:
      UserError: The problem has no such option, or a text cannot be converted to its option's type.
    """
    kinds = _declared(factory)
    unknown = [name for name in options if kinds is not None and name not in kinds]
    if kinds is not None and unknown:
        raise UserError(
            f"The problem {problem!r} does not take {', '.join(unknown)}.{suggest(unknown[0], sorted(kinds))} "
            f"Its options: {', '.join(sorted(kinds)) or 'none'}."
        )
    return {
        name: _converted(problem, name, value, (kinds or {}).get(name)) if isinstance(value, str) else value
        for name, value in options.items()
    }


def _declared(factory: Callable[..., Any]) -> dict[str, Any] | None:
    """Returns the options that a problem declares, name -> type; None if it takes any."""
    options_class = getattr(factory, "options_class", None)
    if options_class is not None:
        return {name: options_class.type_of(name) for name in options_class.names()}
    try:
        parameters = inspect.signature(factory, eval_str=True).parameters
    except NameError:  # annotations of a user's class that exist for type checkers only
        parameters = inspect.signature(factory).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    return {name: each.annotation for name, each in parameters.items() if name not in _NO_OPTIONS}


def given(problem_class: type, **options: Any) -> dict[str, Any]:
    """Returns the options whose values differ from the defaults of a problem class's constructor."""
    parameters = inspect.signature(problem_class).parameters
    return {name: value for name, value in options.items() if value != parameters[name].default}


def chosen(problem: str, option: str, value: str, allowed: Mapping[str, Any] | tuple[str, ...]) -> str:
    """Returns the value of an option after checking that it is one of those allowed.

    Raises:
      UserError: It is not allowed; the message suggests similar values.
    """
    if value not in allowed:
        raise UserError(
            f"{problem} has no {option}={value}.{suggest(value, allowed)} {option} is one of: {', '.join(allowed)}."
        )
    return value


def _converted(problem: str, name: str, value: str, kind: Any) -> Any:
    try:
        if kind is bool:
            return _TRUTHS[value.lower()]
        return kind(value) if kind in (int, float) else value
    except (ValueError, KeyError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise UserError(f"{problem} takes {wanted} as {name}, not {value!r}.") from None
