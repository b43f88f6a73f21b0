"""The agent runs the commands of all locales with the same encoding, and their output does not change."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.agent.conftest import PATIENT, Agent, use_patiently
from tests.agent.running import RunningAgent, running_agent
from tests.support.program import PYTHON, Xapi
from xapi_cli.sandbox import Sandbox

_LATIN_1 = {"LC_ALL": "de_DE.ISO-8859-1"}
_UTF_8: list[dict[str, str]] = [
    {},
    {"LANG": "C"},
    {"LANG": "C.UTF-8"},
    {"LANG": "en_US.UTF-8"},
    {"LANG": "xx_XX.UTF-8"},  # unknown, therefore C
    {"LC_ALL": "C"},
    {"LC_ALL": "en_US.UTF-8", "LC_CTYPE": "C", "LANGUAGE": "de:fr", "LC_TIME": "POSIX"},
    {"LC_CTYPE": "C.UTF-8", "LANG": "en_US.UTF-8"},
]
_COMMANDS: list[tuple[str | bytes, ...]] = [
    ("request", "/echo", "name=Zoë", b"text=\xff\xe4", "--curl", "--base-url", "https://api.example.com"),
    ("request", "/echo", b"file@\xff.txt"),
    ("requést",),
    (b"request\xff",),
    ("profile", "show", b"\xc3\xa4\xff"),
    ("token", "show"),
]
# The agent in the foreground; a worker writes how its streams handle text that cannot be encoded.
_REPORTS_STREAMS = """
import sys
from pathlib import Path
from xapi_cli.agent import daemon, worker

seen = Path(sys.argv[2])

def report(connection, code, end=worker._end):
    seen.write_text(" ".join(stream.errors for stream in (sys.stdin, sys.stdout, sys.stderr)))
    end(connection, code)

worker._end = report
daemon.run(sys.argv[1], 3600.0, ready=lambda: print("ready", flush=True), warn=lambda _: None)
"""
# The program with a stdout that handles such text in another way, and which waits for a worker.
_HAS_STREAMS = """
import sys
from xapi_cli.agent import call
from xapi_cli.__main__ import main

sys.stdout.reconfigure(errors="{}")
call.READY_TIMEOUT = call.WORKER_TIMEOUT = 60
main()
"""
_ENVIRON = {"XAPI_TOKEN": "t0ken"}

_Outcome = tuple[int, bytes, bytes]
Cold = Callable[[tuple[str | bytes, ...], dict[str, str]], _Outcome]


def _name(locale: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in locale.items()) or "none"


@pytest.fixture(scope="module")
def locales(tmp_path_factory: pytest.TempPathFactory) -> str:
    """LOCPATH of the C library with the locales of these tests."""
    if shutil.which("localedef") is None:
        pytest.skip("localedef is not installed")
    directory = tmp_path_factory.mktemp("locales")
    for language, charset in (("en_US", "UTF-8"), ("de_DE", "ISO-8859-1")):
        command = ["localedef", "-i", language, "-f", charset, str(directory / f"{language}.{charset}")]
        if subprocess.run(command, capture_output=True, timeout=60, check=False).returncode:
            pytest.skip("the sources of locales are not installed")
    return f"{directory}:/usr/lib/locale"


_STARTED = [
    {},
    pytest.param({"LC_ALL": "C"}, marks=pytest.mark.slow),
    pytest.param({"LANG": "C.UTF-8"}, marks=pytest.mark.slow),
    {"LANG": "en_US.UTF-8"},
]


@pytest.fixture(scope="module", params=_STARTED, ids=["none", "LC_ALL=C", "LANG=C.UTF-8", "LANG=en_US.UTF-8"])
def shared_agent(request: pytest.FixtureRequest, locales: str) -> Iterator[RunningAgent]:
    """An agent that was started in the locale that is the parameter."""
    with running_agent({"LOCPATH": locales, "LANG": None, **request.param}) as agent:
        yield agent


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory, locales: str) -> Cold:
    """Return a function that runs a command in a locale without an agent, once for all agents."""
    xapi = Xapi(tmp_path_factory.mktemp("cold") / "home")
    found: dict[object, _Outcome] = {}

    def outcome(command: tuple[str | bytes, ...], locale: dict[str, str]) -> _Outcome:
        key = command, _name(locale)
        if key not in found:
            found[key] = _run(xapi, command, {"LOCPATH": locales, "XAPI_AGENT": "off", **locale})
        return found[key]

    return outcome


@pytest.mark.slow
@pytest.mark.parametrize("locale", _UTF_8, ids=_name)
def test_commands_of_other_locales_have_the_same_output(
    xapi: Xapi, shared_agent: RunningAgent, cold: Cold, locales: str, locale: dict[str, str]
) -> None:
    use_patiently(xapi, shared_agent.environ["XDG_RUNTIME_DIR"])
    before = shared_agent.served()
    for command in _COMMANDS:
        assert _run(xapi, command, {"LOCPATH": locales, **locale}) == cold(command, locale)
    assert shared_agent.served() == before + len(_COMMANDS), shared_agent.status()


@pytest.mark.slow
def test_commands_of_another_encoding_run_without_the_agent(
    xapi: Xapi, shared_agent: RunningAgent, cold: Cold, locales: str
) -> None:
    use_patiently(xapi, shared_agent.environ["XDG_RUNTIME_DIR"])
    before = shared_agent.served()
    for command in _COMMANDS:
        assert _run(xapi, command, {"LOCPATH": locales, **_LATIN_1}) == cold(command, _LATIN_1)
    shared_agent.wait_for_worker()
    status = shared_agent.status()
    assert status["warm"] == before
    assert status["cold"]["another installation or mode of Python"] >= len(_COMMANDS)


def _run(xapi: Xapi, command: tuple[str | bytes, ...], environ: dict[str, str]) -> _Outcome:
    settings = {name: value for name, value in xapi.environment(_ENVIRON).items() if name != "LANG"}
    ended = subprocess.run(
        [*PATIENT, *command], env={**settings, **environ}, cwd=xapi.home,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    home = os.fsencode(xapi.home)  # differs between the runs with and without the agent
    return ended.returncode, ended.stdout.replace(home, b"HOME"), ended.stderr.replace(home, b"HOME")


@pytest.mark.parametrize(
    "locale",
    [
        {"LANG": "xx_XX.UTF-8"},
        {"PYTHONIOENCODING": "latin-1:replace"},
        *(
            pytest.param(locale, marks=pytest.mark.slow)
            for locale in (
                {},
                {"LC_ALL": "C"},
                {"PYTHONUTF8": "1"},
                {"PYTHONUTF8": "0"},
                {"PYTHONCOERCECLOCALE": "0"},
                {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            )
        ),
    ],
    ids=_name,
)
@pytest.mark.parametrize("by_login", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["start", "login"])
def test_an_agent_serves_the_commands_of_the_locale_that_it_was_started_in(
    stopped: Agent, sandbox: Sandbox, locale: dict[str, str], by_login: bool
) -> None:
    del stopped.xapi.environ["LANG"]
    start = ("login", "--storage", "agent") if by_login else ("agent", "start")
    account = sandbox.settings if by_login else {"XAPI_TOKEN": "t0ken"}
    environ = stopped.xapi.environment({**locale, **account, "XAPI_STORAGE": "agent"})
    for command in (start, ("token", "show")):
        subprocess.run([*PATIENT, *command], env=environ, check=True, timeout=60, capture_output=True)
    stopped.xapi.environ.update(locale)

    stopped.attach()
    assert (stopped.status()["warm"], stopped.status()["cold"]) == (1, {})


@pytest.mark.parametrize("errors", [pytest.param("strict", marks=pytest.mark.slow), "surrogateescape"])
def test_the_streams_of_a_worker_handle_text_as_those_of_its_client(
    stopped: Agent, tmp_path: Path, errors: str
) -> None:
    """They are strict in en_US.UTF-8, and not in C.UTF-8."""
    seen = tmp_path / "seen"
    with subprocess.Popen(
        [PYTHON, "-Pc", _REPORTS_STREAMS, stopped.directory, seen], env=stopped.xapi.environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        stopped.pid = process.pid
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        show = stopped.xapi.start("token", "show", env=_ENVIRON, argv=(str(PYTHON), "-Pc", _HAS_STREAMS.format(errors)))
        assert show.communicate(timeout=60) == (b"t0ken\n", b"")
        stopped.xapi("agent", "stop")

    assert seen.read_text() == f"{errors} {errors} backslashreplace"


def test_a_command_with_unusual_streams_runs_without_the_agent(stopped: Agent) -> None:
    stopped.xapi.environ["PYTHONIOENCODING"] = "ascii:xmlcharrefreplace"
    stopped.start()
    environ = stopped.xapi.environment(_ENVIRON)
    shown = subprocess.run([*PATIENT, "token", "show"], env=environ, capture_output=True, timeout=60, check=True)

    assert (shown.stdout, shown.stderr) == (b"t0ken\n", b"")
    stopped.wait_for_workers(2)
    assert stopped.status()["cold"] == {"arguments or environment": 1}
