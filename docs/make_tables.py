"""Writes the lists of docs/settings.md from the settings' declarations: ``python docs/make_tables.py [--check]``."""

import argparse
import dataclasses
import pathlib
import re
import textwrap

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.config.generation import GenerationConfig
from t2t_ext.config.hyperparameters import HParams, TransformerHParams
from t2t_ext.config.own_text import OwnTextOptions
from t2t_ext.config.strict_params import StrictParams, help_of, limits_of
from t2t_ext.config.training import TrainConfig
from t2t_ext.data.generation.cleaning import Cleaning

PAGE = pathlib.Path(__file__).parent / "settings.md"
# Marker -> the class, and the class whose fields have a list of their own.
TABLES: dict[str, tuple[type[StrictParams], type[StrictParams] | None]] = {
    "training": (TrainConfig, None),
    "generation": (GenerationConfig, None),
    "cleaning": (Cleaning, None),
    "own text": (OwnTextOptions, None),
    "decoding": (DecodeHParams, None),
    "hparams": (HParams, None),
    "transformer": (TransformerHParams, HParams),
}


def listing(settings: type[StrictParams], without: type[StrictParams] | None = None) -> str:
    """Returns a Markdown list: name, default, meaning with unit, choices and limits.

    Args:
      settings: The class that declares the settings.
      without: A class whose fields are left out.
    """
    lines = []
    fields = [field for field in dataclasses.fields(settings) if not without or field.name not in without.names()]
    for field in fields:
        if field.name == "train_command":  # the command's own
            continue
        name = field.metadata["flag"] or field.name
        shown = "" if field.default is None else field.default
        shown = str(shown).lower() if isinstance(shown, bool) else shown
        meaning = " ".join(filter(None, [help_of(field), limits_of(field)]))
        item = f"* `{name}`{f' (`{shown}`)' if shown != '' else ''}: {_escaped(meaning)}"
        lines += textwrap.wrap(item, 150, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return re.sub(r"([<>*_])", r"\\\1", text)


def page(text: str) -> str:
    """Returns the page with every list between its markers made anew."""
    for marker, (settings, without) in TABLES.items():
        begin, end = f"<!-- {marker} -->", f"<!-- end of {marker} -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n{listing(settings, without)}\n{end}{tail}"
    return text


def main() -> int:
    """Writes the page, or with --check says whether it is as the declarations are; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="Write nothing.")
    check = parser.parse_args().check
    before = PAGE.read_text(encoding="utf-8")
    after = page(before)
    if check:
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
