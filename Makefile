PYTHON := .venv/bin/python
JOBS ?= 2
ARGS ?=
CASES ?= 1000

export PYSPARK_PYTHON := $(abspath $(PYTHON))

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all explore check layers format bench soak lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Create .venv with the locked packages; look for Java
	@tools/setup

demo: setup ## See Cepheid find complex events
	@./cepheid demo

test: setup layers ## Run the fast tests (ARGS="-k name" to choose)
	$(PYTHON) -m pytest -m "not slow" -n $(JOBS) --dist worksteal $(ARGS)

test-all: setup layers ## Run every test, the slow ones too, with new random examples
	CEPHEID_EXPLORE=1 $(PYTHON) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

explore: setup ## Compare all backends on random cases and go on after differences (CASES=20000 ARGS="--seed 7 --spark-every 50")
	cd tests && PYTHONPATH=../src CEPHEID_CASES=$(CASES) ../$(PYTHON) differential.py $(ARGS)

check: setup layers ## Check format, lint, types and layers
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy

layers: setup
	$(PYTHON) tools/check_layers.py

format: setup ## Format the code and fix what lint can fix
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

bench: setup ## Run the benchmarks (ARGS="..." is passed on)
	$(PYTHON) -m bench $(ARGS)

soak: setup ## Run a stream with keys that come and go, and report memory and state (ARGS="--minutes 60")
	$(PYTHON) tools/soak.py $(ARGS)

lock: setup ## Bring requirements.lock up to pyproject.toml (ARGS=--upgrade for newer versions)
	$(PYTHON) -m pip install --quiet uv
	$(PYTHON) -m uv pip compile --quiet $(ARGS) --generate-hashes --universal --python-version 3.11 --all-extras \
		--no-header --no-annotate --no-emit-index-url pyproject.toml --output-file requirements.lock

clean: ## Remove .venv and all caches
	rm -rf .venv .venv.lock .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
