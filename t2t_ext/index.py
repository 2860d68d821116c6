"""Finds out which module of a package registers which names, from the decorators in its source files.

This way names can be listed and found without importing the modules and TensorFlow.
"""

import ast
import dataclasses
import functools
import importlib.util
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Registration:
    """A decorator that registers a class or function.

    Attributes:
      decorator: The decorator's name, such as ``register_model``.
      arguments: Its positional arguments, which are strings; empty if it is used without parentheses.
      example: Its keyword argument ``example``, or "".
      name: The last argument, or, without arguments, the decorated object's name in snake_case.
      module: Dotted name of the module.
      place: ``file:line``.
      definition: Name of the decorated class or function.
      summary: The first line of its docstring.
    """

    decorator: str
    arguments: tuple[str, ...]
    example: str
    name: str
    module: str
    place: str
    definition: str = ""
    summary: str = ""


@functools.cache
def registrations(package: str) -> tuple[Registration, ...]:
    """Returns what the modules directly in a package register, module by module in alphabetical order.

    Args:
      package: Dotted name of the package.

    Raises:
      ValueError: An argument of a decorator is not a literal, so the name cannot be read.
    """
    found: list[Registration] = []
    for path in _modules(package):
        source = path.read_text(encoding="utf-8")
        if "register_" in source:
            found += _in_module(source, f"{package}.{path.stem}", str(path))
    return tuple(found)


@functools.cache
def class_attributes(package: str, name: str) -> Mapping[str, Any]:
    """Returns the attributes that a class of a package, or one of its bases in the same package, defines.

    Constants are returned as values, and names, such as that of another class, as strings. Anything else is left out.
    """
    attributes: dict[str, Any] = {}
    # A base that several bases share comes after all of them, as in Python's method resolution order.
    for each in dict.fromkeys(reversed(list(_with_bases(package, name)))):
        attributes |= _own_attributes(_classes(package)[each])
    return attributes


def _with_bases(package: str, name: str) -> Iterator[str]:
    """Yields a class and its bases, depth first; a shared base is yielded several times."""
    if name in _classes(package):
        yield name
        for base in _classes(package)[name].bases:
            yield from _with_bases(package, getattr(base.value if isinstance(base, ast.Subscript) else base, "id", ""))


def _own_attributes(definition: ast.ClassDef) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in definition.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            names, values = [target], [node.value]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                names, values = target.elts, [*node.value.elts]
            for name, value in zip(names, values, strict=True):
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant | ast.Name):
                    found[name.id] = value.value if isinstance(value, ast.Constant) else value.id
    return found


@functools.cache
def _classes(package: str) -> Mapping[str, ast.ClassDef]:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in _modules(package))
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def _modules(package: str) -> list[pathlib.Path]:
    """Returns the files of the modules directly in a package, in alphabetical order."""
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or ()
    return [path for folder in folders for path in sorted(pathlib.Path(folder).glob("*.py")) if path.stem != "__init__"]


def snake_case(name: str) -> str:
    """Returns the registered name of a class or function: ``TranslateEndeCldr`` -> ``translate_ende_cldr``."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def _in_module(source: str, module: str, file: str) -> list[Registration]:
    found = []
    for definition in ast.parse(source, file).body:
        if not isinstance(definition, ast.ClassDef | ast.FunctionDef):
            continue
        for decorator in definition.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            function = call.func if call else decorator
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if not called.startswith("register_"):
                continue
            texts = tuple(ast.literal_eval(argument) for argument in call.args) if call else ()
            keywords = {each.arg: ast.literal_eval(each.value) for each in call.keywords} if call else {}
            name = texts[-1] if texts else snake_case(definition.name)
            place = f"{file}:{decorator.lineno}"
            summary = (ast.get_docstring(definition) or "").partition("\n")[0]
            example = keywords.get("example", "")
            found.append(Registration(called, texts, example, name, module, place, definition.name, summary))
    return found
