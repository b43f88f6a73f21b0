"""A warm command on a terminal, beyond what `make test-agent` runs: processes, Ctrl-Z, and the end of the terminal."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.agent.conftest import PATIENT, Agent, children, is_running
from tests.support.credential_helpers import install
from tests.support.servers import OK, Server, hang, request, send, wait_for
from tests.support.threads import wait_until
from xapi_cli.sandbox import Sandbox

_IGNORES_CTRL_C = "import os, signal, sys; signal.signal(2, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


def _without_password(sandbox: Sandbox) -> dict[str, str | None]:
    return {**sandbox.settings, "XAPI_PASSWORD": None}


def test_a_prompt_reads_the_password_from_the_terminal_of_the_client(agent: Agent, sandbox: Sandbox) -> None:
    with agent.xapi.on_terminal("login", "--no-remember", env=_without_password(sandbox)) as terminal:
        terminal.expect("Password for ")
        terminal.type(f"{sandbox.settings['XAPI_PASSWORD']}\n")
        terminal.expect("logged in as")

        assert terminal.wait() == 0
    assert sandbox.settings["XAPI_PASSWORD"].encode() not in terminal.seen
    assert agent.status()["warm"] == 1


def test_ctrl_c_at_the_question_whether_to_remember_leaves_a_complete_login(agent: Agent, sandbox: Sandbox) -> None:
    env = {**_without_password(sandbox), "XAPI_STORAGE": "agent"}
    with agent.xapi.on_terminal("login", "-p", "new", env=env, columns=200) as terminal:
        terminal.expect("Password for ")
        terminal.type(f"{sandbox.settings['XAPI_PASSWORD']}\n")
        terminal.expect("[Y/n] ")
        terminal.interrupt()
        terminal.expect("settings stored in profile new; ")

        assert terminal.wait() == 130
    profile = {"XAPI_BASE_URL": None, "XAPI_USERNAME": None, "XAPI_STORAGE": "agent"}
    assert agent.xapi("token", "show", "--no-login", "-p", "new", env=profile).code == 0


def test_a_client_at_a_prompt_ends_as_its_worker_was_killed(agent: Agent, sandbox: Sandbox) -> None:
    with agent.xapi.on_terminal("login", "--no-remember", env=_without_password(sandbox)) as terminal:
        terminal.expect("Password for ")
        worker = agent.running_worker()
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: not is_running(worker), "the worker has ended")
        terminal.type("password\n")

        assert terminal.process.wait(30) == -signal.SIGKILL
        assert terminal.echoes
    assert b"Traceback" not in terminal.seen
    assert b"error" not in terminal.seen


def test_a_time_limit_applies_to_a_prompt(agent: Agent, sandbox: Sandbox) -> None:
    env = _without_password(sandbox)
    with agent.xapi.on_terminal("request", "/x-api/me", "--max-time", "2.5", env=env) as terminal:
        terminal.expect("Password for ")
        terminal.expect("did not finish within 2.5 s")

        assert terminal.wait() == 12


@pytest.mark.parametrize("code", [0, 3])
def test_a_password_command_runs_in_the_client(agent: Agent, sandbox: Sandbox, code: int) -> None:
    command = agent.xapi.home / "password"
    command.write_text(f'#!/bin/sh\necho $PPID >ppid\nprintf %s "$WORD"\nexit {code}\n')
    command.chmod(0o700)
    env = {**_without_password(sandbox), "WORD": sandbox.settings["XAPI_PASSWORD"]}
    process = agent.xapi.start("login", "--password-command", str(command), env=env)
    _, err = process.communicate(timeout=30)

    assert (process.returncode, b"failed with exit code 3" in err) == ((10, True) if code else (0, False))
    assert int((agent.xapi.home / "ppid").read_text()) == process.pid
    assert agent.status()["warm"] == 1


def test_the_password_command_of_a_storage_runs_in_the_client(agent: Agent, sandbox: Sandbox) -> None:
    command = agent.xapi.home / "password"
    command.write_text("#!/bin/sh\necho $PPID >ppid\nexit 3\n")
    command.chmod(0o700)
    assert agent.xapi("profile", "set", "redis_url", "redis://xapi@127.0.0.1:9").code == 0
    assert agent.xapi("profile", "set", "redis_password_command", str(command)).code == 0
    process = agent.xapi.start("request", "/x-api/me", env={**sandbox.settings, "XAPI_STORAGE": "redis"})
    _, err = process.communicate(timeout=30)

    assert (process.returncode, b"redis_password_command 'password' failed with exit code 3" in err) == (13, True)
    assert int((agent.xapi.home / "ppid").read_text()) == process.pid
    assert agent.status()["warm"] == 3


# A credential helper that asks for the PIN of its store on the terminal, and keeps the secrets in a file.
_PIN_HELPER = """
import json, os, termios
if action == "get" and not os.path.exists("secret"):
    print("credentials not found in native keychain")
    sys.exit(1)
terminal = os.open("/dev/tty", os.O_RDWR)
assert os.tcgetpgrp(terminal) == os.getpgrp()
os.write(terminal, b"PIN for " + action.encode() + b": ")
if os.read(terminal, 100) != b"1234" + bytes([10]):
    sys.exit(1)
if action == "store":
    open("secret", "w").write(sys.stdin.read())
elif action == "get":
    print(open("secret").read())
else:
    os.remove("secret")
"""


@pytest.fixture
def with_pin(agent: Agent, sandbox: Sandbox, tmp_path: Path) -> dict[str, str | None]:
    """The settings of a storage whose helper asks for a PIN."""
    helper = install(tmp_path / "docker-credential-pin", _PIN_HELPER)
    return {**sandbox.settings, "XAPI_STORAGE": "helper", "XAPI_CREDENTIAL_HELPER": str(helper)}


def test_a_credential_helper_asks_on_the_terminal_of_the_client(agent: Agent, with_pin: dict[str, str | None]) -> None:
    with agent.xapi.on_terminal("login", "--no-remember", env=with_pin) as terminal:
        for action in ("store", "get", "erase", "store", "get"):  # the first three examine it
            terminal.expect(f"PIN for {action}: ")
            terminal.type("1234\n")
        terminal.expect("logged in as")
        assert terminal.wait() == 0
    with agent.xapi.on_terminal("token", "show", env={**with_pin, "XAPI_PASSWORD": None}) as terminal:
        terminal.expect("PIN for get: ")
        terminal.type("1234\n")
        assert terminal.wait() == 0
    with agent.xapi.on_terminal("token", "show", "--no-login", env=with_pin) as terminal:
        terminal.expect("PIN for get: ")
        terminal.type("0000\n")
        terminal.expect("failed with exit code 1")
        assert terminal.wait() == 13

    assert (agent.status()["warm"], agent.status()["cold"]) == (3, {})


def test_ctrl_c_at_the_question_of_a_credential_helper_ends_the_command(
    agent: Agent, sandbox: Sandbox, with_pin: dict[str, str | None]
) -> None:
    with agent.xapi.on_terminal("login", "--no-remember", env=with_pin) as terminal:
        terminal.expect("PIN for store: ")
        terminal.interrupt()

        assert terminal.wait() == 130
    assert (sandbox.logins, agent.status()["warm"]) == (0, 1)


def test_a_credential_helper_that_cannot_run_is_named_as_without_the_agent(
    agent: Agent, with_pin: dict[str, str | None]
) -> None:
    agent.xapi.home.joinpath("not-a-program").write_text("")
    for name, expected in (("missing", "was not found"), (str(agent.xapi.home / "not-a-program"), "cannot be run: ")):
        with agent.xapi.on_terminal("token", "show", env={**with_pin, "XAPI_CREDENTIAL_HELPER": name}) as terminal:
            terminal.expect(expected)
            assert terminal.wait() == 13


@pytest.mark.parametrize("killed", ["client", "worker"])
def test_a_credential_helper_does_not_outlive_its_killed_client_or_worker(
    agent: Agent, with_pin: dict[str, str | None], tmp_path: Path, killed: str
) -> None:
    """The process in which the helper waits ends at the latest before another command uses the helper."""
    waiting = tmp_path / "waiting"
    ignore = "import os, signal, subprocess; signal.signal(1, signal.SIG_IGN)"
    command = ["sh", "-c", f"echo $$ >{waiting}; echo waits >/dev/tty; exec sleep 90"]
    install(tmp_path / "docker-credential-pin", f"{ignore}; subprocess.run({command}, close_fds=False)")
    with agent.xapi.on_terminal("login", "--no-remember", env=with_pin) as terminal:
        terminal.expect("waits")
        (helper,) = children(terminal.process.pid)
        if killed == "client":
            terminal.process.kill()
        else:
            os.kill(agent.running_worker(), signal.SIGKILL)
        terminal.process.wait(30)
        wait_until(lambda: agent.status()["running_commands"] == 0, "the worker has ended")
        wait_until(lambda: not is_running(helper), "the helper has ended")
        install(tmp_path / "docker-credential-pin", "print('credentials not found in native keychain'); sys.exit(1)")

        assert agent.xapi("logout", env=with_pin).code == 0
        assert not is_running(int(waiting.read_text()))


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_signals_of_the_terminal_interrupt_a_command(agent: Agent, number: signal.Signals, code: int) -> None:
    with Server([request(), hang()]) as server:
        env = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url}
        with agent.xapi.on_terminal("request", "/x-api/me", env=env) as terminal:
            wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived")
            if number == signal.SIGINT:
                terminal.interrupt()
            else:
                os.killpg(terminal.process.pid, number)

            assert terminal.process.wait(30) == code


@pytest.mark.parametrize("mode", ["on", "off"])
def test_closing_the_terminal_ends_the_command(agent: Agent, mode: str) -> None:
    with Server([request(), hang()]) as server:
        env = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url, "XAPI_AGENT": mode}
        with agent.xapi.on_terminal("request", "/x-api/me", env=env) as terminal:
            wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived")
            terminal.close()

            assert terminal.process.wait(30) == 129
    assert agent.status()["warm"] == (mode == "on")
    wait_until(lambda: agent.status()["running_commands"] == 0, "the worker has ended")


@pytest.mark.parametrize("mode", ["on", "off"])
def test_closing_the_terminal_at_a_prompt_ends_the_command(agent: Agent, sandbox: Sandbox, mode: str) -> None:
    env = {**_without_password(sandbox), "XAPI_AGENT": mode}
    with agent.xapi.on_terminal("login", env=env) as terminal:
        terminal.expect("Password for ")
        terminal.close()

        assert terminal.process.wait(30) in {10, 14, 129}  # the terminal may fail before the signal arrives
    assert sandbox.logins == 0
    wait_until(lambda: agent.status()["running_commands"] == 0, "the worker has ended")


def test_a_stopped_client_is_continued(agent: Agent) -> None:
    """SIGSTOP cannot be forwarded: the worker continues, and the client ends when it is continued."""
    may_respond = threading.Event()
    with Server([request(), wait_for(may_respond), send(OK)]) as server:
        env = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url}
        process = agent.xapi.start("request", "/x-api/me", env=env)
        wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived")
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: _state(process.pid) == "T", "the client is stopped")
        may_respond.set()
        wait_until(lambda: agent.status()["running_commands"] == 0, "the worker has ended")
        assert _state(process.pid) == "T"
        process.send_signal(signal.SIGCONT)

        assert process.communicate(timeout=30) == (b"ok", b"")
        assert process.returncode == 0


def test_a_stopped_client_that_is_killed_ends_its_worker(agent: Agent) -> None:
    with Server([request(), hang()]) as server:
        env = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url}
        process = agent.xapi.start("request", "/x-api/me", env=env)
        wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived")
        assert agent.status()["running_commands"] == 1
        for number in (signal.SIGSTOP, signal.SIGKILL):
            process.send_signal(number)

        assert process.wait(30) == -signal.SIGKILL
        wait_until(lambda: agent.status()["running_commands"] == 0, "the worker has ended")


def _state(pid: int) -> str:
    """Return the letter of the state of the process *pid*, T if it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("resume", ["fg >/dev/null", "bg >/dev/null; wait %1"])
def test_ctrl_z_stops_the_command_and_fg_and_bg_continue_it(agent: Agent, resume: str) -> None:
    may_respond = threading.Event()
    with Server([request(), wait_for(may_respond), send(OK)]) as server:
        env = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url, "PS1": "shell> "}
        shell = f"set -m; xapi request /x-api/me; echo stopped=$?; {resume}; echo ended=$?"
        with agent.xapi.on_terminal("-c", shell, env=env, program="/bin/bash") as terminal:
            wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived")
            worker = agent.running_worker()
            terminal.type("\x1a")
            terminal.expect("stopped=148")
            may_respond.set()
            terminal.expect("ended=0")

            assert terminal.wait() == 0
            assert b"ok" in terminal.seen
        wait_until(lambda: not is_running(worker), "the worker has ended")


def test_a_command_that_may_read_the_terminal_runs_without_the_agent(agent: Agent) -> None:
    with agent.xapi.on_terminal("login", "--password-stdin", env={"XAPI_BASE_URL": "http://127.0.0.1:9"}) as terminal:
        terminal.type("\x04\x04")
        terminal.wait()

    assert agent.status()["cold"] == {"stdin is a terminal": 1}


def test_a_background_job_ignores_ctrl_c_as_without_the_agent(agent: Agent) -> None:
    may_respond = threading.Event()
    with Server([request(), wait_for(may_respond), send(OK)]) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", _IGNORES_CTRL_C, *PATIENT, "request", "/x-api/me"],
            env=agent.xapi.environment({"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url}),
            stdout=subprocess.PIPE,
        )
        wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived")
        process.send_signal(signal.SIGINT)
        may_respond.set()

        assert process.communicate(timeout=30)[0] == b"ok"
