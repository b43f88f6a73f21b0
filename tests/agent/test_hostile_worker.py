"""A process in place of a worker that sends anything after it has the request: the client ends, and runs nothing."""

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.program import REAL, Xapi
from xapi_cli.agent import protocol

_LOST = "xapi: error: the agent ended before the command completed; the request may have been sent\n"
_KINDS = st.sampled_from([b"X", b"S", b"B", b"Q", b"P", b"R", b"Z"])
_NUMBERS = st.integers(-1, 70_000).map(lambda number: b"%d" % number)
_CONTENTS = st.binary(max_size=12) | _NUMBERS | st.sampled_from([b"{}", b"[]", b"1" * 40, b'{"alarm": "x"}'])
_MESSAGES = st.tuples(_KINDS, _CONTENTS).map(lambda each: each[0] + len(each[1]).to_bytes(4, "little") + each[1])
_REPLIES = st.lists(_MESSAGES, max_size=3).map(b"".join) | st.binary(max_size=20).filter(lambda data: data[:1] != b"C")


class _Worker:
    """Greets a client as a worker of this build, receives its request, and sends *reply*."""

    def __init__(self, runtime: Path, build: bytes) -> None:
        (runtime / "xapi").mkdir(mode=0o700)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(runtime / "xapi" / "agent"))
        self.listener.listen()
        self.reply, self.requests, self._build = b"", 0, build

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, suppress(OSError, EOFError):
                connection.settimeout(20)
                protocol.send(connection, b"R", b"%d %s" % (os.getpid(), self._build))
                _, streams = protocol.receive_request(connection)
                self.requests += 1
                for stream in streams:
                    os.close(stream)
                connection.sendall(self.reply)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass


def _build(xapi: Xapi, runtime: Path) -> bytes:
    """Return the build of an agent that runs in the directory *runtime*, which is empty afterwards."""
    xapi.environ["XDG_RUNTIME_DIR"] = str(runtime)
    xapi("agent", "start", "--idle", "5m")
    with socket.socket(socket.AF_UNIX) as real:
        real.connect(str(runtime / "xapi" / "agent"))
        build = protocol.receive(real)[1].partition(b" ")[2]
    xapi("agent", "stop")
    (runtime / "xapi" / "lock").unlink()
    (runtime / "xapi").rmdir()
    return build


def test_a_client_that_has_sent_a_part_of_its_request_sends_nothing_else(xapi: Xapi, runtime: Path) -> None:
    """More bytes could complete the request, so that the command would run twice."""
    listener = _Worker(runtime, build := _build(xapi, runtime)).listener
    env = {"XAPI_TOKEN": "t0ken"} | {f"V{n}": "x" * 100_000 for n in range(10)}
    process = xapi.start("token", "show", env=env, argv=REAL)  # a forked program would wait for much longer
    with listener, listener.accept()[0] as connection:
        protocol.send(connection, b"R", b"%d %s" % (os.getpid(), build))
        assert process.wait(30) == 0
        received = b""
        while chunk := connection.recv(65536):
            received += chunk

    assert process.communicate(timeout=30) == (b"t0ken\n", b"")
    assert received[:1] == b"H"
    assert 0 < len(received) - 5 < int.from_bytes(received[1:5], "little")
    assert received[-100:] == b"x" * 100


@pytest.mark.parametrize("examples", [60, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])])
def test_a_client_ends_whatever_a_worker_sends(xapi: Xapi, runtime: Path, examples: int) -> None:
    worker = _Worker(runtime, _build(xapi, runtime))
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
