# Two commands on a fresh machine with Python >= 3.11: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-long test-cluster lint format docs clean

demo: $(VENV)/.core
	$(BIN)/winkel train deep_sea/0 --seeds 2 --episodes 600 --beta-decay 1 --chunk-steps 50 --resume --out demo
	$(BIN)/winkel inspect demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist=loadfile --no-loadscope-reorder

test-long: $(VENV)/.test
	$(BIN)/python -m pytest -m long -n 2 --dist=loadfile

test-cluster: $(VENV)/.test $(VENV)/.cluster
	$(BIN)/python -m pytest -m cluster

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) demo figures site

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if v >= (3, 11) else "winkel needs Python >= 3.11, %s is %d.%d; choose another with make PYTHON=..." % ((sys.executable,) + v))'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.test $(VENV)/.dev $(VENV)/.docs $(VENV)/.cluster: $(VENV)/.%: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) -e '.[$*]'
	@touch $@
