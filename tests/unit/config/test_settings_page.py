"""The page of settings is what the declarations say."""

import dataclasses
import importlib.util
import pathlib

import pytest

from t2t_ext.config.strict_params import StrictParams

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
    text = make_tables.PAGE.read_text(encoding="utf-8")
    for settings, _ in make_tables.TABLES.values():
        assert issubclass(settings, StrictParams)
        for field in dataclasses.fields(settings):
            assert field.metadata["help"], field.name
            if field.name != "train_command":
                assert f"* `{field.metadata['flag'] or field.name}`" in text
