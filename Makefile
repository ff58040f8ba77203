# Two commands matter: `make sweep` and `make test`. `make help` lists the others.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHELL := /bin/bash

# llama.cpp is compiled for every x86-64 processor, plus AVX-512 only where this machine has it: its
# own default (GGML_NATIVE) makes builds that die on other machines and on some virtual ones.
AVX512 := $(shell [ "$$(grep -o -w -m1 -e avx512_vnni /proc/cpuinfo 2>/dev/null)" ] && \
	[ "$$(grep -o -w -m1 -e avx512_bf16 /proc/cpuinfo 2>/dev/null)" ] && \
	echo "-DGGML_AVX512=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON")
export CMAKE_ARGS := -DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF $(AVX512)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)

.PHONY: help quick sweep test check install install-light format schemas clean

help: ## List the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

quick: install-light ## A first table without a language model, nothing to compile
	$(BIN)/gno-dist sweep fixtures/sweeps/quick.yaml --pool inline

sweep: install ## Install everything, then run the default sweep on the embedded models
	$(BIN)/gno-dist sweep

test: $(VENV)/.installed-dev ## Install everything, then format check, lint, types, contracts, tests
	$(MAKE) check
	$(BIN)/pytest

check: $(VENV)/.installed-dev ## Format check, lint, types, import contracts, schemas
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/gno-dist schema --check

install: $(VENV)/.installed-models ## Install with the embedded models (compiles llama.cpp once)

install-light: $(VENV)/.installed ## Install without a language model

format: $(VENV)/.installed-dev ## Format and mend what can be mended
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

schemas: $(VENV)/.installed-dev ## Generate schemas/ from the models
	$(BIN)/gno-dist schema --write

clean: ## Remove the virtual environment and build files; results and caches stay
	rm -rf $(VENV) build dist *.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.installed-models: pyproject.toml $(VENV)/.installed
	@echo "installing llama-cpp-python: the first time it compiles for 5 to 15 minutes"
	$(BIN)/pip install --quiet --editable '.[models]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed-models
	$(BIN)/pip install --quiet --editable '.[models,dev]'
	touch $@
