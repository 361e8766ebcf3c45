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
# What one process compiles of Python hundreds of tests do not compile again, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE
CHECK_PIP = @$(BIN)/python -m pip --version >/dev/null 2>&1 || \
  { echo ".venv is half made (it has no pip): run 'make clean', then this again." >&2; exit 1; }

# A .venv whose Python has gone is made anew, so what was installed in it counts no more.
STALE := $(shell [ -x .venv/bin/python ] || rm -f .venv/.installed*)

help:
	@echo "make bench   set up .venv and benchmark the kernels      (ARGS='--rows 4096 --cols 768')"
	@echo "make test    set up .venv, then run ruff, mypy and the tests of the first tier   (ARGS='-k tint')"
	@echo "make test-all  set up .venv, then run ruff, mypy and every test"
	@echo "make fuzz    set up .venv and draw hostile input for an hour   (SECONDS=600)"
	@echo "make lint    only ruff and mypy"
	@echo "make docs    build the documentation as a site, in build/docs"
	@echo "make editor  bundle the page's editor anew, after a change in webnorm/web/editor/   (needs node and npm)"
	@echo "make clean   remove .venv, caches and builds: the way out of a broken .venv"
	@echo "PYTHON=python3.12 chooses the interpreter for a new .venv."

bench: .venv/.installed
	@$(BIN)/webnorm bench $(ARGS)

# Four processes for two cores: many tests wait, for another process, a browser or a limit. mypy, which takes one core
# for half a minute, runs at the same time.
test: TIER = -m "not slow"
test test-all: style .venv/.installed-browser .venv/.installed-prose
	@$(BIN)/mypy >.venv/mypy.txt 2>&1 & types=$$!; \
	$(BIN)/pytest -n 4 --dist loadgroup $(TIER) $(ARGS); status=$$?; \
	wait $$types || status=1; cat .venv/mypy.txt; exit $$status

# What the suite draws of each fuzzer, five times over and never the same, again and again until the time is up; the
# round that is under way then comes to its end, and there is one at least. One of twenty minutes hangs: others take
# one or two.
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

# What was built before goes: pages that are no more would stay.
docs: .venv/.installed-docs
	@rm -rf build/docs
	@$(BIN)/python docs/site/build_site.py build/docs

# In a copy, so that no node_modules lies where the package is made from. No package's own script runs.
editor:
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && cp webnorm/web/editor/* "$$folder" && cd "$$folder" && \
	  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && node build.mjs "$(VENDOR)"

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The stamps come last, so a set-up that was interrupted is done again. People who only measure do not get the
# test tools, much of which is never imported: Python compiles the rest when it is. The adapter is a system package:
# `doctor --fix` prints each command before it runs it.
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

# Nothing of the site needs an adapter, or the network.
.venv/.installed-docs: pyproject.toml .venv/bin/python
	$(CHECK_PIP)
	$(PIP) -e '.[docs]'
	@touch $@

# Chromium for the pages, and Tint in the user's cache, which `make clean` leaves alone. Without them (no root, no
# network, no node) the other tests still run, and pytest names the skipped ones with the reason.
.venv/.installed-browser: .venv/.installed-test webnorm/web/tint.py
	@$(BIN)/webnorm doctor --fix --browser && touch $@ || \
	  echo "The tests of pages in a browser and of shaders in Tint may be skipped." >&2

# The linter of prose. Without node or network pytest names its test as skipped, with the reason.
.venv/.installed-prose: $(wildcard tests/prose/*.json tests/prose/*/*.js*) .venv/bin/python
	@rm -rf .venv/prose && cp -r tests/prose .venv/prose && \
	  npm ci --prefix .venv/prose --ignore-scripts --no-audit --no-fund --loglevel=error && touch $@ || \
	  echo "The linter of prose could not be installed; its test is skipped." >&2

# --clear: what an interrupted run or a removed Python left behind is of no use.
.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "$(PYTHON) not found: webnorm needs Python 3.11 or later." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "webnorm needs Python 3.11 or later; choose one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments; Debian, Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
