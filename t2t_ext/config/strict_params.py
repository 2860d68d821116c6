"""Frozen dataclasses whose fields are documented, typed, checked and overridable by ``a=1,b=x``."""

import contextlib
import copy
import dataclasses
import functools
import importlib
import inspect
import math
import operator
import re
import traceback
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, Union

from t2t_ext.config.replaced import HPARAMS, answers
from t2t_ext.errors import UserError, shortened, suggest
from t2t_ext.pages import page
from t2t_ext.version import __version__

_CLASS = "class"
# Modules of hparams classes in earlier versions, as stored in their runs -> the modules now.
_MOVED_MODULES = {
    "t2t_ext.hyperparameters": "t2t_ext.config.hyperparameters",
    **{
        f"t2t_ext.{name}_hyperparameters": f"t2t_ext.config.{name}"
        for name in ("asynchronous", "composed", "dynamic_conv", "layer_coordination", "synchronous")
    },
}
# Classes that have since become part of another class or moved to another module.
_MOVED_CLASSES = {
    "t2t_ext.config.composed:ComposedHParams": "t2t_ext.config.hyperparameters:TransformerHParams",
    "t2t_ext.config.layer_coordination:ContextGateHParams": "t2t_ext.config.context_gate:ContextGateHParams",
}
_NOT_YET_ATTRIBUTED = ""
FLAG = "flag"  # the origin of a value that a command line overrides
_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string", Mapping: "a mapping"}
_CHANGING_METHODS = ("add_hparam", "set_hparam", "del_hparam")  # of tensor2tensor's HParams
_MOST_PROBLEMS = 20  # listed in one message
_MOST = 10**9  # maximum of a number that has no other limit
_MOST_DIGITS = 300  # in a number; Python refuses to convert thousands of digits
# Type -> (pattern of its values as text, function that converts the text).
_NOTATIONS: Mapping[Any, tuple[str, Callable[[str], Any]]] = {
    bool: ("(?i:true|false|1|0)", lambda raw: raw.lower() in ("true", "1")),
    int: (r"[+-]?\d+", int),
    float: (r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", float),
}
_SCALARS = (*_NOTATIONS, str)

# The type of a string field that holds a list: "1,3-4", or "1+3-4" in a command line, where a comma ends a value.
NumberList = Annotated[str, "+"]
_Params = TypeVar("_Params", bound="StrictParams")
# Settings -> "" if a field has an effect; otherwise the message after its name and value, with {name} for the name.
Condition = Callable[[Any], str]


class Explained(NamedTuple):
    """One row of ``explain()``.

    Attributes:
      name: The field.
      value: Its value.
      origin: "default", "set NAME" or "flag".
      help: What it means, with its unit.
    """

    name: str
    value: Any
    origin: str
    help: str


def hparam(
    default: Any,
    help: str,
    *,
    unit: str = "",
    choices: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    exclusive: bool = False,
    words: Mapping[str, int] | None = None,
    aliases: Mapping[str, str] | None = None,
    group: str = "",
    metavar: str = "",
    flag: str = "",
    when: Condition | None = None,
) -> Any:
    """Declares a documented and checked field of a ``StrictParams``.

    Checks, ``--explain``, flags and the tables of the docs are all generated from this declaration.

    Args:
      default: The value if none is given.
      help: What the field means.
      unit: The unit of a number: tokens, steps, sentences.
      choices: The values allowed for a string.
      minimum: The least number allowed.
      maximum: The greatest number allowed; default: 10^9 if there is a ``minimum`` and no ``below``.
      below: The number must be less than this.
      exclusive: Whether ``minimum`` itself is not allowed.
      words: Words for values of an integer that lie outside the limits, such as ``{"auto": -1}``.
      aliases: Other name -> choice, for a string.
      group: The group in ``--help``, if the setting is a flag.
      metavar: The placeholder for the flag's value in ``--help``; default: from the unit or the type.
      flag: The flag's name, if it is not the field's.
      when: The condition under which the field has an effect, such as ``only("optimizer", "adafactor")``. If it does
        not hold, a user who sets the field is told so.

    Returns:
      A dataclass field.
    """
    if minimum is not None and below is None and maximum is None:
        maximum = _MOST
    rules = {"choices": tuple(choices), "minimum": minimum, "maximum": maximum, "below": below, "exclusive": exclusive}
    shown = {"help": help, "unit": unit, "group": group, "metavar": metavar, "flag": flag, "when": when}
    return dataclasses.field(
        default=default, metadata={**shown, "words": dict(words or {}), "aliases": dict(aliases or {}), **rules}
    )


def changed_in_place(error: BaseException) -> tuple[str, str] | None:
    """Returns where code has tried to change settings in place, ``file:line``, and what it should do instead.

    The code either assigned to a frozen object or called a method that tensor2tensor's hparams have for changes.

    Returns None for any other error.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    if not isinstance(error, AttributeError) or not frames:
        return None
    if isinstance(error.obj, StrictParams) and error.name in _CHANGING_METHODS:
        code, line = frames[-1]
        told = (
            f"hparams sets have fixed fields, and no {error.name}(): hparams.replace(NAME=VALUE) returns a set with "
            f"another value; a new name is a field of a subclass of HParams: see {page('extending')}"
        )
        return f"{code.f_code.co_filename}:{line}", told
    if not isinstance(error, dataclasses.FrozenInstanceError) or len(frames) < 2:
        return None
    (code, line), (setter, _) = frames[-2:]  # the last one is the generated __setattr__(self, name, value)
    settings, name = (setter.f_locals.get(each) for each in ("self", "name"))
    if not isinstance(settings, StrictParams):
        return None
    change = f"{name}={setter.f_locals['value']!r}" if "value" in setter.f_locals else f"{name}=..."
    told = f"hparams sets cannot be changed in place: return hparams.replace({shortened(change)})"
    return f"{code.f_code.co_filename}:{line}", told


def only(name: str, *values: Any) -> Condition:
    """Returns the condition that another field has one of the given values."""

    def why_not(settings: Any) -> str:
        value = getattr(settings, name)
        *others, last = map(_shown, values)
        needed = f"{', '.join(others)} and {last}" if others else last
        return "" if value in values else f"is for {name}={needed}, not {_shown(value)}"

    return why_not


def every(*conditions: Condition) -> Condition:
    """Returns the condition that all given conditions hold; the message is from the first that does not."""
    return lambda settings: next(filter(None, (condition(settings) for condition in conditions)), "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StrictParams:
    """The base class of ``HParams`` and other settings; subclasses are frozen, keyword-only dataclasses.

    Fields are int, float, bool, str, or tuples ``tuple[int, ...]`` of these. Creating an instance checks all fields and
    raises one ``UserError`` that lists all problems.
    """

    _replaced: ClassVar[str] = ""  # table of replaced_hparams.toml with names that users know from elsewhere
    _prefix: ClassVar[str] = ""  # before a field's name in messages
    _origins: ClassVar[Mapping[str, str]] = {}  # each instance has its own dict: field -> origin of its value

    def __post_init__(self) -> None:
        _check_class(type(self))  # type: ignore[arg-type]  # mypy takes the class for its instances
        problems = []
        for field in dataclasses.fields(self):
            value, problem = _checked(getattr(self, field.name), self.type_of(field.name), field)
            object.__setattr__(self, field.name, value)
            if problem:
                flag = field.metadata.get("flag") or field.name
                problems.append(f"{self._prefix}{flag}={shortened(repr(value))}: {field.name} {problem}")
        # Rules between fields assume that each field is valid by itself.
        problems = problems or list(self.validate())
        if problems:
            raise UserError(_together(problems))
        object.__setattr__(self, "_origins", {})

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields; subclasses add to them."""
        yield from ()

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other values.

        Args:
          **changes: Field -> value.

        Raises:
          UserError: An unknown field or a value that is not allowed.
        """
        unknown = [self._unknown(name) for name in changes if name not in self.names()]
        if unknown:
            raise UserError(_together(unknown))
        changed = dataclasses.replace(self, **changes)
        object.__setattr__(changed, "_origins", {**self._origins, **dict.fromkeys(changes, _NOT_YET_ATTRIBUTED)})
        return changed

    def override(self, text: str, *, flag: str = "hparams") -> Self:
        """Returns a copy with the values of ``"a=1,b=x"``.

        Args:
          text: The assignments: T2T's grammar, see ``parse_assignments``.
          flag: The flag that they come from, for messages.

        Raises:
          UserError: An unknown key, a wrong type, the same key twice, an empty value, or a value that is not allowed;
            one message lists all problems.
        """
        changes, problems = {}, []
        hints = typing.get_type_hints(type(self), include_extras=True)
        lists = [name for name, kind in hints.items() if kind == NumberList]
        for name, raw in parse_assignments(text, flag, lists).items():
            if name not in self.names():
                problems.append(self._unknown(name))
                continue
            words = self.__dataclass_fields__[name].metadata.get("words", {})
            follows = re.search(r"[\s;](\w+)\s*=", raw)
            if follows and (follows[1] in self.names() or self.type_of(name) is not str):
                commas = re.sub(r"[\s;]+(?=\w+\s*=)", ",", f"{name}={raw}")
                problems.append(f"{name}={shortened(raw)}: separate assignments by commas: {shortened(commas)}")
                continue
            try:
                changes[name] = words[raw] if raw in words else _parse_value(name, raw, self.type_of(name))
                if changes[name] in words.values() and raw not in words:  # the internal value of a word
                    limits = [said for *_, said in _limits(self.__dataclass_fields__[name])]
                    problems.append(f"{name}={raw}: {name} must be {', '.join(limits)}, or {' or '.join(words)}")
            except ValueError as error:
                kind = " or ".join(["an integer", *words])
                problems.append(str(error).replace("an integer", kind))
        if problems:
            raise UserError(f"{flag}: {_together(problems)}")
        try:
            changed = self.replace(**changes)
        except UserError as error:
            raise UserError(f"{flag}: {error}") from None
        object.__setattr__(changed, "_origins", {**self._origins, **dict.fromkeys(changes, FLAG)})
        return changed

    def to_dict(self) -> dict[str, Any]:
        """Returns the class's name and every value, ready for JSON (tuples become lists)."""
        values = {name: getattr(self, name) for name in self.names()}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {_CLASS: f"{type(self).__module__}:{type(self).__qualname__}", **plain}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Returns the settings that ``to_dict`` stored, as an instance of the stored class.

        Fields that are not stored take their defaults: a new field's default does what earlier versions did.

        Raises:
          UserError: An unknown class or field, or a value that is not allowed.
        """
        stored = dict(stored)
        kind = known_class(stored.pop(_CLASS), cls) if _CLASS in stored else cls
        unknown = [name for name in stored if name not in kind.names()]
        if unknown:
            had = f"Stored hyper-parameters have {', '.join(map(repr, unknown))}, which {kind.__name__}"
            guess = suggest(unknown[0], kind.names())
            if kind.__module__.partition(".")[0] != "t2t_ext":
                raise UserError(f"{had} of the module {kind.__module__} does not have.{guess} Add the field again.")
            raise UserError(
                f"{had} of t2t_ext {__version__} does not know.{guess} They were written by a newer version: update "
                f"t2t_ext."
            )
        return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of all fields, in the order of their definition."""
        return _names(cls)  # type: ignore[arg-type]  # mypy takes the class for its instances

    @classmethod
    def type_of(cls, name: str) -> Any:
        """Returns a field's declared type."""
        return _hints(cls)[name]  # type: ignore[arg-type]  # as in names

    def changed(self, *names: str) -> list[str]:
        """Returns the names of the fields, among those given or all, that are not at their defaults."""
        fields = (field for field in dataclasses.fields(self) if not names or field.name in names)
        return [field.name for field in fields if getattr(self, field.name) != field.default]

    def without_effect(self, names: Collection[str]) -> list[str]:
        """Returns a message for each given field that has no effect with the other values; it says what would help."""
        found = []
        for name in names:
            condition = self.__dataclass_fields__[name].metadata.get("when")
            if condition and (why := condition(self)):
                found.append(f"{name}={_shown(getattr(self, name))} {why.replace('{name}', name)}")
        return found

    def check_effect(self, flag: str, names: Collection[str] | None = None) -> None:
        """Checks that the fields that a user has set have an effect.

        Args:
          flag: The flag that they were set with, for the message.
          names: The fields; None = those that a command line has set.

        Raises:
          UserError: At least one of them has no effect.
        """
        if names is None:
            names = [name for name, origin in self._origins.items() if origin == FLAG]
        if problems := self.without_effect(names):
            raise UserError(f"{flag}: {_together(problems)}")

    def attributed_to(self, set_name: str) -> Self:
        """Returns a copy in which changed values that are not attributed to a set yet are attributed to this set."""
        attributed = copy.copy(self)  # its values are checked already
        origins = dict(self._origins)
        for field in dataclasses.fields(self):
            known = origins.get(field.name)
            changed = field.name not in origins and getattr(self, field.name) != field.default
            if known in (_NOT_YET_ATTRIBUTED, FLAG) or changed:  # a set may call override() on another set
                origins[field.name] = f"set {set_name}"
        object.__setattr__(attributed, "_origins", origins)
        return attributed

    def origins(self) -> dict[str, str]:
        """Returns the origin of each value: field -> "default", "set NAME", "flag", or "replaced" outside any set."""
        return {name: self._origins.get(name, "default") or "replaced" for name in self.names()}

    def explain(self, origins: Mapping[str, str] | None = None) -> list[Explained]:
        """Returns a row per field: name, value, origin, help with unit.

        Args:
          origins: Field -> origin, by default ``origins()``.
        """
        origins = origins or self.origins()
        rows = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            shown = next((word for word, meant in field.metadata.get("words", {}).items() if meant == value), value)
            rows.append(Explained(field.name, shown, origins.get(field.name, "default"), help_of(field)))
        return rows

    @classmethod
    def _unknown(cls, name: str) -> str:
        known = answers(HPARAMS).get(cls._replaced, {})
        if name in known:
            return f"{name!r} is not here: {known[name]}"
        listed = f"Known: {', '.join(cls.names())}" if len(cls.names()) <= 40 else "--explain prints every key"
        return f"unknown key {name!r}.{suggest(name, cls.names())} {listed}"


def help_of(field: dataclasses.Field) -> str:
    """Returns a field's help with unit and choices."""
    text = field.metadata.get("help", "")
    unit = field.metadata.get("unit", "")
    choices = [choice for choice in field.metadata.get("choices", ()) if choice]
    return text + (f" In {unit}." if unit else "") + (f" One of: {', '.join(choices)}." if choices else "")


def _shown(value: Any) -> str:
    """Returns a value as it is written in ``--hparams``."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


@functools.cache
def _limits(field: dataclasses.Field[Any]) -> list[tuple[Callable[[Any, Any], bool], float, str]]:
    """Returns a field's limits, each as (comparison that value and limit must satisfy, limit, both in words)."""
    rules, limits = field.metadata, []
    least, above = ("more than", operator.gt) if rules.get("exclusive") else ("at least", operator.ge)
    for rule, words, holds in (
        ("minimum", least, above),
        ("maximum", "at most", operator.le),
        ("below", "less than", operator.lt),
    ):
        limit = rules.get(rule)
        if limit is not None:
            limits.append((holds, limit, f"{words} {limit:,}"))
    return limits


def limits_of(field: dataclasses.Field[Any]) -> str:
    """Returns a field's limits in words, or ""."""
    text = ", ".join(words for _, _, words in _limits(field))
    return f"{text[0].upper()}{text[1:]}." if text else ""


def parse_assignments(text: str, flag: str = "hparams", lists: Collection[str] = ()) -> dict[str, str]:
    """Splits ``"a=1,b=x,c=[1,2]"`` into names and raw values.

    The grammar is T2T's: assignments are separated by commas, and lists are in brackets. Whitespace is allowed around
    names, values and commas. A scalar contains neither commas nor brackets.

    Args:
      text: The assignments; empty = none.
      flag: The flag that they come from, for messages.
      lists: Names whose values are lists joined by ``+``, for a hint if they were written with commas.

    Returns:
      Name -> raw value without whitespace around it.

    Raises:
      UserError: No ``=``, an empty name or value, the same name twice; one message lists all problems.
    """
    assigned: dict[str, str] = {}
    problems, last = [], ""
    for part in re.findall(r"(?:\[[^\]]*\]?|[^,\[])+", text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if not equals:
            # What users of other toolkits write first: dc_encoder_layers=1,3.
            listed = f": {last}={assigned[last]}+{name}" if last in lists else ""
            problems.append(f"{name!r} is not an assignment name=value (a value may not contain a comma{listed})")
        elif re.fullmatch(r"\w+\[\d+\]", name):
            problems.append(f"{name}={value}: write the whole list, {name.partition('[')[0]}=[v1,v2]")
        elif not re.fullmatch(r"\w+", name):
            problems.append(f"{part.strip()!r}: {name!r} is not a name")
        elif not value:
            problems.append(f"{name} has no value")
        elif name in assigned:
            problems.append(f"{name} is given twice ({assigned[name]} and {value})")
        else:
            assigned[name], last = value, name
    if problems:
        raise UserError(f"{flag}={text!r}: {_together(problems)}")
    return assigned


def _together(problems: Sequence[str]) -> str:
    """Joins problems into one message, on one line."""
    more = f"; {len(problems) - _MOST_PROBLEMS} more" if len(problems) > _MOST_PROBLEMS else ""
    return "; ".join(problem.rstrip(".") for problem in problems[:_MOST_PROBLEMS]) + f"{more}."


@functools.cache
def _names(cls: type[StrictParams]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@functools.cache
def _check_class(cls: type[StrictParams]) -> None:
    """Refuses a subclass whose fields would silently be lost."""
    names = cls.names()
    for base in cls.__mro__:
        if "wrong" in base.__dict__:
            raise TypeError(f"{base.__qualname__}.wrong() is called validate() now: rename it, or it checks nothing.")
        for name in inspect.get_annotations(base):
            if name not in names and typing.get_origin(cls.type_of(name)) is not ClassVar:
                raise TypeError(
                    f"{cls.__qualname__}.{name} is no field: decorate {base.__qualname__} with "
                    f"@dataclasses.dataclass(frozen=True, kw_only=True)."
                )
    for field in dataclasses.fields(cls):
        if cls.__dict__.get(field.name, field.default) != field.default:
            raise TypeError(
                f"{cls.__qualname__}.{field.name} has no effect without an annotation: write "
                f"`{field.name}: type = hparam(...)`, or put the value with replace() in an hparams set."
            )
        kind = cls.type_of(field.name)
        if not all(map(_can_be_stored, _members(kind))):
            raise TypeError(
                f"{cls.__qualname__}.{field.name} is declared as {inspect.formatannotation(kind)}, which would not be "
                f"the same when it is read from a run: declare it as bool, int, float or str, as one of these or None "
                f"(`int | None`), or as a tuple of them (`tuple[int, ...]`)."
            )


def _members(kind: Any) -> tuple[Any, ...]:
    """Returns the types of which a value may have any: those of a union, or the one given."""
    return typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, Union) else (kind,)


def _can_be_stored(kind: Any) -> bool:
    """Returns whether a run can give back values of a type that is no union: whether it can be stored as JSON."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        items = set(inner) - {Ellipsis}
        return len(items) == 1 and items <= set(_SCALARS)
    if origin in (dict, Mapping):
        return inner[0] is str and inner[1] in (*_SCALARS, Any)
    return kind in (*_SCALARS, type(None), Any, tuple, dict)


def moved_class(stored: str) -> str:
    """Returns the name that a stored class has in this version; both are ``module:QualifiedName``."""
    module, _, name = stored.partition(":")
    stored = f"{_MOVED_MODULES.get(module, module)}:{name}"
    return _MOVED_CLASSES.get(stored, stored)


def known_class(stored: str, base: type[_Params]) -> type[_Params]:
    """Returns the class that a stored name, ``module:QualifiedName``, means: ``base`` or a subclass of it.

    Only modules of t2t_ext itself are imported to find it.

    Raises:
      UserError: No such class is loaded.
    """
    stored = moved_class(stored)
    module = stored.partition(":")[0]
    if module.split(".")[0] == "t2t_ext":
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            raise UserError(
                f"The stored class of hyper-parameters {stored!r} does not exist in t2t_ext {__version__}. It was "
                f"written by a newer version: update t2t_ext."
            ) from None
    known: dict[str, type[_Params]] = {}
    waiting = [base]
    while waiting:
        kind = waiting.pop()
        known[f"{kind.__module__}:{kind.__qualname__}"] = kind
        waiting.extend(kind.__subclasses__())
    if stored not in known:
        raise UserError(
            f"The stored class of hyper-parameters {stored!r} is not a {base.__name__} that is loaded. If it is yours, "
            f"give the folder of its module with --t2t_usr_dir; if not, update t2t_ext (this is {__version__})."
        )
    return known[stored]


def _type_name(kind: Any) -> str:
    if len(_members(kind)) > 1:
        return " or ".join(_type_name(one) for one in _members(kind) if one is not type(None))
    if typing.get_origin(kind) is tuple:
        return f"a list of {typing.get_args(kind)[0].__name__}"
    return _TYPE_NAMES.get(typing.get_origin(kind) or kind, str(kind))


def _parse_value(name: str, raw: str, kind: Any) -> Any:
    """Converts a raw value to the field's type."""
    problem = f"{name}={shortened(raw)}: {name} is {_type_name(kind)}"
    if len(members := _members(kind)) > 1:
        if type(None) in members and raw.lower() == "none":
            return None
        # 1 is a number rather than true, and any text is a string.
        for one in [*(each for each in members if typing.get_origin(each) is tuple), int, float, bool, str]:
            if one not in members:
                continue
            with contextlib.suppress(ValueError):
                return _parse_value(name, raw, one)
        raise ValueError(problem + (" or none" if type(None) in members else ""))
    if typing.get_origin(kind) is tuple:
        if not (raw.startswith("[") and raw.endswith("]")):
            raise ValueError(f"{problem}, written {name}=[v1,v2]")
        items = [item.strip() for item in raw[1:-1].split(",") if item.strip()]
        if not items:
            raise ValueError(f"{problem} and may not be empty")
        return tuple(_parse_value(name, item, typing.get_args(kind)[0]) for item in items)
    if "[" in raw or "]" in raw:
        raise ValueError(f"{problem}, not a list")
    if kind is str:
        return raw
    if kind not in _NOTATIONS:
        raise ValueError(f"{problem}, which only Python can give")
    pattern, convert = _NOTATIONS[kind]
    if not re.fullmatch(pattern, raw) or len(raw) > _MOST_DIGITS:
        raise ValueError(problem)
    return convert(raw)


def _checked(value: Any, kind: Any, field: dataclasses.Field[Any]) -> tuple[Any, str]:
    """Returns a value converted to its field's type, and what is wrong with it ("" = nothing)."""
    kinds = _members(kind)
    if value is None and type(None) in kinds:
        return value, ""
    if float in kinds and type(value) is int:
        try:
            value = float(value)
        except OverflowError:  # more than 308 digits
            return value, "must be finite"
    if isinstance(value, str):
        value = field.metadata.get("aliases", {}).get(value, value)
    if not any(_is_a(value, one) for one in kinds):
        return value, f"is {_type_name(kind)}"
    return value, broken_rule(value, field)


def _is_a(value: Any, kind: Any) -> bool:
    origin = typing.get_origin(kind)
    if origin is tuple:
        inner = typing.get_args(kind)[0]
        return isinstance(value, tuple) and all(type(item) is inner for item in value)
    return isinstance(value, origin) if origin else type(value) is kind


def broken_rule(value: Any, field: dataclasses.Field[Any]) -> str:
    """Returns which rule of its field a value breaks, in words, or ""."""
    rules = field.metadata
    choices = rules.get("choices", ())
    if choices and value not in choices:
        listed = ", ".join(choice or '""' for choice in choices)
        return f"is one of {listed}"
    if not isinstance(value, int | float) or isinstance(value, bool) or value in rules.get("words", {}).values():
        return ""
    if isinstance(value, float) and not math.isfinite(value):  # only floats: a whole number may be too large for one
        return "must be finite"
    return next((f"must be {words}" for holds, limit, words in _limits(field) if not holds(value, limit)), "")
