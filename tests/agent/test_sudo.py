"""The agent and real `sudo`: a command uses the agent of the user that it runs as, and of no other."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.agent.machine import ALICE, BOB, ROOT, Machine, User, check_possible
from xapi_cli.sandbox import MASTER, Sandbox

SHOW = "xapi token show --no-login"


@pytest.fixture
def machine() -> Iterator[Machine]:
    check_possible("sudo")
    with Machine() as machine:
        yield machine


class Account:
    """A user with an agent that holds a token; commands run in a session with or without a runtime directory."""

    def __init__(self, machine: Machine, user: User, sandbox: Sandbox, *, has_runtime: bool) -> None:
        self._machine, self._user = machine, user
        self.environ: dict[str, str] = {
            "XAPI_BASE_URL": sandbox.base_url,
            "XAPI_USERNAME": MASTER.email,
            "XAPI_STORAGE": "agent",
        }
        if has_runtime:
            self.environ["XDG_RUNTIME_DIR"] = user.runtime
        password = {"XAPI_PASSWORD": MASTER.password}
        assert machine.run(user, "xapi login --remember", env=self.environ | password).code == 0
        self.token = machine.run(user, SHOW, env=self.environ).out.strip()
        assert self.token
        self.before = self.status()

    def run(self, line: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Run *line* as the user; return its exit code and all its output."""
        ended = self._machine.run(self._user, line, env={**self.environ, **(env or {})})
        return ended.code, ended.out + ended.err

    def status(self) -> dict[str, Any]:
        """Return the status of the agent."""
        status: dict[str, Any] = json.loads(self._machine.run(self._user, "xapi agent status", env=self.environ).out)
        return status

    def check_untouched(self) -> None:
        """Assert that the agent has run and refused no command, and holds what it held."""
        now = self.status()
        names = ("running", "pid", "warm", "cold", "commands", "services", "tokens")
        assert {name: now[name] for name in names} == {name: self.before[name] for name in names}
        assert self._machine.run(self._user, SHOW, env=self.environ).out.strip() == self.token


_RUNTIMES = [True, pytest.param(False, marks=pytest.mark.slow)]  # each test takes two seconds
with_and_without_runtime = pytest.mark.parametrize("has_runtime", _RUNTIMES, ids=["runtime", "state"])

# What uses, shows, stops or replaces an agent.
COMMANDS = (
    SHOW,
    "xapi request /x-api/me --no-login",
    "xapi login --storage agent",
    "xapi agent status",
    "xapi agent stop",
    "xapi agent start",
    "xapi agent start --foreground",
    "xapi agent stop",
    "xapi doctor",
)


@with_and_without_runtime
@pytest.mark.parametrize("sudo", ["sudo -nE", pytest.param("sudo -nE -u bob", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_command_with_the_environment_of_the_caller_does_not_touch_the_agent_of_the_caller(
    machine: Machine, sandbox: Sandbox, has_runtime: bool, sudo: str
) -> None:
    alice = Account(machine, ALICE, sandbox, has_runtime=has_runtime)
    logins = sandbox.logins
    before = files(machine)

    ended = {line: alice.run(f"{sudo} {line}") for line in COMMANDS}

    assert {line: code for line, (code, _) in ended.items() if code == 0} == {"xapi agent stop": 0}
    assert "the agent is not running" in ended["xapi agent stop"][1]
    assert not [line for line, (_, output) in ended.items() if alice.token in output or "Traceback" in output]
    assert (sandbox.logins, files(machine)) == (logins, before)
    alice.check_untouched()


def files(machine: Machine) -> set[str]:
    """Return the files of all users, with the owner of each."""
    return set(machine.run(ROOT, "find /run/home /run/user -printf '%u %p\\n'").out.splitlines())


@with_and_without_runtime
@pytest.mark.parametrize(
    ("sudo", "user"),
    [pytest.param("sudo -n", ROOT, marks=pytest.mark.slow), ("sudo -n -u bob", BOB)],
    ids=["root", "bob"],
)
@pytest.mark.slow
def test_sudo_uses_the_agent_of_the_user_that_the_command_runs_as(
    machine: Machine, sandbox: Sandbox, has_runtime: bool, sudo: str, user: User
) -> None:
    alice = Account(machine, ALICE, sandbox, has_runtime=has_runtime)
    own = Account(machine, user, sandbox, has_runtime=False)
    settings = "--storage agent --base-url $XAPI_BASE_URL -u $XAPI_USERNAME"

    assert alice.run(f"cd /; {sudo} {SHOW} {settings}") == (0, f"{own.token}\n")
    assert alice.run(f"cd /; {sudo} xapi request /x-api/me --no-login {settings}")[0] == 0
    assert own.status()["warm"] == own.before["warm"] + 2

    assert alice.run(f"{sudo} xapi agent stop")[0] == 0
    assert own.status() == {"running": False, "state": "stopped"}
    assert alice.run(f"{sudo} {SHOW} {settings}")[0] == 10
    alice.check_untouched()


@with_and_without_runtime
@pytest.mark.slow
def test_root_that_becomes_another_user_does_not_touch_the_agent_of_root(
    machine: Machine, sandbox: Sandbox, has_runtime: bool
) -> None:
    root = Account(machine, ROOT, sandbox, has_runtime=has_runtime)

    for sudo in ("sudo -n -u alice", "sudo -nE -u alice"):
        for line in COMMANDS[:6]:
            _, output = root.run(f"{sudo} {line}")
            assert (root.token in output, "Traceback" in output) == (False, False), (sudo, line, output)
        root.run(f"{sudo} xapi agent stop")

    root.check_untouched()


LISTEN = """
import os, pathlib, socket, sys
received = pathlib.Path("received")
received.write_bytes(b"")
listeners = []
for path in sys.argv[1:]:
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen()
    listeners.append(listener)
pathlib.Path("listening").touch()
import select
while True:
    for listener in select.select(listeners, [], [])[0]:
        connection, _ = listener.accept()
        connection.settimeout(10)
        with received.open("ab") as file:
            file.write(b"|" + connection.recv(1000))
"""


def test_root_sends_nothing_to_sockets_that_the_caller_of_sudo_has_planted(machine: Machine, sandbox: Sandbox) -> None:
    directory = f"{ALICE.home}/.local/state/xapi/agent"
    sockets = " ".join(f"{directory}/{name}" for name in ("agent", "control", "keeper", "relay"))
    machine.run(ALICE, f"python -c '{LISTEN}' {sockets} >/dev/null 2>&1 &")
    machine.wait_for_file(f"{ALICE.home}/listening")

    env = {**sandbox.settings, "XAPI_STORAGE": "agent", "XAPI_TOKEN": "t0ken-of-root"}
    for line in (*COMMANDS[:6], "xapi agent stop", "xapi doctor"):
        machine.run(ALICE, f"sudo -nE XAPI_STATE_DIR= {line}", env=env)

    connections = machine.path(f"{ALICE.home}/received").read_bytes()
    assert connections.strip(b"|") == b""
    assert connections  # root has found the sockets
