"""`kill -9` of each process at each step of a call: nothing runs twice, nothing hangs, nothing is left."""

import json
import os
import signal
import ssl
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.agent.between import STEPS, Between, Left
from tests.agent.conftest import PATIENT, Agent, children, is_running
from tests.http.clients import tls_of
from tests.support.servers import Peer, Server, request, send, wait_for
from tests.support.threads import wait_until

if TYPE_CHECKING:
    import subprocess

PROCESSES = ("client", "worker", "relay", "keeper", "master")
TOKEN = {"XAPI_TOKEN": "t0ken"}
KILLED = (-signal.SIGKILL, b"")
SUCCEEDED = (0, b"complete")
NO_TOKEN = (10, b"")
LOST = (11, b"")  # as when the connection to the server breaks
ACCOUNT = {"XAPI_STORAGE": "agent", "XAPI_USERNAME": "me@example.com"}
_TOKEN_RESPONSE = json.dumps({"access_token": "t0ken", "token_type": "bearer", "expires_in": 3600}).encode()
_LOGIN = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(_TOKEN_RESPONSE), _TOKEN_RESPONSE)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\ncomp"
_BEFORE_THE_REQUEST, _WHILE_IT_RUNS = STEPS[:2], STEPS[2:4]


def _expected(process: str, step: str) -> tuple[int, bytes]:
    """Return the exit code and the output of a call of which *process* is killed at *step*."""
    if process == "client" or (process == "worker" and step in _WHILE_IT_RUNS):
        return KILLED
    if process == "keeper" and step in _BEFORE_THE_REQUEST:
        return NO_TOKEN
    if process == "relay" and step in _WHILE_IT_RUNS:
        return LOST
    return SUCCEEDED


class _Api:
    """A server that waits twice: after it has received a request, and in the middle of its response.

    With *tls*, it uses https. If it *issues_tokens*, its first connection is for a login.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, issues_tokens: bool = False) -> None:
        self.arrived, self.answered = threading.Event(), threading.Event()
        self._may_answer, self._may_end = threading.Event(), threading.Event()

        def note(event: threading.Event) -> Callable[[Peer], None]:
            return lambda _: event.set()

        self.server = Server(
            *([[request(), send(_LOGIN)]] if issues_tokens else []),
            [
                request(),
                note(self.arrived),
                wait_for(self._may_answer),
                send(_HEAD),
                note(self.answered),
                wait_for(self._may_end),
                send(b"lete"),
            ],
            tls=tls,
        )

    def skip(self) -> None:
        """Let nobody wait for a request."""
        self.arrived.set()
        self.answered.set()

    def proceed(self, step: str) -> None:
        """Continue after *step*."""
        if step == STEPS[2]:
            self._may_answer.set()
        elif step == STEPS[3]:
            self._may_end.set()


class _Killer:
    """Kills *process* at *step*; the client is known later."""

    def __init__(self, agent: Agent, process: str, step: str, skip: Callable[[], None]) -> None:
        self.skip = skip
        self._agent, self._process, self._step = agent, process, step
        self.client: subprocess.Popen[bytes] | None = None
        self.started = threading.Event()
        self.loans = 0  # of the relay, when it was killed
        self.killed: list[int] = []

    def at(self, step: str, worker: int) -> None:
        """Kill the process if this is the step, and wait until it has ended."""
        if step != self._step:
            return
        self.killed = self._processes(worker)
        if _expected(self._process, step) in {NO_TOKEN, LOST}:
            self.skip()  # no request arrives, or the server may fail to send the response
        if self._process == "relay":
            self.loans = self._agent.report()["connections"]["loans"]
        for pid in self.killed:
            with suppress(ProcessLookupError):  # a worker has ended before its client
                os.kill(pid, signal.SIGKILL)
        for pid in self.killed:
            wait_until(lambda pid=pid: not is_running(pid), "the process has ended")  # type: ignore[misc]  # see B023
        if self._process == "client":
            raise Left

    def _processes(self, worker: int) -> list[int]:
        if self._process == "client":
            assert self.started.wait(30)
            assert self.client is not None
            return [self.client.pid]
        if self._process == "worker":
            return [worker] if worker else self._agent.workers()
        return [self._agent.pid if self._process == "master" else self._agent.services[self._process]]


@pytest.mark.parametrize(
    "process, step",
    [  # other modules kill the client, the services and the master in other ways
        pytest.param(process, step, marks=pytest.mark.slow if row != column or process != "worker" else ())
        for row, process in enumerate(PROCESSES)
        for column, step in enumerate(STEPS)
    ],
)
def test_a_killed_process_fails_a_call_as_without_the_agent_or_not_at_all(
    own_agent: Agent, process: str, step: str
) -> None:
    wait_until(lambda: len(own_agent.workers()) == 2, "the workers are ready")
    ca = trustme.CA()
    tls = tls_of(ca.issue_cert("127.0.0.1")) if process == "relay" else None
    api = _Api(tls=tls, issues_tokens=process == "keeper")
    killer = _Killer(own_agent, process, step, api.skip)
    ca.cert_pem.write_to_path(str(own_agent.xapi.home / "ca.pem"))
    with tempfile.TemporaryDirectory(prefix="xapi-") as ours, api.server as server:
        env = {"XAPI_BASE_URL": server.url, **_settings(own_agent, process, server.url)}
        with Between(
            Path(ours),
            own_agent.directory.parent,
            killer.at,
            arrived=api.arrived,
            answered=api.answered,
            proceed=api.proceed,
        ):
            killer.client = own_agent.xapi.start(
                "request", "/x-api/me", env={**env, "XDG_RUNTIME_DIR": ours}, argv=PATIENT
            )
            killer.started.set()
            out, err = killer.client.communicate(timeout=60)
        is_sent = step not in _BEFORE_THE_REQUEST or process not in {"client", "keeper"}
        calls = [each for each in server.received if each.startswith(b"GET /x-api/me ")]
        assert len(calls) == (1 if is_sent else 0)

    code, expected = _expected(process, step)
    assert killer.killed
    assert killer.client.returncode == code, err
    assert err.count(b"\n") == (code > 0)
    assert killer.loans == (process == "relay" and step not in _BEFORE_THE_REQUEST)
    assert out == expected if code == 0 else expected in out
    _check_nothing_is_left(own_agent, process)


def _settings(agent: Agent, process: str, url: str) -> dict[str, str]:
    """Return the settings with which a call of the server at *url* needs *process*."""
    if process == "relay":  # it lends connections of https
        return {**TOKEN, "SSL_CERT_FILE": str(agent.xapi.home / "ca.pem")}
    if process == "keeper":
        login = agent.xapi("login", "--no-remember", env={**ACCOUNT, "XAPI_BASE_URL": url, "XAPI_PASSWORD": "secret"})
        assert login.code == 0, login
        agent.wait_for_workers(2)
        return ACCOUNT
    return TOKEN


def _check_nothing_is_left(agent: Agent, process: str) -> None:
    """Check that the agent runs the next call, or has ended with all its processes if its master was killed."""
    if process == "master":
        wait_until(lambda: not _processes_in(agent), "all processes have ended")
        assert agent.xapi("token", "show", env=TOKEN).out == "t0ken\n"
        return
    wait_until(lambda: len(children(agent.pid)) == 4, "there are two workers and both services")
    warm = agent.status()["warm"]
    assert agent.xapi("token", "show", env=TOKEN).out == "t0ken\n"
    assert agent.status()["warm"] == warm + 1
    wait_until(lambda: agent.status()["running_commands"] == 0, "the command has ended for the master too")


def _processes_in(agent: Agent) -> list[int]:
    """Return the processes of the agent, which have the same session as its master had."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.getsid(int(name)) == agent.pid and is_running(int(name)):
                found.append(int(name))
    return found
