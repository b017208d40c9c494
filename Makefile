# make demo: set everything up and run the main job.    make test: set everything up and run the tests.
PYTHON ?= python3
BIN := .venv/bin
# The package takes any newer PyTorch. Here it is the one that the record of numbers (benchmarks/golden.json) has.
TORCH ?= torch<2.14

.PHONY: setup demo test test-torch quick check docs release bench soak fuzz clean

setup: .venv/dev

# The package alone; the demo needs no more.
.venv/core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" --editable .
	touch .venv/core

# The package, the test runner, the linters and the oracles that the tests compare with.
.venv/dev: .venv/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" --editable ".[dev]"
	touch .venv/dev

demo: .venv/core
	$(BIN)/noise2text demo

test: .venv/dev
	$(BIN)/python -m pytest --numprocesses 2

# The quick tests with another PyTorch, in an environment of its own: make test-torch TORCH=torch==2.11.0
test-torch:
	$(PYTHON) -m venv build/test-torch
	build/test-torch/bin/pip install --quiet --disable-pip-version-check "$(TORCH)" --editable ".[dev]"
	build/test-torch/bin/python -c "import torch; print('torch', torch.__version__)"
	build/test-torch/bin/python -m pytest --numprocesses 2 -m "not long"

quick: .venv/dev
	$(BIN)/python -m pytest --numprocesses 2 -m "not long"

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python .ci/check_dependencies.py
	$(MAKE) docs

# The documentation site, in site/; a broken link or an option without a page stops it.
docs: .venv/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Builds what is uploaded, in dist/, and tries the wheel in a bare environment. The version is in core/version.py.
BARE := build/bare
release: .venv/dev
	rm -rf dist $(BARE)
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(BARE)
	$(BARE)/bin/pip install --quiet --disable-pip-version-check "$(TORCH)" dist/*.whl
	$(BARE)/bin/noise2text --version
	test "$$($(BARE)/bin/noise2text generate de-en "Ich habe zwei Brüder.")" = "I have two brothers."
	$(BARE)/bin/noise2text demo --out $(BARE)/demo --set optim.steps=50 --set validate_every=50

bench: .venv/dev
	test -e runs/demo/model.safetensors || $(BIN)/noise2text demo
	for name in generation invariance mbr; do $(BIN)/python benchmarks/$$name.py || exit 1; done

# Attack training, the parsers and the service for twenty minutes, and print the figures (docs/reliability.md).
soak: .venv/dev
	$(BIN)/python tests/soak/soak.py --minutes 20

# Attack every parser with a million mutated inputs, and print the figures (docs/reliability.md). Where atheris can be
# installed, ten more minutes are guided by coverage.
fuzz: .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check ".[fuzz]" || true
	$(BIN)/python tests/fuzz/fuzz.py --cases 1000000 --guided 600

clean:
	rm -rf .venv runs site dist build .mypy_cache .ruff_cache .import_linter_cache .pytest_cache
