# make demo    see the main job work: log in, call, lose the token, log in again by itself
# make test    the tests, against an ordinary install
# make check   lint, types, imports
# make help    the rest
#
# Each target makes what it needs: an interpreter of 3.11 or newer, with venv and pip, is all there has to be.

PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	  $$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV ?= .venv
PROGRAM ?= build/program
JOBS ?= 3
TESTS ?= tests
PYTEST_ARGS ?=

# An environment holds absolute paths: in a tree that was moved, or for another Python, it is made anew.
HERE := $(shell { pwd; $(PYTHON) -VV; } 2>/dev/null | cksum | cut -d ' ' -f 1)
TOOLS := $(VENV)/.tools-$(HERE)
DEVELOPMENT := $(VENV)/.ready-$(HERE)
DEPENDENCIES := $(PROGRAM)/.dependencies-$(HERE)
INSTALLED := $(PROGRAM)/.installed-$(HERE)
SOURCES := pyproject.toml $(wildcard README.md LICENSE docs/man/*.1) $(shell find xapi_cli -name '*.py' -o -name py.typed)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PIP_QUIET := 2
export PIP_ROOT_USER_ACTION := ignore
export PIP_USER := 0
unexport PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV

.DELETE_ON_ERROR:
.PHONY: demo test soak bench bench-batch bench-memory check format coverage docs docs-site man pictures completions wheel lock audit venv program clean help

demo: $(INSTALLED)
	@$(PROGRAM)/bin/xapi demo

# The folder of the install comes first on the path, so that tests which import do so from there as well.
test: $(DEVELOPMENT) $(INSTALLED)
	@site=$$($(PROGRAM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	PYTHONPATH="$$site" XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" \
	  $(VENV)/bin/pytest -n $(JOBS) --dist worksteal -m "not soak" $(PYTEST_ARGS) $(TESTS)

soak: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" \
	  $(VENV)/bin/pytest -m "soak or hypothesis" --timeout 7200 --hypothesis-profile soak $(PYTEST_ARGS) $(TESTS)

check: $(DEVELOPMENT)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(DEVELOPMENT)
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

coverage: $(DEVELOPMENT)
	$(VENV)/bin/pytest -n $(JOBS) --dist worksteal -m "not soak" --cov --cov-report=term $(TESTS)

docs-site: $(DEVELOPMENT)
	@$(VENV)/bin/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky --builder html docs build/site
	@echo "the site is in build/site"

pictures: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" $(VENV)/bin/python -m tests.pictures
	@$(VENV)/bin/python -m tests.benchmarks.charts

docs man completions: $(DEVELOPMENT)
	@$(VENV)/bin/python -m tests.documents $@

# HTTPie, the peer of these figures, in an environment of its own.
build/peers/.ready-$(HERE): requirements-bench.txt
	$(call new-environment,build/peers)
	@build/peers/bin/pip install --require-hashes -r requirements-bench.txt
	@touch $@

bench: $(DEVELOPMENT) $(INSTALLED) build/peers/.ready-$(HERE)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" PATH="$(CURDIR)/build/peers/bin:$$PATH" \
	  $(VENV)/bin/python -m tests.benchmarks.start_up $(BENCH_ARGS)

bench-batch: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" $(VENV)/bin/python -m tests.benchmarks.batch

bench-memory: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" $(VENV)/bin/python -m tests.benchmarks.memory

wheel: $(DEVELOPMENT)
	$(VENV)/bin/python -m build --no-isolation --outdir dist .

venv: $(DEVELOPMENT)
program: $(INSTALLED)

# For development: the tools, and the package as it lies here.
$(TOOLS): requirements-dev.txt
	$(if $(wildcard $@),,$(call new-environment,$(VENV)))
	@$(VENV)/bin/pip install --require-hashes -r requirements-dev.txt
	@touch $@

$(DEVELOPMENT): $(TOOLS) pyproject.toml
	@$(VENV)/bin/pip install --no-deps --no-build-isolation --editable .
	@touch $@

# What a user gets: the locked dependencies, and a wheel built with the locked backend.
$(DEPENDENCIES): requirements.txt requirements-build.txt
	$(call new-environment,$(PROGRAM))
	@$(PROGRAM)/bin/pip install --require-hashes -r requirements.txt
	@$(PROGRAM)/bin/pip install --require-hashes -r requirements-build.txt --target $(PROGRAM)/backend
	@touch $@

$(INSTALLED): $(DEPENDENCIES) $(SOURCES)
	@PYTHONPATH=$(PROGRAM)/backend $(PROGRAM)/bin/pip install --no-deps --no-build-isolation --force-reinstall .
	@touch $@

define new-environment
@test -n "$(PYTHON)" || { echo "xapi needs Python 3.11 or newer, with venv and pip (Debian: python3-venv)" >&2; exit 1; }
@echo "setting up $(1) with $$($(PYTHON) -V) (once)"
@$(PYTHON) -m venv --clear $(1)
endef

# Needs uv. One set of files for every Python from 3.11 on, on Linux, macOS and Windows.
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock" pyproject.toml
lock:
	$(LOCK) --output-file requirements.txt
	$(LOCK) --group dev --output-file requirements-dev.txt --constraint requirements.txt
	$(LOCK:pyproject.toml=) --group bench --output-file requirements-bench.txt
	$(LOCK:pyproject.toml=) --group build --output-file requirements-build.txt --constraint requirements-dev.txt

# Needs a network. Nothing that is not locked stays: the tool lives in an environment of its own, for one run.
audit:
	$(call new-environment,build/audit)
	@build/audit/bin/pip install pip-audit
	build/audit/bin/pip-audit --strict --disable-pip --require-hashes $(foreach file,$(wildcard requirements*.txt),-r $(file))
	@rm -rf build/audit

clean:
	rm -rf .venv build dist .coverage .coverage.* .*_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:
	@echo "demo      see the main job work"
	@echo "test      the tests, against an ordinary install (TESTS=tests/test_items.py for some of them)"
	@echo "soak      the tests that take too long for every run, and 10,000 new examples for each property"
	@echo "bench     how long whole commands take, beside HTTPie and others, and where the time goes"
	@echo "bench-batch  thousands of calls, beside curl (needs nginx and curl)"
	@echo "bench-memory  the memory that bodies of 2 GiB need"
	@echo "check     lint, types, imports"
	@echo "format    put the code into the form that check wants"
	@echo "coverage  the tests against the checkout, with what they reach"
	@echo "docs      docs/commands.md, from what --help prints"
	@echo "docs-site  the pages in docs/ as a site, in build/site"
	@echo "man       docs/man, from the commands themselves"
	@echo "pictures  docs/pictures, from what the program sends to a terminal and from the tables of benchmarks"
	@echo "completions  the scripts in completions/, from what the program prints"
	@echo "wheel     a wheel and an sdist, in dist/"
	@echo "lock      choose the newest dependencies that pyproject.toml allows (needs uv)"
	@echo "audit     look the locked dependencies up among known vulnerabilities (needs a network)"
	@echo "clean     remove everything that these made"
