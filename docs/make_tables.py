"""Writes the lists of docs/settings.md from the settings' declarations: ``python docs/make_tables.py [--check]``."""

import argparse
import dataclasses
import pathlib
import re
import textwrap
from collections.abc import Iterable, Sequence

from t2t_ext.config.asynchronous import AsynchronousHParams
from t2t_ext.config.context_gate import ContextGateHParams
from t2t_ext.config.decode import DecodeHParams
from t2t_ext.config.dynamic_conv import DynamicConvHParams
from t2t_ext.config.generation import GenerationConfig
from t2t_ext.config.hyperparameters import HParams, TransformerHParams
from t2t_ext.config.layer_coordination import LayerCoordinationHParams
from t2t_ext.config.own_text import OwnTextOptions
from t2t_ext.config.strict_params import StrictParams, help_of, limits_of
from t2t_ext.config.synchronous import SynchronousHParams
from t2t_ext.config.training import TrainConfig
from t2t_ext.data.generation.cleaning import Cleaning

PAGE = pathlib.Path(__file__).parent / "settings.md"
# The hparams of all models, as the Transformers declare them.
_ALL_MODELS = [field for field in dataclasses.fields(TransformerHParams) if field.name in HParams.names()]


def declared_anew(settings: type[StrictParams], base: type[StrictParams]) -> list[dataclasses.Field]:
    """Returns the fields that a class has and its base has not, or has with another default or meaning."""
    before = {field.name: (field.default, help_of(field)) for field in dataclasses.fields(base)}
    return [each for each in dataclasses.fields(settings) if before.get(each.name) != (each.default, help_of(each))]


# Marker -> the settings that are listed there.
TABLES: dict[str, Sequence[dataclasses.Field]] = {
    "training": dataclasses.fields(TrainConfig),
    "generation": dataclasses.fields(GenerationConfig),
    "cleaning": dataclasses.fields(Cleaning),
    "own text": dataclasses.fields(OwnTextOptions),
    "decoding": dataclasses.fields(DecodeHParams),
    "hparams": _ALL_MODELS,
    "transformer": [each for each in dataclasses.fields(TransformerHParams) if each not in _ALL_MODELS],
    **{
        settings.__name__: declared_anew(settings, TransformerHParams)
        for settings in (
            LayerCoordinationHParams,
            DynamicConvHParams,
            SynchronousHParams,
            AsynchronousHParams,
            ContextGateHParams,
        )
    },
}


def listing(fields: Iterable[dataclasses.Field]) -> str:
    """Returns a Markdown list: name, default, meaning with unit, choices and limits."""
    lines = []
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
    for marker, fields in TABLES.items():
        begin, end = f"<!-- {marker} -->", f"<!-- end of {marker} -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n{listing(fields)}\n{end}{tail}"
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
