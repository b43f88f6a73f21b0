"""Messages from anyone: neither the agent nor a client crashes, hangs or needs unbounded memory."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agent.conftest import Agent, is_running
from tests.support.program import REAL
from tests.support.threads import wait_until
from xapi_cli.agent import protocol

TOKEN = {"XAPI_TOKEN": "t0ken"}
_WORDS = st.binary(max_size=20).map(lambda text: text.replace(b"\0", b""))
_NAMES = st.binary(min_size=1, max_size=8).map(lambda text: text.replace(b"\0", b"a").replace(b"=", b"b"))


@given(argv=st.lists(_WORDS, max_size=5), environ=st.dictionaries(_NAMES, _WORDS, max_size=5), terminal=st.booleans())
def test_a_request_is_received_as_it_was_sent(argv: list[bytes], environ: dict[bytes, bytes], terminal: bool) -> None:
    arguments = [os.fsdecode(word) for word in argv]
    content = protocol.request(arguments, environ, has_terminal=terminal, errors="strict")

    assert protocol.parse_request(content) == (arguments, environ, terminal, "strict")


@given(content=st.binary(max_size=200))
def test_any_content_is_a_request_or_an_error(content: bytes) -> None:
    with suppress(protocol.ProtocolError):
        argv, environ, terminal, errors = protocol.parse_request(content)
        again = protocol.request(argv, environ, has_terminal=terminal, errors=errors)
        assert protocol.parse_request(again) == (argv, environ, terminal, errors)


def test_a_request_with_streams_of_another_kind_is_not_sent() -> None:
    with pytest.raises(ValueError, match="not possible"):
        protocol.request(["xapi"], {}, has_terminal=False, errors="a codec of a plugin")


@given(data=st.binary(max_size=64))
def test_any_data_is_a_message_or_an_error(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with suppress(protocol.ProtocolError, EOFError):
            while True:
                kind, content = protocol.receive(ours, 32)
                assert (len(kind), len(content) <= 32) == (1, True)


@given(data=st.binary(max_size=64), descriptors=st.integers(0, 5))
def test_any_descriptors_are_closed_unless_they_belong_to_a_request(data: bytes, descriptors: int) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if data:
            socket.send_fds(theirs, [data], [0] * descriptors)
        theirs.shutdown(socket.SHUT_WR)
        with suppress(protocol.ProtocolError, EOFError):
            _, received = protocol.receive_request(ours)
            assert len(received) == protocol.DESCRIPTORS
            for number in received:
                os.close(number)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_request_that_was_sent_is_no_failure_when_its_worker_has_ended() -> None:
    """After a failure, the client would run the command a second time."""
    ours, theirs = socket.socketpair()

    class Preempted(socket.socket):
        """Continues after the peer has received everything and ended."""

        def sendmsg(self, *arguments: Any) -> int:
            sent = super().sendmsg(*arguments)
            with theirs:
                theirs.recv(4096)
            return sent

    with Preempted(fileno=ours.detach()) as connection:
        protocol.send_request(connection, b"content", 0)


def test_a_message_that_is_too_long_is_not_received() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"X" + (protocol.MAX_MESSAGE + 1).to_bytes(4, "little"))
        with pytest.raises(protocol.ProtocolError, match="too long"):
            protocol.receive(ours)


def test_a_request_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ValueError, match="not possible"):
        protocol.request(["x" * protocol.MAX_REQUEST], {}, has_terminal=False, errors="strict")


@pytest.mark.parametrize(
    "examples",
    [
        20,
        pytest.param(60, marks=pytest.mark.slow),
        pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
def test_the_agent_survives_any_data(open_agent: Agent, examples: int) -> None:
    """Each example costs a worker, so the examples share the agent."""
    agent = open_agent
    descriptors = len(os.listdir(f"/proc/{agent.pid}/fd"))

    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
    @given(
        name=st.sampled_from(["agent", "control"]),
        data=st.binary(max_size=40) | st.binary(max_size=30).map(lambda rest: b"H\x0a\0\0\0" + rest),
        descriptors=st.integers(0, 4),
    )
    def attack(name: str, data: bytes, descriptors: int) -> None:
        if data[:1] == b"E" and name == "control":
            data = b"F" + data[1:]  # not the request to end
        with socket.socket(socket.AF_UNIX) as attacker:
            attacker.settimeout(5)
            attacker.connect(str(agent.directory / name))
            with suppress(OSError):  # it may refuse at once
                if data:
                    socket.send_fds(attacker, [data], [0] * descriptors)
                attacker.shutdown(socket.SHUT_WR)
                while attacker.recv(4096):
                    pass

    attack()

    assert agent.xapi("token", "show", env=TOKEN).out == "t0ken\n"
    assert agent.status()["pid"] == agent.pid
    assert is_running(agent.pid)
    # until it notices the end of the command, it has the connection of its worker
    wait_until(lambda: len(os.listdir(f"/proc/{agent.pid}/fd")) <= descriptors + 1, "it has closed what it opened")


@pytest.fixture
def impostor(runtime: Path) -> Iterator["Impostor"]:
    """A process of this user that listens in place of an agent."""
    with Impostor(runtime) as listening:
        yield listening


class Impostor:
    """Sends *reply* to each client, and reads what it sends."""

    def __init__(self, runtime: Path) -> None:
        (runtime / "xapi").mkdir(mode=0o700)
        self.runtime = runtime
        self.reply = b""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(runtime / "xapi" / "agent"))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.sendall(self.reply)
                connection.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        pytest.param(b"R", marks=pytest.mark.slow),
        b"R\xff\xff\xff\xff",
        b"X\x01\0\0\0" + b"7",
        b"R\x03\0\0\0" + b"1 x",
        pytest.param(b"R\x03\0\0\0" + b"x x", marks=pytest.mark.slow),
        pytest.param(b"R\0\0\0\0", marks=pytest.mark.slow),
        pytest.param(b"C\x01\0\0\0x", marks=pytest.mark.slow),
        bytes(100),
    ],
    ids=repr,
)
def test_a_client_runs_the_command_itself_after_any_greeting(
    impostor: Impostor, agent_free: dict[str, str], reply: bytes
) -> None:
    impostor.reply = reply

    outcome = subprocess.run(
        [*REAL, "token", "show"],
        env={**agent_free, "XDG_RUNTIME_DIR": str(impostor.runtime)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert (outcome.stdout, outcome.stderr) == ("t0ken\n", "")


@pytest.fixture
def agent_free(tmp_path: Path) -> dict[str, str]:
    """An environment without an agent."""
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **TOKEN}


def test_a_client_does_not_wait_for_a_process_that_says_nothing(runtime: Path, agent_free: dict[str, str]) -> None:
    (runtime / "xapi").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(runtime / "xapi" / "agent"))
        silent.listen()

        outcome = subprocess.run(
            [*REAL, "token", "show"],
            env={**agent_free, "XDG_RUNTIME_DIR": str(runtime)},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    assert outcome.stdout == "t0ken\n"
