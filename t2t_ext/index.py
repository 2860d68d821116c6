"""Which module of a folder registers which names, read from the decorators in its source files.

Names are so listed and found without importing the modules (and with them TensorFlow).
"""

import ast
import dataclasses
import functools
import importlib.util
import pathlib
import re


@dataclasses.dataclass(frozen=True)
class Registration:
    """A decorator that registers a class or function.

    Attributes:
      decorator: Its name, such as ``register_model``.
      arguments: Its arguments, texts; empty where it is written bare.
      example: Its keyword argument of that name, or "".
      name: The last argument, or the decorated object's name in snake_case.
      module: Dotted name of the module.
      place: ``file:line``.
    """

    decorator: str
    arguments: tuple[str, ...]
    example: str
    name: str
    module: str
    place: str


@functools.cache
def registrations(package: str) -> tuple[Registration, ...]:
    """Returns what the modules directly in a package register, module by module in the order of their names.

    Args:
      package: Its dotted name.

    Raises:
      ValueError: An argument of a decorator is not written out as a text, so that no name can be read.
    """
    spec = importlib.util.find_spec(package)
    found: list[Registration] = []
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in sorted(pathlib.Path(folder).glob("*.py")):
            source = path.read_text(encoding="utf-8")
            if path.stem != "__init__" and "register_" in source:
                found += _in_module(source, f"{package}.{path.stem}", str(path))
    return tuple(found)


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
            found.append(Registration(called, texts, keywords.get("example", ""), name, module, place))
    return found
