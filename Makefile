# Every target makes what it needs, the virtual environment included: python3 (with venv), make and gcc are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
PYTEST ?= $(BIN)/python -m pytest
INSTALL := $(UV) pip install -q --compile-bytecode --python $(BIN)/python
LOCKED := $(INSTALL) --require-hashes
WORKERS ?= 2
# Tests of real servers wait for processes for a third of their time and more.
SERVER_WORKERS ?= 3

# Programs that start often start from compiled modules, whatever the caller's shell says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-server test-long test-project-quotas test-runtimes test-sandbox test-install test-api-fuzz test-storage-fuzz fuzz faults soak test-serving-long test-rolling check lint format bench load bench-peers bench-serving performance docs record lock audit sbom wheel clean

help:  ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r n t; do printf '  make %-14s %s\n' "$$n" "$$t"; done

setup: $(VENV)/.server $(VENV)/.develop  ## Make the virtual environment with everything in it

demo: $(VENV)/.server  ## Start a server, train two real models, serve one, tune it, show what came out
	@$(BIN)/python examples/demo.py

test: test-fast test-server  ## Run all tests: the fast ones first

test-fast: $(VENV)/.develop  ## Unit tests, in seconds
	$(PYTEST) tests/unit tests/compat tests/fuzz/test_registry.py tests/fuzz/test_parsers.py -q -n $(WORKERS) -m "not slow"

test-server: $(VENV)/.develop  ## Contracts, properties, real servers
	$(PYTEST) tests/contract tests/properties tests/integration tests/acceptance tests/sandbox \
		-q -n $(SERVER_WORKERS) --dist loadgroup -m "not runtimes and not slow" --ignore tests/acceptance/test_pages.py

test-long: $(VENV)/.develop  ## Tests of ten seconds and more; every command of README, tutorial and how-to, typed; the original client (LONG_SLICE=N: the slow tests of half of the files, the others with N + 1)
	$(PYTEST) tests/acceptance/test_pages.py tests/compat/test_original_client.py -q -n $(WORKERS) --dist loadgroup
	$(PYTEST) tests/compat tests/unit -q -n $(WORKERS) --dist loadgroup -m "slow and not runtimes" --ignore tests/compat/test_original_client.py
	$(PYTEST) tests/integration tests/acceptance tests/sandbox -q -n $(SERVER_WORKERS) --dist loadgroup -m "slow and not runtimes"
	PROPERTIES_EXAMPLES=100 $(PYTEST) tests/properties -q -n $(WORKERS)
	COMPETING_ROUNDS=1000 $(PYTEST) tests/unit/controller/placement/test_competing_gangs.py -q

test-project-quotas: $(VENV)/.develop  ## Disk limits that the kernel keeps, in an emulated machine; takes KERNEL, see tests/project_quotas/run.sh
	@if [ -z "$(KERNEL)" ]; then echo "skipped: KERNEL names no unpacked package of a kernel; see tests/project_quotas/run.sh"; \
	elif ! command -v qemu-system-x86_64 > /dev/null; then echo "skipped: there is no qemu-system-x86_64"; \
	else tests/project_quotas/run.sh "$(KERNEL)"; fi

test-runtimes: $(VENV)/.develop  ## Train with every framework; downloads gigabytes the first time (RUNTIMES_SLICE=N: an eighth of it, others with each N)
	$(PYTEST) tests/runtimes tests/compat tests/integration/environments/test_build.py tests/acceptance/test_slides.py \
		-q -s -n 0 -m runtimes

fuzz: $(VENV)/.all test-api-fuzz test-storage-fuzz  ## The API, then every parser for FUZZ_S seconds (20), guided by coverage (FUZZ_SLICE=N: a third of them)
	$(BIN)/python tests/fuzz/run.py --workers $(WORKERS)

test-install: $(VENV)/.develop  ## The install page, typed on a fresh Debian (takes root and debootstrap)
	$(PYTEST) tests/install -q -n 0

test-sandbox: $(VENV)/.develop  ## What a hostile job tries, each with a control (a part of test)
	$(PYTEST) tests/sandbox -q -n $(WORKERS) --dist loadgroup

test-api-fuzz: $(VENV)/.all  ## Requests made up from the OpenAPI document, against a real server (CLOUDML_FUZZ_S=600 for long)
	$(PYTEST) tests/fuzz/test_openapi.py -q

test-storage-fuzz: $(VENV)/.develop  ## The original storage client, driven by luck against a real server for FUZZ_S seconds (20)
	$(PYTEST) tests/fuzz/test_original_storage.py -q -n 0

faults: $(VENV)/.develop  ## Kill, stop, starve and deceive real servers, and look what holds (FAULTS_KILLS=1000 FAULTS_CUTS=100 FAULTS_ROUNDS=100 for the whole, PARTS=distributed for one file, PARTS=frameworks for real frameworks, for an hour; with FRAMEWORKS_SLICE=N one death of half of them, others with each N, for minutes)
	$(PYTEST) $(or $(PARTS:%=tests/faults/test_%.py),tests/faults) -q -n $(WORKERS) --dist loadgroup \
		-m "not alone$(if $(PARTS),, and not runtimes)"
	$(if $(PARTS),,$(PYTEST) tests/faults/test_hostile_replica.py tests/faults/test_hostile_callers.py -q -n 0 -m alone)

soak: $(VENV)/.develop  ## Load for SOAK_S seconds (two hours), then what the server holds on to; SOAK_KILL_S=20 kills it meanwhile
	$(BIN)/python tests/soak/soak.py

test-serving-long: $(VENV)/.develop  ## Requests and reloads of a model server, and what it holds on to (SERVING_REQUESTS=1000000 SERVING_RELOADS=1000: the whole)
	$(PYTEST) tests/soak/test_model_server.py -q -s -p no:xdist

test-rolling: $(VENV)/.develop  ## Calls for ROLLING_S seconds (60) while versions roll, replicas and the server are killed: none may fail
	$(BIN)/python benchmarks/serving/rolling.py $(ROLLING_S)

check: lint  ## What lint does, types, docs
	$(BIN)/mypy
	$(BIN)/mypy examples/sdk
	$(BIN)/mypy --config-file tests/mypy.ini tests benchmarks tools docs/_ext
	$(MAKE) docs

lint: $(VENV)/.develop  ## Format, lint, spelling, import rules, generated code: seconds, before each commit
	$(BIN)/ruff format --check src tests benchmarks examples tools docs
	$(BIN)/ruff check src tests benchmarks examples tools docs
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md src docs examples benchmarks tools
	$(BIN)/python tools/twins.py --check
	$(BIN)/python -m cloud_ml.serving.protos.make --check
	$(BIN)/lint-imports

format: $(VENV)/.develop  ## Bring the code into form, and make the synchronous SDK from the asynchronous one
	$(BIN)/ruff format src tests benchmarks examples tools docs
	$(BIN)/ruff check --fix src tests benchmarks examples tools docs
	$(BIN)/python tools/twins.py
	$(BIN)/python -m cloud_ml.serving.protos.make

bench: $(VENV)/.develop  ## The figures we promise, beside their floors (PARTS='job_start idle' for some)
	$(BIN)/python benchmarks/run.py $(PARTS)

load: $(VENV)/.develop  ## Many callers, a greedy one, a thousand followers, much output, clients that misbehave (LOAD_S=5: short)
	$(BIN)/python benchmarks/run.py $(or $(PARTS),load)

bench-peers: $(VENV)/.develop  ## The same of others here: Slurm, torchrun, Ray, MLflow, Dask, Parsl, uv, pip (downloads once)
	$(BIN)/python benchmarks/run.py $(or $(PARTS),peers)

bench-serving: $(VENV)/.develop  ## The model server beside MLServer, KServe, BentoML, LitServe, mosec, pytriton (downloads once)
	$(BIN)/python benchmarks/run.py $(or $(PARTS),serving)

performance: $(VENV)/.develop  ## Fill docs/performance.md from what these have measured
	$(BIN)/python tools/performance.py

lock: $(VENV)/.develop  ## Bring locks/ in line with pyproject.toml (RENEW=1: the newest of everything)
	$(BIN)/python tools/locks.py $(if $(RENEW),--renew)

audit: $(VENV)/.develop  ## Known vulnerabilities of what is locked (AUDIT_DATABASE=all.zip: without a network)
	$(BIN)/python tools/audit.py $(if $(AUDIT_DATABASE),--database $(AUDIT_DATABASE))

sbom: $(VENV)/.all  ## What a server is made of, as CycloneDX: dist/sbom.json
	@mkdir -p dist
	$(BIN)/python tools/sbom.py dist/sbom.json

wheel: $(VENV)/.server  ## The wheel of the last commit, in dist/: the same commit gives the same bytes
	@$(BIN)/python tools/wheel.py dist

$(VENV)/.all: locks/all.txt $(VENV)/.develop
	$(LOCKED) -r locks/all.txt
	@touch $@

docs: $(VENV)/.develop  ## Build the documentation, warnings as errors
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

record: $(VENV)/.server  ## Record the terminal session that the documentation shows
	PYTHONPATH=docs/_ext $(BIN)/python -m cloud_ml_docs.recording

clean:  ## Remove what was built; the caches of environments stay
	rm -rf $(VENV) docs/_build build dist .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(UV):
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r locks/uv.txt

$(VENV)/.server: pyproject.toml locks/server.txt locks/build.txt | $(UV)
	$(LOCKED) -r locks/server.txt -r locks/build.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

$(VENV)/.develop: locks/develop.txt $(VENV)/.server
	$(LOCKED) -r locks/develop.txt
	@touch $@
