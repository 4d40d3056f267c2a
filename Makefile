.DEFAULT_GOAL := help
SHELL := bash
PYTHON := .venv/bin/python
ARGS ?=
# Where the machine sets it, every Python that the tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# More workers than a small machine has CPUs, since tests wait for servers and clocks. tests/conftest.py has the order.
PARALLEL := -n 4 --dist loadfile --no-loadscope-reorder
# Programs in Go, API servers and kubectl among them, collect garbage less often, for more memory.
test coverage: export GOGC := 400
# OpenBLAS's threads sleep at once: by default they spin for tens of milliseconds in each process that imports numpy.
test coverage: export OPENBLAS_THREAD_TIMEOUT := 4

.PHONY: help
help: ## Print what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: setup
setup: ## Make .venv with all packages (the other targets do it themselves)
	@tools/scripts/setup

.PHONY: demo
demo: setup ## Run the main job on a real local cluster and show what every pod got, and what it gains
	@$(PYTHON) -m demo $(ARGS)

.PHONY: demo-tune
demo-tune: setup native ## Tune a model on a local cluster, from an InferenceTuning to a pod that runs with the value (as root)
	@$(PYTHON) -m demo.tune $(ARGS)

.PHONY: check
check: setup ## Lint, format, types, shell scripts
	@tools/scripts/check

.PHONY: packages
packages: ## Install the Debian packages that the runtimes' tests use (as root, with apt-get)
	@tools/scripts/packages

.PHONY: native
native: setup packages ## Build the native shim for every architecture that there is a compiler for
	@$(PYTHON) -m native build

.PHONY: test
test: $(if $(ARGS),,check) native ## Run every check and every test; with ARGS, which goes to pytest, only what that names
	@$(PYTHON) -m cluster build > /dev/null
	@$(PYTHON) -m pytest $(or $(ARGS),$(PARALLEL))
	@$(if $(ARGS),true,$(PYTHON) -m generate.supported --check)

.PHONY: coverage
coverage: native ## Run the tests and print the lines and branches that they reach, by module; ARGS goes to pytest
	@$(PYTHON) -m cluster build > /dev/null
	@tools/scripts/coverage $(or $(ARGS),$(PARALLEL))

.PHONY: lab
lab: setup native ## Run containers on NUMA machines under QEMU: where each thread and its memory really are (minutes)
	@$(PYTHON) -m pytest -m lab -s tests/lab $(ARGS)

.PHONY: e2e
e2e: setup native ## Install Raddle on two real nodes, one of them virtual, and look into pods that run (as root; minutes)
	@tools/scripts/packages nodes
	@$(PYTHON) -m cluster build --containerd > /dev/null
	@$(PYTHON) -m pytest -m e2e -s tests/e2e $(ARGS)

.PHONY: reliability
reliability: setup packages ## Bring about failures and attacks on a real cluster and count what was promised (as root; minutes)
	@$(PYTHON) -m pytest -m "failure or attack" -v tests/reliability tests/integration $(ARGS)

.PHONY: e2e-autoscaling
e2e-autoscaling: setup native ## Show an HPA on CPU and VPA's loop on a real node, without Raddle and with it (as root; minutes)
	@tools/scripts/packages nodes
	@$(PYTHON) -m pytest -m autoscaling -s tests/e2e $(ARGS)

.PHONY: servers
servers: setup packages native ## Run real servers on a made-up machine of 64 CPUs, stock and with Raddle; fetches GBs (as root)
	@echo "fetches from PyPI, npm and other registries what docs/reference/servers.md lists, once, below ~/.cache/raddle"
	@$(PYTHON) -m pytest -m servers -s tests/servers $(ARGS)

.PHONY: fuzz
fuzz: setup native ## Fuzz the parsers in Python and C, placement and the webhook: two million cases and more (minutes)
	@$(PYTHON) -m pytest -m fuzz -n auto tests/fuzz $(ARGS)

.PHONY: door
door: setup packages native ## Start programs with the door and without it, 100,000 times, and compare (as root; an hour)
	@$(PYTHON) -m doorcheck $(ARGS)

.PHONY: bench
bench: setup packages native ## Measure the budgets and write docs/benchmarks.md (an hour; the quick load table is half of it)
	@$(PYTHON) -m bench $(ARGS)

.PHONY: bench-load
bench-load: setup packages native ## Measure the full load table (an hour per call, many to finish; goes on where it stopped)
	@$(PYTHON) -m load table --full --write --minutes 60 $(ARGS)

.PHONY: cluster
cluster: setup ## Start a local cluster until Ctrl-C
	@$(PYTHON) -m cluster up $(ARGS)

.PHONY: manifests
manifests: setup ## Write dist/install.yaml for kubectl apply; ARGS goes to helm template
	@$(PYTHON) -m generate.chart install $(ARGS)

.PHONY: chart-versions
chart-versions: setup ## Test the chart and the webhook on API servers 1.32, 1.34 and 1.36, those of them that are built
	@RADDLE_KUBERNETES="1.32.2 1.34.4 1.36.3" $(PYTHON) -m pytest \
	    -rs $(or $(ARGS),tests/chart/test_install.py tests/chart/test_lifecycle.py \
	    tests/integration/test_injection.py)
	@$(if $(ARGS),true,$(PYTHON) -m generate.supported --check)

.PHONY: images
images: setup ## Build the container images with buildah (as root); ARGS: check, sizes, export DIR, clean
	@$(PYTHON) -m images $(ARGS)

.PHONY: generate
generate: setup ## Write what is derived: CRDs, API reference, golden files
	@$(PYTHON) -m generate $(ARGS)

.PHONY: lock
lock: setup ## Pin packages by hash; with ARGS=--upgrade the newest that are allowed
	@tools/scripts/lock $(ARGS)

.PHONY: clean
clean: ## Remove what was made inside the checkout
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
