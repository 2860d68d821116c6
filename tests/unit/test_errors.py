"""Tests of user errors, and of the optional dependencies (extras) that they name."""

import ast
import pathlib
import tomllib

import pytest

from t2t_ext.data.text.text_steps import TextSteps, step_classes
from t2t_ext.errors import UserError, require_package, suggest
from t2t_ext.evaluation.protocols import PROTOCOLS

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_suggest():
    assert suggest("trasformer", ["transformer", "lstm"]) == " Did you mean 'transformer'?"
    assert suggest("xyz", ["transformer"]) == ""
    steps = ["moses_tokenize", "moses", "lowercase", "moses_tokenize_no_escape", "mosesque_tokenization"]
    assert suggest("moses", steps) == " Did you mean 'moses_tokenize' or 'moses_tokenize_no_escape'?"
    assert suggest("mo", steps) == ""


def test_a_missing_package_names_its_extra():
    require_package("json", "zh", "Nothing")
    with pytest.raises(UserError) as raised:
        require_package("no_such_module", "zh", "--text_steps=jieba", "Or leave it out.")
    assert str(raised.value) == (
        "--text_steps=jieba needs the package no_such_module, which is not installed: pip install 't2t_ext[zh]'. "
        "Or leave it out."
    )


def test_a_step_whose_package_is_missing(without_package):
    without_package("jieba")
    with pytest.raises(UserError, match=r"the step needs the package jieba, .*pip install 't2t_ext\[zh\]'"):
        TextSteps(["jieba"], "zh")
    TextSteps(["moses_tokenize"], "de")  # the package of this step belongs to no extra


def named_extras():
    """Yields the extras that calls of ``require_package``, steps and protocols name."""
    for folder in ("t2t_ext", "problems", "bin"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require_package":
                    yield from (node.args[1].value for _ in (0,) if isinstance(node.args[1], ast.Constant))
    yield from (kind.extra for kind in step_classes().values() if kind.extra)
    yield from (protocol.needs[1] for protocol in PROTOCOLS.values() if protocol.needs[1])


def test_extras_that_errors_name_exist():
    named = set(named_extras())
    assert {"zh", "beam", "language", "summarization", "captioning", "serving-client"} <= named
    assert named <= PROJECT["optional-dependencies"].keys()


def test_no_dependency_is_named_twice():
    names = [requirement.split(">")[0].split("=")[0] for requirement in PROJECT["dependencies"]]
    assert len(set(names)) == len(names)
