# make setup | demo | test | test-all | coverage | lint | bench, in .venv or in VENV=<folder>
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# one thread per operation: small networks and a suite on all cores are faster with it
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-all coverage lint bench

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable '.[dev,ray]'
	touch $@

demo: setup
	$(BIN)/pate faces --output data/faces --num 110000 --private_fraction 0.91 --public_fraction 0.045
	$(BIN)/pate run configs/faces --references

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n auto -m 'not slow'

test-all: lint
	$(BIN)/pytest -n auto

# of what runs in the tests' own processes, forked commands left out
coverage: setup
	$(BIN)/pytest -n auto -m 'not slow' --cov --cov-report=term

bench: setup
	for script in scripts/bench_*.py; do echo "== $$script" && PYTHONPATH=. $(BIN)/python $$script || exit 1; done
