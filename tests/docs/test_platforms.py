"""The workflow for the three systems, and the lists of differences: valid, and of what exists."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / "docs" / "github-workflow.yml"
LINT = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows")
JOBS = yaml.safe_load(WORKFLOW.read_text())["jobs"]


def commands(job: str) -> str:
    return "\n".join(step.get("run", "") for step in JOBS[job]["steps"])


@pytest.mark.parametrize(("key", "is_valid"), [("runs-on", True), ("runs-at", False)])
def test_the_workflow_is_valid(tmp_path: Path, key: str, is_valid: bool) -> None:
    file = tmp_path / "workflow.yml"
    file.write_text(WORKFLOW.read_text().replace("runs-on", key))

    lint = subprocess.run([*LINT, str(file)], capture_output=True, text=True, check=False, timeout=60)

    assert (lint.returncode == 0) is is_valid, lint.stdout


def test_the_workflow_uses_what_exists() -> None:
    assert set(JOBS) == {"linux", "macos", "windows"}
    targets = set(re.findall(r"^([\w-]+)(?: [\w-]+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([\w-]+)", commands("macos"))) <= targets | {"demo"}
    for name in re.findall(r"(?:tests|requirements)[\w\\/.-]*", commands("windows")):
        assert (ROOT / name.replace("\\", "/")).exists() or find_spec(name), name


def test_the_differences_are_tests_that_exist() -> None:
    from tests.macos import differences as macos
    from tests.windows import differences as windows

    for name in (*macos.LEFT_OUT, *windows.LEFT_OUT):
        file, _, function = name.partition("::")
        assert f"def {function.partition('[')[0]}(" in (ROOT / "tests" / file).read_text() or not function, name


def test_the_metadata_names_only_systems_on_which_the_suite_ran_natively() -> None:
    assert set(re.findall(r'"Operating System :: ([^"]+)"', (ROOT / "pyproject.toml").read_text())) == {
        "POSIX :: Linux"
    }
