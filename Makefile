# One command for each daily job. On a fresh machine the first one makes .venv and installs what it needs.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
.PHONY: demo test test-nightly test-real check format docs clean

demo: .venv/core                 ## the main job, offline, on what the package bundles
	@$(BIN)/spectool demo
	@echo "spectool is in .venv; to type it without a path: . $(BIN)/activate"

test: .venv/installed            ## two minutes: units, and the engine on tiny models
	$(BIN)/python -m pytest -n auto --dist loadfile

test-nightly: .venv/installed    ## all but pretrained models: real tokenizers, processes, kills, servers, hours of randomised tests
	$(BIN)/python -m pytest -n auto --dist loadfile -m nightly

test-real: .venv/installed       ## the main job with pretrained models, where they are in the cache
	$(BIN)/python -m pytest -rs -m real tests/test_real_models.py

check: .venv/installed           ## lint, format, types, import arrows, workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/zizmor --offline --quiet .github

format: .venv/installed          ## apply the formatter and the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/installed               ## the documentation site into .scratch/site; broken links and anchors are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open .scratch/site/index.html"

.venv/core: pyproject.toml
	@test -n "$(PYTHON)" || { echo "spectool needs Python 3.11 or newer; none was found. Install one, or: make PYTHON=/path/to/python3"; exit 1; }
	@echo "installing spectool into .venv, about 385 MB"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/installed: .venv/core
	@echo "installing what the tests and checks need into .venv, about 800 MB more"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:                           ## forget the environment and all scratch files
	rm -rf .venv .scratch *.egg-info dist
