"""With --no-skips, a run fails if a test was skipped; and only tests that are marked as flaky are rerun."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.skips import IMPOSSIBLE

ROOT = Path(__file__).parent.parent

CONFTEST = """
from tests.support.skips import NoSkips

def pytest_configure(config): config.pluginmanager.register(NoSkips())
"""
PASSES = "def test_passes(): pass\n"
SKIPPED = """
import pytest
def test_skips(): pytest.skip('not here')
@pytest.mark.skip
def test_is_skipped(): pass
@pytest.mark.xfail
def test_fails(): assert 0
"""
MODULE = "import pytest\npytest.skip('not here', allow_module_level=True)\n"
CANNOT = f"import pytest\ndef test_needs_a_right(): pytest.skip('{IMPOSSIBLE}no')\n"


def run(directory: Path, *options: str, **modules: str) -> tuple[int, str]:
    for name, text in {"conftest": CONFTEST, **modules}.items():
        (directory / f"{name}.py").write_text(text)
    (directory / "pytest.ini").touch()
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", *options, "."],
        cwd=directory, env=environ, capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    return result.returncode, result.stdout


def test_a_skipped_test_fails_and_is_named(tmp_path: Path) -> None:
    code, result = run(tmp_path, "-n1", test_it=PASSES + SKIPPED)

    assert (code, "2 failed, 1 passed, 1 error" in result) == (1, True), result
    for name in ("test_skips", "test_is_skipped", "test_fails"):
        assert f"--no-skips: test_it.py::{name} was left out: " in result


def test_a_skipped_module_fails_and_is_named(tmp_path: Path) -> None:
    code, result = run(tmp_path, test_it=PASSES, test_more=MODULE)

    assert (code, "--no-skips: test_more.py was left out: Skipped: not here" in result) == (2, True), result


def test_tests_that_lack_a_privilege_are_reported_without_a_failure(tmp_path: Path) -> None:
    code, result = run(tmp_path, "-rs", test_it=PASSES + CANNOT)

    assert (code, "1 passed, 1 skipped" in result, f"{IMPOSSIBLE}no" in result) == (0, True, True), result


def test_flaky_tests_are_named_with_the_reason() -> None:
    """A rerun hides sporadic failures, so no option reruns every test."""
    marks = [
        line.strip()
        for path in (ROOT / "tests").rglob("*.py")
        for line in path.read_text().splitlines()
        if line.strip().startswith("@pytest.mark.flaky")
    ]

    assert [mark for mark in marks if "  # " not in mark] == []
    assert len(marks) <= 5
    for file in (".ci/run", "Makefile", "pyproject.toml"):
        assert "--reruns" not in (ROOT / file).read_text()
