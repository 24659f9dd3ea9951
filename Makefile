# Everything starts here: `make demo` and `make test` work on a fresh machine that has Python 3.11 or newer and make.
# What is installed lives in .venv; what is built lives in build/ and runs/.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:

# The torch this project is tested with. A build without CUDA is enough (and much smaller), for example:
#   make install PIP_INSTALL='--extra-index-url https://download.pytorch.org/whl/cpu' TORCH=torch==2.13.0+cpu
TORCH ?= torch==2.13.0
PIP_INSTALL ?=
# Extras of pyproject.toml; CI adds `peers`, without which tests/peers skip.
EXTRAS ?= dev
# Which Python makes the venv; empty = the first of python3.11, 3.12, 3.13, python3 that is new enough.
PYTHON ?=
# Processes of the test run.
JOBS ?= 2

BIN := .venv/bin
# One stamp per version of torch and choice of extras, so that another one installs again.
INSTALLED := .venv/.installed-$(subst =,-,$(TORCH))-$(EXTRAS)

.PHONY: help install demo test check lint test-slow bench clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  variables: TORCH=$(TORCH)  PIP_INSTALL='$(PIP_INSTALL)'  PYTHON='$(PYTHON)'  JOBS=$(JOBS)  EXTRAS=$(EXTRAS)"

install: $(INSTALLED)  ## make .venv with the command `soliton` (quick when it is there already)

.venv/bin/python:
	@found=
	for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found="$$python"; break; fi
	done
	if [ -z "$$found" ]; then
	  echo "Soliton needs Python 3.11 or newer and found none. Install it, or name it: make install PYTHON=/path/to/python3.11" >&2
	  exit 1
	fi
	"$$found" -m venv .venv || {
	  rm -rf .venv
	  echo "'$$found -m venv' failed. On Debian and Ubuntu: apt-get install python3-venv" >&2
	  exit 1
	}

# torch is named in the same command as the rest, so that pip never replaces it by another build.
$(INSTALLED): pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install $(PIP_INSTALL) '$(TORCH)' -e '.[$(EXTRAS)]'
	rm -f .venv/.installed-*
	touch $@

demo: install  ## a 0.3M-parameter model learns to use a calculator: SFT, value pretraining, SAO (minutes on 2 cores)
	$(BIN)/soliton train recipes/calculator.toml run.dir=runs/demo-$$(date +%Y%m%d-%H%M%S)

test: install check  ## lint, types, import contracts, spelling and every default test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder -m 'not slow'

check: install  ## everything in `make test` except the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

lint: install  ## mend what ruff can mend, format, and say what is left
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-slow: install  ## the tests that take minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) -m slow

bench: install  ## timed comparisons: a table, and build/bench.json
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

clean:  ## remove the venv and everything built; runs/ stays
	rm -rf .venv build ./*.egg-info .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
