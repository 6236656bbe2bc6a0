# Everything from a fresh machine with python3 and make: `make demo` or `make test` set up what they need. uv is used when present.

# the first interpreter that is new enough; override with `make PYTHON=…`
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python3.10,$(shell $(p) -c 'import sys; sys.version_info >= (3, 10) and print("$(p)")' 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
PYTEST := $(BIN)/python -m pytest
# these start real servers, measure, or build the wheel: they have targets of their own
SLOW := --ignore=tests/real_engine --ignore=tests/bench --ignore=tests/wheel
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test lint format types wheel-test bench real-engine soak clean

help: ## show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no python3 of version 3.10 or newer on PATH" >&2; exit 1; }
ifdef UV
	$(UV) venv --quiet --seed --python "$(PYTHON)" $(VENV)
else
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3 cannot make environments: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
endif

# a stamp each, so that a change of pyproject.toml installs again and nothing else does
$(STAMP): pyproject.toml | $(BIN)/python
	$(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check) -e .
	@touch $@

$(DEV_STAMP): pyproject.toml | $(BIN)/python
	$(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check) -e '.[dev]'
	@touch $@ $(STAMP)

demo: $(STAMP) ## start a small real engine, stall a rank, capture, analyse: the whole tool in half a minute
	$(BIN)/forensics demo $(ARGS)

test: $(DEV_STAMP) ## the tests (ARGS='-k name' for some of them)
	$(PYTEST) $(SLOW) $(ARGS)

lint: $(DEV_STAMP) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(DEV_STAMP) ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(DEV_STAMP) ## mypy --strict
	$(BIN)/mypy --strict

wheel-test: $(DEV_STAMP) ## build the wheel, install it away from the source, run it there
	$(PYTEST) -s tests/wheel $(ARGS)

bench: $(DEV_STAMP) ## measure: prints ratios, fails on a gross regression only
	$(PYTEST) -s tests/bench $(ARGS)

real-engine: $(DEV_STAMP) ## capture and analyse a real vLLM (installs one, 2.5 GB, in ~/.cache/real-vllm or REAL_VLLM_HOME)
	$(PYTEST) -s -v tests/real_engine -m "not soak" $(ARGS)

soak: $(DEV_STAMP) ## the same for longer; leaves its dated output in tests/real_engine/results
	$(PYTEST) -s -v tests/real_engine -m soak --timeout 0 $(ARGS)

clean: ## remove the environment and what was built
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
