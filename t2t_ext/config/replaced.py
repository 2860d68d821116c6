"""Answers for names that users know from tensor2tensor, read from tables in TOML."""

import functools
import pathlib
import re
import tomllib
from collections.abc import Mapping

HPARAMS = pathlib.Path(__file__).with_name("replaced_hparams.toml")
PROBLEMS = pathlib.Path(__file__).with_name("replaced_problems.toml")


@functools.cache
def answers(file: pathlib.Path) -> Mapping[str, Mapping[str, str]]:
    """Returns the tables of a file: table -> name -> what replaces it.

    The file has each answer once, with the names that it is for: ``"use --help." = ["helpfull", "helpshort"]``.
    """
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return {table: {name: answer for answer, names in rows.items() for name in names} for table, rows in tables.items()}


def problem_answer(name: str) -> str:
    """Returns what replaces a problem of tensor2tensor, by its name without ``_rev``; "" for any other name."""
    patterns = answers(PROBLEMS)["problems"]
    return next((answer for pattern, answer in patterns.items() if re.fullmatch(pattern, name)), "")
