# Tilewright. `make test` and `make demo` set everything up by themselves; they need Python 3.11 or newer.
.DEFAULT_GOAL := help
.PHONY: help test check format unit demo docs nightly mutants fuzz bench release clean

# The first interpreter of this list that is new enough; `make PYTHON=... test` overrides it.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
# Which of the mutants: `make mutants PART=2/4` plants every fourth, from the second on.
PART ?= 1/1
# How long each fuzzer runs.
SECONDS ?= 60
BIN := $(VENV)/bin
# Tests start hundreds of processes: where bytecode is not kept, each compiles all sources that it imports (0.8 s of CPU).
unexport PYTHONDONTWRITEBYTECODE
# Modules are compiled when they are first imported: compiling all of them takes half of the time of an installation.
INSTALL := $(BIN)/pip --disable-pip-version-check --quiet install --no-compile
SOURCES := src tests typings benchmarks examples fuzz

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

test: $(VENV)/dev.stamp ## set up, then style, types, floors and all tests, side by side
	@$(MAKE) --no-print-directory --jobs=2 check unit

check: $(VENV)/dev.stamp
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/codespell README.md SECURITY.md docs src

unit: $(VENV)/dev.stamp
	$(BIN)/python -m pytest

demo: $(VENV)/demo.stamp ## set up, then sentence similarity with a real model, beside onnxruntime
	$(BIN)/python -m examples.sentence_similarity.main

docs: $(VENV)/docs.stamp ## the documentation as a site, in docs/_build; a warning is an error
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build

nightly: $(VENV)/fuzz.stamp $(VENV)/browser.stamp $(VENV)/servers.stamp $(VENV)/torch.stamp ## all slow tests, fresh draws and eight hours of fuzzers, in steps; of the zoo, too, where `python -m benchmarks.zoo` has made it
	$(BIN)/python tests/nightly.py

mutants: $(VENV)/dev.stamp ## plant faults in the compiler; the tests must notice each
	$(BIN)/python tests/mutants/run.py --part $(PART)

fuzz: $(VENV)/fuzz.stamp ## fuzz all that is read, SECONDS each (60), or with a SEED; finds are in fuzz/work/finds
	$(BIN)/python -m fuzz $(if $(SEED),--seed $(SEED),--seconds $(SECONDS))

bench: $(VENV)/bench.stamp ## benchmarks against peers, and the page of results (hours; wants a quiet machine)
	$(BIN)/python -m benchmarks

release: $(VENV)/release.stamp ## build the wheel and the sdist into dist/, check both, install and use them in clean environments
	$(BIN)/python tests/release.py

format: $(VENV)/dev.stamp ## repair what the style check can repair
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean: ## remove the environment and the caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Set-up, stamped: done again only when pyproject.toml changes.
$(VENV)/python.stamp:
	@test -n "$(PYTHON)" || { echo "Tilewright needs Python 3.11 or newer; make PYTHON=/path/to/python test"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV) || { echo "no venv module: install it (Debian: python3-venv)"; exit 1; }
	@touch $@

$(VENV)/dev.stamp: $(VENV)/python.stamp pyproject.toml
	$(INSTALL) --editable '.[dev]'
	@touch $@

# The page that `tilewright report` writes is opened in it.
$(VENV)/browser.stamp: $(VENV)/python.stamp
	command -v chromium || { apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends chromium; }
	@touch $@

# Servers that tests of the service start, as users without privileges and on addresses of this machine.
$(VENV)/servers.stamp: $(VENV)/dev.stamp
	$(INSTALL) --editable '.[servers]'
	ls /usr/lib/postgresql/*/bin/initdb || { apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends postgresql; }
	@touch $@

$(VENV)/demo.stamp: $(VENV)/python.stamp pyproject.toml
	$(INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/docs.stamp: $(VENV)/python.stamp pyproject.toml
	$(INSTALL) --editable '.[docs]'
	@touch $@

$(VENV)/fuzz.stamp: $(VENV)/dev.stamp
	$(INSTALL) --editable '.[fuzz]'
	@touch $@

# Tests of PyTorch programs are skipped without it.
$(VENV)/torch.stamp: $(VENV)/dev.stamp
	$(INSTALL) --editable '.[torch]'
	@touch $@

$(VENV)/release.stamp: $(VENV)/python.stamp pyproject.toml
	$(INSTALL) '.[release]'
	@touch $@

$(VENV)/bench.stamp: $(VENV)/python.stamp pyproject.toml
	$(INSTALL) --editable '.[bench]'
	@touch $@
