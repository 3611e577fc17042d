# make setup | demo | test | test-all | coverage | lint | bench | reproduce | docs, in .venv or in VENV=<folder>
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# which versions of other packages: those of constraints.txt, or with VERSIONS="--resolution lowest-direct" the lowest
VERSIONS ?= --constraint constraints.txt
# one thread per operation: small networks and a suite on all cores are faster with it
export OMP_NUM_THREADS ?= 1
# compiled tests and modules are kept, whatever the surroundings say: each process saves seconds
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/pytest -n auto --dist worksteal

.PHONY: setup demo test test-all fast all coverage lint bench reproduce docs

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(VERSIONS) --editable '.[dev,ray]'
	touch $@

# both runs at once, each of which keeps one core busy; what they print comes when they end
demo: setup
	$(BIN)/pate faces --output data/faces --num 80000 --private_fraction 0.91 --public_fraction 0.045
	@echo "two runs, by score votes and by StableTopK: a minute"
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target demo-faces demo-faces_stable_topk
	$(BIN)/pate ledger show --ledger data/faces/ledger.sqlite

demo-%:
	$(BIN)/pate run configs/$*

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# lint beside the tests, for there is a core to spare while the last of them end; either fails both
test: setup
	$(MAKE) --no-print-directory --jobs=2 fast lint

test-all: setup
	$(MAKE) --no-print-directory --jobs=2 all lint

fast: setup
	$(PYTEST) -m 'not slow'

all: setup
	$(PYTEST)

# by all tests, of what runs in their own processes, forked commands left out
coverage: setup
	$(PYTEST) --cov --cov-report=term

bench: setup
	for script in scripts/bench_*.py; do echo "== $$script" && PYTHONPATH=. $(BIN)/python $$script || exit 1; done

# the quick form of all that papers show, and docs/reproduction.md; PATE_DATA names the folder of their data
reproduce: setup
	$(BIN)/python -m scripts.reproduction

# site/index.html opens without a server, but for its search: make docs && python3 -m http.server --directory site
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
