"""Failures of the relay, and of processes that borrow its connections."""

import os
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.relays import HALF, Relay, borrower, get, warm_error
from tests.support.servers import OK, Peer, Server, hang, request, send, serve, until_closed, wait_for
from xapi_cli.errors import NetworkError
from xapi_cli.http.relay.loans import REPLY_TIMEOUT


def test_a_relay_that_is_killed_is_a_network_error_and_later_calls_do_without_it(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    with Server([request(), send(HALF), hang()], [serve()], tls=server_tls) as server:
        with borrower(relay, bundle) as http, http.stream("GET", server.url) as response:
            parts = response.iter_raw()
            assert next(parts) == b"half"
            relay.process.kill()
            with pytest.raises(NetworkError, match=r"truncated after 4 bytes \(the agent's connection relay"):
                next(parts)
        assert get(relay, bundle, server.url) == b"ok"


def test_a_relay_that_is_killed_before_it_has_read_the_request_is_named_in_the_error(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    def body() -> Iterator[bytes]:
        yield b"read"
        relay.stop()
        yield b"not read"
        relay.process.kill()
        relay.process.wait(20)

    with (
        Server([until_closed()], tls=server_tls) as server,
        borrower(relay, bundle) as http,
        pytest.raises(NetworkError, match="before the response: the agent's connection relay stopped"),
    ):
        http.post(server.url, content=body())


def test_a_stopped_relay_is_not_waited_for(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    with Server([serve()], tls=server_tls) as server:
        get(relay, bundle, server.url)
        relay.stop()
        try:
            with borrower(relay, bundle, reply_timeout=REPLY_TIMEOUT) as http:
                assert http.get(server.url).content == b"ok"
            assert len(server.received) == 2
        finally:
            relay.process.send_signal(signal.SIGCONT)


def test_a_relay_that_stops_during_a_call_is_a_timeout(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    def stop(peer: Peer) -> None:
        relay.stop()

    with Server([request(), stop, send(OK), hang()], tls=server_tls) as server:
        try:
            assert warm_error(relay, bundle, server.url, 2).startswith(f"no response from {server.name} within 2 s")
        finally:
            relay.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    "reply", [b"", b"\0\0\0\2{}", b"\xff" * 8, b"\0\0\0\x0f" + b'{"type":"lent"}', b"\0\0\0\1{"], ids=repr
)
def test_a_relay_that_does_not_follow_the_protocol_is_not_used(
    tmp_path: Path, bundle: Path, server_tls: ssl.SSLContext, reply: bytes
) -> None:
    def respond() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            peer.sendall(reply)
            peer.shutdown(socket.SHUT_WR)
            peer.recv(1)

    class Planted(Relay):
        def __init__(self, path: Path) -> None:
            self.path = path

    with socket.socket(socket.AF_UNIX) as listener, Server([serve()], tls=server_tls) as server:
        listener.bind(str(tmp_path / "relay"))
        listener.listen(1)
        thread = threading.Thread(target=respond)
        thread.start()
        assert get(Planted(tmp_path / "relay"), bundle, server.url) == b"ok"
        thread.join(10)
        assert len(server.received) == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"\0\0\0\2{}", b"\xff" * 9, b"\0\0\0\4null", b"\0\0\0\x0f" + b'{"type":"lend"}'],
    ids=repr,
)
def test_the_relay_survives_any_input(relay: Relay, bundle: Path, server_tls: ssl.SSLContext, data: bytes) -> None:
    for _ in range(3):
        sock = relay.connect()
        assert sock is not None
        sock.sendall(data)
        sock.close()
    with Server([serve()], tls=server_tls) as server:
        assert get(relay, bundle, server.url) == b"ok"
    assert relay.status()["loans"] == 1


def test_the_connection_of_a_killed_process_is_closed(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    is_closed = threading.Event()

    def notice(peer: Peer) -> None:
        with pytest.raises((EOFError, OSError)):
            peer.read_some()
        is_closed.set()

    with Server([request(), send(HALF), notice], tls=server_tls) as server:
        child = os.fork()
        if child == 0:
            try:
                with borrower(relay, bundle) as http, http.stream("GET", server.url) as response:
                    next(response.iter_raw())
                    os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        assert is_closed.wait(30)
    assert relay.status()["kept"] == 0


def test_loans_in_progress_end_as_usual_after_the_lifeline_has_ended(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    is_over = threading.Event()
    with Server([request(), wait_for(is_over), send(OK), until_closed()], tls=server_tls) as server:
        thread = threading.Thread(target=lambda: results.append(get(relay, bundle, server.url)))
        results: list[bytes] = []
        thread.start()
        while not (server.received and server.received[0]):
            thread.join(0.01)
        relay.end()
        is_over.set()
        thread.join(10)
        assert results == [b"ok"]
        assert relay.process.wait(20) == 0


@pytest.mark.slow
def test_an_idle_connection_is_closed_after_the_keep_alive_timeout(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    is_closed = threading.Event()

    def notice(peer: Peer) -> None:
        with pytest.raises((EOFError, OSError)):
            peer.read_some()
        is_closed.set()

    with Server([request(), send(OK), notice], tls=server_tls) as server:
        get(relay, bundle, server.url)
        assert is_closed.wait(30)
        assert relay.status()["kept"] == 0
