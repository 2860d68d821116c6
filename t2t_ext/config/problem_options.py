"""Options of problems given as text: ``--problem_options="test=paper,layout=plain"``."""

import inspect
import json
import os
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from t2t_ext.errors import UserError, suggest

_ASSIGNMENT_STARTS = re.compile(r",(?=\s*\w+\s*=)")
_NO_OPTIONS = ("self", "name", "was_reversed")
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
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
    options_class = getattr(factory, "options_class", None)
    if options_class is not None:
        kinds, takes_any = {name: options_class.type_of(name) for name in options_class.names()}, False
    else:
        declared, takes_any = _parameters(factory)
        kinds = {name: each.annotation for name, each in declared.items()}
    unknown = [name for name in options if name not in kinds]
    if unknown and not takes_any:
        raise _not_taken(problem, unknown, kinds)
    return {
        name: _converted(problem, name, value, kinds.get(name)) if isinstance(value, str) else value
        for name, value in options.items()
    }


def made(problem: str, factory: Callable[..., Any], place: str, was_reversed: bool, options: Mapping[str, Any]) -> Any:
    """Returns a problem made with options from ``checked``, and records them in it unless its class does so itself.

    Args:
      problem: The problem's name.
      factory: Its class or factory.
      place: Where it is registered, for messages.
      was_reversed: The factory's argument.
      options: Option -> value.

    Raises:
      UserError: The factory does not take one of the options, or not ``name`` and ``was_reversed``.
    """
    try:
        found = factory(name=problem, was_reversed=was_reversed, **options)
    except TypeError as error:
        refused = re.search(r"unexpected keyword argument '(\w+)'|takes no arguments", str(error))
        if refused and refused[1] in options:
            raise _not_taken(problem, [refused[1]], _parameters(factory)[0]) from error
        if refused and refused[1] in (None, *_NO_OPTIONS):
            raise UserError(
                f"{place}: the problem {problem!r} cannot be made: {error}. Derive it from "
                "t2t_ext.TranslationProblem, and let its __init__ take name and was_reversed and pass them on."
            ) from error
        raise
    if "_options" not in vars(found):
        defaults = {name: each.default for name, each in _parameters(factory)[0].items()}
        found._options = dict(_recorded({name: each for name, each in options.items() if each != defaults.get(name)}))
    return found


def _recorded(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the options that JSON can hold, which leaves out objects that only a program can give."""
    for name, given in options.items():
        value = os.fspath(given) if isinstance(given, os.PathLike) else given
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            continue
        yield name, value


def _not_taken(problem: str, unknown: list[str], known: Mapping[str, Any]) -> UserError:
    """Returns the error for options that a problem does not have."""
    return UserError(
        f"The problem {problem!r} does not take {', '.join(unknown)}.{suggest(unknown[0], sorted(known))} "
        f"Its options: {', '.join(sorted(known)) or 'none'}."
    )


def _parameters(factory: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], bool]:
    """Returns the parameters of a factory that are options, and whether it takes others as well.

    A class that takes others (``**kwargs``) may pass them on to a class that it is derived from, so those of that class
    are options, too.
    """
    classes = inspect.getmro(factory) if inspect.isclass(factory) else ()
    found: dict[str, inspect.Parameter] = {}
    takes_any = []
    makers: list[Callable[..., Any]] = [each for each in classes if "__init__" in vars(each)]
    for each in makers or [factory]:
        try:
            parameters = inspect.signature(each, eval_str=True).parameters
        except NameError:  # annotations of a user's class that exist for type checkers only
            parameters = inspect.signature(each).parameters
        takes_any.append(any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()))
        others = {name: parameter for name, parameter in parameters.items() if parameter.kind not in _REST}
        found = others | found
        if not takes_any[-1]:
            break
    return {name: parameter for name, parameter in found.items() if name not in _NO_OPTIONS}, takes_any[0]


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
    if typing.get_origin(kind) in (typing.Union, types.UnionType):  # such as int | None
        kinds = [each for each in typing.get_args(kind) if each is not type(None)]
        kind = kinds[0] if len(kinds) == 1 else None
    try:
        if kind is bool:
            return _TRUTHS[value.lower()]
        return kind(value) if kind in (int, float) else value
    except (ValueError, KeyError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise UserError(f"{problem} takes {wanted} as {name}, not {value!r}.") from None
