"""Reads JSON files and checks the type of every value against a schema; error messages name the place of a mismatch.

A schema is a type: a dataclass or ``TypedDict`` with the keys, ``list[str]``, ``dict[str, int]``, ``int | None``,
``Count`` and the like. A ``TypedDict`` allows further keys, a dataclass does not; ``Any`` allows everything.
``Annotated[dict[str, Any], Schema]`` is a dictionary for the code that uses it, but is checked against ``Schema``.
"""

import dataclasses
import functools
import json
import math
import os
import pathlib
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired

from t2t_ext.errors import UserError

Count = Annotated[int, range(2**53)]  # a non-negative integer that every JSON reader represents exactly
Real = Annotated[float, "not a number and infinity, too"]

MOST_BYTES = 1 << 28  # t2t_ext writes no larger JSON files, and reading one would fill the memory
_MOST_SHOWN = 60  # characters
_WORD = re.compile(r"[\s'\"]")  # what is between words
_MOST_BITS = 200  # of a number in a message; writing out many digits takes long
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
_NAMES: Mapping[Any, str] = {
    str: "a string", int: "a whole number", float: "a number", bool: "true or false", dict: "an object", list: "a list",
    tuple: "a list", Sequence: "a list", type(None): "null",
}  # fmt: skip


class Damaged(ValueError):
    """The content is not as it was written; the message says where it differs, and what is there."""


class NotUnicode(Damaged):
    """The content is not valid text: bytes that are not UTF-8, or half of a surrogate pair."""


class _FileEntry(typing.TypedDict):
    bytes: Count
    sha256: str


FileEntry = Annotated[dict[str, Any], _FileEntry]  # a file's size and hexadecimal SHA-256


class Versioned(typing.TypedDict):
    """A file of any format version; only code of that version knows its other keys."""

    format_version: Count


def read(path: str | os.PathLike, schema: Any = Any) -> Any:
    """Returns the value in a JSON file, which must be in UTF-8.

    Raises:
      Damaged: The file is too large, is not JSON, or does not match the schema.
      OSError: The file cannot be read.
    """
    path = pathlib.Path(path)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise Damaged(f"it has {size:,} bytes, more than any such file")
    return parse(path.read_bytes(), schema)


def parse(text: str | bytes, schema: Any = Any) -> Any:
    """Returns the value of a JSON text; bytes must be UTF-8.

    Raises:
      NotUnicode: The text is not valid Unicode.
      Damaged: The text is not JSON, or does not match the schema.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        value = json.loads(text)
        if _HALF_CHARACTER.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise NotUnicode(f"byte {error.start} is not UTF-8") from None
    except UnicodeEncodeError:
        raise NotUnicode("it holds half of a character (\\ud800 to \\udfff)") from None
    except RecursionError:
        raise Damaged("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Damaged(f"it is not JSON: {error}" if text.strip() else "it is empty") from None
    except ValueError:  # the number has more digits than Python converts to an integer
        raise Damaged("it holds a number of thousands of digits") from None
    check(value, schema)
    return value


def check(value: Any, schema: Any, place: str = "") -> None:
    """Checks a JSON value against a schema.

    Args:
      value: The value.
      schema: The schema.
      place: The place of the value in the file, such as ``splits.train``, for messages.

    Raises:
      Damaged: The value does not match the schema.
    """
    origin, inner = typing.get_origin(schema) or schema, typing.get_args(schema)
    if schema is Any:
        return
    if origin in (Annotated, NotRequired):
        _check_annotated(value, schema, place)
    elif origin in (types.UnionType, typing.Union):
        fitting = [kind for kind in inner if _fits(value, kind)]
        if not fitting:
            raise _wrong(value, place, *inner)
        check(value, fitting[0], place)
    elif not _fits(value, origin):
        raise _wrong(value, place, origin)
    elif dataclasses.is_dataclass(origin) or typing.is_typeddict(origin):
        _check_keys(value, origin, place)
    elif inner and isinstance(value, dict):
        for key, each in value.items():
            check(each, inner[1], _inside(place, key))
    elif inner:
        for number, each in enumerate(value):
            check(each, inner[0], f"{place}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise Damaged(f"{place or 'it'} is {value}, not a finite number")


def check_unicode(text: str) -> None:
    """Checks that a text that names files can be stored as UTF-8.

    Raises:
      UserError: The name of a file in it is not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        word = _WORD.split(text[: error.start])[-1] + _WORD.split(text[error.start :])[0]
        raise UserError(
            f"{word!a} is not UTF-8, and could not be noted in config.json and the like. Rename the file or folder."
        ) from None


def shown(value: Any) -> str:
    """Returns a value as JSON, shortened for a message."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of about {int(value.bit_length() * math.log10(2)):,} digits"
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, dict | list) else _NAMES[type(value)]
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _check_annotated(value: Any, schema: Any, place: str) -> None:
    kind, *more = typing.get_args(schema)
    if schema == Real:
        if not _fits(value, float):
            raise _wrong(value, place, float)
        return
    check(value, more[0] if more and schema != Count else kind, place)
    if schema == Count and value not in more[0]:
        raise Damaged(f"{place or 'it'} is {shown(value)}, not a whole number from 0 to {more[0].stop - 1:,}")


def _check_keys(value: Mapping[str, Any], schema: type, place: str) -> None:
    kinds, needed, closed = _keys(schema)
    for key in needed:
        if key not in value:
            raise Damaged(f"{place or 'it'} lacks {key!r}")
    for key, each in value.items():
        if key in kinds:
            check(each, kinds[key], _inside(place, key))
        elif closed:
            raise Damaged(f"{place or 'it'} has the unknown key {key[:_MOST_SHOWN]!r}")


def _fits(value: Any, kind: Any) -> bool:
    """Returns whether a JSON value has a type, ignoring the type's arguments."""
    kind = typing.get_origin(kind) or kind
    if kind is float:
        return type(value) in (int, float)
    if kind in (tuple, Sequence):
        kind = list
    is_object = kind is Mapping or dataclasses.is_dataclass(kind) or typing.is_typeddict(kind)
    return type(value) is (dict if is_object else kind)


def _wrong(value: Any, place: str, *kinds: Any) -> Damaged:
    names = (_NAMES.get(typing.get_origin(kind) or kind, _NAMES[dict]) for kind in kinds)
    return Damaged(f"{place or 'it'} is {shown(value)}, not {' or '.join(dict.fromkeys(names))}")


def _inside(place: str, key: str) -> str:
    return f"{place}.{key[:_MOST_SHOWN]}" if place else key[:_MOST_SHOWN]


@functools.cache
def _keys(schema: type) -> tuple[Mapping[str, Any], Sequence[str], bool]:
    """Returns the types of a schema's keys, the keys that are required, and whether other keys are forbidden."""
    kinds = typing.get_type_hints(schema, include_extras=True)
    if typing.is_typeddict(schema):
        return kinds, sorted(schema.__required_keys__), False  # type: ignore[attr-defined]  # of a TypedDict
    found = dataclasses.fields(schema)
    absent = dataclasses.MISSING
    needed = [each.name for each in found if each.default is absent and each.default_factory is absent]
    return {each.name: kinds[each.name] for each in found}, needed, True
