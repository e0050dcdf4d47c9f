# `make demo` and `make test` need only Python >= 3.11 and a package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEV    := $(VENV)/.editable
PIP     = $(BIN)/python -m pip --disable-pip-version-check
HPQ     = --quiet --no-deps --no-build-isolation

# Tests mostly wait for leases and processes, so more tests than cores run at once.
JOBS   ?= 4

# The lock leaves out torch and NVIDIA's libraries: each index has its own build of torch, with its
# own hash. TORCH_INDEX=URL selects an index. By default, a machine with an NVIDIA GPU installs torch
# from pip's index, and any other machine from PyTorch's index for CPUs, whose address uv knows; if
# that index does not answer, pip's index is used (PyPI on Linux: CUDA, 3 GB). To replace the build
# in .venv: make clean install TORCH_INDEX=URL.
TORCH_INDEX ?=
GPU := $(shell nvidia-smi -L 2>/dev/null || ls /dev/nvidia[0-9]* 2>/dev/null)

# Tests start processes of hpq by the thousand; without bytecode, each compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install dev lock demo test test-all reference picture lowest cluster unit oracle libraries torchvision \
  published chaos lint audit format site bench bench-peers release-check image clean slurm

# $(call beside,FOLDER): add the libraries of .venv to the environment FOLDER, after its own.
PURELIB = python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
beside  = $(BIN)/$(PURELIB) >"$$($(1)/bin/$(PURELIB))/beside.pth"

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

install: $(STAMP) ## create .venv with hpq and the dependencies of demo and test
	@rm -f $(DEV)
	$(PIP) install $(HPQ) --force-reinstall .

dev: $(DEV) ## like install, but editable: run hpq from this checkout
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
	@echo "torch: installing the build of $(TORCH_INDEX)" >&2
	$(PIP) install --quiet --index-url $(TORCH_INDEX) --requirement requirements-torch.txt
else ifneq ($(GPU),)
	@echo "torch: NVIDIA GPU found, installing the build of pip's index (another: TORCH_INDEX=URL)" >&2
	$(PIP) install --quiet --requirement requirements-torch.txt
else
	@echo "torch: no NVIDIA GPU found, installing the build for CPUs (another: TORCH_INDEX=URL)" >&2
	UV_HTTP_RETRIES=1 $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps \
	  --torch-backend cpu --requirement requirements-torch.txt \
	  || { echo "torch: PyTorch's index does not answer, installing the build of pip's index" >&2; \
	       $(PIP) install --quiet --requirement requirements-torch.txt; }
endif
	@$(BIN)/python -c 'from importlib.metadata import version; print("torch", version("torch"))' >&2
	@touch $@

LOCK     = $(BIN)/uv pip compile --quiet --no-header --no-annotate --constraint requirements-torch.txt
NO_TORCH = awk '/^[^ ]/ { keep = !/^(torch|torchvision|triton|nvidia-[^=]*|cuda-[^=]*)==/ || /^nvidia-ml-py==/ } keep'

lock: $(STAMP) ## write requirements.lock, for every supported Python and platform
	$(LOCK) --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --all-extras pyproject.toml --output-file $(VENV)/lock
	{ echo '# All of .venv but torch and hpq: `make lock` writes it, from pyproject.toml.'; \
	  $(NO_TORCH) $(VENV)/lock; } >requirements.lock

demo: install ## run a sweep of 16 trials on the digits data set with two workers
	@$(BIN)/hpq run configs/digits.yaml --workers 2 --new

PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal
PAGES  := tests/integration/page
# Each view and script with each odd value in each field: as many faults as all others together.
ODD    := tests/integration/cli/test_odd_records.py tests/integration/store/test_odd_records.py

test: $(DEV) ## test units, commands and whole sweeps: at most four minutes on two cores
	$(PYTEST) tests/unit tests/integration tests/e2e/sweeps $(addprefix --ignore ,$(PAGES) $(ODD))

test-all: $(DEV) ## run the tests that `make test` omits: acceptance, faults, security, training code, pages
	$(PYTEST) tests/acceptance tests/e2e $(PAGES) $(ODD) --ignore tests/e2e/sweeps

# An environment with the torch of .venv. uv selects the oldest versions that pyproject.toml allows.
LOWEST   := .lowest
OF_LIBRARIES = tests/unit/search tests/unit/code/test_bundle.py tests/unit/store/test_filestore.py \
  tests/integration/python tests/integration/cli/test_export.py tests/unit/cluster/test_alerts.py \
  tests/integration/store/test_suggest*.py tests/integration/cli/test_command_line.py \
  tests/integration/cli/test_kubeconfig.py tests/e2e/faults/test_signals.py
lowest: $(DEV) ## test with the oldest versions of the libraries
	$(BIN)/python -m venv --clear $(LOWEST)
	$(call beside,$(LOWEST))
	$(LOCK) --resolution lowest-direct --python $(BIN)/python \
	  $(patsubst %,--extra %,cluster dashboard bayes store report trainers test) pyproject.toml \
	  --output-file $(LOWEST)/all
	$(NO_TORCH) $(LOWEST)/all >$(LOWEST)/pins
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --requirement $(LOWEST)/pins
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --editable .
	$(LOWEST)/bin/python -m pytest -q -n $(JOBS) --dist worksteal $(OF_LIBRARIES)

LINTER := .linter
cluster: $(DEV) ## test on a test cluster (root); skipped without one
	$(BIN)/python -m pip install --quiet kubernetes-validate==1.37.0
	@test -x $(LINTER)/bin/checkov || $(PYTHON) -m venv $(LINTER)
	$(LINTER)/bin/python -m pip install --quiet checkov==3.3.30
	PATH="$$PATH:$(CURDIR)/$(LINTER)/bin" $(BIN)/python -m pytest -q tests/cluster

slurm: $(DEV) ## test on a test Slurm of two nodes (root); skipped without one
	$(BIN)/python -m pytest -q tests/slurm

unit: $(DEV) ## run tests/unit
	$(BIN)/python -m pytest -q tests/unit

ORACLE := .oracle
oracle: tests/oracle/requirements.txt ## record the results of W&B's package again (tests/data/oracle)
	@test -x $(ORACLE)/bin/python || $(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install --quiet --requirement $<
	$(ORACLE)/bin/python -W ignore -m tests.oracle

# With the torch of .venv, since pip would download a second one. Used by `make test-all ML_PYTHON=…`.
LIBRARIES := .libraries
libraries: $(LIBRARIES)/.installed ## install libraries of some tests: Lightning, transformers, peft, Keras, Hydra, LightGBM, XGBoost, CatBoost, mcp
$(LIBRARIES)/.installed: $(STAMP) tests/support/libraries.txt
	$(BIN)/python -m venv $(LIBRARIES)
	$(call beside,$(LIBRARIES))
	sed -e '/^ *--hash/d' -e 's/ *\\$$//' requirements.lock requirements-torch.txt >$(LIBRARIES)/pins
	$(LIBRARIES)/bin/python -m pip install --quiet --constraint $(LIBRARIES)/pins \
	  --requirement tests/support/libraries.txt
	@touch $@

# A separate environment: torchvision links the CUDA libraries of torch's CUDA build (5 GB). Its
# torch comes from pip's default index, whatever pip's configuration.
TORCHVISION := .torchvision
torchvision: $(TORCHVISION)/.installed $(DEV) ## test with torchvision, in an environment of 5 GB
	$(TORCHVISION)/bin/python -m pytest -q -p no:cacheprovider tests/torchvision
$(TORCHVISION)/.installed: $(STAMP) requirements-torch.txt
	$(PYTHON) -m venv --clear $(TORCHVISION)
	PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= $(TORCHVISION)/bin/python -m pip install --quiet \
	  --requirement requirements-torch.txt torchvision==0.28.0
	$(call beside,$(TORCHVISION))
	$(TORCHVISION)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# The article's code, which is not hpq's to distribute.
PUBLISHED := .published
published: $(PUBLISHED) $(DEV) ## compare the trainer with the article's published code
	$(BIN)/python -m pytest -q tests/e2e/training/test_published.py
$(PUBLISHED):
	git clone --quiet https://github.com/NVIDIA-developer-blog/kubernetes-hyperparam-exp $@

chaos: $(DEV) ## run 2,000 trials under random faults, at most 25 minutes on two cores; then audit them
	$(BIN)/python -m tests.chaos --trials 2000

reference: $(DEV) ## generate the pages of docs/reference that come from the code
	$(BIN)/python -m docs.generate

picture: $(DEV) ## draw docs/watch.svg and docs/images/*.png from real sweeps (needs tmux, Chromium)
	$(BIN)/python -m docs.picture
	$(BIN)/python -m docs.images.pages

SITER := .siter
site: ## build the site of docs/ into site/, and search it; a missing page or heading is an error
	@test -x $(SITER)/bin/python || $(PYTHON) -m venv $(SITER)
	$(SITER)/bin/python -m pip --disable-pip-version-check install --quiet zensical==0.0.60
	rm -rf $(SITER)/docs && cp -r docs $(SITER)/docs
	cd $(SITER)/docs && rm -r results explanation/decisions errors.yaml *.py images/*.py
	{ printf -- '---\nsearch: {exclude: true}\n---\n'; cat docs/reference/errors.md; } \
	  >$(SITER)/docs/reference/errors.md
	$(SITER)/bin/zensical build --clean --strict --config-file mkdocs.yml
	@test ! -x $(BIN)/python || $(BIN)/python -m pytest -q tests/site

lint: $(DEV) ## run ruff and mypy
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# `vulns` has an entry for each library that the service knows; none if it does not answer.
AUDIT      := .audit
PIP_AUDIT   = timeout 60 $(AUDIT)/bin/pip-audit --requirement requirements.lock --disable-pip --timeout 10
VULNERABLE := '"name": "[^"]*", "version": "[^"]*", "vulns": \[{"id": "[^"]*"'
audit: ## find risky code by bandit, and libraries with a known vulnerability by pip-audit
	@test -x $(AUDIT)/bin/python || $(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip --disable-pip-version-check install --quiet bandit==1.9.4 pip-audit==2.10.1
	$(AUDIT)/bin/bandit --quiet --recursive -lll hpq views ops producer worker
	$(PIP_AUDIT) --progress-spinner off --format json >$(AUDIT)/found.json 2>$(AUDIT)/log || true
	@! grep -o $(VULNERABLE) $(AUDIT)/found.json
	@grep -q '"vulns"' $(AUDIT)/found.json \
	  || echo "pip-audit: the vulnerability service does not answer, so no library was checked"

format: $(DEV) ## run ruff format
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: $(DEV) ## measure the figures of docs/results/benchmarks.md
	$(BIN)/python -m benchmarks --page docs/results/benchmarks.md

# An environment for each section of the file, from pip's index.
PEERS     := .peers
PEER_PINS := benchmarks/queues/requirements.txt
bench-peers: $(PEERS)/.installed $(DEV) ## measure hpq beside other job queues: at most 20 minutes on two cores
	$(BIN)/python -m benchmarks.bench_peers --page docs/results/benchmarks.md
$(PEERS)/.installed: $(PEER_PINS)
	for name in $$(sed -n 's/^# //p' $<); do \
	  $(PYTHON) -m venv --clear $(PEERS)/$$name && \
	  sed -n "/^# $$name$$/,/^$$/p" $< >$(PEERS)/$$name.txt && \
	  $(PEERS)/$$name/bin/python -m pip install --quiet --requirement $(PEERS)/$$name.txt || exit 1; \
	done
	@touch $@

# A release is this and a pushed tag: .github/workflows/release.yml runs it with TAG=v1.2.3.
RELEASE := .release
TWINE   := twine@7.0.0
CHECKER := check-jsonschema@0.39.0 --builtin-schema
TAG     ?=
EMPTY    = env -u HPQ_REDIS_URL -u HPQ_HOME UV_PYTHON_DOWNLOADS=never HOME=$(CURDIR)/$(RELEASE)/home
release-check: $(STAMP) ## build the last commit's sdist, wheel and images; run the wheel from an empty home
	rm -rf $(RELEASE) dist && mkdir -p $(RELEASE)/tree $(RELEASE)/home
	git archive HEAD | tar -x -C $(RELEASE)/tree
	$(BIN)/uv build --quiet --python $(PYTHON) --out-dir dist $(RELEASE)/tree
	$(EMPTY) $(BIN)/uvx --quiet --python $(PYTHON) $(TWINE) check --strict dist/*.whl dist/*.tar.gz
	$(EMPTY) $(BIN)/uvx --quiet --python $(PYTHON) $(CHECKER) vendor.github-workflows .github/workflows/*
	$(EMPTY) $(BIN)/uvx --quiet --python $(PYTHON) $(CHECKER) vendor.dependabot .github/dependabot.yml
	$(EMPTY) $(BIN)/uv tool install --quiet --python $(PYTHON) dist/*.whl
	test -z "$(TAG)" || { $(RELEASE)/home/.local/bin/hpq --version | grep -qx "hpq $(TAG:v%=%)" \
	  && grep -q "^## \[$(TAG:v%=%)\] - 20" CHANGELOG.md; }
	cd $(RELEASE)/home && $(EMPTY) .local/bin/hpq init --example wandb-bayes && \
	  $(EMPTY) $(CURDIR)/$(BIN)/uvx --quiet --python $(PYTHON) --from $(CURDIR)/dist/*.whl \
	    hpq run wandb-bayes.yaml --set method=random --set run_cap=2 --workers 1 && \
	  $(EMPTY) .local/bin/hpq best
	if command -v buildah >/dev/null; then $(MAKE) image IMAGE_TAG=release-check; else echo "no buildah, so no images"; fi

IMAGES      ?= cli worker
IMAGE_TAG   ?= latest
IMAGE_FLAGS ?= --isolation chroot --layers
image: ## build the images hpq-cli and hpq-worker with buildah
	for target in $(IMAGES); do \
	  buildah bud $(IMAGE_FLAGS) --target $$target --tag hpq-$$target:$(IMAGE_TAG) \
	    --build-arg REVISION=$$(git rev-parse HEAD) . || exit 1; \
	done

clean: ## remove the environments
	rm -rf $(VENV) $(LIBRARIES) $(ORACLE) $(LINTER) $(LOWEST) $(TORCHVISION) $(PEERS) $(RELEASE) $(SITER) $(AUDIT)
