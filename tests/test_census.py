"""A complete run of the tests leaves nothing out, or fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.census import IMPOSSIBLE

ROOT = Path(__file__).parent.parent

CONFTEST = """
from tests.census import Census

def pytest_addoption(parser):
    Census.add_options(parser)

def pytest_configure(config):
    config.pluginmanager.register(Census(config))
"""
PASSES = "def test_passes(): pass\n"
PROPERTY = "from hypothesis import given, strategies\n@given(strategies.none())\ndef test_holds(x): pass\n"
SKIPS = "import pytest\ndef test_skips(): pytest.skip('not here')\n"
SKIPS_MODULE = "import pytest\npytest.skip('not here', allow_module_level=True)\n"
FAILS_AS_EXPECTED = "import pytest\n@pytest.mark.xfail\ndef test_fails(): assert 0\n"


def run(folder: Path, tests: str, *options: str, census: str = "all = 1") -> tuple[int, str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text(f"[pytest]\ncensus = {census}\n")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ["-p", "_hypothesis_pytestplugin", "-p", "xdist", "-p", "no:cacheprovider"]
    told = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *options, "."],
        cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return told.returncode, told.stdout


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_kinds_are_counted(tmp_path: Path, workers: str) -> None:
    code, told = run(tmp_path, PASSES + PROPERTY, "--complete", workers)

    assert (code, "census: all 2, property 1\n" in told) == (0, True)


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
@pytest.mark.parametrize("tests", [SKIPS, SKIPS_MODULE, FAILS_AS_EXPECTED], ids=["skip", "module", "xfail"])
def test_a_complete_run_leaves_nothing_out(tmp_path: Path, tests: str, workers: str) -> None:
    (tmp_path / "test_more.py").write_text(PASSES)

    code, told = run(tmp_path, tests, "--complete", workers)
    assert (code, "census: left out: test_it.py" in told) == (1, True)


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_what_the_machine_gives_no_right_to_is_told_and_no_hole(tmp_path: Path, workers: str) -> None:
    skips = f"import pytest\ndef test_skips(): pytest.skip('{IMPOSSIBLE}no')\n"

    code, told = run(tmp_path, PASSES + skips, "--complete", "-rs", workers)
    assert (code, f"{IMPOSSIBLE}no" in told, "census: left out" in told) == (0, True, False)


def test_an_ordinary_run_may_leave_out(tmp_path: Path) -> None:
    assert run(tmp_path, PASSES + SKIPS)[0] == 0


def test_a_complete_run_needs_enough_of_each_kind(tmp_path: Path) -> None:
    code, told = run(tmp_path, PASSES, "--complete", census="property = 1")

    assert (code, "census: 1 tests of kind property wanted, 0 passed" in told) == (1, True)


def test_a_kind_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    assert run(tmp_path, PASSES, census="propperty = 1")[0] == pytest.ExitCode.USAGE_ERROR
