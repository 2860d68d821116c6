"""Answers for flags that a command does not have: flags of other toolkits, names of hparams, misspelt flags."""

import functools
import importlib
import pathlib
import pkgutil
from collections.abc import Collection, Iterator, Mapping

from t2t_ext import config
from t2t_ext.config.decode import DecodeHParams
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.replaced import answers
from t2t_ext.config.strict_params import StrictParams
from t2t_ext.errors import suggest

_REPLACED_FLAGS = pathlib.Path(__file__).with_name("replaced_flags.toml")
# Command -> its tables of other toolkits' flags, if not just the table of its name; later tables take precedence.
_TABLES = {
    "t2t_ext-trainer": ("opennmt", "opennmt_train", "fairseq_preprocess", "fairseq_train", "trainer", "makes_data"),
    "t2t_ext-datagen": ("opennmt", "opennmt_train", "fairseq_preprocess", "datagen"),
    "t2t_ext-decoder": ("opennmt", "opennmt_infer", "fairseq_generate", "trainer", "reads_a_run", "decoder"),
    "t2t_ext-avg-all": ("opennmt", "opennmt_average", "fairseq_average", "avg-all"),
    "t2t_ext-exporter": ("opennmt", "opennmt_export", "trainer", "reads_a_run", "exporter"),
    **dict.fromkeys(
        [f"t2t_ext-{name}" for name in ("compare", "prepare", "experiment", "rerank", "analyze")], ("registry_help",)
    ),
}


def replaced(command: str, names: Collection[str]) -> Mapping[str, str]:
    """Returns the flags of other toolkits that a command answers: name -> what replaces it.

    Args:
      command: The command, such as ``t2t_ext-trainer``.
      names: The command's own flags, which need no answer.
    """
    tables = answers(_REPLACED_FLAGS)
    chosen = ["absl", *_TABLES.get(command, [command.removeprefix("t2t_ext-")])]
    found = {name: answer for table in chosen for name, answer in tables.get(table, {}).items()}
    return {name: answer for name, answer in found.items() if name not in names}


def complaint(command: str, name: str, value: str, names: Collection[str]) -> str:
    """Returns why a command does not accept a flag, and what to use instead.

    Args:
      command: The command, such as ``t2t_ext-trainer``.
      name: The flag's name, without dashes.
      value: The value that was given; "" for none.
      names: The command's own flags.
    """
    known = replaced(command, names)
    for candidate in (name, name.replace("-", "_"), name.removeprefix("no")):
        if candidate in known:
            return f"--{name} is no flag of {command}: {known[candidate]}"
    hparam = name.replace("-", "_")
    for flag, kind in (("hparams", HParams), ("decode_hparams", DecodeHParams)):
        if flag in names and hparam in _fields(kind):
            return f'--{name} is no flag of {command}: use --{flag}="{hparam}={value or "VALUE"}".'
    return f"unknown flag --{name}.{suggest(name, names)}"


def argument_complaint(argument: str) -> str:
    """Returns why a command does not accept an argument that is not a flag, and what to use instead."""
    if answer := answers(_REPLACED_FLAGS)["opennmt_commands"].get(argument):
        return f"{argument} is no command here: {answer}"
    return f"unexpected argument {argument!r}: flags are written --name=value"


@functools.cache
def _fields(kind: type[StrictParams]) -> frozenset[str]:
    """Returns the fields of a class and of all its subclasses."""
    for module in pkgutil.iter_modules(config.__path__):  # they declare the hparams of each family of models
        importlib.import_module(f"{config.__name__}.{module.name}")
    return frozenset(name for each in _with_subclasses(kind) for name in each.names())


def _with_subclasses(kind: type[StrictParams]) -> Iterator[type[StrictParams]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _with_subclasses(each)
