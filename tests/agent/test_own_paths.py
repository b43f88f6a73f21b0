"""Symbolic links to what each process has separately: a worker uses those of its client."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.api_server import ApiServer
from tests.agent.conftest import PATIENT, use_patiently, wait_for_workers
from tests.agent.running import RunningAgent, running_agent
from tests.support.program import Environ, Outcome, Xapi
from xapi_cli.system.safe_paths import is_process_specific

LINKS = {
    "environ": "/proc/self/environ",
    "indirect": "environ",
    "self": "/proc/self",
    "here": "/proc/self/cwd",
    "stdin": "/dev/stdin",
    "stdout": "/dev/stdout",
    "missing": "/proc/self/missing",
    "terminal": "/dev/tty",
    "directory/up": "../here",
    "loop": "loop",
    "plain": "directory/../file",
}


class Both:
    """Runs commands with and without the agent; LINKS are in the home directory."""

    def __init__(self, xapi: Xapi) -> None:
        self._xapi, self.home = xapi, xapi.home

    def __call__(self, *args: str, env: Environ, data: bytes = b"") -> Outcome:
        """Return the outcome with the agent, which must be that without it."""
        cold = self.warm(*args, env={**env, "XAPI_AGENT": "off"}, data=data)
        warm = self.warm(*args, env=env, data=data)
        assert warm == cold
        return warm

    def warm(self, *args: str, env: Environ, data: bytes = b"") -> Outcome:
        """Return the outcome with the agent."""
        process = self._xapi.start(*args, argv=PATIENT, env=env, stdin=subprocess.PIPE)
        out, err = process.communicate(data, timeout=60)
        return Outcome(process.returncode, out.decode(), err.decode())


@pytest.fixture(scope="module")
def agent() -> Iterator[RunningAgent]:
    with running_agent() as agent:
        yield agent


@pytest.fixture
def both(xapi: Xapi, agent: RunningAgent) -> Iterator[Both]:
    """The program; with the agent, a worker must run each command."""
    use_patiently(xapi, agent.environ["XDG_RUNTIME_DIR"])
    _make_links(xapi.home)
    before = agent.status()
    yield Both(xapi)
    wait_for_workers(Path(agent.environ["XDG_RUNTIME_DIR"]) / "xapi", 2)
    after = agent.status()
    assert (after["cold"], after["warm"] > before["warm"]) == (before["cold"], True)


@pytest.fixture
def echo() -> Iterator[Environ]:
    """The environment of a server that responds with the body of a request to `/echo`."""
    with ApiServer() as server:
        yield {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t0ken"}


def _make_links(home: Path) -> None:
    (home / "directory").mkdir()
    (home / "file").write_text("content")
    for name, target in LINKS.items():
        (home / name).symlink_to(target)


@pytest.mark.parametrize(
    "path, option",
    [  # each value is in a test that is not slow; CI runs all combinations
        pytest.param(path, option, marks=pytest.mark.slow if (row - column) % 3 else ())
        for row, path in enumerate(["environ", "indirect", "self/environ", "directory/../environ"])
        for column, option in enumerate(["-d {}", "-d{}", "file{}"])
    ],
)
def test_the_environment_of_the_agent_is_not_sent(both: Both, echo: Environ, path: str, option: str) -> None:
    sent = both.warm("request", "/echo", *option.format(f"@{path}").split(), env={**echo, "WHOSE": "the caller"})

    assert (sent.code, "WHOSE=the caller" in sent.out) == (0, True), sent


def test_stdin_and_stdout_are_those_of_the_caller(both: Both, echo: Environ) -> None:
    assert both("request", "/echo", "-d", "@stdin", "-o", "stdout", env=echo, data=b"text") == Outcome(0, "text")


@pytest.mark.parametrize(
    "name, place",
    [("self/cwd/new", "new"), ("directory/up/file", "file"), ("here/directory/new", "directory/new")],
)
def test_an_output_file_is_replaced_where_the_link_leads(both: Both, echo: Environ, name: str, place: str) -> None:
    assert both("request", "/echo", "-d", "text", "-o", name, env=echo) == Outcome(0)

    assert (both.home / place).read_text() == "text"


def test_the_files_of_settings_are_those_of_the_caller(both: Both, echo: Environ) -> None:
    (both.home / "configured").mkdir()
    (both.home / "secret").write_text("t0ken")
    token = {"XAPI_TOKEN": None, "XAPI_TOKEN_FILE": "here/secret", "XAPI_TOKEN_BASE_URL": echo["XAPI_BASE_URL"]}
    env = {**echo, **token, "XAPI_CONFIG_DIR": str(both.home / "here" / "configured")}

    assert both("profile", "set", "username", "zoe", env=env).code == 0
    assert (both.home / "configured" / "config.toml").read_text() == '[profiles.default]\nusername = "zoe"\n'
    assert "zoe" in both("profile", "show", env=env).out
    assert both("token", "show", env=env).out == "t0ken\n"


@pytest.mark.parametrize(
    "name", ["here/file", *(pytest.param(each, marks=pytest.mark.slow) for each in ("environ", "missing", "here/none"))]
)
def test_a_ca_bundle_is_that_of_the_caller(both: Both, name: str) -> None:
    env = {"XAPI_BASE_URL": "https://127.0.0.1:9", "XAPI_TOKEN": "t0ken"}

    assert both("request", "/x", "--ca-bundle", name, env=env).code in {2, 11}


@pytest.mark.parametrize(
    "name", ["self/nothing", *(pytest.param(each, marks=pytest.mark.slow) for each in ("missing", "loop", "none"))]
)
def test_an_error_is_that_of_the_caller(both: Both, echo: Environ, name: str) -> None:
    assert both("request", "/echo", "-d", f"@{name}", env=echo).code == 2
    assert both("request", "/echo", "-o", f"{name}/file", env=echo).code == 14


def test_paths_of_each_process_are_recognized_by_what_they_are(tmp_path: Path) -> None:
    _make_links(tmp_path)
    own = {name for name in LINKS if is_process_specific(tmp_path / name)}

    assert own == {"environ", "indirect", "self", "here", "stdin", "stdout", "missing", "terminal", "directory/up"}
    assert is_process_specific("/proc/version")
    assert not any(map(is_process_specific, ["/dev/null", "/", ".", "", "none/file", "nul\0", "/etc/passwd/file"]))
