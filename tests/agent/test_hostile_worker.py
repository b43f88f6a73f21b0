"""A process in place of a worker that sends anything after it has the request: the client ends, and runs nothing."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agent.conftest import handles_signal
from tests.support.program import PYTHON, Xapi
from tests.support.threads import wait_until
from xapi_cli.agent import protocol

_LOST = "xapi: error: the agent ended before the command completed; the request may have been sent\n"
_KINDS = st.sampled_from([b"X", b"S", b"B", b"Q", b"P", b"R", b"Z"])
_NUMBERS = st.integers(-1, 70_000).map(lambda number: b"%d" % number)
_CONTENTS = st.binary(max_size=12) | _NUMBERS | st.sampled_from([b"{}", b"[]", b"1" * 40, b'{"alarm": "x"}'])
_MESSAGES = st.tuples(_KINDS, _CONTENTS).map(lambda each: each[0] + len(each[1]).to_bytes(4, "little") + each[1])
_REPLIES = st.lists(_MESSAGES, max_size=3).map(b"".join) | st.binary(max_size=20).filter(lambda data: data[:1] != b"C")
# The program, but it waits for the greeting for a minute, not for 0.4 s: a test may be slow to send it.
_AWAITS_THE_GREETING = """
from xapi_cli.__main__ import main
from xapi_cli.agent import call

call.READY_TIMEOUT = 60
main()
"""
# As that, and the client waits for a minute until a worker that hangs is stopped.
_AWAITS_THE_STOP = f"""
from xapi_cli.agent import call

call._STOP_TIMEOUT = 60
{_AWAITS_THE_GREETING}
"""
# As that, but sending the request may take 0.4 s, as in the program.
_SENDS_FOR_A_SHORT_TIME = f"""
from xapi_cli.agent import call, protocol

def send_request(connection, *arguments, send_request=protocol.send_request, timeout=call.READY_TIMEOUT):
    connection.settimeout(timeout)
    send_request(connection, *arguments)

protocol.send_request = send_request
{_AWAITS_THE_GREETING}
"""


class _Worker:
    """Greets a client as the worker *process* of this build, receives its request, and sends *reply*."""

    def __init__(self, runtime: Path, build: bytes, process: int) -> None:
        (runtime / "xapi").mkdir(mode=0o700)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(runtime / "xapi" / "agent"))
        self.listener.listen()
        self.reply, self.requests = b"", 0
        self._greeting = b"%d %s %s" % (process, protocol.pid_namespace(), build)

    def greet(self, connection: socket.socket) -> None:
        protocol.send(connection, b"R", self._greeting)

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, suppress(OSError, EOFError):
                connection.settimeout(20)
                self.greet(connection)
                _, descriptors = protocol.receive_request(connection)
                self.requests += 1
                for number in descriptors:
                    os.close(number)
                connection.sendall(self.reply)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass


def _build(xapi: Xapi, runtime: Path) -> bytes:
    """Return the build of an agent, which runs in its own directory; afterwards, xapi uses *runtime*."""
    own = runtime / "own"
    own.mkdir(mode=0o700)
    xapi.environ["XDG_RUNTIME_DIR"] = str(own)
    started = xapi("agent", "start", "--idle", "5m")
    assert started.code == 0, started
    with socket.socket(socket.AF_UNIX) as real:
        real.connect(str(own / "xapi" / "agent"))
        _, _, build = protocol.receive_greeting(real)
    stopped = xapi("agent", "stop")
    assert stopped.code == 0, stopped
    xapi.environ["XDG_RUNTIME_DIR"] = str(runtime)
    return build


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose id a worker reports as its own: the client kills it if the worker hangs."""
    with subprocess.Popen(["env", "--ignore-signal=INT,TERM,HUP", "sleep", "300"]) as process:
        wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", "it ignores the signals")
        yield process
        process.kill()


def _show(xapi: Xapi, program: str = _AWAITS_THE_GREETING, **more: str) -> "subprocess.Popen[bytes]":
    """Start `token show` with the code *program*; a forked program would wait for the worker for a minute too."""
    return xapi.start("token", "show", env={"XAPI_TOKEN": "t0ken", **more}, argv=(str(PYTHON), "-Pc", program))


@contextmanager
def _accepted(worker: _Worker) -> Iterator[socket.socket]:
    """Greet a client and receive its request, without running it."""
    with worker.listener, worker.listener.accept()[0] as connection:
        connection.settimeout(20)
        worker.greet(connection)
        _, descriptors = protocol.receive_request(connection)
        for number in descriptors:
            os.close(number)
        yield connection


def test_a_client_runs_the_command_of_a_hung_worker_which_can_no_longer_run_it(
    xapi: Xapi, runtime: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    worker = _Worker(runtime, _build(xapi, runtime), sleeper.pid)
    process = _show(xapi)
    with _accepted(worker) as connection:
        assert sleeper.wait(30) == -signal.SIGKILL

        with pytest.raises(BrokenPipeError):
            protocol.send(connection, b"B")
        assert process.communicate(timeout=30) == (b"t0ken\n", b"")


@pytest.mark.parametrize("hangs", [False, True], ids=["immediately", "after it hung"])
def test_a_client_runs_the_command_of_a_worker_that_exits_without_reading_the_request(
    xapi: Xapi, runtime: Path, sleeper: subprocess.Popen[bytes], hangs: bool
) -> None:
    worker = _Worker(runtime, _build(xapi, runtime), sleeper.pid)
    process = _show(xapi, _AWAITS_THE_STOP)
    with worker.listener, worker.listener.accept()[0] as connection:
        worker.greet(connection)
        if hangs:  # the client stops the worker before it withdraws the request
            wait_until(lambda: b" T " in Path(f"/proc/{sleeper.pid}/stat").read_bytes(), "the client has stopped it")
        assert connection.recv(1, socket.MSG_PEEK)  # it has arrived, and stays unread
    assert process.communicate(timeout=30) == (b"t0ken\n", b"")


def test_a_client_kills_no_process_that_has_the_id_of_a_worker_that_has_left(
    xapi: Xapi, runtime: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    worker = _Worker(runtime, _build(xapi, runtime), sleeper.pid)
    process = _show(xapi)
    with worker.listener:
        with worker.listener.accept()[0] as connection:
            os.kill(process.pid, signal.SIGSTOP)
            wait_until(lambda: " T " in Path(f"/proc/{process.pid}/stat").read_text(), "the client is stopped")
            worker.greet(connection)
        os.kill(process.pid, signal.SIGCONT)

        assert process.communicate(timeout=30) == (b"t0ken\n", b"")
    assert sleeper.poll() is None


@pytest.mark.parametrize(
    "begins", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["before it has begun", "later"]
)
@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGHUP))]
)
def test_a_signal_ends_a_client_with_its_hung_worker(
    xapi: Xapi, runtime: Path, sleeper: subprocess.Popen[bytes], number: signal.Signals, begins: bool
) -> None:
    worker = _Worker(runtime, _build(xapi, runtime), sleeper.pid)
    process = _show(xapi)
    with _accepted(worker) as connection:
        if begins:
            protocol.send(connection, b"B")
        wait_until(lambda: handles_signal(process.pid, number), "the client forwards the signal")
        process.send_signal(number)

        assert process.communicate(timeout=30) == (b"", b"")
        assert process.returncode == 128 + number
        assert sleeper.wait(30) == -signal.SIGKILL


def test_a_client_that_has_sent_a_part_of_its_request_sends_nothing_else(
    xapi: Xapi, runtime: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """More bytes could complete the request, so that the command would run twice."""
    worker = _Worker(runtime, _build(xapi, runtime), sleeper.pid)
    process = _show(xapi, _SENDS_FOR_A_SHORT_TIME, **{f"V{n}": "x" * 100_000 for n in range(10)})
    with worker.listener, worker.listener.accept()[0] as connection:
        worker.greet(connection)
        assert process.wait(30) == 0
        received = b""
        while chunk := connection.recv(65536):
            received += chunk

    assert process.communicate(timeout=30) == (b"t0ken\n", b"")
    assert received[:1] == b"H"
    assert 0 < len(received) - 5 < int.from_bytes(received[1:5], "little")
    assert received[-100:] == b"x" * 100


@pytest.mark.parametrize(
    "examples",
    [
        20,
        pytest.param(60, marks=pytest.mark.slow),
        pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
def test_a_client_exits_for_any_data_from_a_worker(
    xapi: Xapi, runtime: Path, sleeper: subprocess.Popen[bytes], examples: int
) -> None:
    worker = _Worker(runtime, _build(xapi, runtime), sleeper.pid)
    thread = threading.Thread(target=worker.serve)
    thread.start()

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(reply=_REPLIES)
    def attack(reply: bytes) -> None:
        worker.reply, before = reply, worker.requests
        outcome = xapi("token", "show", env={"XAPI_TOKEN": "t0ken"})
        assert worker.requests == before + 1
        assert outcome.out == ""  # the client has not run the command
        assert outcome.err in {"", _LOST}

    try:
        attack()
    finally:
        worker.listener.shutdown(socket.SHUT_RDWR)
        worker.listener.close()
        thread.join(10)
