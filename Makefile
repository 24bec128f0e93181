PYTHON ?= python3
BIN := .venv/bin
# What is never imported need not be compiled.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt

unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes: what they import is compiled once

.PHONY: run test lint types check wheel vendor clean

run: .venv/run.stamp  ## search the default space from start to winner
	$(BIN)/hpsearch run spaces/lora.yaml --backend optuna

test: .venv/compiled.stamp  ## run all tests
	$(BIN)/python -m pytest -n 6 --dist loadgroup --no-loadscope-reorder  # some of them wait for processes

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: .venv/dev.stamp
	$(BIN)/mypy
	mkdir -p .types && ln -sfn .. .types/hpsearch  # where mypy finds the hpsearch that tests import
	MYPYPATH=.types $(BIN)/mypy tests benchmarks docs

check: lint types test wheel  ## everything that CI runs

vendor:  ## fetch the page's libraries anew, and check them (needs npm)
	.ci/vendor

wheel:  ## build the wheel and use it alone in a clean environment
	.ci/wheel $(PYTHON)

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable .
	touch $@

.venv/dev.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev]'
	touch .venv/run.stamp $@

# Four workers would each compile the same modules at once.
.venv/compiled.stamp: .venv/dev.stamp
	$(BIN)/python -m pytest --collect-only -qq > /dev/null || true
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
