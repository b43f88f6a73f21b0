"""Each way to install xapi works without a network, and uninstalling leaves only what the user must decide about.

The packages are wheels that are made from the installed ones. Each way has its own HOME.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import xapi_cli
from tests.tools.documents import ROOT
from tests.tools.release.wheels import write_wheelhouse
from xapi_cli.sandbox import MASTER, Sandbox

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TOOLS = Path(sys.executable).parent
PYTHON = os.path.realpath(sys.executable)


class Way(NamedTuple):
    """A way to install xapi: shell commands in HOME, with `$wheel`, `$python` and `$tools`.

    *command* is the installed program, relative to HOME. *left* has what *uninstall* leaves there: caches of the tool.
    """

    install: str
    command: str
    uninstall: str
    has_man_pages: bool
    left: tuple[str, ...] = ()


WAYS = {
    "uv": Way(
        '"$tools/uv" tool install --python "$python" "$wheel"',
        ".local/bin/xapi",
        '"$tools/uv" tool uninstall xapi-cli',
        has_man_pages=False,
        left=(".cache/uv", ".local/share/uv"),
    ),
    "pipx": Way(
        '"$tools/pipx" install --backend pip --python "$python" "$wheel"',
        ".local/bin/xapi",
        '"$tools/pipx" uninstall xapi-cli',
        has_man_pages=True,
        left=(".cache/pipx", ".local/state/pipx", ".local/share/pipx"),
    ),
    "venv": Way(
        '"$python" -m venv .xapi && .xapi/bin/pip install "$wheel"',
        ".xapi/bin/xapi",
        "rm -r ~/.xapi",
        has_man_pages=True,
    ),
    "uv venv": Way(
        '"$tools/uv" venv --python "$python" .xapi && "$tools/uv" pip install --python .xapi "$wheel"',
        ".xapi/bin/xapi",
        "rm -r ~/.xapi",
        has_man_pages=True,
        left=(".cache/uv",),
    ),
    "pip --python": Way(  # an environment without pip, as `make program` creates
        '"$python" -m venv --without-pip .xapi && "$tools/pip" --python .xapi install "$wheel"',
        ".xapi/bin/xapi",
        "rm -r ~/.xapi",
        has_man_pages=True,
    ),
    "pip --target": Way(
        '"$tools/pip" --python "$python" install --target lib/xapi "$wheel"',
        "lib/xapi/bin/xapi",
        "rm -r ~/lib/xapi",
        has_man_pages=True,
    ),
    "pex": Way(
        '"$tools/pex" --python "$python" --no-pypi -f "$PIP_FIND_LINKS" "$wheel" --script xapi --output-file xapi',
        "xapi",
        "rm ~/xapi",
        has_man_pages=False,
        left=(".cache/pex",),
    ),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree, in a directory with wheels of its dependencies."""
    directory = tmp_path_factory.mktemp("wheels")
    write_wheelhouse(directory)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=100, env={"PATH": os.environ["PATH"]})
    (found,) = directory.glob("xapi_cli-*.whl")
    return found


class Machine:
    """A HOME in which one *way* installs *wheel*, and runs it against *sandbox*."""

    def __init__(self, home: Path, way: Way, wheel: Path, sandbox: Sandbox) -> None:
        home.mkdir()
        self.home, self.way = home, way
        self.program = home / way.command
        offline = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_FIND_LINKS": str(wheel.parent),
            "PIP_NO_CACHE_DIR": "1",
            "PIP_NO_INDEX": "1",
            "UV_FIND_LINKS": str(wheel.parent),
            "UV_NO_CONFIG": "1",
            "UV_NO_INDEX": "1",
            "UV_OFFLINE": "1",
            "UV_PYTHON_DOWNLOADS": "never",
        }
        self.environ = {
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": f"{self.program.parent}:/usr/local/bin:/usr/bin:/bin",
            "python": PYTHON,
            "tools": str(TOOLS),
            "wheel": str(wheel),
            **offline,
            **sandbox.settings,
            "XAPI_STORAGE": "file",
        }
        if way.command.startswith("lib/"):
            self.environ["PYTHONPATH"] = str(self.program.parent.parent)

    def sh(self, script: str, env: Mapping[str, str] | None = None) -> str:
        """Run *script* in HOME and return its output. Raises AssertionError if it fails."""
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.home,
            env={**self.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert result.returncode == 0, (script, result.stdout, result.stderr)
        return result.stdout

    def files(self) -> set[str]:
        """Return the files in HOME, relative to it, without those that belong to the tool."""
        found = (path.relative_to(self.home).as_posix() for path in self.home.rglob("*") if not path.is_dir())
        return {name for name in found if not name.startswith(self.way.left or ("\0",))}


@pytest.fixture(params=WAYS)
def machine(request: pytest.FixtureRequest, tmp_path: Path, wheel: Path, sandbox: Sandbox) -> Machine:
    return Machine(tmp_path / "home", WAYS[request.param], wheel, sandbox)


def uninstall_page() -> Mapping[str, str]:
    """Return the commands of the section about uninstalling: by way, and `files` for what remains."""
    section = (ROOT / "docs" / "install.md").read_text().partition("\n## Uninstall\n")[2].partition("\n## ")[0]
    return {
        **dict(re.findall(r"^\| (.+?) \| `(.+?)`", section, re.MULTILINE)),
        "files": "".join(re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)),
    }


def test_a_way_to_install_works_and_leaves_only_config_and_state(machine: Machine) -> None:
    machine.sh(machine.way.install)

    _check_program(machine)
    _check_man_pages(machine)
    _check_completion(machine)

    _check_command_that_adds_an_extra(machine)

    used = machine.files()
    machine.sh(machine.way.uninstall)
    assert not machine.program.exists()
    left = machine.files()
    assert left < used
    assert {name for name in left if not name.startswith((".config/xapi/", ".local/state/xapi/"))} == set()
    assert ".config/xapi/config.toml" in left

    machine.sh(uninstall_page()["files"])
    assert machine.files() == set()


def _check_program(machine: Machine) -> None:
    assert machine.sh("xapi --version") == f"xapi {xapi_cli.__version__}\n"
    assert machine.sh("command -v xapi").strip() == str(machine.program)
    machine.sh("xapi login")
    assert f'"email":"{MASTER.email}"' in machine.sh("xapi request /x-api/me").replace(" ", "")


def _check_man_pages(machine: Machine) -> None:
    found = machine.sh("man --where xapi xapi-token-show || true").split()
    expected = ["xapi.1", "xapi-token-show.1"] if machine.way.has_man_pages else []

    assert [Path(path).name for path in found] == expected
    assert all(Path(path).is_relative_to(machine.home) for path in found)


def _check_completion(machine: Machine) -> None:
    script = machine.sh("xapi --show-completion bash")
    line = "COMP_WORDS=(xapi tok) COMP_CWORD=1 COMP_LINE='xapi tok' COMP_POINT=8"

    assert "token" in machine.sh(f'{script}\n{line}; _xapi_completion xapi tok xapi; echo "${{COMPREPLY[@]}}"').split()


def _check_command_that_adds_an_extra(machine: Machine) -> None:
    """Check that the command in the error message adds the extra, and does not need an index that has xapi."""
    show = "XAPI_STORAGE=redis XAPI_REDIS_URL=redis://127.0.0.1:1 xapi token show 2>&1"
    error = machine.sh(f"! {show}")
    match = re.search(r"packages that are not installed; run `(.*)`(?: in a checkout of xapi)?$", error)
    assert match, error
    command = match[1]
    if command.startswith("uvx pex "):  # pex and the checkout's build tool would be fetched
        command = command.replace("uvx pex", 'pex --no-pypi -f "$PIP_FIND_LINKS"')
        command = command.replace("'.[redis]'", '"$wheel[redis]"')
    machine.sh(command, {"PATH": f"{machine.environ['PATH']}:{TOOLS}"})
    assert "Redis at 127.0.0.1:1 cannot be reached" in machine.sh(f"! {show}")


def test_the_installation_page_uninstalls_as_the_tests_do() -> None:
    page = uninstall_page()

    for name in ("uv", "pipx"):
        assert shlex.split(page[name])[1:] == shlex.split(WAYS[name].uninstall)[1:]
    assert page["venv, short form"] == WAYS["venv"].uninstall
