"""Fixtures of the contract suite."""

import contract_cases
import pytest


@pytest.fixture(params=contract_cases.CASES, ids=str)
def case(request):
    """Gives a registered model in one of its settings."""
    return request.param


@pytest.fixture
def model(case):
    """Gives the case's model in float32 with random weights; tests must not change it."""
    return contract_cases.model_of(case)
