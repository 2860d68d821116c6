"""Tests that each script's own argument parser accepts the example command lines in the script's docstring."""

import argparse
import importlib.util
import pathlib
import re
import shlex
import sys
import types

import pytest

from t2t_ext.config.decode import resolve_decode_hparams

ROOT = pathlib.Path(__file__).parents[2]
BENCHMARKS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if not path.name.startswith("_"))
OTHERS = [
    ROOT / path for path in ("docs/make_tables.py", "examples/translate_with_export.py", "tests/golden/loss_run.py")
]


def examples(script):
    """Yields the arguments of each ``python [FOLDER/]SCRIPT ...`` in a script's docstring, also the optional ones."""
    text = script.read_text(encoding="utf-8").split('"""')[1].replace("\\\\\n", " ").replace("\\\n", " ")
    for line in re.findall(rf"python (?:\w+/)*{script.name}\b([^`\n]*)", text):
        words = shlex.split(line, comments=True)
        yield [word.strip("[]") for word in words if word not in ("[", "]")]


class Parsed(BaseException):
    """Carries the parsed arguments of a script; raised right after parsing so that the script does no work."""


@pytest.mark.parametrize("script", [*BENCHMARKS, *OTHERS], ids=lambda path: path.stem)
def test_examples_are_understood(script, monkeypatch):
    parse = argparse.ArgumentParser.parse_known_args

    def stop(self, args=None, namespace=None):
        given, others = parse(self, args, namespace)
        assert not others or getattr(given, "table", ""), f"{script.name} does not know {others}"
        raise Parsed(given)

    monkeypatch.syspath_prepend(str(script.parent))
    if script.parent.name == "examples":  # the example works without t2t_ext and imports these two modules when it runs
        for name in ("tensorflow", "tensorflow_text"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    spec = importlib.util.spec_from_file_location(f"example_of_{script.stem}", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", stop)
    found = list(examples(script))
    assert found, f"{script.name} shows no example"
    for arguments in found:
        monkeypatch.setattr(sys, "argv", [script.name, *arguments])
        with pytest.raises(Parsed) as caught:
            module.main()
        given = caught.value.args[0]
        for precision in getattr(given, "precision", "").split(","):
            resolve_decode_hparams(precision and f"precision={precision}")
        resolve_decode_hparams(getattr(given, "decode_hparams", ""))
