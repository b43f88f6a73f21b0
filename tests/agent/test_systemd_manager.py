"""The unit files under a real user manager of systemd, as the documentation installs and stops them."""

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agent.machine import ALICE, ROOT, Machine, check_possible
from tests.support.pages import TEXTS, blocks_of
from tests.support.program import PROGRAM, Outcome
from tests.support.servers import OK, Server, request, send, wait_for
from tests.support.threads import wait_until
from tests.tools.documents import ROOT as CHECKOUT
from xapi_cli.sandbox import Sandbox

_MANAGER = "/lib/systemd/systemd"
_SESSION = {"XDG_RUNTIME_DIR": ALICE.runtime}
_TOKEN = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": "http://127.0.0.1:9"}
_ENTER_CONTROL_GROUP = """
test -e /sys/fs/cgroup/cgroup.controllers
echo 0 >/sys/fs/cgroup/cgroup.procs
exec "$@"
"""
_TIMEOUT = 60  # seconds


class Manager:
    """The user manager of alice in *machine*, with the units of the agent."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        in_group = ["sh", "-ec", _ENTER_CONTROL_GROUP, "sh"]
        as_alice = machine.command(ALICE, _SESSION)
        command = [*machine.command(ROOT), *in_group, *as_alice[as_alice.index("setpriv") :], _MANAGER, "--user"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._is_running, "systemd runs", _TIMEOUT)

    def _is_running(self) -> bool:
        """Return whether it has started its units; those of other packages may have failed."""
        return self.run("systemctl --user is-system-running").out in {"running\n", "degraded\n"}

    def run(self, line: str, env: dict[str, str] | None = None) -> Outcome:
        """Run the shell *line* in a session of alice."""
        return self.machine.run(ALICE, line, env={**_SESSION, **(env or {})})

    def show(self, unit: str, name: str) -> str:
        """Return the property *name* of *unit*."""
        return self.run(f"systemctl --user show --value --property={name} {unit}").out.strip()

    def await_state(self, unit: str, state: str) -> None:
        """Wait until *unit* is in *state*."""
        wait_until(lambda: self.show(unit, "ActiveState") == state, f"{unit} is {state}", _TIMEOUT)

    def status(self) -> dict[str, Any]:
        """Return the status of the agent."""
        status: dict[str, Any] = json.loads(self.run("xapi agent status --json").out)
        return status

    def has_process_of_agent(self) -> bool:
        """Return whether a process of the agent runs."""
        return any("agent start" in line for line in self.machine.processes().values())

    def end(self) -> None:
        """End the manager, as the logout of the last session does."""
        self.run("systemctl --user exit")
        self.process.wait(_TIMEOUT)


@pytest.fixture
def machine() -> Iterator[Machine]:
    check_possible("systemctl", has_groups=True)
    with Machine(has_groups=True) as machine:
        yield machine


@pytest.fixture
def manager(machine: Machine) -> Iterator[Manager]:
    """The manager with the units, which were installed as documented."""
    manager = Manager(machine)
    manager.run(f"mkdir -p .local/bin && ln -s {PROGRAM} .local/bin/xapi")
    (install,) = [block.text for block in blocks_of(TEXTS["docs/agent.md"]) if "enable --now" in block.text]
    installed = manager.run(f"set -e; cd {CHECKOUT}; {install}")
    assert installed.code == 0, installed
    try:
        yield manager
    finally:
        manager.process.kill()
        manager.process.wait(_TIMEOUT)


def _stop_as_documented(manager: Manager) -> None:
    (stop,) = [block.text for block in blocks_of(TEXTS["docs/agent.md"]) if "disable --now" in block.text]
    stopped = manager.run(f"set -e; {stop}")
    assert stopped.code == 0, stopped


def test_the_first_command_starts_the_agent_in_the_service_and_later_ones_use_it(manager: Manager) -> None:
    assert (manager.show("xapi-agent.socket", "SubState"), manager.has_process_of_agent()) == ("listening", False)

    for count in (1, 2):
        assert manager.run("xapi token show", _TOKEN) == Outcome(0, "t0ken\n")
        assert (manager.status()["warm"], manager.status()["cold"]) == (count, {})
    assert manager.status()["pid"] == int(manager.show("xapi-agent.service", "MainPID"))

    _stop_as_documented(manager)
    assert (manager.has_process_of_agent(), manager.status()) == (False, {"running": False, "state": "stopped"})
    assert not manager.machine.path(f"{ALICE.runtime}/xapi/agent").exists()
    assert manager.run("xapi token show", _TOKEN) == Outcome(0, "t0ken\n")


@pytest.mark.parametrize(
    "line, times",
    [
        ("xapi agent start", 1),
        pytest.param("xapi agent start", 2, marks=pytest.mark.slow),
        pytest.param("xapi login --storage agent", 2, marks=pytest.mark.slow),
    ],
)
def test_a_command_that_starts_an_agent_starts_the_service(
    manager: Manager, sandbox: Sandbox, line: str, times: int
) -> None:
    for _ in range(times):
        assert manager.run(line, {**sandbox.settings, "XAPI_AGENT": "off"}).code == 0
        assert manager.status()["pid"] == int(manager.show("xapi-agent.service", "MainPID"))
        assert manager.run("xapi token show", _TOKEN) == Outcome(0, "t0ken\n")
        assert manager.status()["warm"] == 1

        assert manager.run("xapi agent stop").code == 0
        manager.await_state("xapi-agent.service", "inactive")
        assert manager.show("xapi-agent.socket", "SubState") == "listening"


@pytest.mark.slow  # without a manager, test_processes tests the same
def test_a_command_in_progress_completes_when_the_service_is_stopped(manager: Manager) -> None:
    may_respond = threading.Event()
    with Server([request(), wait_for(may_respond), send(OK)]) as server:
        env = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url}
        manager.run("nohup sh -c 'xapi request / -o out; echo $? >ended' >/dev/null 2>&1 &", env)
        wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived", _TIMEOUT)
        assert manager.status()["warm"] == 1
        manager.run("systemctl --user stop --no-block xapi-agent.service")
        manager.await_state("xapi-agent.service", "deactivating")
        may_respond.set()
        machine = manager.machine
        machine.wait_for_file(f"{ALICE.home}/ended")
        manager.await_state("xapi-agent.service", "inactive")

    assert machine.path(f"{ALICE.home}/ended").read_text() == "0\n"
    assert machine.path(f"{ALICE.home}/out").read_bytes() == b"ok"


@pytest.mark.slow  # without a manager, test_processes removes the sockets as the end of a session does
def test_the_agent_ends_with_the_session(manager: Manager) -> None:
    assert manager.run("xapi token show", _TOKEN) == Outcome(0, "t0ken\n")
    assert manager.has_process_of_agent()

    manager.end()

    assert not manager.has_process_of_agent()


def test_a_service_that_cannot_start_does_not_block_the_start_of_an_agent(manager: Manager) -> None:
    manager.run("rm .local/bin/xapi")
    assert manager.run("xapi token show", _TOKEN) == Outcome(0, "t0ken\n")

    started = manager.run("xapi agent start")

    assert (started.code, "agent started" in started.err) == (0, True), started
    assert manager.run("xapi token show", _TOKEN) == Outcome(0, "t0ken\n")
    assert manager.status()["warm"] == 1
