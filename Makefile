# `make demo` and `make test` need Python >= 3.11 and a package index, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Tests mostly wait, for leases and for processes to start, so more of them than cores run at once.
JOBS   ?= 4

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all cluster unit oracle libraries chaos lint format bench clean

help: ## the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

install: $(STAMP) ## .venv with all that demo and test need

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "hpq needs Python 3.11 or newer; set PYTHON=…"; exit 2; }
	@echo "installing into $(VENV): a minute or two, mostly torch" >&2
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

demo: $(STAMP) ## a real sweep of 16 sets on the digits data set, two workers
	@$(BIN)/hpq run configs/digits.yaml --workers 2 --new

PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

test: $(STAMP) ## units, commands on a real server, whole sweeps: at most five minutes on two cores
	$(PYTEST) tests/unit tests/integration tests/e2e/sweeps

test-all: $(STAMP) ## what `make test` leaves out: faults, security, training code
	$(PYTEST) tests/e2e --ignore tests/e2e/sweeps

LINTER := .linter
cluster: $(STAMP) ## the tests in pods, on a test cluster (root); they skip where there is none
	$(BIN)/python -m pip install --quiet kubernetes-validate==1.37.0
	@test -x $(LINTER)/bin/checkov || $(PYTHON) -m venv $(LINTER)
	$(LINTER)/bin/python -m pip install --quiet checkov==3.3.30
	PATH="$$PATH:$(CURDIR)/$(LINTER)/bin" $(BIN)/python -m pytest -q tests/cluster

unit: $(STAMP) ## the tests that need no server
	$(BIN)/python -m pytest -q tests/unit

ORACLE := .oracle
oracle: tests/oracle/requirements.txt ## ask W&B's own package again what it answers (tests/data/oracle)
	@test -x $(ORACLE)/bin/python || $(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install --quiet --requirement $<
	$(ORACLE)/bin/python -W ignore -m tests.oracle

# Beside .venv and on its torch; pip would else fetch a second one. `make test-all ML_PYTHON=…` uses it.
LIBRARIES := .libraries
libraries: $(LIBRARIES)/.installed ## what some tests want: Lightning, transformers, Keras, Hydra, LightGBM
$(LIBRARIES)/.installed: $(STAMP) tests/libraries.txt
	$(BIN)/python -m venv $(LIBRARIES)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  >"$$($(LIBRARIES)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth"
	$(LIBRARIES)/bin/python -m pip install --quiet --constraint requirements.lock \
	  --requirement tests/libraries.txt
	@touch $@

chaos: $(STAMP) ## five minutes of kills, stops, cuts and restarts, then the audit
	$(BIN)/python -m tests.chaos

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: $(STAMP) ## ruff format
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: $(STAMP) ## the figures of docs/benchmarks.md
	$(BIN)/python -m benchmarks

clean: ## remove what install made
	rm -rf $(VENV) $(LIBRARIES) $(ORACLE) $(LINTER)
