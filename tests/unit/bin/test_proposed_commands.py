"""Tests that users can follow the advice in messages: named commands and flags exist, whole lines are accepted."""

import ast
import functools
import importlib
import pathlib
import re
import shlex
import types

import pytest
from test_flags import COMMANDS

from t2t_ext import registry
from t2t_ext.bin import _flag_groups, _unknown_flags, datagen, exporter
from t2t_ext.bin.analyze import ANALYSES
from t2t_ext.data.datasets import pseudo_references
from t2t_ext.data.datasets.generated import GeneratedData, datagen_command
from t2t_ext.data.datasets.manifest import Manifest
from t2t_ext.errors import UserError
from t2t_ext.serving import served_text

ROOT = pathlib.Path(__file__).parents[3]
PROPOSED = re.compile(r"t2t_ext-[a-z-]+(?: [a-z_]+)?(?:\s+--[^\s,;]+)+")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9_]+)")


@functools.cache
def trees():
    """Returns {path: syntax tree} of the source files that name a command or raise an error for users."""
    files = [file for folder in ("t2t_ext", "problems", "bin") for file in sorted((ROOT / folder).rglob("*.py"))]
    sources = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}
    return {name: ast.parse(text) for name, text in sources.items() if "t2t_ext-" in text or "UserError(" in text}


def text_of(node):
    """Returns the text of a string node, with X for each value inserted by an f-string; None for other nodes."""
    if isinstance(node, ast.JoinedStr):
        return "".join(each.value if isinstance(each, ast.Constant) else "X" for each in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def texts():
    """Yields (place, text) of every string that is not a docstring."""
    for name, tree in trees().items():
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = None if id(node) in docstrings else text_of(node)
            if text:
                yield f"{name}:{node.lineno}", text


def errors():
    """Yields (place, text) of every string in a ``raise`` statement."""
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and node.exc:
                yield from ((f"{name}:{node.lineno}", text_of(part) or "") for part in ast.walk(node.exc))


def parser_of(command, words):
    """Returns the parser of a command, or of an analysis of t2t_ext-analyze, and the words that follow its name."""
    name = command.removeprefix("t2t_ext-").replace("-", "_")
    if name == "analyze" and words and not words[0].startswith("-"):
        return importlib.import_module(f"t2t_ext.bin._analyze_{words[0]}").build_parser(), words[1:]
    return importlib.import_module(f"t2t_ext.bin.{name}").build_parser(), words


def check_words(line):
    """Checks that a command has the flags of a line, which may have placeholders for values."""
    command, *words = [word.rstrip(".,:)'`") for word in line.split()]
    parser, words = parser_of(command, words)
    list(parser._split([word for word in words if word.startswith("--")]))


def test_commands_that_messages_propose_have_the_flags_that_they_name():
    proposed = {(line, place) for place, text in texts() for line in PROPOSED.findall(text)}
    assert len(proposed) > 40
    wrong = []
    for line, place in sorted(proposed):
        try:
            check_words(line)
        except (UserError, ImportError) as error:
            wrong.append(f"{place}: {line}: {error}")
    assert not wrong


def test_flags_that_errors_name_are_there():
    names = [*COMMANDS.values(), *(module for module, _ in ANALYSES.values())]
    known = {flag for name in names for flag in importlib.import_module(f"t2t_ext.bin.{name}").build_parser().names()}
    known -= {"version"}  # every command has it, but no error refers to it
    known |= {
        "pad_id",
        "eos_id",
        "bos_id",
        "unk_id",
        "control_symbols",
        "flagfile",
        "flag",
    }  # spm_train's, absl's, and --flag=value
    named = {(flag, place) for place, text in errors() for flag in FLAG.findall(text)}
    assert len(named) > 150
    assert not [each for each in sorted(named) if each[0].removeprefix("no") not in known and each[0] not in known]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_replaces_another_toolkits_flag_is_a_flag_of_the_command(command):
    names = importlib.import_module(f"t2t_ext.bin.{COMMANDS[command]}").build_parser().names()
    for name, answer in _unknown_flags.replaced(command, names).items():
        # An answer that names another command is about that command's flags.
        flags = [] if "t2t_ext-" in answer or "tensorboard" in answer else FLAG.findall(answer)
        assert {*flags} <= {*names, "help"}, f"--{name}: {answer}"


# === Whole lines, as a user would paste them ===

OWN = {"train_source": "my train.de", "train_target": "train.en", "dev_source": "dev.de", "dev_target": "dev.en"}
TAGGED = {"train_source": "a,b", "train_tags": "<2de>,<2fr>", "columns": "2,4"}


@pytest.mark.parametrize("options", [OWN, TAGGED, {}])
@pytest.mark.parametrize("name", ["translate_parallel_text", "translate_parallel_text_rev", "summarize_text"])
def test_missing_data_are_made_by_the_line_that_the_error_proposes(name, options, tmp_path):
    problem = registry.problem(name, **options)
    with pytest.raises(UserError, match="t2t_ext-trainer does it first with --generate_data") as caught:
        GeneratedData.open(problem, tmp_path)
    line = re.search(r"Run: (.*) \(with --tmp_dir", str(caught.value))[1]
    assert line == datagen_command(problem, tmp_path)
    command, *words = shlex.split(line)
    given = datagen.build_parser().parse_args(words)
    assert (command, given.problem, given.data_dir) == ("t2t_ext-datagen", name, str(tmp_path))
    # If the user has named no files, the line has placeholders for them.
    expected = problem.options or {"train_source": "FILE", "train_target": "FILE"}
    assert registry.problem(name, **_flag_groups.problem_options(given)).options == expected


@pytest.mark.parametrize("options", [OWN, TAGGED, {}])
def test_damaged_data_are_made_again_with_their_options(options, tmp_path):
    manifest = types.SimpleNamespace(problem="translate_parallel_text", problem_options=options, augmentation={})
    line = Manifest.command(manifest, tmp_path)
    _, *words = shlex.split(line.removesuffix(" and what else you gave"))
    given = datagen.build_parser().parse_args(words)
    assert (given.data_dir, given.overwrite) == (str(tmp_path), True)
    assert registry.problem(given.problem, **_flag_groups.problem_options(given)).options == options


def test_a_misspelt_folder_of_data_has_those_beside_it_suggested(tmp_path):
    for name in ("data", "dato"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "translate_x.manifest.json").write_text("{}")
    with pytest.raises(UserError) as caught:
        GeneratedData.open(registry.problem("translate_parallel_text"), tmp_path / "datta")
    told = f"--data_dir={tmp_path / 'datta'} does not exist. Did you mean 'data'? Run: t2t_ext-datagen --problem="
    assert str(caught.value).startswith(told)
    assert "--train_source=FILE --train_target=FILE" in str(caught.value)
    assert "--train_source" not in datagen_command(registry.problem("translate_ende_cldr"), tmp_path)


def test_pseudo_references_are_made_by_the_line_that_is_proposed():
    _, *words = shlex.split(pseudo_references.command("translate_ende_cldr", "data"))
    given = importlib.import_module("t2t_ext.bin.pseudo_references").build_parser().parse_args(words)
    assert (given.problem, given.l2r, given.data_dir) == ("translate_ende_cldr", "RUN", "data")


def test_an_export_that_is_there_can_be_replaced_or_kept_as_the_error_says(tmp_path):
    (tmp_path / "1").mkdir()
    with pytest.raises(UserError) as caught:
        served_text.check_destination(tmp_path, 1, overwrite=False)
    needed = ["--output_dir=RUN", f"--export_dir={tmp_path}"]
    flags = FLAG.findall(str(caught.value))
    assert flags == ["overwrite", "export_version", "export_dir"]
    given = exporter.build_parser().parse_args([*needed, "--overwrite", "--export_version=2"])
    assert (given.overwrite, given.export_version) == (True, 2)
