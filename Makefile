# make demo    show the main workflow: log in, call the API, invalidate the token, log in again automatically
# make test    run the tests against an ordinary installation, except those that take long
# make check   check style, types and imports
# make help    list all targets
#
# Each target creates the environments that it needs. The only requirement is Python 3.11 or later with venv and pip.

PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python3.15; do \
	  $$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV ?= .venv
PROGRAM ?= build/program
REQUIREMENTS ?= requirements.txt
INSTALLER := $(PROGRAM)/installer
JOBS ?= 6
TESTS ?= tests
PYTEST_ARGS ?=

# An environment contains absolute paths, so it is created again if the tree was moved or the Python differs.
HERE := $(shell { pwd; $(PYTHON) -VV; } 2>/dev/null | cksum | cut -d ' ' -f 1)
TOOLS := $(VENV)/.tools-$(HERE)
DEVELOPMENT := $(VENV)/.ready-$(HERE)
DEPENDENCIES := $(PROGRAM)/.dependencies-$(HERE)
INSTALLED := $(PROGRAM)/.installed-$(HERE)
COMPILED := $(VENV)/.tests-$(HERE)
SOURCES := pyproject.toml $(wildcard README.md LICENSE docs/xapi-cli.cdx.json docs/man/*.1) $(shell find xapi_cli -name '*.py' -o -name py.typed)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PIP_QUIET := 2
export PIP_ROOT_USER_ACTION := ignore
export PIP_USER := 0
unexport PYTHONPATH PYTHONHOME PYTHONUNBUFFERED PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
unexport PYTHONDONTWRITEBYTECODE # each worker would compile all tests again, which takes ten seconds

.DELETE_ON_ERROR:
.PHONY: demo test test-all test-compatible test-remaining test-agent test-agent-all test-lowest test-newest test-windows test-windows-all test-macos test-macos-all test-native macos soak bench bench-agent bench-batch bench-filter bench-memory bench-proxy bench-redis check format coverage docs docs-site man pictures completions surface wheel release lock audit venv program clean help

demo: $(INSTALLED)
	@$(PROGRAM)/bin/xapi demo

# The tests that take long have the mark `slow`, those that take too long for every change the mark `soak`.
test: MARKED = not soak and not slow
test-all: MARKED = not soak

# The directory of the installation is first on the path, so that tests import the package from there too.
OF_PROGRAM = PYTHONPATH="$$($(PROGRAM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	  XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi"
test test-all: $(DEVELOPMENT) $(INSTALLED) $(COMPILED)
	@$(OF_PROGRAM) $(VENV)/bin/pytest -n $(JOBS) --dist worksteal -m "$(MARKED)" $(PYTEST_ARGS) $(TESTS)

# The tests whose results can depend on the version of Python or of a dependency: all but most of those of processes and
# machines beside each other, which run the same program.
COMPATIBLE := $(patsubst %/,%,$(filter-out $(patsubst %,tests/%/,agent fuzz hostile leaks machines __pycache__),$(wildcard tests/*/))) \
	$(wildcard tests/test_*.py) $(patsubst %,tests/agent/%.py,test_commands test_comparison keeper/test_server)
test-compatible:
	@$(MAKE) --no-print-directory test TESTS='$(COMPATIBLE)'

# What requests contain, and which results follow from responses, depends neither on the process that runs a command nor on
# the system: test-agent, test-windows and test-macos leave these tests out.
ANYWHERE := $(patsubst %,tests/commands/test_%.py, \
	api_diff api_show batch_expect batch_merge_incomplete batch_retry batch_shards profile_headers read_only request_curl \
	request_curl_options request_expect request_meta request_options request_pages request_pages_failures \
	request_pages_links request_redirects request_retry request_until request_usage request_validation)

# The tests that run the program often, with the agent behind it; test-agent-all also runs those that take long, need no
# agent, have the same result anywhere, or run commands that never use it, such as batch.
NEVER_IN_AGENT := $(foreach name,batch* demo responses_agree sandbox,$(wildcard tests/commands/test_$(name).py)) \
	tests/journeys/test_clock_steps.py
BEHIND_AGENT ?= $(filter-out $(NEVER_IN_AGENT) $(ANYWHERE),$(wildcard tests/commands/test_*.py tests/journeys/test_*.py)) \
	tests/cli/test_error_messages.py tests/cli/test_help.py

# Those of test-compatible that remain where test-agent runs too.
test-remaining:
	@$(MAKE) --no-print-directory test TESTS='$(filter-out tests/cli tests/commands tests/journeys,$(COMPATIBLE)) \
	  $(sort $(NEVER_IN_AGENT) $(ANYWHERE)) $(filter-out $(BEHIND_AGENT),$(wildcard tests/cli/test_*.py)) tests/cli/completions'

test-agent: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" \
	  $(VENV)/bin/pytest -n $(JOBS) --dist worksteal -p tests.agent.behind -m "not soak and not slow" $(PYTEST_ARGS) $(BEHIND_AGENT)

test-agent-all: $(DEVELOPMENT) $(INSTALLED)
	@$(OF_PROGRAM) $(VENV)/bin/pytest -n $(JOBS) --dist worksteal -p tests.agent.behind -m "not soak" --ignore tests/agent $(PYTEST_ARGS) tests

# The tests whose results can depend on the version of a dependency: not those of xapi's own engines and formats, and not
# those of signals, processes, locks, files and terminals.
OWN := $(patsubst %,tests/%,auth batch commands journeys proxy settings system tools)
OWN_COMMANDS := $(patsubst %,tests/commands/test_%,api_diff% api_show% batch% credential% exec% log% overridden% profile% proxy% \
	quiet% read_only% request_continue% request_curl% request_meta% request_pages% request_replay% request_ret% request_size% \
	request_term% request_until% request_validation% sandbox% terminal% token%)
DEPENDENT := $(filter-out $(OWN),$(COMPATIBLE)) $(filter-out $(OWN_COMMANDS),$(wildcard tests/commands/test_*.py)) \
	$(patsubst %,tests/commands/test_%.py,batch batch_jq login login_terminal token_show) $(wildcard tests/journeys/test_*storage.py)

# With the lowest and the newest versions of the direct dependencies that pyproject.toml allows. The newest ones
# are selected at each run, which requires a network. Metadata of the tools names a plugin that old platformdirs do not have.
FAST := $(PYTEST_ARGS) -p no:platformdirs
test-lowest:
	@$(MAKE) --no-print-directory test TESTS='$(DEPENDENT)' PROGRAM=build/program-lowest REQUIREMENTS=requirements-lowest.txt PYTEST_ARGS='$(FAST)'

test-newest: $(TOOLS)
	@mkdir -p build
	@$(LOCK) --all-extras --output-file build/requirements-newest.txt
	@$(MAKE) --no-print-directory test-compatible PROGRAM=build/program-newest REQUIREMENTS=build/requirements-newest.txt PYTEST_ARGS='$(FAST)'

# The program for Windows, under Wine; without Wine, these tests are skipped with a message.
WINDOWS := build/windows/.ready
WINE := $(shell PATH="$$PATH:/usr/lib/wine" command -v wine64)
$(WINDOWS): $(DEVELOPMENT) $(INSTALLED) tests/windows/wine.py requirements.txt requirements-windows.txt
	@$(VENV)/bin/python -m tests.windows.wine $(INSTALLER)/wheel/*.whl
	@touch $@

# The tests of what a user does. Under Wine, a test takes two seconds, so a selection runs for each change: the commands whose
# files, processes, terminals or locks differ there, without the tests of how input is parsed and which exit code a response
# has. test-windows-all runs all.
BEHAVIOR := $(wildcard tests/commands/test_*.py tests/journeys/test_*.py tests/machines/test_*.py) \
	tests/cli/test_error_messages.py tests/hostile/test_machine.py
ON_WINDOWS := $(patsubst %,tests/commands/test_%.py,login logout request token_show batch batch_journal batch_jq) \
	tests/journeys/test_storage.py tests/windows
SAME_ON_WINDOWS := $(patsubst %,--deselect tests/commands/test_%, \
	batch.py::test_an_invalid_line_is_reported_by_number_and_does_not_stop_the_rest \
	login.py::test_each_failure_of_the_token_endpoint_has_its_exit_code \
	login.py::test_invalid_usage_is_reported_in_one_line_and_nothing_is_sent \
	request.py::test_a_header_overrides_the_content_type_of_the_body \
	request.py::test_query_parameters_and_headers_keep_the_order_of_the_command_line \
	request.py::test_the_method_defaults_to_get_or_to_post_with_a_body \
	token_show.py::test_invalid_usage_is_reported_in_one_line_and_nothing_is_sent \
	token_show.py::test_the_exec_credential_has_the_version_that_kubectl_requests)
test-windows: SELECTED = $(ON_WINDOWS) $(SAME_ON_WINDOWS)
test-windows-all: SELECTED = $(BEHAVIOR) tests/windows
ifeq ($(WINE),)
test-windows test-windows-all:
	@echo "skipped: wine64 is not installed (Debian: wine64)"
else
test-windows test-windows-all: $(WINDOWS)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/build/windows/bin/xapi" \
	  $(VENV)/bin/pytest -n $(JOBS) --dist worksteal -p tests.windows.under_wine -m "not soak and not slow" $(PYTEST_ARGS) $(SELECTED)
endif

# The program on Linux without what macOS lacks: system interfaces, and /proc, which requires a mount namespace. How
# responses are shown does not depend on these either: test-macos-all runs those tests as well.
ON_EACH_SYSTEM := tests/cli/test_error_messages.py $(patsubst %,tests/commands/test_%.py,request_looks terminal_responses)
test-macos: SELECTED = $(filter-out $(ANYWHERE) $(ON_EACH_SYSTEM),$(BEHAVIOR)) tests/macos
test-macos-all: SELECTED = $(BEHAVIOR) tests/macos
test-macos test-macos-all:
	@$(MAKE) --no-print-directory macos PROGRAM=build/macos
	@if ! build/macos/imitation/xapi --version >/dev/null 2>&1; then \
	  echo "skipped: /proc cannot be hidden here (requires root, or user namespaces, and mount)"; else \
	XAPI_TESTS_PROGRAM="$(CURDIR)/build/macos/imitation/xapi" \
	  $(VENV)/bin/pytest -n $(JOBS) --dist worksteal -p tests.macos.imitated -m "not soak and not slow" $(PYTEST_ARGS) \
	  $(if $(filter tests,$(TESTS)),$(SELECTED),$(TESTS)); fi

# The same natively, as docs/github-workflow.yml does on macOS.
test-native: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" \
	  $(VENV)/bin/pytest -n $(JOBS) --dist worksteal $(if $(filter Darwin,$(shell uname)),-p tests.macos.imitated) \
	  -m "not soak and not slow" $(PYTEST_ARGS) $(BEHAVIOR)

macos: $(DEVELOPMENT) $(INSTALLED)
	@$(VENV)/bin/python -m tests.macos.build $(PROGRAM)

soak: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" \
	  $(VENV)/bin/pytest -rP -m "soak or hypothesis" --timeout 7200 --hypothesis-profile soak $(PYTEST_ARGS) $(TESTS)

# The agent, its side of a connection and its sockets require Linux; the tests run there.
OF_ALL_PLATFORMS := --follow-imports silent --exclude '^xapi_cli/(agent|http/relay)/|agent_socket' xapi_cli
check: $(DEVELOPMENT)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy --platform darwin $(OF_ALL_PLATFORMS)
	$(VENV)/bin/mypy --platform win32 $(OF_ALL_PLATFORMS)
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
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" $(VENV)/bin/python -m tests.tools.pictures
	@$(VENV)/bin/python -m tests.benchmarks.charts
	@$(VENV)/bin/python -m tests.tools.layers
	@$(VENV)/bin/python -m tests.tools.diagrams

docs man completions surface: $(DEVELOPMENT)
	@$(VENV)/bin/python -m tests.tools.documents $@

# HTTPie, with which `make bench` compares xapi, in a separate environment.
build/peers/.ready-$(HERE): requirements-bench.txt
	$(call new-environment,build/peers)
	@build/peers/bin/pip install --require-hashes -r requirements-bench.txt
	@touch $@

bench: $(DEVELOPMENT) $(INSTALLED) build/peers/.ready-$(HERE)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" PATH="$(CURDIR)/build/peers/bin:$$PATH" \
	  $(VENV)/bin/python -m tests.benchmarks.start_up $(BENCH_ARGS)
	@echo
	@$(MAKE) --no-print-directory bench-agent

bench-agent: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" $(VENV)/bin/python -m tests.benchmarks.warm $(BENCH_ARGS)

bench-batch: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" $(VENV)/bin/python -m tests.benchmarks.batch

bench-proxy: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" $(VENV)/bin/python -m tests.benchmarks.proxy

bench-redis: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" $(VENV)/bin/python -m tests.benchmarks.redis $(BENCH_ARGS)

bench-filter: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" $(VENV)/bin/python -m tests.benchmarks.filter

bench-memory: $(DEVELOPMENT) $(INSTALLED)
	@XAPI_TESTS_PROGRAM="$(CURDIR)/$(PROGRAM)/bin/xapi" $(VENV)/bin/python -m tests.benchmarks.memory

wheel: $(DEVELOPMENT)
	$(VENV)/bin/python -m build --no-isolation --outdir dist .

# Builds twice and compares. Refuses a tree that is not committed, not in CHANGELOG.md, or tagged already.
release: $(DEVELOPMENT)
	@$(VENV)/bin/python -m tests.tools.release

# Without it, each worker compiles all tests on the first run.
$(COMPILED): | $(DEVELOPMENT) $(INSTALLED)
	@ls -d tests/*/ tests/test_*.py | $(OF_PROGRAM) xargs -n 12 -P 2 $(VENV)/bin/pytest -qq --collect-only -p no:cacheprovider >/dev/null 2>&1 || true
	@touch $@

venv: $(DEVELOPMENT)
program: $(INSTALLED)

# For development: the tools, and the package of this tree, editable.
$(TOOLS): requirements-dev.txt
	$(if $(wildcard $@),,$(call new-environment,$(VENV)))
	@$(VENV)/bin/pip install --require-hashes -r requirements-dev.txt
	@touch $@

$(DEVELOPMENT): $(TOOLS) pyproject.toml
	@$(VENV)/bin/pip install --no-deps --no-build-isolation --editable .
	@touch $@

# The installation of a user: the locked dependencies, and a wheel built with the locked backend. The pip of this Python may
# write a slow `xapi` script, so the locked pip installs everything, and is itself in an environment of its own.
$(DEPENDENCIES): $(REQUIREMENTS) requirements-build.txt
	$(call new-environment,$(PROGRAM),--without-pip)
	@$(PYTHON) -m venv $(INSTALLER)
	@$(INSTALLER)/bin/pip install --require-hashes -r requirements-build.txt
	@$(INSTALLER)/bin/pip --python $(PROGRAM) install --require-hashes -r $(REQUIREMENTS)
	@touch $@

$(INSTALLED): $(DEPENDENCIES) $(SOURCES)
	@rm -rf $(INSTALLER)/wheel
	@$(INSTALLER)/bin/pip wheel --no-deps --no-build-isolation --wheel-dir $(INSTALLER)/wheel .
	@$(INSTALLER)/bin/pip --python $(PROGRAM) install --no-deps --force-reinstall $(INSTALLER)/wheel/*.whl
	@touch $@

define new-environment
@test -n "$(PYTHON)" || { echo "xapi requires Python 3.11 or later with venv and pip (Debian: python3-venv)" >&2; exit 1; }
@echo "setting up $(1) with $$($(PYTHON) -V) (once; takes a few minutes)"
@$(PYTHON) -m venv --clear $(2) $(1)
endef

# Requires a network. The files are for Python 3.11 and later on Linux, macOS and Windows. Extras stay in them: pip with hashes
# would not find the version of `coverage[toml]` in a line for `coverage`, once there is a newer one.
UV ?= $(VENV)/bin/uv
LOCK_ARGS ?= --upgrade
LOCK := $(UV) pip compile --quiet $(LOCK_ARGS) --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock" --no-strip-extras pyproject.toml
lock: $(TOOLS)
	$(LOCK) --all-extras --output-file requirements.txt
	$(LOCK) --all-extras --group dev --output-file requirements-dev.txt --constraint requirements.txt
	$(LOCK) --all-extras --resolution lowest-direct --output-file requirements-lowest.txt
	$(LOCK:pyproject.toml=) --group bench --output-file requirements-bench.txt
	$(LOCK:pyproject.toml=) --group windows --output-file requirements-windows.txt
	$(LOCK:pyproject.toml=) --group build --output-file requirements-build.txt --constraint requirements-dev.txt
	@$(VENV)/bin/pip install --require-hashes -r requirements-dev.txt
	@$(VENV)/bin/python -m tests.tools.release.registry $(UV)

# Requires a network. The tool is not locked, so it is in a temporary environment.
audit:
	$(call new-environment,build/audit)
	@build/audit/bin/pip install pip-audit
	build/audit/bin/pip-audit --strict --disable-pip --require-hashes $(foreach file,$(wildcard requirements*.txt),-r $(file))
	@rm -rf build/audit

clean:
	rm -rf .venv build dist .coverage .coverage.* .*_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:
	@echo "demo              show the main workflow"
	@echo "venv              create the development environment in .venv"
	@echo "program           install xapi from this tree in build/program, as a user does, for the tests"
	@echo "test              run the tests against an ordinary installation, except those that take long (TESTS=tests/request selects some)"
	@echo "test-all          run these tests and those that take long"
	@echo "test-agent        run the tests of commands with the agent behind the program"
	@echo "test-agent-all    run all tests with the agent behind the program, except those of the agent"
	@echo "test-compatible   run the tests whose results can depend on the version of Python or of a dependency"
	@echo "test-remaining    run those of test-compatible that test-agent does not run"
	@echo "test-lowest       run the tests whose results can depend on a dependency with its lowest version"
	@echo "test-newest       run test-compatible with the newest versions that pyproject.toml allows (requires a network)"
	@echo "test-windows      run a selection of the tests of commands with the program for Windows under Wine (requires wine64)"
	@echo "test-windows-all  run all tests of commands with it"
	@echo "test-macos        run tests of commands without what macOS lacks: system interfaces and /proc"
	@echo "test-macos-all    run all tests of commands without it"
	@echo "test-native       run the tests of commands on this system, as docs/github-workflow.yml does on macOS"
	@echo "soak              run the long tests, and 10,000 new examples for each property test"
	@echo "bench             measure the time of commands and imports, compared with HTTPie and others; includes bench-agent"
	@echo "bench-agent       measure calls over http and https, compared with gh and curl (requires nginx)"
	@echo "bench-batch       measure thousands of calls, compared with curl (requires nginx and curl)"
	@echo "bench-filter      measure --jq with a large body, compared with jq (requires jq)"
	@echo "bench-memory      measure the memory that bodies of 2 GiB need"
	@echo "bench-proxy       measure \`xapi proxy\`, compared with nginx (requires nginx)"
	@echo "bench-redis       measure the time that storage redis adds to a call"
	@echo "check             check style, types and imports"
	@echo "format            format the code and fix what can be fixed automatically"
	@echo "coverage          run the tests against the checkout and report the coverage"
	@echo "docs              generate docs/commands.md and the table in docs/settings.md"
	@echo "docs-site         build the documentation site in build/site"
	@echo "man               generate docs/man from the commands"
	@echo "pictures          generate docs/pictures from terminal sessions, benchmark tables, the layers and the agent"
	@echo "completions       generate the scripts in completions/"
	@echo "surface           generate .surface, the list of what a script can depend on"
	@echo "wheel             build a wheel and an sdist in dist/"
	@echo "release           build and check the files of a release in dist/ (see docs/releasing.md)"
	@echo "lock              select the newest dependencies that pyproject.toml allows (requires a network)"
	@echo "audit             check the locked dependencies for known vulnerabilities (requires a network)"
	@echo "clean             remove everything that these targets created"
