"""`agent = "auto"`: a command that could have used the agent starts one; `agent = "off"` in the config file."""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.agent.conftest import Agent
from tests.support.program import Environ, Outcome, Xapi
from tests.support.threads import wait_until
from xapi_cli.sandbox import Sandbox

TOKEN = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": "http://127.0.0.1:9"}
AUTO = {**TOKEN, "XAPI_AGENT": "auto"}


@pytest.fixture
def attempt(xapi: Xapi) -> Path:
    """The file that a command which starts an agent writes before it ends."""
    return xapi.state / "agent-start"


def on_terminal(agent: Agent, *args: str, env: Environ = AUTO, program: str | None = None) -> str:
    """Run the program with *args* on a terminal; return what it wrote."""
    with agent.xapi.on_terminal(*args, env=env, program=program) as terminal:
        assert terminal.wait() == 0, terminal.text
        return terminal.text


def attach(agent: Agent) -> None:
    """Wait for the agent that a command has started."""
    wait_until(agent.status, "the agent is running")
    agent.attach()


def write_config(agent: Agent, text: str) -> None:
    agent.xapi.config.mkdir(exist_ok=True)
    (agent.xapi.config / "config.toml").write_text(text)


def test_a_command_starts_an_agent_for_the_next_ones(stopped: Agent) -> None:
    assert on_terminal(stopped, "token", "show") == "t0ken\r\n"

    attach(stopped)
    stopped.wait_for_workers(2)
    assert stopped.xapi("token", "show", env=AUTO) == Outcome(0, "t0ken\n", "")
    status = stopped.status()
    assert (status["warm"], status["idle"]) == (1, 15 * 60)


def test_the_config_file_selects_it_and_the_variable_takes_precedence(stopped: Agent, attempt: Path) -> None:
    write_config(stopped, 'agent = "auto"\n')
    on_terminal(stopped, "token", "show", env={**TOKEN, "XAPI_AGENT": "on"})
    assert not attempt.exists()

    on_terminal(stopped, "token", "show", env=TOKEN)
    assert attempt.exists()
    attach(stopped)


def test_the_agent_keeps_no_descriptor_of_the_command(stopped: Agent, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = tmp_path / "script"
    script.write_text(f'#!/bin/sh\nexec xapi "$@" 7>"{pipe}"\n')
    script.chmod(0o700)
    has_ended = threading.Event()

    def read() -> None:
        pipe.read_bytes()
        has_ended.set()

    threading.Thread(target=read, daemon=True).start()
    on_terminal(stopped, "token", "show", program=str(script))

    attach(stopped)
    assert has_ended.wait(20)
    opened = [os.readlink(each) for each in _descriptors(stopped.pid)]
    assert [each for each in opened if each.startswith("/dev/pts") or each == str(pipe)] == []


def _descriptors(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/fd").iterdir())
    except PermissionError:  # the agent is protected; its end of the pipe would still keep the reader waiting
        return []


@pytest.mark.parametrize(
    "env",
    [
        {"XAPI_AGENT": None},
        {"XAPI_AGENT": "on"},
        {"XAPI_AGENT": "off"},
        {"CI": "true"},
        {"SUDO_UID": "1000"},
        {"DOAS_USER": "me"},
        {"PKEXEC_UID": "1000"},
    ],
)
def test_no_agent_is_started_in_this_environment(stopped: Agent, attempt: Path, env: Environ) -> None:
    assert on_terminal(stopped, "token", "show", env={**AUTO, **env}) == "t0ken\r\n"

    assert not attempt.exists()


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_no_agent_is_started_without_a_terminal(stopped: Agent, attempt: Path, tmp_path: Path, stream: str) -> None:
    with (
        (tmp_path / "file").open("w+b") as file,
        stopped.xapi.on_terminal(
            "token",
            "show",
            env=AUTO,
            **{stream: file},  # type: ignore[arg-type]  # the names of its parameters
        ) as terminal,
    ):
        assert terminal.wait() == 0

    assert not attempt.exists()


@pytest.mark.parametrize("command", ["batch lines", "exec true", "-- token show"])
def test_a_command_that_never_uses_the_agent_does_not_start_it(stopped: Agent, attempt: Path, command: str) -> None:
    (stopped.xapi.home / "lines").write_text("")

    on_terminal(stopped, *command.split())

    assert not attempt.exists()


def test_a_command_with_a_lower_priority_does_not_start_it(stopped: Agent, attempt: Path, tmp_path: Path) -> None:
    """All later commands would have that priority, or not use the agent."""
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\nexec nice xapi "$@"\n')
    script.chmod(0o700)

    assert on_terminal(stopped, "token", "show", program=str(script)) == "t0ken\r\n"

    assert not attempt.exists()


def test_it_is_attempted_once_a_minute(stopped: Agent, attempt: Path) -> None:
    stopped.directory.parent.chmod(0o500)  # no agent can start
    try:
        on_terminal(stopped, "token", "show")
        first = attempt.stat().st_mtime_ns
        on_terminal(stopped, "token", "show")
        assert attempt.stat().st_mtime_ns == first

        os.utime(attempt, ns=(first - 61 * 10**9, first - 61 * 10**9))
        on_terminal(stopped, "token", "show")
        assert attempt.stat().st_mtime_ns >= first
    finally:
        stopped.directory.parent.chmod(0o700)


def test_a_running_agent_is_not_started_again(agent: Agent, attempt: Path) -> None:
    on_terminal(agent, "token", "show", env={**AUTO, "PYTHONHASHSEED": "1"})  # a command that it does not run

    assert agent.status()["cold"] == {"different environment variables": 1}
    assert not attempt.exists()


def test_a_state_directory_that_cannot_be_written_is_ignored(stopped: Agent) -> None:
    stopped.xapi.state.parent.write_text("")

    assert on_terminal(stopped, "token", "show") == "t0ken\r\n"


@pytest.mark.parametrize("value", ['"off"', "false", '"no"'])
def test_the_config_file_turns_the_agent_off(agent: Agent, value: str) -> None:
    write_config(agent, f"agent = {value}\n")

    assert agent.xapi("token", "show", env=TOKEN).out == "t0ken\n"
    assert agent.status()["cold"] == {"agent = off": 1}

    assert agent.xapi("token", "show", env={**TOKEN, "XAPI_AGENT": "on"}).out == "t0ken\n"
    assert agent.status()["warm"] == 1


def test_an_error_in_the_config_file_is_reported_as_without_the_agent(agent: Agent) -> None:
    write_config(agent, "agent = \n")

    warm = agent.xapi("token", "show", env=TOKEN)
    assert agent.status()["warm"] == 1
    assert warm == agent.xapi("token", "show", env={**TOKEN, "XAPI_AGENT": "off"})
    assert warm.code == 2


@pytest.mark.parametrize(
    ("text", "variable", "message"),
    [
        ("agent = 5\n", None, "agent must be on, off or auto"),
        ('agent = "fast"\n', None, "agent: 'fast' is not a valid use of the agent; use on, off or auto"),
        ("", "fast", "XAPI_AGENT: 'fast' is not a valid use of the agent; use on, off or auto"),
    ],
)
def test_another_value_is_a_usage_error(stopped: Agent, text: str, variable: str | None, message: str) -> None:
    write_config(stopped, text)

    ended = stopped.xapi("token", "show", env={**TOKEN, "XAPI_AGENT": variable})

    assert (ended.code, message in ended.err) == (2, True), ended


def test_it_is_not_a_setting_of_a_profile(stopped: Agent) -> None:
    ended = stopped.xapi("profile", "set", "agent", "auto")

    assert ended == Outcome(
        2,
        "",
        "xapi: error: agent is not a setting of a profile;"
        " write it at the top of the config file, above the profiles\n",
    )


def test_a_change_of_a_profile_preserves_it(stopped: Agent) -> None:
    write_config(stopped, 'agent = "off"\n')

    assert stopped.xapi("profile", "set", "timeout", "5").code == 0

    text = (stopped.xapi.config / "config.toml").read_text()
    assert text == 'agent = "off"\n\n[profiles.default]\ntimeout = 5\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"auto"', "off; a command on a terminal starts one"),
        ('"off"', 'not used: the config file contains agent = "off"'),
    ],
)
def test_doctor_reports_it(stopped: Agent, text: str, expected: str) -> None:
    write_config(stopped, f"agent = {text}\n")

    assert f"pass  agent     {expected}\n" in stopped.xapi("doctor").out


def test_a_login_on_a_terminal_mentions_it_once(stopped: Agent, sandbox: Sandbox) -> None:
    first, second = (on_terminal(stopped, "login", env=sandbox.settings) for _ in "12")

    mention = 'xapi: to make commands start faster, write agent = "auto" at the top of '
    next_command, _, after = first.partition("next, run `xapi request /path`")
    assert mention in " ".join(after.split())  # it is the last note
    assert mention not in " ".join(next_command.split())
    assert mention not in " ".join(second.split())


@pytest.mark.parametrize("env", [{"XAPI_AGENT": "auto"}, {"XAPI_AGENT": "off"}, {"XAPI_QUIET": "1", "CI": "1"}])
def test_a_login_does_not_mention_it_to_those_who_know_or_want_no_notes(
    stopped: Agent, sandbox: Sandbox, env: Environ
) -> None:
    assert "agent" not in on_terminal(stopped, "login", env={**sandbox.settings, "CI": "1", **env})


def test_a_login_does_not_mention_an_agent_that_is_running(agent: Agent, sandbox: Sandbox) -> None:
    assert "agent" not in on_terminal(agent, "login", env=sandbox.settings)


def test_an_interrupted_command_starts_none(stopped: Agent, attempt: Path, sandbox: Sandbox) -> None:
    env = {**sandbox.settings, "XAPI_PASSWORD": None, "XAPI_AGENT": "auto"}
    with stopped.xapi.on_terminal("login", env=env) as terminal:
        terminal.expect("Password for ")
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.wait() == 143

    assert not attempt.exists()
