"""Puts benchmarks/ on the path for its tests, and provides the modules of comparison.py."""

import importlib
import pathlib
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="package", autouse=True)
def on_the_path():
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def benchmark():
    return importlib.import_module("comparison")


@pytest.fixture(scope="module")
def plans():
    return importlib.import_module("_comparison_plan")


@pytest.fixture(scope="module")
def stores(benchmark):
    return benchmark._comparison_store


@pytest.fixture(scope="module")
def book(benchmark):
    return benchmark.recipe_book()


@pytest.fixture
def make_plan(benchmark, book):
    def make(corpus="multi30k", *, all_rows=False, **more):
        plan = benchmark.Plan(FOLDER / "comparison.toml", corpus, book, **more)
        if all_rows:  # of the main rows, with every training recipe
            plan.variants = {name: {**each, "rows": ["*"]} for name, each in plan.variants.items()}
        return plan

    return make


@pytest.fixture(scope="module")
def differences():
    return importlib.import_module("_comparison_tests")


@pytest.fixture(scope="session")
def pairs():
    return importlib.import_module("_comparison_pairs")
