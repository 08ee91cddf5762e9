# Every target sets up first (.venv, packages, Java): a machine with Python 3.11 or newer and make is enough.
# `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN     := .venv/bin
READY   := .venv/.ready
WORKERS ?= 2
ARGS    ?=
SECONDS ?= 60
SEED    ?= 1
SEEDS   ?= 10000
INPUTS  ?= 1000000

# Compiled modules are kept, wherever the environment forbids it too: each of the many processes would compile all of them again.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/.pycache

# Where `make azurite` puts the emulator, and tests look for it.
export AZURITE_FOLDER := $(CURDIR)/.venv/azurite

# PYTHON3, on the command line or in the environment, names the Python that .venv is made with.
SET_UP := python3="$${PYTHON3:-$$(tools/find-python)}" && "$$python3" tools/set_up.py
PYTEST := $(BIN)/python -m pytest
GATE   := --doctest-modules -m "not (slow or system or nightly)"

.PHONY: help setup check test lint types layers collected unit searches system demo docs bench faults nemesis fuzz golden record azurite lowest nightly format clean

help:  ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

# --- set-up -----------------------------------------------------------------------------------------------------------------

# An environment can't be moved: one that was made for another folder counts as missing.
ifneq ($(shell head -n 1 $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif

$(READY): pyproject.toml verify/pyproject.toml published/pyproject.toml bench/pyproject.toml constraints.txt tools/set_up.py \
		tools/jar.py $(wildcard scala/*.scala)
	@$(SET_UP)

setup:  ## make .venv with everything in it (quick when it is there)
	@$(SET_UP)

# --- the gate -----------------------------------------------------------------------------------------------------------------

check: $(READY)  ## the fast gate: format, lint, types, layers, unit and doc tests, small models
	$(MAKE) -j 4 unit searches types lint layers $(BESIDE)  # `unit` takes longest, so it begins first

test: BESIDE := .venv/spark.jsa
test: check  ## everything: the gate, then the tests with real processes
	$(MAKE) system

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

# Compiles the tests once, before many workers would do so at the same time; what is wrong with them, these tell.
collected: $(READY)
	@$(PYTEST) --collect-only --quiet --ignore tests/verify tests > /dev/null || true

# More workers than cores: a test of replicas waits for half of its time.  But each of them collects all tests, 6 s of CPU.
unit: collected
	$(PYTEST) -n $$(($(WORKERS) + 2)) --dist worksteal $(GATE) --ignore tests/verify --ignore tests/project src bench tests

# The tests of the checker and of the project's own files compute and wait for nothing: one process, which parses each file once,
# keeps a core busy beside those of `unit`, and needs no controller.  Its output comes at its end, so that the two do not mix.
searches: $(READY)
	@said=$$($(PYTEST) $(GATE) verify published tests/verify tests/project 2>&1) && echo "$$said" || { echo "$$said"; exit 1; }

# Nice, for `make test` makes it beside the gate, whose tests leave the cores idle now and then.
.venv/spark.jsa: $(READY) tools/class_archive.py
	@said=$$(nice -n 5 $(BIN)/python -m tools.class_archive 2>&1) || { echo "$$said"; exit 1; }

# Each of these starts servers of its own on free ports, and waits for them for half of its time.  The longest files come first.
system: .venv/spark.jsa
	$(PYTEST) -n $$(($(WORKERS) + 4)) --dist loadfile --no-loadscope-reorder -m "(slow or system) and not nightly" tests

# --- see it work --------------------------------------------------------------------------------------------------------------

demo: $(READY)  ## three replicas, real rows, a crash, five answers (ARGS="--input FILE" or "--git REPOSITORY")
	$(BIN)/replitree demo $(ARGS)

bench: $(READY)  ## measure inserts, bulk loads, reads, merges and tablets (ARGS="--json --peer clickhouse")
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable "bench[peers]"
	for name in inserts bulk read merges tablet; do $(BIN)/replitree bench $$name $(ARGS); done

# The generator has 90 MB and no test needs it, so it comes with this target; the site is made without a network.
docs: $(READY)  ## the documentation site in build/site; a broken link, a missing page or a lost anchor is an error
	@$(BIN)/zensical --version > /dev/null 2>&1 || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt zensical
	$(BIN)/python -m tools.pages
	$(BIN)/zensical build --strict --clean --config-file zensical.toml

# --- hunt for bugs ------------------------------------------------------------------------------------------------------------

faults: $(READY)  ## hurt real processes, links and disks under load, count every row (SECONDS=60 SEED=1 ARGS="--kinds kill,expire")
	$(BIN)/python -m tests.faults.run --seconds $(SECONDS) --seed $(SEED) $(ARGS)

nemesis: $(READY)  ## the same while clients write down what they see, which is judged: history and report (SECONDS=60 SEED=1)
	$(BIN)/python -m tests.faults.judge --seconds $(SECONDS) --seed $(SEED) $(ARGS)

fuzz: $(READY)  ## feed everything that reads bytes with damaged and invented ones (INPUTS=1000000 SEED=1 ARGS="--target arrow")
	$(BIN)/python -m tests.fuzz.run --inputs $(INPUTS) --seed $(SEED) --workers $(WORKERS) $(ARGS)

record: $(READY)  ## explore every model, and keep what was counted in docs/results (ARGS="--seconds 3600": a slice; the next one goes on)
	$(BIN)/python -m tests.verify.record --workers $(WORKERS) $(ARGS)

# Emulates Azure Blob Storage for one file of tests, which is left out where there is no npm.  Later versions want Node.js 22.
azurite: export npm_config_update_notifier := false
azurite: $(READY)
	if command -v npm > /dev/null; then npm install --silent --no-audit --no-fund --ignore-scripts --prefix .venv/azurite azurite@3.35.0; fi

lowest: $(READY)  ## the lowest versions that pyproject.toml allows, in an environment of their own, and a selection of tests
	$(BIN)/python -m tools.lowest

# The record comes first: models that have a line for the code as it is are not explored again.  A test simulates the seeds below 3,000.
nightly: record docs azurite  ## big models, many seeds (SEEDS=10000), long faults (SECONDS=60 SEED=1), fuzzing (INPUTS=1000000)
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "(not system or nightly) and not recorded" --hypothesis-profile search --timeout 3600 tests
	$(BIN)/replitree verify simulate --seeds 3000:$(SEEDS) --workers $(WORKERS)
	$(BIN)/python -m tests.faults.run --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.faults.judge --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.faults.sharded_rounds --rounds 200 --seed $(SEED)
	$(BIN)/python -m tests.faults.streamed --seed $(SEED)
	$(BIN)/python -m tests.faults.streamed --seed $(SEED) --from-table
	$(BIN)/python -m tests.shared.rounds --seed $(SEED)
	$(BIN)/python -m tests.fuzz.run --inputs $(INPUTS) --seed $(SEED) --workers $(WORKERS)
	$(BIN)/python -m tests.damage.run --damages 10000 --seed $(SEED)
	$(BIN)/python -m tests.machines.rounds.run --rounds 200 --seed $(SEED) --p50-max 1
	$(BIN)/python -m tests.machines.rounds.run --rounds 200 --seed $(SEED) --p50-max 5 --store s3
	$(MAKE) lowest

# --- upkeep -------------------------------------------------------------------------------------------------------------------

golden: $(READY)  ## rewrite the golden files and show what changed
	$(PYTEST) -m "not (system or nightly)" --rewrite-golden tests
	git --no-pager diff --stat --patch -- '*.golden' '*.txt' '*.svg'

format: $(READY)  ## format, and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove everything that was made: the environment, caches, reports
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src verify published bench tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
