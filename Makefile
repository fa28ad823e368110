PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: quickstart test test-slow lint clean

quickstart: $(VENV)/quickstart
	$(BIN)/hf-mars quickstart $(ARGS)

# One process a core, and a file's tests in one of them: they share servers and models.
test: $(VENV)/installed
	$(BIN)/python -m pytest tests -q --numprocesses auto --dist loadfile $(ARGS)

test-slow: $(VENV)/slow
	$(BIN)/python -m pytest tests -q -m slow $(ARGS)

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# torch first and by its exact version: a looser range may bring a build for another device.
$(VENV)/quickstart: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[quickstart]"
	touch $@

$(VENV)/installed: $(VENV)/quickstart
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[quickstart,eval,demo,serve,dev]"
	touch $@

# Ray is large, and only the slow tests need it.
$(VENV)/slow: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[serve-ray]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
