.DEFAULT_GOAL := help
SHELL := bash
PYTHON := .venv/bin/python
ARGS ?=
# Where the machine sets it, every Python that the tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# More workers than a small machine has CPUs, since tests wait for servers and clocks. tests/conftest.py has the order.
PARALLEL := -n 4 --dist loadfile --no-loadscope-reorder
PYTEST := $(if $(COVERAGE),tools/scripts/coverage,$(PYTHON) -m pytest)
# Where the matrix looks for what is proven: in each release of a runtime, on each version of Kubernetes.
KUBERNETES := 1.32.2 1.34.4 1.36.3
MATRIX := tests/runtimes tests/native tests/headlamp tests/raddle/test_shim.py tests/cluster/test_cluster.py \
    tests/chart/test_install.py tests/chart/test_lifecycle.py tests/integration/test_injection.py tests/integration/test_runtime.py
# Programs in Go, API servers and kubectl among them, collect garbage less often, for more memory.
unit test test-changed matrix: export GOGC := 400
# OpenBLAS's threads sleep at once: by default they spin for tens of milliseconds in each process that imports numpy.
unit test test-changed matrix: export OPENBLAS_THREAD_TIMEOUT := 4

.PHONY: help
help: ## Print what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: setup
setup: ## Make .venv with all packages (the other targets do it themselves)
	@tools/scripts/setup

.PHONY: demo
demo: setup $(if $(filter tune,$(ARGS)),native) ## Run the main job on a real local cluster; with ARGS=tune, tune a model there (as root)
	@$(PYTHON) -m $(if $(filter tune,$(ARGS)),demo.tune,demo) $(filter-out tune,$(ARGS))

.PHONY: check
check: setup ## Lint, format, types, shell scripts
	@tools/scripts/check

.PHONY: native
native: setup ## Build the native shim for every architecture that there is a compiler for
	@tools/scripts/packages
	@$(PYTHON) -m native build

.PHONY: unit
unit: native ## Run the tests that need no cluster and no runtime, with few examples: a minute
	@$(PYTHON) -m pytest --unit -n auto --dist loadfile $(ARGS)

.PHONY: test
test: $(if $(ARGS),,check) native ## Run every check, and every test that takes minutes at most; ARGS goes to pytest; COVERAGE=1 prints what is reached
	@$(PYTHON) -m cluster build > /dev/null
	@$(PYTEST) $(or $(ARGS),$(PARALLEL))
	@$(if $(ARGS),true,$(PYTHON) -m generate.supported --check)

.PHONY: test-changed
test-changed: check native ## Run the tests that reach what was changed since main; ARGS=--list only names them
	@$(PYTHON) -m changed $(ARGS)

.PHONY: matrix
matrix: native ## Try every release of runtimes, Kubernetes and servers, and write docs/reference/supported.md (as root; GBs, an hour)
	@for version in $(KUBERNETES); do $(PYTHON) -m cluster build --version $$version > /dev/null; done
	@RADDLE_KUBERNETES="$(KUBERNETES)" $(PYTHON) -m pytest -m "not servers" -rs $(or $(ARGS),$(PARALLEL) $(MATRIX))
	@$(if $(ARGS),true,$(PYTHON) -m generate.supported --write)
	@$(if $(ARGS),true,$(PYTHON) -m pytest -m servers -s tests/servers --write)
	@$(if $(ARGS),true,$(PYTHON) -m generate)

.PHONY: lab
lab: native ## Run containers on NUMA machines under QEMU: where each thread and its memory really are (minutes)
	@$(PYTHON) -m pytest -m lab -s tests/lab $(ARGS)

.PHONY: e2e
e2e: native ## Install Raddle on two real nodes, one of them virtual; ARGS="-m autoscaling": HPA and VPA there (as root; minutes)
	@tools/scripts/packages nodes
	@$(PYTHON) -m cluster build --containerd > /dev/null
	@$(PYTHON) -m pytest -m e2e -s tests/e2e $(ARGS)

.PHONY: reliability
reliability: native ## Bring about failures and attacks on a real cluster and count what was promised (as root; minutes)
	@$(PYTHON) -m pytest -m "failure or attack" -v tests/reliability tests/integration $(ARGS)

.PHONY: fuzz
fuzz: native ## Fuzz the parsers in Python and C, placement and the webhook: two million cases and more (minutes)
	@$(PYTHON) -m pytest -m fuzz -n auto tests/fuzz $(ARGS)

.PHONY: bench
bench: native ## Measure the budgets and write docs/benchmarks.md (an hour); ARGS names some, full-load among them
	@$(PYTHON) -m bench $(ARGS)

.PHONY: regret
regret: setup ## Print what the planner chooses in recorded cells, and what that misses; ARGS="-o json"
	@$(PYTHON) -m regret $(ARGS)

.PHONY: cluster
cluster: setup ## Start a local cluster until Ctrl-C
	@$(PYTHON) -m cluster up $(ARGS)

.PHONY: images
images: setup ## Build the container images with buildah (as root); ARGS: check, sizes, export DIR, clean
	@$(PYTHON) -m images $(ARGS)

.PHONY: generate
generate: setup ## Write what is derived: CRDs, API reference, golden files; ARGS="install [HELM OPTIONS]": dist/install.yaml
	@$(PYTHON) -m generate$(if $(filter install,$(ARGS)),.chart) $(ARGS)

.PHONY: lock
lock: setup ## Pin packages by hash; with ARGS=--upgrade the newest that are allowed
	@tools/scripts/lock $(ARGS)

.PHONY: clean
clean: ## Remove what was made inside the checkout
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
