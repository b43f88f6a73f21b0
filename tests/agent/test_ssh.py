"""The agent in sessions of a real SSH server, and its keeper through `ssh -R`."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.api_server import PASSWORD, USERNAME, ApiServer
from tests.agent.machine import ALICE, ROOT, Machine, User, check_possible
from tests.agent.ssh import search_path, ssh_server
from tests.support.keeper_process import KeeperProcess
from tests.support.pages import TEXTS, blocks_of, with_sandbox
from tests.support.program import Environ, OnTerminal, Outcome, Xapi
from tests.support.servers import OK, Server, hang, request, send, wait_for
from tests.support.threads import wait_until
from xapi_cli.sandbox import MASTER, Sandbox

if TYPE_CHECKING:
    import subprocess

TOKEN = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": "http://127.0.0.1:9"}


class Remote:
    """A machine that this one reaches as `host`, and an agent of its user there."""

    def __init__(self, xapi: Xapi, machine: Machine, user: User, commands: Path) -> None:
        self.machine, self.user = machine, user
        self._ssh = str(commands / "ssh")
        self._xapi = xapi
        xapi.environ["PATH"] = search_path(commands)
        self.with_runtime = ("-o", f"SetEnv=XDG_RUNTIME_DIR={user.runtime}")

    def start(self, line: str, *options: str, env: Environ | None = None) -> "subprocess.Popen[bytes]":
        """Start the shell *line* in a session without a terminal."""
        return self._xapi.start(*options, "host", line, argv=(self._ssh,), env=env)

    def run(self, line: str, *options: str, env: Environ | None = None) -> Outcome:
        """Run the shell *line* in a session without a terminal."""
        process = self.start(line, *options, env=env)
        out, err = process.communicate(timeout=60)
        return Outcome(process.returncode, out.decode(), err.decode())

    def on_terminal(self, line: str, *options: str, env: Environ | None = None) -> Any:
        """Start the shell *line* with `ssh -tt` on a terminal, as a user does."""
        return self._xapi.on_terminal("-tt", *options, "host", line, env=env, program=self._ssh, columns=300)

    def run_on_terminal(self, line: str, *options: str, env: Environ | None = None) -> tuple[int, bytes]:
        """Run the shell *line* with `ssh -tt`; return its exit code and what the terminal has shown."""
        with self.on_terminal(line, *options, env=env) as terminal:
            return terminal.wait(60), terminal.seen

    def start_agent(self) -> None:
        """Start the agent of sessions with a runtime directory; it outlives the session that starts it."""
        started = self.run("xapi agent start", *self.with_runtime)
        assert (started.code, "agent started" in started.err) == (0, True), started

    def status(self, options: tuple[str, ...] | None = None) -> dict[str, Any]:
        """Return the status of the agent that a session with *options* has, by default one with a runtime directory."""
        outcome = self.run("xapi agent status --json", *(self.with_runtime if options is None else options))
        status: dict[str, Any] = json.loads(outcome.out)
        return status

    def await_commands(self, *, warm: int) -> None:
        """Wait until the agent runs no command, and assert that it has run *warm* ones and refused none."""
        status: dict[str, Any] = {}

        def is_idle() -> bool:
            status.update(self.status())  # opens a session, which takes longer than the command
            return bool(status["running_commands"] == 0)

        wait_until(is_idle, "no command runs", 60)
        assert (status["warm"], status["cold"]) == (warm, {})


@pytest.fixture
def machine() -> Iterator[Machine]:
    check_possible("sshd", "ssh", "ssh-keygen")
    with Machine() as machine:
        yield machine


@pytest.fixture
def user() -> User:
    return ROOT


@pytest.fixture
def remote(xapi: Xapi, machine: Machine, user: User, tmp_path: Path) -> Iterator[Remote]:
    with ssh_server(machine, user, tmp_path / "ssh") as commands:
        yield Remote(xapi, machine, user, commands)


_USERS = [pytest.param(ROOT, marks=pytest.mark.slow), ALICE]  # a session takes a second
both_users = pytest.mark.parametrize("user", _USERS, ids=["root", "alice"])


@both_users
def test_sessions_use_the_agent_that_another_session_has_started(remote: Remote) -> None:
    assert remote.run_on_terminal("xapi agent start", *remote.with_runtime)[0] == 0

    assert remote.run("xapi token show", *remote.with_runtime, env=TOKEN) == Outcome(0, "t0ken\n")
    assert remote.run_on_terminal("xapi token show", *remote.with_runtime, env=TOKEN) == (0, b"t0ken\r\n")

    remote.await_commands(warm=2)


@pytest.mark.slow
@both_users
def test_sessions_with_and_without_a_runtime_directory_have_different_agents(remote: Remote) -> None:
    remote.start_agent()
    assert remote.status(()) == {"running": False, "state": "stopped"}
    assert remote.run_on_terminal("xapi token show", env=TOKEN) == (0, b"t0ken\r\n")
    remote.await_commands(warm=0)

    assert remote.run("xapi agent start").code == 0
    for options, warm in (((), 1), (remote.with_runtime, 1)):
        assert remote.run_on_terminal("xapi token show", *options, env=TOKEN) == (0, b"t0ken\r\n")
        assert remote.status(())["warm"] == warm
    remote.await_commands(warm=1)
    assert remote.machine.path(f"{remote.user.home}/.local/state/xapi/agent/agent").is_socket()


LINES = [
    "xapi request /x-api/me",
    "xapi request /x-api/me -v",
    "xapi request /status/404",
    "xapi request /redirect --no-follow",
    "xapi request /binary | od -c | tail -n 3",
    "xapi request /x-api/me -o out; echo $?; cat out; rm out",
    "printf abc | xapi request -X POST /echo --input -",
    "xapi token status",
    "xapi token show --json",
    "xapi logout --all",
    "xapi request /x-api/me --no-login",
    "xapi request",
    "xapi no-such-command",
    "cd /; umask 027; nice xapi request /x-api/me",
]


@pytest.mark.slow
def test_a_session_shows_the_same_with_and_without_the_agent(remote: Remote) -> None:
    remote.start_agent()
    script = "rm -rf .local .config/xapi\n" + "\n".join(f"{line}\necho [exit $?]" for line in ("xapi login", *LINES))
    warm, cold = (_outcomes(remote, script, mode) for mode in ("on", "off"))

    for shown_warm, shown_cold in zip(warm, cold, strict=True):
        assert shown_warm == shown_cold
    assert warm[0].count("[exit ") == len(LINES) + 1
    remote.await_commands(warm=2 * script.count("xapi "))


def _outcomes(remote: Remote, script: str, mode: str) -> list[str]:
    """Return what sessions without and with a terminal show if they run *script*, and the requests of both."""
    with ApiServer() as server:
        account = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": USERNAME, "XAPI_PASSWORD": PASSWORD}
        env = {**account, "XAPI_AGENT": mode}
        shown = [remote.run(script, *remote.with_runtime, env=env)]
        on_terminal = remote.run_on_terminal(script, *remote.with_runtime, env=env)
        return [_comparable(each, server.url) for each in (*shown, on_terminal, *server.requests)]


def _comparable(outcome: object, url: str) -> str:
    """Return *outcome* without the port of the server, times, and other values that differ in each run."""
    text = str(outcome).replace(url, "URL").replace(url.removeprefix("http://"), "HOST")
    return re.sub(
        r"\d{4}-\d\d-\d\d[ T][\d:]+( UTC|Z)|\d+ ms|\b\d{9,10}\b|in \d+(\.\d)? \w+|\"expires_in\": \d+", "TIME", text
    )


@pytest.mark.slow  # test_terminal tests prompts on other terminals
@pytest.mark.parametrize("mode", ["on", "off"])
def test_a_prompt_reads_the_password_from_the_terminal_of_the_session(
    remote: Remote, sandbox: Sandbox, mode: str
) -> None:
    remote.start_agent()
    env = {**sandbox.settings, "XAPI_PASSWORD": None, "XAPI_AGENT": mode}
    with remote.on_terminal("xapi login", *remote.with_runtime, env=env) as terminal:
        terminal.expect("Password for ", timeout=60)
        terminal.type(f"{MASTER.password}\n")
        terminal.expect("logged in as", timeout=60)
        assert terminal.wait(60) == 0
    assert MASTER.password.encode() not in terminal.seen
    remote.await_commands(warm=int(mode == "on"))


def _await_request(server: Server) -> None:
    wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived", 60)


@pytest.mark.parametrize("mode", ["on", pytest.param("off", marks=pytest.mark.slow)])
def test_ctrl_c_interrupts_a_command_of_a_session(remote: Remote, mode: str) -> None:
    remote.start_agent()
    with Server([request(), hang()]) as server:
        env = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url, "XAPI_AGENT": mode}
        line = "trap : INT; xapi request /x-api/me; exit $?"  # ssh exits with 255 if a signal ends its command
        with remote.on_terminal(line, *remote.with_runtime, env=env) as terminal:
            _await_request(server)
            terminal.interrupt()

            assert terminal.wait(60) == 130
    assert terminal.seen in {b"^C", b"^C\r\n"}
    remote.await_commands(warm=int(mode == "on"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["on", "off"])
def test_a_dropped_connection_ends_a_command_on_a_terminal(remote: Remote, mode: str) -> None:
    remote.start_agent()
    with Server([request(), hang()]) as server:
        env = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url, "XAPI_AGENT": mode}
        line = "trap 'echo $? >ended' EXIT; xapi request /x-api/me"
        with remote.on_terminal(line, *remote.with_runtime, env=env) as terminal:
            _await_request(server)
            terminal.process.kill()

        _await_end(remote)
    remote.await_commands(warm=int(mode == "on"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["on", "off"])
def test_a_dropped_connection_does_not_end_a_command_without_a_terminal(remote: Remote, mode: str) -> None:
    remote.start_agent()
    may_respond = threading.Event()
    with Server([request(), wait_for(may_respond), send(OK)]) as server:
        env = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url, "XAPI_AGENT": mode}
        process = remote.start("xapi request / -o out; echo $? >ended", *remote.with_runtime, env=env)
        _await_request(server)
        process.kill()
        process.wait(30)
        may_respond.set()

        remote.machine.wait_for_file(f"{remote.user.home}/ended")
    assert remote.machine.path(f"{remote.user.home}/out").read_bytes() == b"ok"
    remote.await_commands(warm=int(mode == "on"))


def _await_end(remote: Remote) -> None:
    """Wait until no command of the user runs, except those of the agent."""
    wait_until(
        lambda: not [line for line in remote.machine.processes().values() if "xapi request /x-api/me" in line],
        "the command has ended",
        60,
    )


# the keeper through `ssh -R`


def _documented(sandbox: Sandbox) -> list[str]:
    """Return the commands of the documentation, for the sandbox."""
    (block,) = [block for block in blocks_of(TEXTS["docs/tokens-in-memory.md"]) if "ssh -R" in block.text]
    return with_sandbox(sandbox, block.text).splitlines()


@pytest.fixture
def local(xapi: Xapi, keeper: KeeperProcess, sandbox: Sandbox) -> dict[str, str | None]:
    """The environment of this machine, whose keeper holds a token and the remembered password."""
    env = {**sandbox.settings, **keeper.environ}
    assert xapi("login", "--remember", env=env).code == 0
    return {"PS1": "local$ ", "XDG_RUNTIME_DIR": keeper.environ["XDG_RUNTIME_DIR"], "XAPI_STORAGE": None}


@both_users
def test_the_documented_commands_share_the_keeper_over_ssh_while_the_connection_is_open(
    xapi: Xapi, remote: Remote, sandbox: Sandbox, local: Environ
) -> None:
    home = remote.machine.path(remote.user.home)
    with (home / ".profile").open("a") as profile:
        profile.write(f"export XDG_RUNTIME_DIR={remote.user.runtime}\n")
    find, connect, use = _documented(sandbox)
    with xapi.on_terminal("--norc", "-i", env=local, program="/bin/bash", columns=400) as terminal:
        _type(terminal, "local$ ", find)
        _type(terminal, "local$ ", connect)
        _type(terminal, "host$ ", use.removeprefix("host$ "))
        terminal.expect(f'"email": "{MASTER.email}"', timeout=60)
        sandbox.revoke_tokens()
        _type(terminal, "host$ ", f"for i in 1 2 3; do {use.removeprefix('host$ ')} >/dev/null & done; wait; echo = $?")
        terminal.expect("= 0\r\n", timeout=60)
        assert sandbox.logins == 2  # the second one with the remembered password

        _type(terminal, "host$ ", "exit")
        _type(terminal, "local$ ", "exit")
        assert terminal.wait(60) == 0
    shared = use.removeprefix("host$ ").replace("request /x-api/me", "token show --no-login")
    ended = remote.run(shared, *remote.with_runtime)
    assert (ended.code, ended.out, ended.err[:29]) == (10, "", "xapi: error: not logged in as")
    assert sandbox.logins == 2
    assert not (home / ".local/state/xapi/tokens").exists()


@pytest.mark.slow
def test_a_forwarded_keeper_that_has_ended_is_an_error_within_seconds(
    xapi: Xapi, remote: Remote, keeper: KeeperProcess, sandbox: Sandbox, local: Environ
) -> None:
    """The connection is open, but the agent on this machine has ended; then the connection breaks too."""
    find, connect, use = _documented(sandbox)
    line = use.removeprefix("host$ ")
    forward = xapi.start("-c", f"{find}\nexec {connect.replace('ssh -R', 'ssh -N -R')}", argv=("bash",), env=local)
    remote.machine.wait_for_file(f"{remote.user.home}/.local/state/xapi/agent/keeper")
    assert remote.run(line).code == 0
    keeper.kill()

    ended = remote.run(line)
    assert (ended.code, ended.out) == (13, "")
    assert "the agent did not respond within 3 s" in ended.err

    forward.kill()
    forward.wait(30)
    wait_until(lambda: remote.run(line).code == 10, "the connection has ended", 60)


def _type(terminal: OnTerminal, prompt: str, line: str) -> None:
    """Type *line* after *prompt*."""
    terminal.expect(prompt, timeout=60)
    terminal.type(f"{line}\n")
