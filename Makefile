# make demo: set everything up and run the main job.    make test: set everything up and run the tests.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test quick check bench clean

setup: .venv/dev

# The package alone; the demo needs no more.
.venv/core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch .venv/core

# The package, the test runner, the linters and the oracles that the tests compare with.
.venv/dev: .venv/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch .venv/dev

demo: .venv/core
	$(BIN)/noise2text demo

test: .venv/dev
	$(BIN)/python -m pytest --numprocesses 2

quick: .venv/dev
	$(BIN)/python -m pytest --numprocesses 2 -m "not long"

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: .venv/dev
	test -e runs/demo/model.safetensors || $(BIN)/noise2text demo
	for name in generation invariance mbr; do $(BIN)/python benchmarks/$$name.py || exit 1; done

clean:
	rm -rf .venv runs .mypy_cache .ruff_cache .import_linter_cache .pytest_cache
