# make demo    show the main workflow: log in, call the API, invalidate the token, log in again automatically
# make test    run the tests, except the slow ones
# make check   check style, types and imports, and print the size of the project
#
# Each target creates the environments that it needs. The only requirement is Python 3.11 or later with venv and pip.

WORKS := -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python3.15; do $$p $(WORKS) && echo $$p && break; done)
NEWEST ?= $(shell for p in python3.15 python3.14 $$(ls -d ~/.pyenv/versions/3.1*/bin/python 2>/dev/null | sort -rV) python3.13 python3.12; \
	  do $$p $(WORKS) && echo $$p; done | head -1)
VENV ?= .venv
JOBS ?= 4

# An environment contains absolute paths, so it is created again if the tree was moved or the Python differs.
HERE := $(shell { pwd; $(PYTHON) -VV; } 2>/dev/null | cksum | cut -d ' ' -f 1)
READY := $(VENV)/.ready-$(HERE)
DEMO := build/demo/.ready-$(HERE)
PYTEST = $(VENV)/bin/pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PIP_QUIET := 2
export PIP_ROOT_USER_ACTION := ignore
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV

.DELETE_ON_ERROR:
.PHONY: demo test check format test-all test-newest test-lowest test-windows bench docs release clean help

demo: $(DEMO)
	@build/demo/bin/python -m xapi_cli demo

test: $(READY)
	@$(PYTEST) -m "not slow" $(TESTS)

check: $(READY)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy --platform darwin xapi_cli
	$(VENV)/bin/mypy --platform win32 xapi_cli
	$(VENV)/bin/lint-imports
	@$(VENV)/bin/python -m tests.tools.size

format: $(READY)
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

test-all: $(READY)
	@$(PYTEST) $(TESTS)
	@$(MAKE) --no-print-directory test-newest test-lowest test-windows docs

# The newest Python on this machine.
test-newest:
	@$(MAKE) --no-print-directory test PYTHON="$(or $(NEWEST),$(PYTHON))" VENV=build/newest

# The lowest versions of the direct dependencies that pyproject.toml allows, which are selected at each run.
test-lowest:
	@$(MAKE) --no-print-directory build/lowest/.ready-$(HERE) VENV=build/lowest
	@build/lowest/bin/uv pip install --quiet --python build/lowest --resolution lowest-direct --upgrade \
	  --no-build-isolation --editable '.[jq,redis]'
	@$(MAKE) --no-print-directory test VENV=build/lowest

# The main workflow with Python for Windows, under Wine (Debian: wine64).
test-windows: $(READY)
	@$(VENV)/bin/python -m tests.windows.wine
	@XAPI_TESTS_PROGRAM="$(CURDIR)/build/windows/bin/xapi" $(VENV)/bin/pytest -q -p no:cacheprovider $(PYTEST_ARGS) tests/windows/smoke.py

# Compares xapi with HTTPie, gh, curl and others; gh must be installed, HTTPie is installed here.
bench: $(READY)
	@test -x build/bench/bin/http || { $(PYTHON) -m venv build/bench && build/bench/bin/pip install httpie; }
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH:$(CURDIR)/build/bench/bin" $(VENV)/bin/python -m tests.bench $(BENCH_ARGS)

# The files that are generated from the program, and the site, which `git diff` then shows as changed or not.
docs: $(READY)
	@$(VENV)/bin/python -m tests.tools.documents
	@$(VENV)/bin/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky --builder html docs build/site

# Builds the tree, with the time of its commit, and checks the metadata; the files are in dist/.
release: $(READY)
	@rm -rf dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(VENV)/bin/python -m build --no-isolation
	@$(VENV)/bin/twine check --strict dist/*

clean:
	rm -rf .venv build dist .coverage .coverage.* .*_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile
	@echo "make test TESTS=tests/http    run the tests of one directory or file"
	@echo "make test-all, test-newest, test-lowest, test-windows, format, bench, docs, release, clean    see the Makefile"

$(READY): requirements-dev.txt
	$(call new-environment,$(VENV))
	@$(VENV)/bin/pip install --require-hashes -r requirements-dev.txt
	@$(VENV)/bin/pip install --no-deps --no-build-isolation --editable .
	@$(VENV)/bin/pytest --collect-only --quiet >/dev/null || true  # compiles the tests, which each worker would do at the first run
	@touch $@

$(DEMO): requirements.txt
	$(call new-environment,build/demo)
	@build/demo/bin/pip install --require-hashes -r requirements.txt
	@touch $@

define new-environment
@test -n "$(PYTHON)" || { echo "xapi requires Python 3.11 or later with venv and pip (Debian: python3-venv)" >&2; exit 1; }
@echo "setting up $(1) with $$($(PYTHON) -V) (once; takes a few minutes)"
@$(PYTHON) -m venv --clear $(1)
endef
