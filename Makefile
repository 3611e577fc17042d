# make setup | demo | test | lint | test-all | without | coverage | bounds | bench | reproduce | docs | dist, in .venv or in VENV=<folder>
# make test ZONE=core, or labeling, networks, lab, pages: the fast tests of one zone
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# the demo needs neither PyTorch nor the tools of the tests
LIGHT := $(VENV)-light
# the site has an environment of its own, since it needs neither pate nor PyTorch
SITE := $(VENV)-docs/.installed
# which versions of other packages: those of constraints.txt, or with VERSIONS="--resolution lowest-direct" the lowest
VERSIONS ?= --constraint constraints.txt
# one thread per operation: small networks and a suite on all cores are faster with it
export OMP_NUM_THREADS ?= 1
# compiled tests and modules are kept, whatever the surroundings say: each process saves seconds
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/pytest -n auto --dist worksteal
# each has a folder of tests; `pages` are read and their scripts run
ZONES := labeling lab networks core pages
# the jobs of `make test`, the longest first: a process imports once what its folders need
FAST := fast-labeling fast-networks fast-rest
CORES := $(shell getconf _NPROCESSORS_ONLN)

.PHONY: setup setup-all demo test test-all fast $(FAST) all all-pages coverage lint bounds bench reproduce docs dist without

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@echo "pate and its fast tests go into $(VENV): 6 GB, most of it PyTorch for GPUs (docs/installation.md has less)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(VERSIONS) --editable '.[dev]'
	touch $@

# the packages of slow tests, peers and pages too: 1 GB more
setup-all: $(VENV)/.installed-all

$(VENV)/.installed-all: $(INSTALLED)
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(VERSIONS) --editable '.[nightly]'
	touch $@

$(LIGHT)/.installed: pyproject.toml constraints.txt
	@echo "pate without PyTorch goes into $(LIGHT): 0.4 GB"
	$(PYTHON) -m venv $(LIGHT)
	$(LIGHT)/bin/python -m pip install --quiet uv
	$(LIGHT)/bin/uv pip install --quiet --python $(LIGHT)/bin/python $(VERSIONS) --editable .
	touch $@

# the second run is named so: its teachers start from the release of the first, which has answered by then
demo: $(LIGHT)/.installed
	$(LIGHT)/bin/python -m scripts.faces --output data/faces --num 34000 --private_fraction 0.88 --public_fraction 0.05
	@echo "the first run: 29,920 private faces vote for themselves on 1,700 public ones"
	$(LIGHT)/bin/pate run configs/faces
	@echo "the second run, by StableTopK, whose teachers start from the release of the first:"
	$(LIGHT)/bin/pate run configs/faces_stable_topk --teachers.start_from runs/faces
	$(LIGHT)/bin/pate ledger show data/faces/ledger.sqlite
	@$(LIGHT)/bin/python -m scripts.faces.verdicts runs/faces runs/faces_stable_topk

# wheels alone, of the lowest or highest versions that pyproject.toml allows: faces, a run and an account;
# make bounds VERSIONS="--resolution lowest-direct"
WHEELS := $(VENV)-wheels
bounds:
	rm -rf $(WHEELS) && $(PYTHON) -m venv $(WHEELS)
	$(WHEELS)/bin/python -m pip install --quiet uv
	$(WHEELS)/bin/uv build --quiet --wheel --out-dir $(WHEELS)
	$(WHEELS)/bin/uv pip install --quiet --python $(WHEELS)/bin/python $(VERSIONS) --only-binary :all: $(WHEELS)/pate-*.whl
	$(WHEELS)/bin/python -m scripts.faces --output $(WHEELS)/data/faces --num 4000
	cd $(WHEELS) && bin/pate run faces --label.target_epsilon 8
	cd $(WHEELS) && bin/pate account --aggregator NoisyVotes --aggregator.sigma_votes 40 --num_queries 100 --delta 1e-6 \
		--num_teachers 200 --num_labels 6

# what a release publishes: an sdist, and a wheel that is built from it, read by twine and tried where nothing else is
dist:
	rm -rf dist $(WHEELS) && $(PYTHON) -m venv $(WHEELS)
	$(WHEELS)/bin/python -m pip install --quiet uv
	$(WHEELS)/bin/uv build --quiet --out-dir dist
	$(WHEELS)/bin/uvx --quiet twine check --strict dist/pate-*
	$(WHEELS)/bin/uv pip install --quiet --python $(WHEELS)/bin/python dist/pate-*.whl
	cd $(WHEELS) && bin/pate --version && bin/pate study zhu_wang_bins --k [10] --seeds 2
	cd $(WHEELS) && awk 'BEGIN { print "id,group,lactate,infection"; for (i = 0; i < 3000; i++) { x = rand(); \
		printf "s%x,p%d,%.3f,%d\n", i * 7919 + 4096, i / 2, 10 * x, (x + rand() > 1.2) } }' > stays.csv && \
		bin/pate fit stays.csv --labels infection --group group --public_fraction 0.2 --epsilon 1 && bin/pate verify runs/stays
	cd $(WHEELS) && bin/pate account --aggregator NoisyVotes --aggregator.sigma_votes 40 --num_queries 100 --delta 1e-6 \
		--num_teachers 200 --num_labels 6

# that the lab, and then networks, can be deleted: what is left passes its fast tests, in a copy of what git tracks.
# core and labeling run once, where both are deleted
ALONE := $(VENV)-alone
PROVEN := $(abspath $(BIN)/python) -m pytest -p no:xdist -m 'not slow'
without: setup
	rm -rf $(ALONE) && git checkout-index --all --prefix=$(ALONE)/
	rm -r $(ALONE)/pate/lab $(ALONE)/tests/lab
	cd $(ALONE) && PYTHONPATH=$(abspath $(ALONE)) $(PROVEN) tests/networks
	rm -r $(ALONE)/pate/_networks $(ALONE)/tests/networks
	cd $(ALONE) && PYTHONPATH=$(abspath $(ALONE)/tests/without):$(abspath $(ALONE)) $(PROVEN) tests/core tests/labeling

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --num-workers $(CORES)

# the jobs share the cores; each fails the whole
test: setup
ifdef ZONE
	$(PYTEST) -m 'not slow' $(if $(filter $(ZONES),$(ZONE)),tests/$(ZONE),$(error Expected ZONE in $(ZONES), got $(ZONE)))
else
	$(MAKE) --no-print-directory --jobs=$(CORES) --output-sync=target fast
endif

test-all: setup-all
	$(MAKE) --no-print-directory --jobs=3 all-pages all lint

fast: $(FAST)

fast-labeling: FOLDERS := tests/labeling
# what reads a run of networks is where PyTorch is imported and this run is made
NETWORKED := $(addprefix tests/test_,faults.py json.py own_code.py)
fast-networks: FOLDERS := tests/networks tests/pages tests/lab/report $(NETWORKED)
fast-rest: FOLDERS := tests/core tests/lab --ignore=tests/lab/report $(filter-out $(NETWORKED),$(wildcard tests/test_*.py))
all-pages: FOLDERS := tests/pages
$(FAST): SELECTED := -m 'not slow'
$(FAST) all-pages: setup
	@printed=$$($(BIN)/pytest -p no:xdist $(SELECTED) $(FOLDERS) 2>&1) || { echo "$$printed"; exit 1; }; \
		echo "$@:$${printed##*]}"

all: setup-all
	$(PYTEST) --ignore=tests/pages

# by all tests, of what runs in their own processes, forked commands left out
coverage: setup-all
	$(PYTEST) --cov --cov-report=term

bench: setup-all
	for script in scripts/bench_*.py; do echo "== $$script" && PYTHONPATH=. $(BIN)/python $$script || exit 1; done

# the quick form of all that papers show, and docs/reproduction.md; PATE_DATA names the folder of their data
reproduce: setup-all
	$(BIN)/python -m scripts.reproduction --output docs/reproduction

# site/index.html opens without a server, but for its search: make docs && python3 -m http.server --directory site
docs: $(SITE)
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict

$(SITE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --constraint constraints.txt mkdocs-material 'mkdocstrings[python]' latex2mathml
	touch $@
