MAKEFLAGS += --no-builtin-rules --warn-undefined-variables
SHELL := /bin/sh
.SUFFIXES:
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help bench test test-all fuzz lint style docs editor clean

PYTHON ?= python3
ARGS ?=
TIER :=
SECONDS ?= 3600
VENDOR := $(CURDIR)/webnorm/web/assets/vendor
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
# Tests start hundreds of Python processes. With bytecode files, only the first one compiles a module.
unexport PYTHONDONTWRITEBYTECODE
CHECK_PIP = @$(BIN)/python -m pip --version >/dev/null 2>&1 || \
  { echo ".venv is incomplete (it has no pip): run 'make clean', then try again." >&2; exit 1; }

# A .venv whose Python no longer exists is created again, so its stamps are removed.
STALE := $(shell [ -x .venv/bin/python ] || rm -f .venv/.installed*)

help:
	@echo "make bench   set up .venv and benchmark the kernels      (ARGS='--rows 4096 --cols 768')"
	@echo "make test    set up .venv, then run ruff, mypy and the first tier of the tests   (ARGS='-k tint')"
	@echo "make test-all  set up .venv, then run ruff, mypy and every test"
	@echo "make fuzz    set up .venv and run the fuzzers for an hour   (SECONDS=600)"
	@echo "make lint    only ruff and mypy"
	@echo "make docs    build the documentation as a site in build/docs"
	@echo "make editor  bundle the page's editor after a change in webnorm/web/editor/   (needs node and npm)"
	@echo "make clean   remove .venv, caches and builds, for example if .venv is broken"
	@echo "PYTHON=python3.12 selects the interpreter for a new .venv."

bench: .venv/.installed
	@$(BIN)/webnorm bench $(ARGS)

# Four processes for two cores, because many tests wait for another process, a browser or a time limit. mypy takes one
# core for half a minute and runs at the same time.
test: TIER = -m "not slow"
test test-all: style .venv/.installed-browser .venv/.installed-prose
	@$(BIN)/mypy >.venv/mypy.txt 2>&1 & types=$$!; \
	$(BIN)/pytest -n 4 --dist loadgroup $(TIER) $(ARGS); status=$$?; \
	wait $$types || status=1; cat .venv/mypy.txt; exit $$status

# Rounds of all fuzzers with five times the suite's examples and new seeds, until the time is up. The current round is
# finished, and there is at least one. A round takes one or two minutes, so one of twenty minutes hangs.
fuzz: .venv/.installed-test
	@case '$(SECONDS)' in ''|*[!0-9]*) echo "SECONDS is '$(SECONDS)'; expected a whole number" >&2; exit 2;; esac; \
	end=$$(( $$(date +%s) + $(SECONDS) )); \
	while :; do \
	  WEBNORM_FUZZ=5 timeout 1200 $(BIN)/pytest -x -q -n 2 tests/*/test_fuzz_*.py || exit; \
	  [ $$(date +%s) -lt $$end ] || break; \
	done

lint: style
	$(BIN)/mypy

style: .venv/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

# The old build is removed, because deleted pages would stay in it.
docs: .venv/.installed-docs
	@rm -rf build/docs
	@$(BIN)/python docs/site/build_site.py build/docs

# Builds in a copy, so that the package's source folder gets no node_modules. Scripts of packages do not run.
editor:
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && cp webnorm/web/editor/* "$$folder" && cd "$$folder" && \
	  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && node build.mjs "$(VENDOR)"

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The stamps are touched last, so an interrupted set-up is repeated. `make bench` does not install the test tools. They
# are not compiled in advance, because most of them are never imported. The adapter is a system package: `doctor --fix`
# prints each command before it runs it.
.venv/.installed: pyproject.toml .venv/bin/python
	$(CHECK_PIP)
	$(PIP) -e .
	$(BIN)/webnorm doctor --fix
	@touch $@

.venv/.installed-test: pyproject.toml .venv/bin/python
	$(CHECK_PIP)
	$(PIP) --no-compile -e '.[test,docs]'
	$(BIN)/webnorm doctor --fix
	@touch .venv/.installed .venv/.installed-docs $@

# The site needs neither an adapter nor the network.
.venv/.installed-docs: pyproject.toml .venv/bin/python
	$(CHECK_PIP)
	$(PIP) -e '.[docs]'
	@touch $@

# Installs Chromium and Firefox, and Tint and Deno in the user's cache, which `make clean` does not touch. Without them
# (no root, no network, no node) the other tests still run, and pytest lists the skipped ones with the reason.
.venv/.installed-browser: .venv/.installed-test webnorm/engines/catalog.py webnorm/engines/node_webgpu.py
	@$(BIN)/webnorm doctor --fix --browser --engine all && touch $@ || \
	  echo "The tests of pages in browsers, of other engines and of shaders in Tint may be skipped." >&2

# The linter of prose. Without node or network pytest names its test as skipped, with the reason.
.venv/.installed-prose: $(wildcard tests/prose/*.json tests/prose/*/*.js*) .venv/bin/python
	@rm -rf .venv/prose && cp -r tests/prose .venv/prose && \
	  npm ci --prefix .venv/prose --ignore-scripts --no-audit --no-fund --loglevel=error && touch $@ || \
	  echo "The linter of prose could not be installed; its test is skipped." >&2

# --clear removes the rest of an interrupted run or of a removed Python.
.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "$(PYTHON) not found: webnorm needs Python 3.11 or later." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "webnorm needs Python 3.11 or later; choose one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments; Debian, Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
