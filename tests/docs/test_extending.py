"""`docs/extending.md` works as written: a copy of the package is changed as it says, checked, and run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import xapi_cli
from tests.support.pages import TEXTS, blocks_of, run_examples
from tests.support.program import PYTHON, Xapi
from tests.tools.documents import ROOT, SURFACE
from xapi_cli.sandbox import MASTER, Sandbox

PAGE = TEXTS["docs/extending.md"]

# A change is a block after a paragraph whose last words are the name of the file.
CHANGES = re.findall(r"`([\w/-]+\.(?:py|toml|md))`:\n\n```(?:python|diff)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def changed(text: str, diff: str) -> str:
    """Return *text* with the hunks of *diff*, which have no line numbers, applied."""
    for hunk in diff.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(old) == 1, f"expected once, found {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, changed as the page says, with a program in `bin`."""
    copy = tmp_path_factory.mktemp("extended")
    shutil.copytree(Path(xapi_cli.__file__).parent, copy / "xapi_cli")  # with its bytecode
    for name in ("tests", "docs", "completions"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "LICENSE", SURFACE):
        shutil.copy(path, copy)
    for name, block in CHANGES:
        path = copy / name
        path.write_text(changed(path.read_text(), block) if path.exists() else block)
    scripts = {
        "python": f'#!/bin/sh\nPYTHONPATH="{copy}:$PYTHONPATH" exec {PYTHON} "$@"\n',
        "xapi": f"#!{copy}/bin/python\nfrom xapi_cli.cli.main import main\n\nmain()\n",
    }
    (copy / "bin").mkdir()
    for name, script in scripts.items():
        (copy / "bin" / name).write_text(script)
        (copy / "bin" / name).chmod(0o755)
    return copy


@pytest.fixture
def program(extended: Path) -> Path:
    """The directory of a program `xapi` that runs the extended package."""
    return extended / "bin"


def test_every_block_of_code_names_its_file() -> None:
    blocks = [block for block in blocks_of(PAGE) if block.language in {"python", "diff"}]

    assert len(CHANGES) == len(blocks)
    assert {name.split("/")[1] for name, _ in CHANGES if "/" in name} >= {"cli", "commands", "usecases"}


def test_the_extended_program_prints_what_the_page_shows(
    program: Path, xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    login = xapi("login", env=sandbox.settings)
    assert login.code == 0
    runtime_directory = tmp_path / "run"
    runtime_directory.mkdir(0o700)
    environ = xapi.environment(
        {"XAPI_PASSWORD": MASTER.password, "XAPI_STORAGE": None, "XDG_RUNTIME_DIR": str(runtime_directory)}
    )
    environ["PATH"] = f"{program}:{environ['PATH']}"

    sections = re.findall(r"^## An? ", PAGE, re.MULTILINE)
    assert run_examples(PAGE, sandbox, cwd=tmp_path, environ=environ) == len(sections)


def test_the_help_of_the_extended_program_lists_the_additions(program: Path, xapi: Xapi) -> None:
    def output(*args: str) -> str:
        command = [str(program / "xapi"), *args]
        return subprocess.run(
            command, env=xapi.environment(), capture_output=True, text=True, timeout=30, check=True
        ).stdout

    assert "identity" in output("--help")
    assert "XAPI_LANGUAGE" in output("help", "environment")
    assert {"--print-url", "--language", "session"} <= set(re.findall(r"[\w-]+", output("request", "--help")))


@pytest.mark.slow
def test_the_extended_project_passes_the_tests_of_its_tables_and_pages(extended: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(extended), "XAPI_TESTS_PROGRAM": str(extended / "bin" / "xapi")}
    modules = ["tests/settings/test_table.py", "tests/cli/test_help.py", "tests/docs/test_docs.py"]
    format_tests = "fits or terminal or heavy_imports"  # these take most of the time
    selection = ["-m", "not slow", "-k", f"not ({format_tests})", *modules]
    pytest_ = ["pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *selection]
    documents = "tests.tools.documents"
    for args in ([documents, "docs"], [documents, "surface"], pytest_):
        ran = subprocess.run(
            [sys.executable, "-m", *args],
            cwd=extended,
            env=environ,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [("ruff", "check"), ("ruff", "format", "--check"), ("lint-imports",), ("mypy", "xapi_cli")], ids=" ".join
)
def test_the_extended_package_passes_the_checks(extended: Path, args: tuple[str, ...]) -> None:
    command = [str(Path(sys.executable).with_name(args[0])), *args[1:]]
    ran = subprocess.run(command, cwd=extended, capture_output=True, text=True, timeout=110, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr
