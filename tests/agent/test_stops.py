"""SIGSTOP of the processes of the agent at each step of a call: nothing hangs, and nothing runs twice."""

import json
import os
import re
import signal
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from tests.agent.conftest import PATIENT, Agent, all_stopped, children, is_running, process_state
from tests.http.clients import tls_of
from tests.support.program import PYTHON, REAL
from tests.support.servers import OK, Server, request, send, wait_for
from tests.support.threads import wait_until

TOKEN = {"XAPI_TOKEN": "t0ken"}
_ACCOUNT = {"XAPI_STORAGE": "agent", "XAPI_USERNAME": "me@example.com"}
_LOGIN = json.dumps({"access_token": "t0ken", "token_type": "bearer", "expires_in": 3600}).encode()
# The program, but when it knows its worker, after the greeting and before the request, that process and others stop.
_STOPS_AFTER_THE_GREETING = """
import os, signal, sys
from xapi_cli.__main__ import main

others = [int(pid) for pid in sys.argv.pop(1).split()]

def stop_and_open(worker, open=os.pidfd_open):
    for pid in (worker, *others):
        os.kill(pid, signal.SIGSTOP)
    return open(worker)

os.pidfd_open = stop_and_open
main()
"""
# The program, but it writes the id of its worker to a file, and stops, before it reads the greeting of that worker.
_STOPS_BEFORE_THE_GREETING = """
import os, select, signal, socket, sys
from xapi_cli.__main__ import main
from xapi_cli.agent import protocol

name = sys.argv.pop(1)

def stop_and_receive(connection, receive=protocol.receive):
    protocol.receive = receive
    select.select([connection], [], [])
    greeting = connection.recv(100, socket.MSG_PEEK)
    with open(name, "w") as file:
        file.write(greeting[5:].split()[0].decode())
    os.kill(os.getpid(), signal.SIGSTOP)
    return receive(connection)

protocol.receive = stop_and_receive
main()
"""
# The program, but it stops when the worker has refused the command, before it reads that.
_STOPS_AFTER_THE_REFUSAL = """
import os, signal
from xapi_cli.__main__ import main
from xapi_cli.agent import call, protocol

def receive_and_stop(connection, receive=protocol.receive):
    kind, content = receive(connection)
    if kind == b"C":
        os.kill(os.getpid(), signal.SIGSTOP)
    return kind, content

protocol.receive, call.READY_TIMEOUT, call.WORKER_TIMEOUT = receive_and_stop, 60, 60
main()
"""
# The program, but it waits for the greeting of a worker for a minute, not for 0.4 s.
_AWAITS_THE_GREETING = """
from xapi_cli.__main__ import main
from xapi_cli.agent import call

call.READY_TIMEOUT = 60
main()
"""


def _all(agent: Agent) -> list[int]:
    """Return the processes of *agent*."""
    return [agent.pid, *children(agent.pid)]


def _serve(agent: Agent, *, tls: ssl.SSLContext | None = None) -> tuple[Server, threading.Event]:
    """Return a server that waits for the event before it responds."""
    may_respond = threading.Event()
    return Server([request(), wait_for(may_respond), send(OK)], tls=tls), may_respond


class _Call:
    """A request that *server* has received but not responded to; *argv* starts the program."""

    def __init__(
        self, agent: Agent, server: Server, *options: str, argv: tuple[str, ...] = PATIENT, ca: str = ""
    ) -> None:
        settings = {**TOKEN, "XAPI_BASE_URL": server.url, "SSL_CERT_FILE": ca}
        before = len(server.received)
        self.process = agent.xapi.start("request", "/x-api/me", *options, env=settings, argv=argv)
        wait_until(lambda: any(server.received[before:]), "the request has arrived")
        self.worker = agent.running_worker()

    def end(self) -> tuple[int, bytes, bytes]:
        """Wait for the end; return the exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


def _call_with_a_loan(agent: Agent, server: Server, *options: str, ca: str) -> _Call:
    """Return a call that uses a connection of the relay; if the relay does not lend one soon, a call opens its own."""
    while True:
        before = _loans(agent)
        call = _Call(agent, server, *options, ca=ca)
        if _loans(agent) > before:
            return call
        call.process.kill()
        call.end()


def _loans(agent: Agent) -> int:
    while (connections := agent.report()["connections"]) is None:
        pass  # the relay has not responded in time
    loans: int = connections["loans"]
    return loans


def _check_it_works(agent: Agent) -> None:
    """Check that *agent* runs calls again, and that none is still running."""
    agent.wait_for_workers()
    warm = agent.status()["warm"]
    assert agent.xapi("token", "show", env=TOKEN).out == "t0ken\n"
    assert agent.status()["warm"] == warm + 1
    wait_until(lambda: agent.status()["running_commands"] == 0, "the agent has noticed the end of the command")


def test_calls_run_without_a_stopped_agent(agent: Agent) -> None:
    with Server([request(), send(OK)]) as server, all_stopped(*_all(agent)):
        env = {**TOKEN, "XAPI_BASE_URL": server.url}
        process = agent.xapi.start("request", "/x-api/me", env=env, argv=REAL)

        assert process.communicate(timeout=30) == (b"ok", b"")
        assert len(server.received) == 1
    _check_it_works(agent)


@pytest.mark.parametrize("whole", [False, True], ids=["worker", "whole agent"])
def test_a_worker_that_is_stopped_before_the_request_runs_it_once(agent: Agent, whole: bool) -> None:
    others = " ".join(map(str, _all(agent))) if whole else ""
    try:
        with Server([request(), send(OK)]) as server:
            env = {**TOKEN, "XAPI_BASE_URL": server.url}
            process = agent.xapi.start(
                others, "request", "/x-api/me", env=env, argv=(str(PYTHON), "-Pc", _STOPS_AFTER_THE_GREETING)
            )

            assert process.communicate(timeout=30) == (b"ok", b"")
            assert len(server.received) == 1
    finally:
        for pid in map(int, others.split()):
            with suppress(ProcessLookupError):  # the agent replaces workers that are stopped
                os.kill(pid, signal.SIGCONT)
    _check_it_works(agent)


def test_a_client_that_was_stopped_before_its_request_kills_no_other_command(own_agent: Agent, tmp_path: Path) -> None:
    """Its worker has given it up, and must not run the command of another client when the client continues."""
    agent = own_agent
    name = tmp_path / "worker"
    with Server([request(), send(OK)]) as server:
        late = agent.xapi.start(
            str(name), *("request", "/x-api/me"), env={**TOKEN, "XAPI_BASE_URL": server.url},
            argv=(str(PYTHON), "-Pc", _STOPS_BEFORE_THE_GREETING),
        )  # fmt: skip
        wait_until(lambda: process_state(late.pid) == "T", "the client is stopped")
        worker = int(name.read_text())
        wait_until(lambda: not is_running(worker), "its worker has ended")
        os.kill(late.pid, signal.SIGCONT)

        assert late.communicate(timeout=30) == (b"ok", b"")
        assert len(server.received) == 1
    status = agent.status()
    assert status["failures"] == 0
    assert status["cold"] == {"no request in time": 1}
    _check_it_works(agent)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_signal_after_the_refusal_of_a_worker_is_not_lost(agent: Agent, number: signal.Signals) -> None:
    with Server([request(), send(OK)]) as server:
        process = agent.xapi.start(
            *("request", "/x-api/me", "-o", "/proc/self/fd/1"), env={**TOKEN, "XAPI_BASE_URL": server.url},
            argv=(str(PYTHON), "-Pc", _STOPS_AFTER_THE_REFUSAL),
        )  # fmt: skip
        wait_until(lambda: process_state(process.pid) == "T", "the client is stopped")
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)

        assert process.communicate(timeout=30) == (b"", b"")
        assert process.returncode == -number
        assert server.received == []


def test_a_call_in_a_stopped_agent_completes(agent: Agent) -> None:
    server, may_respond = _serve(agent)
    with server:
        call = _Call(agent, server)
        with all_stopped(*_all(agent)):
            may_respond.set()
            assert call.end() == (0, b"ok", b"")
    _check_it_works(agent)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=str)
def test_a_signal_ends_a_call_in_a_stopped_agent(agent: Agent, number: signal.Signals) -> None:
    server, may_respond = _serve(agent)
    with server:
        call = _Call(agent, server)
        with all_stopped(*_all(agent)):
            call.process.send_signal(number)
            code = -number if number == signal.SIGKILL else 128 + number
            assert call.end() == (code, b"", b"")
            wait_until(lambda: not is_running(call.worker), "the worker has ended")
        may_respond.set()
    _check_it_works(agent)


def test_a_call_whose_worker_is_killed_ends_while_the_master_is_stopped(agent: Agent) -> None:
    server, may_respond = _serve(agent)
    with server:
        # a patient call would wait for the master for longer
        call = _Call(agent, server, argv=(str(PYTHON), "-Pc", _AWAITS_THE_GREETING))
        with all_stopped(agent.pid):
            os.kill(call.worker, signal.SIGKILL)
            code, out, err = call.end()
            assert (code, out) == (1, b"")
            assert err.startswith(b"xapi: error: the agent ended before the command completed")
        may_respond.set()
    _check_it_works(agent)


@pytest.mark.parametrize(
    "option, reason",
    [("--max-time", b" before --max-time expired; | not finish within 2 s; "), ("--timeout", b" within 2 s; ")],
)
def test_the_time_limits_of_a_call_apply_in_a_stopped_agent(agent: Agent, option: str, reason: bytes) -> None:
    server, may_respond = _serve(agent)
    with server:
        call = _Call(agent, server, option, "2")
        with all_stopped(*_all(agent)):
            code, out, err = call.end()
        may_respond.set()
    assert (code, out) == (12, b"")
    assert re.search(reason, err)
    _check_it_works(agent)


@pytest.mark.parametrize("is_sent", [False, True], ids=["before the loan", "during the loan"])
def test_a_stopped_relay_delays_a_call_by_no_more_than_its_time_limit(agent: Agent, is_sent: bool) -> None:
    ca = trustme.CA()
    trusted = str(agent.xapi.home / "ca.pem")
    ca.cert_pem.write_to_path(trusted)
    server, may_respond = _serve(agent, tls=tls_of(ca.issue_cert("127.0.0.1")))
    relay = agent.services["relay"]
    with server:
        if is_sent:
            call = _call_with_a_loan(agent, server, "--timeout", "2", ca=trusted)
            with all_stopped(relay):
                may_respond.set()
                code, out, err = call.end()
            assert (code, out) == (12, b"")
            assert b" within 2 s; " in err
        else:
            with all_stopped(relay):
                may_respond.set()
                settings = {**TOKEN, "XAPI_BASE_URL": server.url, "SSL_CERT_FILE": trusted}
                process = agent.xapi.start("request", "/x-api/me", env=settings, argv=PATIENT)
                assert process.communicate(timeout=30) == (b"ok", b"")
    _check_it_works(agent)


@pytest.mark.parametrize("is_warm", [False, True], ids=["without a worker", "in a worker"])
def test_a_stopped_keeper_fails_a_call_within_three_seconds(agent: Agent, is_warm: bool) -> None:
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(_LOGIN), _LOGIN)
    with Server([request(), send(response)]) as server:
        env = {**_ACCOUNT, "XAPI_BASE_URL": server.url, "XAPI_PASSWORD": "secret"}
        login = agent.xapi("login", "--no-remember", env=env)
        assert login.code == 0, login
    agent.wait_for_workers(2)
    # without a worker, for the whole agent is stopped
    with all_stopped(agent.services["keeper"], *(() if is_warm else _all(agent))):
        process = agent.xapi.start("token", "show", env=env, argv=PATIENT if is_warm else REAL)
        out, err = process.communicate(timeout=30)

    assert (process.returncode, out) == (13, b"")
    assert b"the agent did not respond within 3 s" in err
    shown = agent.xapi("token", "show", env=env)
    assert (shown.out, shown.err) == ("t0ken\n", "")
    _check_it_works(agent)


@pytest.mark.parametrize(
    "command", [("agent", "status"), pytest.param(("agent", "stop"), marks=pytest.mark.slow)], ids=" ".join
)  # each waits for ten seconds
@pytest.mark.slow
def test_the_process_of_a_stopped_agent_is_named(agent: Agent, command: tuple[str, ...]) -> None:
    with all_stopped(*_all(agent)):
        outcome = agent.xapi(*command)

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        "xapi: error: the agent does not respond;"
        f" run `kill -9 {agent.pid}`, then run `xapi agent start`\n"
    )  # fmt: skip


def test_doctor_reports_a_stopped_agent(agent: Agent) -> None:
    with all_stopped(*_all(agent)):
        out, _ = agent.xapi.start("doctor", argv=REAL).communicate(timeout=60)

    assert b"\nwarn  agent     it does not respond; calls run without it; " in out


def test_a_stopped_agent_leaves_no_process_when_its_master_is_killed(own_agent: Agent) -> None:
    processes = _all(own_agent)
    with all_stopped(*processes):
        os.kill(own_agent.pid, signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, processes)), "all processes have ended")
    own_agent.start()
    assert own_agent.xapi("token", "show", env=TOKEN).out == "t0ken\n"
