"""With --no-skips, a run leaves nothing out, or fails; and few tests have a second chance, each by its name."""

import os
import subprocess
import sys
from pathlib import Path

from tests.skips import IMPOSSIBLE

ROOT = Path(__file__).parent.parent

CONFTEST = "from tests.skips import NoSkips\ndef pytest_configure(config): config.pluginmanager.register(NoSkips())\n"
PASSES = "def test_passes(): pass\n"
LEFT_OUT = """
import pytest
def test_skips(): pytest.skip('not here')
@pytest.mark.skip
def test_is_skipped(): pass
@pytest.mark.xfail
def test_fails(): assert 0
"""
MODULE = "import pytest\npytest.skip('not here', allow_module_level=True)\n"
CANNOT = f"import pytest\ndef test_needs_a_right(): pytest.skip('{IMPOSSIBLE}no')\n"


def run(folder: Path, *options: str, **modules: str) -> tuple[int, str]:
    for name, text in {"conftest": CONFTEST, **modules}.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "pytest.ini").touch()
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", *options, "."],
        cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return told.returncode, told.stdout


def test_what_is_left_out_fails_and_is_named(tmp_path: Path) -> None:
    code, told = run(tmp_path, "-n1", test_it=PASSES + LEFT_OUT)

    assert (code, "2 failed, 1 passed, 1 error" in told) == (1, True), told
    for name in ("test_skips", "test_is_skipped", "test_fails"):
        assert f"--no-skips: test_it.py::{name} was left out: " in told


def test_so_does_a_module(tmp_path: Path) -> None:
    code, told = run(tmp_path, test_it=PASSES, test_more=MODULE)

    assert (code, "--no-skips: test_more.py was left out: Skipped: not here" in told) == (2, True), told


def test_what_the_machine_gives_no_right_to_is_told_and_fails_nothing(tmp_path: Path) -> None:
    code, told = run(tmp_path, "-rs", test_it=PASSES + CANNOT)

    assert (code, "1 passed, 1 skipped" in told, f"{IMPOSSIBLE}no" in told) == (0, True, True), told


def test_who_may_run_again_is_named_with_the_reason() -> None:
    """A rerun hides what fails now and then, so no option gives one to every test."""
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
