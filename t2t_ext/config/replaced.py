"""Answers for names that users know from tensor2tensor, read from tables in TOML."""

import functools
import pathlib
import tomllib
from collections.abc import Mapping

HPARAMS = pathlib.Path(__file__).with_name("replaced_hparams.toml")


@functools.cache
def answers(file: pathlib.Path) -> Mapping[str, Mapping[str, str]]:
    """Returns the tables of a file: table -> name -> what takes its place.

    In the file an answer is written once, with the names that it is for: ``"use --help." = ["helpfull", "helpshort"]``.
    """
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return {table: {name: answer for answer, names in rows.items() for name in names} for table, rows in tables.items()}
