"""`xapi doctor` reports whether calls can use the agent; to have none is not a problem."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conftest import Agent, is_running
from tests.support.program import REAL, Xapi
from tests.support.threads import wait_until
from xapi_cli.agent import protocol


def reported(xapi: Xapi, **environ: str) -> str:
    outcome = xapi("doctor", env=environ)
    return next(line for line in outcome.out.splitlines() if line.split()[1] == "agent")


def test_no_agent_is_not_a_problem(xapi: Xapi, stopped: Agent) -> None:
    assert reported(xapi) == "pass  agent     off; `xapi agent start` makes later calls start faster"


def test_a_running_agent_is_reported_with_what_it_did(xapi: Xapi, agent: Agent) -> None:
    expected = f"pass  agent     running, process {agent.pid}: "
    wait_until(lambda: reported(xapi).startswith(expected), "a worker is ready")


def test_the_commands_of_the_agent_are_counted_without_the_check_itself(own_agent: Agent) -> None:
    shown = [reported(own_agent.xapi).partition(": ")[2] for _ in range(2)]
    own_agent.xapi("exec", "true", env={"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": "http://127.0.0.1:9"})
    shown.append(reported(own_agent.xapi).partition(": ")[2])

    assert shown == [
        "0 commands run by the agent, 0 without it",
        "1 command run by the agent, 0 without it",
        "2 commands run by the agent, 1 without it (exec)",
    ]


def test_an_agent_that_is_turned_off_is_not_examined(xapi: Xapi, agent: Agent) -> None:
    assert reported(xapi, XAPI_AGENT="off") == "pass  agent     not used: XAPI_AGENT is off"


def test_the_socket_of_a_killed_agent_is_stale(xapi: Xapi, own_agent: Agent) -> None:
    workers = own_agent.workers()
    os.kill(own_agent.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, (own_agent.pid, *workers))), "the processes have ended")

    assert reported(xapi) == (
        f"warn  agent     no agent of this user listens at {own_agent.directory / 'agent'}; calls run without it;"
        " run `xapi agent start`"
    )


def test_a_path_that_is_too_long_for_a_socket_is_reported(xapi: Xapi, stopped: Agent) -> None:
    directory = xapi.home / ("d" * 100)
    directory.mkdir(mode=0o700)

    assert reported(xapi, XDG_RUNTIME_DIR=str(directory)).startswith(
        "pass  agent     off, and without a directory for its sockets; to use it, set XDG_RUNTIME_DIR to "
    )


@pytest.fixture
def listener(runtime: Path) -> Iterator[socket.socket]:
    """A process of this user at the place of the agent, which is not one."""
    (runtime / "xapi").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(runtime / "xapi" / "agent"))
        listening.listen()
        yield listening


def test_an_agent_that_does_not_respond_is_reported(xapi: Xapi, stopped: Agent, listener: socket.socket) -> None:
    process = xapi.start("doctor", argv=REAL)  # a forked program would wait for much longer
    out, _ = process.communicate(timeout=60)

    assert b"\nwarn  agent     it does not respond; calls run without it; " in out


def test_an_agent_of_another_installation_is_reported(xapi: Xapi, stopped: Agent, listener: socket.socket) -> None:
    def greet() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                protocol.send(connection, b"R", b"1 another build")

    thread = threading.Thread(target=greet)
    thread.start()
    try:
        found = reported(xapi)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()

    assert found == (
        "warn  agent     it belongs to another installation or version of xapi; calls run without it;"
        " run `xapi agent stop`, then `xapi agent start`"
    )
