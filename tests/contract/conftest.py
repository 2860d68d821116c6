"""Fixtures of the contract suite."""

import contract_cases
import pytest


@pytest.fixture(params=contract_cases.CASES, ids=str)
def case(request):
    """A registered model in one of its settings."""
    return request.param


@pytest.fixture
def model(case):
    """The case's model in float32, random weights; not to be changed."""
    return contract_cases.model_of(case)
