# Two commands do everything on a machine with Python 3.11: `make demo` and `make test`.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Processes that tests run in; each needs up to 3.5 GB of memory.
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo test coverage test-hostile test-slow lint format docs clean

help: ## Lists the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml setup.py t2t_ext/version.py
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
	  { echo "Python 3.11 to 3.13 is needed, but $(PYTHON) is another; give one: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip setuptools wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	@touch $@

setup: $(READY) ## Makes the virtual environment .venv and installs t2t_ext into it.

demo: $(READY) ## Offline corpus -> training -> BLEU -> export -> three served sentences (3 to 5 minutes).
	PATH="$(abspath $(BIN)):$$PATH" examples/demo.sh

lint: $(READY) ## Style and types of the code, by ruff and mypy.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint ## Passes the tests (about 15 minutes on 2 cores).
	$(PYTEST)

# Of the other tests, much runs in processes of their own, which are not measured.
coverage: $(READY) ## What share of the package the unit tests run; less than pyproject.toml has fails (6 minutes).
	$(PYTEST) tests/unit --cov --cov-report=term

test-hostile: $(READY) ## Thousands of malformed and hostile cases (about 6 minutes); `make test` has a sample of them.
	$(BIN)/python -m pytest tests/hostile -m "slow or not slow"

test-slow: $(READY) ## The tests that take minutes, and rarer cases.
	$(BIN)/python -m pytest -m slow

format: $(READY) ## Formats the code.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY) ## The pages of docs/ as HTML, in build/docs.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/sphinx-build -W --keep-going -q -c docs -b html . build/docs
	@echo "Open build/docs/docs/index.html"

clean: ## Removes the virtual environment and what the demo made.
	rm -rf $(VENV) demo build dist *.egg-info
