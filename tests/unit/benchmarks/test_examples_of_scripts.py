"""The command lines that benchmarks show in their own first lines are read by their own flags."""

import argparse
import importlib.util
import pathlib
import re
import shlex
import sys

import pytest

from t2t_ext.config.decode import resolve_decode_hparams

FOLDER = pathlib.Path(__file__).parents[3] / "benchmarks"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_"))


def examples(script):
    """Yields the arguments of every ``python benchmarks/SCRIPT ...`` in the script's docstring."""
    text = script.read_text(encoding="utf-8").split('"""')[1].replace("\\\\\n", " ").replace("\\\n", " ")
    for line in re.findall(rf"python benchmarks/{script.name}\b(.*)", text):
        yield [word for word in shlex.split(line, comments=True) if word[0] not in "[]"]


class Parsed(BaseException):
    """What a script's parser made of its arguments; raised so that nothing is measured."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_examples_are_understood(script, monkeypatch):
    parse = argparse.ArgumentParser.parse_known_args

    def stop(self, args=None, namespace=None):
        given, others = parse(self, args, namespace)
        assert not others or getattr(given, "table", ""), f"{script.name} does not know {others}"
        raise Parsed(given)

    monkeypatch.syspath_prepend(str(FOLDER))
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
