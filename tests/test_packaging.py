"""The package, its metadata and its lock files are consistent."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import xapi_cli
from tests.support.program import PROGRAM

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = re.compile(r"^([a-z\d][\w.-]*(?:\[[\w,-]+\])?)==(\S+)", re.MULTILINE)


def project_files() -> Iterator[Path]:
    """Yield every file of the project, also without git."""
    left_out = {".git", ".venv", "build", "dist", "__pycache__"} | {path.name for path in ROOT.glob(".*_cache")}
    for directory, directories, names in os.walk(ROOT):
        directories[:] = [name for name in directories if name not in left_out and not name.endswith(".egg-info")]
        yield from (Path(directory) / name for name in names if not name.startswith(".coverage") and name != ".git")


def pins(name: str) -> dict[str, str]:
    """Return the versions that the file of requirements *name* pins."""
    found = PINNED.findall((ROOT / name).read_text())
    return {canonicalize_name(package.partition("[")[0]): version for package, version in found}


def test_the_top_version_of_the_changelog_is_that_of_the_package() -> None:
    versions = re.findall(r"^## \[?(\d[^\] ]*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert versions[0] == xapi_cli.__version__


def test_the_program_prints_its_version() -> None:
    printed = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True, timeout=60, env={})

    assert xapi_cli.__version__ in printed.stdout


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_the_requirements_pin_each_package_with_hashes_and_name_no_index(name: str) -> None:
    text = re.sub(r"^#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    blocks = re.split(r"\n(?=[a-z])", text.strip())

    assert len(blocks) == len(pins(name)) > 10
    assert [block for block in blocks if "--hash=sha256:" not in block] == []
    assert re.findall(r"https?:|^ *--(?!hash)|@", text, re.MULTILINE) == []


def test_the_requirements_satisfy_those_of_the_project_and_agree_with_each_other() -> None:
    project, groups = PYPROJECT["project"], PYPROJECT["dependency-groups"]
    users = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    developers = [*groups["docs"], *(line for line in groups["dev"] if isinstance(line, str))]
    for name, lines in (("requirements.txt", users), ("requirements-dev.txt", [*users, *developers])):
        found = pins(name)
        for requirement in map(Requirement, lines):
            assert requirement.specifier.contains(found[canonicalize_name(requirement.name)]), (name, requirement)

    assert pins("requirements-dev.txt").items() >= pins("requirements.txt").items()
    assert pins("requirements.txt").keys() >= {"pywin32-ctypes", "secretstorage"}  # for Windows and Linux


@pytest.mark.slow
def test_the_wheel_contains_the_package_and_the_manual_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    built = subprocess.run(
        build, capture_output=True, text=True, check=False, timeout=60, env={"PATH": os.environ["PATH"]}
    )
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry_points = next(archive.read(name) for name in archive.namelist() if name.endswith("/entry_points.txt"))

    package = {path for path in ROOT.glob("xapi_cli/**/*") if path.suffix in {".py", ".typed"}}
    manual = f"xapi_cli-{xapi_cli.__version__}.data/data/share/man/man1"
    assert names == {path.relative_to(ROOT).as_posix() for path in package} | {
        f"{manual}/{path.name}" for path in ROOT.glob("docs/man/*.1")
    }
    assert entry_points.decode().split() == ["[console_scripts]", "xapi", "=", "xapi_cli.__main__:main"]


def test_each_lint_exception_states_its_reason() -> None:
    exception = re.compile(r"# (noqa(: [A-Z0-9, ]+)?|type: ignore(\[[a-z, -]+\])?|pragma: no [a-z]+)\s*$")
    sources = [path for path in project_files() if path.suffix == ".py"]

    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if exception.search(line)
    ]
    assert (bare, len(sources) > 10) == ([], True)
