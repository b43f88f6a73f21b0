"""The package, its metadata and its lock files are consistent."""

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import xapi_cli
from tests.support.program import PROGRAM, PYTHON
from tests.tools.release.checks import check_wheel
from tests.tools.release.locks import LOCKS, USERS, read_lock

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# Joined from parts, so that this file does not contain them.
REGISTRIES = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"))]


def project_files() -> Iterator[Path]:
    """Yield every file of the project, also without git."""
    left_out = {".git", ".venv", "build", "dist", "__pycache__"} | {path.name for path in ROOT.glob(".*_cache")}
    for directory, directories, names in os.walk(ROOT):
        directories[:] = [name for name in directories if name not in left_out and not name.endswith(".egg-info")]
        yield from (Path(directory) / name for name in names if not name.startswith(".coverage") and name != ".git")


# versions


def test_the_top_version_of_the_changelog_is_that_of_the_package() -> None:
    versions = re.findall(r"^## \[(\d.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert versions[0] == xapi_cli.__version__ == metadata("xapi-cli")["Version"]


def test_the_program_prints_its_version() -> None:
    result = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True, timeout=30, env={})

    assert xapi_cli.__version__ in result.stdout


@pytest.mark.parametrize("python", [sys.executable, PYTHON], ids=["tests", "program"])
def test_the_tested_package_is_this_checkout(python: str) -> None:
    where = "import xapi_cli; print(xapi_cli.__file__)"
    result = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True, timeout=30, cwd="/")
    installed = Path(result.stdout.strip()).parent

    sources = {path.relative_to(ROOT / "xapi_cli"): path.read_bytes() for path in ROOT.glob("xapi_cli/**/*.py")}
    assert {path: (installed / path).read_bytes() for path in sources} == sources


# locks


def test_there_are_locks_for_users_developers_and_builds() -> None:
    assert [path.name for path in LOCKS] == [
        f"requirements{kind}.txt" for kind in ("-bench", "-build", "-dev", "-lowest", "-windows", "")
    ]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_a_lock_pins_each_package_with_hashes_and_names_no_index(path: Path) -> None:
    text = path.read_text()

    blocks = re.split(r"\n(?=[a-z])", text.partition("make lock\n")[2].strip())
    assert len(blocks) == len(read_lock(path)) > 0
    assert [block for block in blocks if "--hash=sha256:" not in block] == []
    assert re.findall(r"https?:|^ *--(?!hash)|@", text, re.MULTILINE) == []


def test_the_locks_satisfy_the_requirements_of_the_project() -> None:
    groups = PYPROJECT["dependency-groups"]
    wanted = {
        "requirements.txt": PYPROJECT["project"]["dependencies"],
        "requirements-bench.txt": groups["bench"],
        "requirements-build.txt": [*groups["build"], *PYPROJECT["build-system"]["requires"]],
        "requirements-windows.txt": groups["windows"],
        "requirements-dev.txt": [line for line in groups["dev"] if isinstance(line, str)],
    }
    for name, lines in wanted.items():
        pins = read_lock(ROOT / name)
        for requirement in map(Requirement, lines):
            version = pins[canonicalize_name(requirement.name)].version
            assert requirement.specifier.contains(version), f"{name}: {requirement} is locked to {version}"


def test_the_locks_agree_with_each_other() -> None:
    developers = {name: pin.version for name, pin in read_lock(ROOT / "requirements-dev.txt").items()}

    for lock in ("requirements.txt", "requirements-build.txt"):
        pins = {name: pin.version for name, pin in read_lock(ROOT / lock).items()}
        assert {name: developers.get(name) for name in pins} == pins


def test_the_lowest_versions_are_those_of_the_ranges() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    direct = map(Requirement, [*PYPROJECT["project"]["dependencies"], *(line for extra in extras for line in extra)])
    bounds = {each.name: [part.version for part in each.specifier if part.operator == ">="] for each in direct}
    pins = read_lock(ROOT / "requirements-lowest.txt")

    assert {name: [Version(pins[name].version)] for name in bounds} == {
        name: list(map(Version, versions)) for name, versions in bounds.items()
    }
    assert pins.keys() <= read_lock(USERS).keys()


def test_the_locks_cover_windows_and_macos() -> None:
    pins = read_lock(USERS)

    assert {"pywin32-ctypes", "colorama", "secretstorage"} <= pins.keys()
    assert not any("darwin" in pin.marker for pin in pins.values())  # keyring has no other dependencies there


# installation


def test_the_readme_and_the_installation_page_have_the_same_commands() -> None:
    readme, page = ((ROOT / path).read_text() for path in ("README.md", "docs/install.md"))
    commands = re.findall(r"\b(?:uv tool|pipx|make) [^`\n|]+", readme)

    installations = {"uv tool install .", "pipx install ."}
    assert set(commands) == installations | {"make demo", "make test"}
    assert [command for command in commands if command not in page] == []
    name = PYPROJECT["project"]["name"]
    assert set(re.findall(r"uninstall ([\w-]+)`", page)) == {name}
    assert set(re.findall(r"(\w+)-\*\.whl", page)) == {name.replace("-", "_")}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist of this tree, and the wheel built from that sdist."""
    directory = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    built = subprocess.run(
        build, capture_output=True, text=True, check=False, timeout=100, env={"PATH": os.environ["PATH"]}
    )
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    return directory


@pytest.mark.slow
def test_the_wheel_built_from_the_sdist_contains_this_tree_and_nothing_else(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")

    check_wheel(wheel, ROOT)


def test_the_installed_files_match_the_record_of_the_wheel() -> None:
    code = """
import base64, hashlib
from importlib.metadata import files
for file in files("xapi-cli"):
    if file.hash and "xapi_cli" in file.parts:
        digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value, file
        print(file)
"""
    result = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True, timeout=30, cwd="/")

    is_editable = PYTHON.parent == Path(sys.executable).parent
    recorded = {Path(line).as_posix() for line in result.stdout.splitlines()}
    assert is_editable or recorded == {path.relative_to(ROOT).as_posix() for path in _package()}


def test_the_sdist_contains_the_files_that_make_needs(distributions: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    needed = {
        "Makefile",
        "pyproject.toml",
        "CHANGELOG.md",
        "LICENSE",
        "SECURITY.md",
        "tests/conftest.py",
        "xapi_cli/cli/main.py",
    }
    assert names >= needed | {path.name for path in LOCKS}


def test_the_installed_package_has_the_requirements_of_the_project() -> None:
    requirements = metadata("xapi-cli").get_all("Requires-Dist") or []
    extras = PYPROJECT["project"]["optional-dependencies"]
    optional = [f'{each}; extra == "{name}"' for name, group in extras.items() for each in group]

    assert set(map(Requirement, requirements)) == set(map(Requirement, PYPROJECT["project"]["dependencies"] + optional))


def _package() -> list[Path]:
    return [path for path in ROOT.glob("xapi_cli/**/*") if path.suffix in {".py", ".typed"}]


def test_the_script_of_the_program_imports_nothing_but_the_package() -> None:
    imports = [
        node for node in ast.walk(ast.parse(PROGRAM.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
    ]

    assert {ast.unparse(node) for node in imports} == {"import sys", "from xapi_cli.__main__ import main"}


def test_the_environment_of_the_program_contains_no_installer_and_no_code_that_each_start_runs() -> None:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    result = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True, timeout=30, cwd="/")
    packages = Path(result.stdout.strip())

    found = [*packages.glob("*.pth"), *packages.glob("pip"), *packages.glob("setuptools")]
    is_editable = PYTHON.parent == Path(sys.executable).parent
    assert is_editable or found == []


# conventions


def test_no_file_names_a_registry() -> None:
    found = [
        (str(path.relative_to(ROOT)), registry)
        for path in project_files()
        for registry in REGISTRIES
        if registry.encode() in path.read_bytes()
    ]
    assert found == []


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


def test_make_help_names_every_target() -> None:
    result = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    lines = [re.fullmatch(r"([a-z-]+)( {2,})\S.*", line) for line in result.stdout.splitlines()]
    assert {line[1] for line in lines if line} >= set(phony[0].split()) - {"help", "macos"}
    assert {line and line.end(2) for line in lines} == {18}  # the descriptions are in one column


def test_the_gate_can_be_run() -> None:
    gate = ROOT / ".ci" / "run"

    assert os.access(gate, os.X_OK)
    subprocess.run(["bash", "-n", gate], check=True, timeout=30)
