# `make demo` and `make test` need Python >= 3.11 and a package index, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEV    := $(VENV)/.editable
PIP     = $(BIN)/python -m pip --disable-pip-version-check
HPQ     = --quiet --no-deps --no-build-isolation

# Tests mostly wait, for leases and for processes to start, so more of them than cores run at once.
JOBS   ?= 4

# The lock leaves out torch and NVIDIA's libraries: each index has its own build of torch, with its
# own hash. TORCH_INDEX=URL names an index. Without TORCH_INDEX a machine with an NVIDIA GPU takes
# the build of pip's index, and any other machine asks PyTorch's index for CPUs, whose address uv
# knows; if that index does not answer, pip's index decides (from PyPI: CUDA on Linux, 3 GB).
# For another build than the one in .venv: make clean install TORCH_INDEX=URL.
TORCH_INDEX ?=
GPU := $(shell nvidia-smi -L 2>/dev/null || ls /dev/nvidia[0-9]* 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help install dev lock demo test test-all reference picture lowest cluster unit oracle libraries torchvision \
  chaos lint format bench clean

# $(call beside,FOLDER): the environment there sees the libraries of .venv behind its own.
PURELIB = python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
beside  = $(BIN)/$(PURELIB) >"$$($(1)/bin/$(PURELIB))/beside.pth"

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

install: $(STAMP) ## .venv with hpq and everything that demo and test need
	@rm -f $(DEV)
	$(PIP) install $(HPQ) --force-reinstall .

dev: $(DEV) ## like install, but editable: hpq runs from this checkout
$(DEV): $(STAMP)
	$(PIP) install $(HPQ) --editable .
	@touch $@

$(STAMP): pyproject.toml requirements.lock requirements-torch.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "hpq needs Python 3.11 or newer; set PYTHON=…"; exit 2; }
	@echo "installing into $(VENV): a minute or two, mostly torch" >&2
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --require-hashes --requirement requirements.lock
ifneq ($(TORCH_INDEX),)
	@echo "torch: the build of $(TORCH_INDEX)" >&2
	$(PIP) install --quiet --index-url $(TORCH_INDEX) --requirement requirements-torch.txt
else ifneq ($(GPU),)
	@echo "torch: the build of pip's index, for the NVIDIA GPU (TORCH_INDEX=URL: another)" >&2
	$(PIP) install --quiet --requirement requirements-torch.txt
else
	@echo "torch: the build for CPUs, as no NVIDIA GPU is here (TORCH_INDEX=URL: another)" >&2
	UV_HTTP_RETRIES=1 $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps \
	  --torch-backend cpu --requirement requirements-torch.txt \
	  || { echo "torch: PyTorch's index does not answer: the build of pip's index" >&2; \
	       $(PIP) install --quiet --requirement requirements-torch.txt; }
endif
	@$(BIN)/python -c 'from importlib.metadata import version; print("torch", version("torch"))' >&2
	@touch $@

LOCK     = $(BIN)/uv pip compile --quiet --no-header --no-annotate --constraint requirements-torch.txt
NO_TORCH = awk '/^[^ ]/ { keep = !/^(torch|torchvision|triton|nvidia-[^=]*|cuda-[^=]*)==/ } keep'

lock: $(STAMP) ## write requirements.lock, for every supported Python and platform
	$(LOCK) --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --all-extras pyproject.toml --output-file $(VENV)/lock
	{ echo '# All of .venv but torch and hpq: `make lock` writes it, from pyproject.toml.'; \
	  $(NO_TORCH) $(VENV)/lock; } >requirements.lock

demo: install ## a real sweep of 16 trials on the digits data set, two workers
	@$(BIN)/hpq run configs/digits.yaml --workers 2 --new

PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

test: $(DEV) ## units, commands on a real server, whole sweeps: at most five minutes on two cores
	$(PYTEST) tests/unit tests/integration tests/e2e/sweeps

test-all: $(DEV) ## what `make test` leaves out: faults, security, training code
	$(PYTEST) tests/e2e --ignore tests/e2e/sweeps

# Beside .venv, whose torch it uses. uv takes the oldest versions that pyproject.toml admits.
LOWEST   := .lowest
OF_LIBRARIES = tests/unit/search tests/unit/code/test_bundle.py tests/unit/store/test_filestore.py \
  tests/unit/producer/test_remedies.py tests/unit/worker/test_endpoint.py \
  tests/integration/store/test_suggest*.py tests/integration/cli/test_command_line.py \
  tests/integration/cli/test_kubeconfig.py tests/e2e/faults/test_kills.py
lowest: $(DEV) ## test with the oldest versions of the libraries
	$(BIN)/python -m venv --clear $(LOWEST)
	$(call beside,$(LOWEST))
	$(LOCK) --resolution lowest-direct --python $(BIN)/python \
	  $(patsubst %,--extra %,cluster worker bayes store trainers test) pyproject.toml \
	  --output-file $(LOWEST)/all
	$(NO_TORCH) $(LOWEST)/all >$(LOWEST)/pins
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --requirement $(LOWEST)/pins
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --editable .
	$(LOWEST)/bin/python -m pytest -q -n $(JOBS) --dist worksteal $(OF_LIBRARIES)

LINTER := .linter
cluster: $(DEV) ## tests in pods, on a test cluster (root); skipped if there is none
	$(BIN)/python -m pip install --quiet kubernetes-validate==1.37.0
	@test -x $(LINTER)/bin/checkov || $(PYTHON) -m venv $(LINTER)
	$(LINTER)/bin/python -m pip install --quiet checkov==3.3.30
	PATH="$$PATH:$(CURDIR)/$(LINTER)/bin" $(BIN)/python -m pytest -q tests/cluster

unit: $(DEV) ## tests/unit: one part of hpq at a time
	$(BIN)/python -m pytest -q tests/unit

ORACLE := .oracle
oracle: tests/oracle/requirements.txt ## ask W&B's own package again what it answers (tests/data/oracle)
	@test -x $(ORACLE)/bin/python || $(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install --quiet --requirement $<
	$(ORACLE)/bin/python -W ignore -m tests.oracle

# Beside .venv and on its torch; pip would else fetch a second one. `make test-all ML_PYTHON=…` uses it.
LIBRARIES := .libraries
libraries: $(LIBRARIES)/.installed ## libraries of some tests: Lightning, transformers, Keras, Hydra, LightGBM
$(LIBRARIES)/.installed: $(STAMP) tests/libraries.txt
	$(BIN)/python -m venv $(LIBRARIES)
	$(call beside,$(LIBRARIES))
	sed -e '/^ *--hash/d' -e 's/ *\\$$//' requirements.lock requirements-torch.txt >$(LIBRARIES)/pins
	$(LIBRARIES)/bin/python -m pip install --quiet --constraint $(LIBRARIES)/pins \
	  --requirement tests/libraries.txt
	@touch $@

# An environment of its own: torchvision links the CUDA libraries of torch's CUDA build (5 GB). Its
# torch is of pip's own index, whatever index or wheels pip is set to.
TORCHVISION := .torchvision
torchvision: $(TORCHVISION)/.installed $(DEV) ## what torchvision does for hpq, in an environment of 5 GB
	$(TORCHVISION)/bin/python -m pytest -q -p no:cacheprovider tests/torchvision
$(TORCHVISION)/.installed: $(STAMP) requirements-torch.txt
	$(PYTHON) -m venv --clear $(TORCHVISION)
	PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= $(TORCHVISION)/bin/python -m pip install --quiet \
	  --requirement requirements-torch.txt torchvision==0.28.0
	$(call beside,$(TORCHVISION))
	$(TORCHVISION)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

chaos: $(DEV) ## five minutes of kills, stops, cuts and restarts, then the audit
	$(BIN)/python -m tests.chaos

reference: $(DEV) ## docs/reference/commands.md and settings.md, from the code
	$(BIN)/python -m docs.generate

picture: $(DEV) ## docs/watch.svg, from a real sweep (needs tmux)
	$(BIN)/python -m docs.picture

lint: $(DEV) ## ruff and mypy
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: $(DEV) ## ruff format
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: $(DEV) ## the figures of docs/results/benchmarks.md
	$(BIN)/python -m benchmarks

clean: ## remove the environments
	rm -rf $(VENV) $(LIBRARIES) $(ORACLE) $(LINTER) $(LOWEST) $(TORCHVISION)
