# Entry points of the project; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
TARGET ?= local
UV_VERSION := 0.13.9
BIN := .venv/bin
JARS := $(or $(PENSTOCK_JARS),.penstock/jars)
RUN ?= $(shell ls -td runs/*/ 2>/dev/null | head -n 1)

# A shell that forbids cached bytecode makes every process and every test worker compile all its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo docs unit test test-live test-cluster up down load kind kind-down report bench bench-beside bench-ready lint lines format proto clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

setup: .venv/.synced ## install everything: Python packages, Java, Maven, Redis, RabbitMQ, Prometheus, HAProxy, jars (quick when done)
	@infra/local/setup.sh system
	@infra/local/setup.sh jars "$(JARS)"

demo: setup ## run the main job live: binpack-tail against linear, seconds 480-550 of the paper's workload; table and report.html
	@$(BIN)/penstock demo --world local

unit: .venv/.synced ## run all tests that need Python packages alone
	@$(BIN)/python -m pytest -q -p tests.support.forked --forks 6 -m "not live and not cluster and not smoke and not system and not long"

test: setup lint unit ## lint, unit tests, tests that need installed programs, one live smoke test per package
	@$(BIN)/python -m pytest -p tests.support.forked --forks 2 -m "(smoke or system or long) and not live and not cluster"

test-live: setup ## run fault, conformance and full-service tests on this machine
	@tests/live.sh

test-cluster: setup ## run tests against the cluster of the current kubeconfig
	@if [ ! -e "$${KUBECONFIG:-$$HOME/.kube/config}" ]; then \
		echo "test-cluster: skipped, there is no kubeconfig (KUBECONFIG or ~/.kube/config)"; \
	else \
		$(BIN)/pytest -m cluster || { [ $$? -eq 5 ] && echo "test-cluster: there are no cluster tests yet"; }; \
	fi

# On a cluster, Python packages and kubectl are enough.
NEEDED := $(if $(filter local,$(TARGET)),setup,.venv/.synced)

up: $(NEEDED) ## start the services and keep them running; TARGET=cluster: in the cluster of the current kubeconfig
	@$(BIN)/penstock up --target "$(TARGET)"

down: .venv/.synced ## stop services, runs and replicas; TARGET=cluster: delete them
	@$(BIN)/penstock down --target "$(TARGET)"

load: $(NEEDED) ## open the Locust page on http://localhost:8089; TARGET=cluster: senders are pods; OPTIONS="--headless …" go to Locust
	@$(BIN)/penstock load --target "$(TARGET)" -- $(OPTIONS)

kind: .venv/.synced ## create the kind cluster `penstock` and start the services on it; needs docker, kind and kubectl
	@$(BIN)/python -m infra.kubernetes.kind up

kind-down: .venv/.synced ## delete the kind cluster `penstock`
	@$(BIN)/python -m infra.kubernetes.kind down

report: .venv/.synced ## write the report of the newest run, or of RUN=runs/...
	@test -n "$(RUN)" || { echo "report: runs/ has no run yet; \`make demo\` makes one" >&2; exit 2; }
	@$(BIN)/penstock report "$(RUN)"

docs: .venv/.synced ## build the docs site in site/, strict about links
	@env -u VIRTUAL_ENV UV_PYTHON_DOWNLOADS=never $(BIN)/uv sync --frozen --quiet --inexact --group site
	@PYTHONPATH=. NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "docs: site/index.html"

bench: bench-ready ## run all benchmarks, each beside its reference
	@up=0; $(BIN)/penstock status >/dev/null 2>&1 || { $(BIN)/penstock up && up=1; } || exit; \
	trap '[ $$up = 0 ] || $(BIN)/penstock down' EXIT; \
	eval "$$($(BIN)/penstock env)"; \
	for bench in tests/bench/bench_*.py; do echo "== $$bench"; PYTHONPATH=. $(BIN)/python "$$bench" || exit; done

bench-beside: bench-ready ## run the benchmarks of this checkout and of commit BASE in turn, and print ratios
	@test -n "$(BASE)" || { echo "bench-beside: name a commit, as in \`make bench-beside BASE=HEAD~5\`" >&2; exit 2; }
	@base=$$(mktemp -d)/base up=0; \
	trap '[ $$up = 0 ] || $(BIN)/penstock down; git worktree remove --force "$$base"' EXIT; \
	git worktree add --quiet --detach "$$base" "$(BASE)" && $(PYTHON) -m venv "$$base/.venv" || exit; \
	(cd "$$base" && env -u VIRTUAL_ENV UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT="$$base/.venv" \
		"$(CURDIR)/$(BIN)/uv" sync --frozen --quiet --group bench) || exit; \
	$(BIN)/penstock status >/dev/null 2>&1 || { $(BIN)/penstock up && up=1; } || exit; \
	eval "$$($(BIN)/penstock env)"; \
	$(BIN)/python tests/bench/side_by_side.py "$$base" $(BENCHMARKS)

bench-ready: setup
	@env -u VIRTUAL_ENV UV_PYTHON_DOWNLOADS=never $(BIN)/uv sync --frozen --quiet --group bench

proto: .venv/.synced ## generate the gRPC messages of the external scaler; the files are committed
	@$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. controller/keda/*.proto

lines: ## count the lines of product Python: all .py outside tests/ and docs/
	@git ls-files -z '*.py' ':!tests' ':!docs' | xargs -0 cat | wc -l

lint: .venv/.synced ## run ruff, mypy and the import boundaries
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: .venv/.synced ## format the code with ruff
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

clean: ## stop everything and remove .venv, .penstock and caches; runs/ stays
	@[ ! -x $(BIN)/penstock ] || $(BIN)/penstock down
	rm -rf .venv .penstock .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis spark-warehouse

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
		{ echo "setup: $(PYTHON) is not Python 3.11 to 3.13: name one, as in \`make setup PYTHON=python3.12\`" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "setup: $(PYTHON) has no venv: \`sudo apt-get install python3-venv\`" >&2; exit 2; }
	@echo "setup: making .venv" >&2
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# uv uses the Python of .venv and fetches none of its own.
.venv/.synced: pyproject.toml uv.lock | $(BIN)/uv
	@echo "setup: installing the Python packages (pyspark is built, which takes half a minute)" >&2
	@env -u VIRTUAL_ENV UV_PYTHON_DOWNLOADS=never $(BIN)/uv sync --frozen --quiet
	@touch $@
