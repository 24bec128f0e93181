PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes: what they import is compiled once

.PHONY: run test lint types check wheel clean

run: .venv/run.stamp  ## search the default space from start to winner
	$(BIN)/hpsearch run spaces/lora.yaml --backend optuna

test: .venv/dev.stamp  ## run all tests
	$(BIN)/python -m pytest -n 4 --dist worksteal  # some of them wait for processes

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev.stamp
	$(BIN)/mypy
	mkdir -p .types && ln -sfn .. .types/hpsearch  # where mypy finds the hpsearch that tests import
	MYPYPATH=.types $(BIN)/mypy tests benchmarks docs

check: lint types test wheel  ## everything that CI runs

wheel: .venv/dev.stamp  ## build the wheel and use it alone in a clean environment
	.ci/wheel $(BIN)/python

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/dev.stamp: .venv/run.stamp
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
