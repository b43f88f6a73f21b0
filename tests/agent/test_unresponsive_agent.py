"""An agent whose processes are stopped before a command needs them: it is replaced, and nothing hangs."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent.conftest import PATIENT, Agent, all_stopped, is_running, process_state
from tests.support.program import PYTHON, REAL
from tests.support.servers import OK, Server, request, send
from tests.support.threads import wait_until
from xapi_cli.agent.idle_workers import Permit
from xapi_cli.system import agent_socket

TOKEN = {"XAPI_TOKEN": "t0ken"}
# The program, but the agent must start within two seconds, and the first argument is run in place of Python for it.
_STARTS_ANOTHER_AGENT = """
import sys
from xapi_cli.__main__ import main
from xapi_cli.agent import daemon

daemon.START_TIMEOUT = 2.0
sys.executable = sys.argv.pop(1)
main()
"""
_STOPPED_MASTER = """#!/bin/sh
echo $$ > {name}
kill -STOP $$
"""
_STOPPED_WORKER = """#!{python} -P
import os, signal, sys
from pathlib import Path
from xapi_cli.agent import daemon, preload

def stop(directory, warm_up=preload.warm_up, master=os.getpid()):
    if os.getpid() != master:
        Path({name!r}).write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
    warm_up(directory)

preload.warm_up = stop
daemon.run_in_background(sys.argv[4:])
"""
# The agent in the foreground; if *flag* exists, a worker renames it and stops: before it greets a client, or when it
# has the command. It stops its client first in that case, which would continue it: until the client has really
# stopped, it may be about to do so.
_STOPS = """
import os, signal, sys, time
from pathlib import Path
from xapi_cli.agent import daemon, worker
from xapi_cli.system import agent_socket

step, flag = sys.argv[2], Path(sys.argv[3])

def stop_and_greet(connection, station, client, greet=worker._greet):
    if step == "before the greeting":
        stop()
    return greet(connection, station, client)

def stop_and_report(station, kind, connection=None, reason="", report=worker.report):
    if step == "with the command" and kind == b"B":
        stop(agent_socket.peer(connection)[0])
    report(station, kind, connection, reason)

def stop(*client):
    try:
        flag.rename(f"{flag}-{os.getpid()}")
    except FileNotFoundError:
        return
    for pid in client:
        os.kill(pid, signal.SIGSTOP)
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGSTOP)

worker._greet, worker.report = stop_and_greet, stop_and_report
daemon.run(sys.argv[1], 3600.0, ready=lambda: print("ready", flush=True), warn=lambda _: None)
"""


@pytest.mark.parametrize("program", [_STOPPED_MASTER, _STOPPED_WORKER], ids=["master", "worker"])
@pytest.mark.slow
def test_an_agent_that_is_stopped_while_it_starts_is_killed(stopped: Agent, tmp_path: Path, program: str) -> None:
    script, name = tmp_path / "python", tmp_path / "process"
    script.write_text(program.format(python=PYTHON, name=str(name)))
    script.chmod(0o700)
    start = stopped.xapi.start(
        *(str(script), "agent", "start"), argv=(str(PYTHON), "-Pc", _STARTS_ANOTHER_AGENT)
    )  # fmt: skip

    assert start.communicate(timeout=60) == (
        b"",
        b"xapi: error: the agent did not start within 2 s; run `xapi agent start --foreground` to see why\n",
    )
    assert start.returncode == 1
    if name.exists():  # on a busy machine, the worker had not been started
        process = int(name.read_text())
        wait_until(lambda: not is_running(process), "the stopped process has ended")
    stopped.start()
    assert stopped.xapi("token", "show", env=TOKEN).out == "t0ken\n"
    assert stopped.status()["warm"] == 1


def test_idle_workers_that_are_stopped_are_replaced_after_one_command_without_them(stopped: Agent) -> None:
    agent = stopped
    assert agent.xapi("agent", "start").code == 0
    agent.attach()
    before = set(agent.workers())  # which have greeted no client
    assert len(before) == 2
    with all_stopped(*before):
        assert _request(agent) == (0, b"ok", b"")
        wait_until(lambda: not any(map(is_running, before)), "the stopped workers have ended")
        after = agent.wait_for_workers(2)
        assert not before & after

        show = agent.xapi.start("token", "show", env=TOKEN, argv=PATIENT)
        assert show.communicate(timeout=60) == (b"t0ken\n", b"")
    status = agent.status()
    assert (status["warm"], status["cold"]) == (1, {"no worker in time": 1})
    assert (status["failures"], status["last_failure"]) == (2, "worker: it was stopped")


@pytest.fixture
def stopping(stopped: Agent, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Agent]:
    """An agent whose next worker with a client stops at the step that is the parameter, and renames `flag` before."""
    flag = tmp_path / "flag"
    process = subprocess.Popen(
        [PYTHON, "-Pc", _STOPS, stopped.directory, request.param, flag],
        env=stopped.xapi.environment({}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    stopped.pid = process.pid
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        stopped.attach()
        stopped.wait_for_workers(2)
        flag.touch()
        yield stopped
        assert not flag.exists()
        assert stopped.xapi("agent", "stop").code == 0


@pytest.mark.parametrize("stopping", ["before the greeting"], indirect=True)
def test_a_worker_that_is_stopped_before_it_greets_a_client_is_continued(stopping: Agent) -> None:
    """Its client has left, but the master cannot know that, so it does not kill the worker."""
    agent = stopping
    with ExitStack() as stack:
        worker = _stop_the_other_worker(agent, stack)
        assert _request(agent) == (0, b"ok", b"")
        wait_until(lambda: process_state(worker) != "T", "the worker has been continued")

    agent.wait_for_workers(2)
    assert is_running(worker)
    assert agent.status()["cold"] == {"no worker in time": 1}


@pytest.mark.parametrize("stopping", ["with the command"], indirect=True)
def test_a_worker_that_is_stopped_with_a_command_runs_it_once(stopping: Agent) -> None:
    agent = stopping
    with ExitStack() as stack, Server([request(), send(OK)]) as server:
        worker = _stop_the_other_worker(agent, stack)
        env = {**TOKEN, "XAPI_BASE_URL": server.url}
        first = agent.xapi.start("request", "/x-api/me", env=env, argv=PATIENT)
        wait_until(lambda: process_state(worker) == process_state(first.pid) == "T", "both are stopped")
        second = _request(agent)
        wait_until(lambda: len(server.received) == 1, "the worker has been continued")
        first.send_signal(signal.SIGCONT)

        assert second == (0, b"ok", b"")
        assert first.communicate(timeout=60) == (b"ok", b"")
        assert len(server.received) == 1
    agent.wait_for_workers(2)
    status = agent.status()
    assert (status["warm"], status["cold"]) == (1, {"no worker in time": 1})


def _stop_the_other_worker(agent: Agent, stack: ExitStack) -> int:
    """Stop one of both workers for *stack*; return the other one."""
    other, worker = agent.workers()
    stack.enter_context(all_stopped(other))
    return worker


def _request(agent: Agent) -> tuple[int, bytes, bytes]:
    """Send a request with an ordinary start; return the exit code, stdout and stderr."""
    with Server([request(), send(OK)]) as server:
        process = agent.xapi.start("request", "/x-api/me", env={**TOKEN, "XAPI_BASE_URL": server.url}, argv=REAL)
        out, err = process.communicate(timeout=60)
        assert len(server.received) == 1
    return process.returncode, out, err


@pytest.mark.slow
def test_a_full_queue_of_the_master_is_not_the_absence_of_an_agent(own_agent: Agent) -> None:
    """Each command that got no worker leaves a connection there."""
    with all_stopped(own_agent.pid), ExitStack() as stack:
        path = str(own_agent.directory / "control")
        while (connection := agent_socket.connect(path)) is not None:
            stack.callback(connection.close)
        start = own_agent.xapi.start("agent", "status")
        out, err = start.communicate(timeout=60)

    assert (start.returncode, out) == (1, b"")
    assert b"xapi: error: the agent does not respond; run `kill -9 " in err


def test_either_the_worker_or_the_master_gets_a_permit() -> None:
    permit = Permit()
    assert permit.take()
    assert not permit.take()
    permit.give_back()
    reader, writer = os.pipe()
    for _ in range(8):
        if os.fork() == 0:
            os.write(writer, b"x" if permit.take() else b"-")
            os._exit(0)
    for _ in range(8):
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    assert sorted(os.read(reader, 100)) == sorted(b"x-------")
    for descriptor in (reader, writer):
        os.close(descriptor)
    permit.close()
