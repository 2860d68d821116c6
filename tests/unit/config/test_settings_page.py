"""Tests that the page of settings agrees with the declarations."""

import dataclasses
import importlib.util
import pathlib

import pytest

from t2t_ext import registry
from t2t_ext.config.decode import DecodeHParams
from t2t_ext.config.generation import GenerationConfig
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.training import TrainConfig

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def make_tables():
    spec = importlib.util.spec_from_file_location("make_tables", ROOT / "docs" / "make_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(make_tables):
    text = make_tables.PAGE.read_text(encoding="utf-8")
    assert make_tables.page(text) == text, "python docs/make_tables.py writes it anew"


def test_every_setting_is_there_with_its_help(make_tables):
    """The page lists, with help, all settings of training, data generation, decoding and all registered models."""
    text = make_tables.PAGE.read_text(encoding="utf-8")
    classes = {type(registry.hparams(name)) for name in registry.hparams_names()}
    assert all(issubclass(each, HParams) for each in classes)
    assert len(classes) > 5
    for settings in (TrainConfig, GenerationConfig, DecodeHParams, *classes):
        for field in dataclasses.fields(settings):
            assert field.metadata["help"], field.name
            if field.name != "train_command":
                assert f"* `{field.metadata['flag'] or field.name}`" in text


def test_a_default_of_a_model_stands_with_the_model(make_tables):
    """A default that differs from the Transformer's is listed in the table of its model."""
    pages = make_tables.TABLES
    assert [field.default for field in pages["hparams"] if field.name == "pseudo"] == ["auto"]
    assert [field.default for field in pages["AsynchronousHParams"] if field.name == "pseudo"] == ["one"]
    assert [field.name for field in pages["SynchronousHParams"]] == ["synchronous"]
