"""Every wait is limited, and the deadline limits the whole request."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.http.clients import SOON, Zeros, client, get, resolving
from tests.support.servers import (
    Peer,
    Server,
    Step,
    Stopwatch,
    drip,
    hang,
    request,
    send,
    serve,
)
from xapi_cli.errors import TimeoutExpired
from xapi_cli.http.transport import Transport

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"

NO_RESPONSE = "no response from {} within 0.3 s"
NO_MORE_DATA = "no more data from {} within 2 s"  # a busy machine needs less for the headers
STALLS: dict[str, tuple[list[Step], str]] = {
    "silent": ([request(), hang()], NO_RESPONSE),
    "slow-loris head": ([request(), drip(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 999, 0.05)], NO_RESPONSE),
    "endless 103": ([request(), drip(b"HTTP/1.1 103 Hint\r\n\r\n" * 999, 0.05, 21)], NO_RESPONSE),
    "stalls in the body": ([request(), send(HEAD + b"ab"), hang()], NO_MORE_DATA),
    "a slow chunk extension": (
        [request(), send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), drip(b"5;" + b"x" * 999, 0.05)],
        NO_MORE_DATA,
    ),
}


@pytest.mark.parametrize("stall", STALLS)
def test_a_stalled_server_causes_a_timeout(stall: str) -> None:
    script, message = STALLS[stall]
    with Server(script) as server, Stopwatch() as watch, pytest.raises(TimeoutExpired) as caught:
        get(server, timeout=httpx.Timeout(10, read=float(message.split()[-2])))
    assert caught.value.message == message.format(server.name)
    assert caught.value.sent
    assert 0.2 < watch.seconds < SOON


@pytest.mark.parametrize("stall", STALLS)
def test_the_deadline_limits_every_wait(stall: str) -> None:
    with Server(STALLS[stall][0]) as server, Stopwatch() as watch, pytest.raises(TimeoutExpired) as caught:
        get(server, timeout=60, deadline=time.monotonic() + 0.5)
    assert f"{server.name} before --max-time expired" in caught.value.message
    assert str(caught.value).endswith("; raise --max-time to wait longer")
    assert 0.4 < watch.seconds < SOON


def test_the_deadline_limits_an_endless_slow_body() -> None:
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Server([request(), send(reply), drip(b"1\r\nx\r\n" * 999, 0.02, 6)]) as server:
        with Stopwatch() as watch, pytest.raises(TimeoutExpired, match="before the time for a login expired"):
            get(server, timeout=60, deadline=time.monotonic() + 0.7, deadline_name="the time for a login")
        assert 0.6 < watch.seconds < SOON


def test_a_slow_body_causes_no_timeout() -> None:
    with Server([request(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n"), drip(b"x" * 20, 0.2)]) as server:
        assert get(server, timeout=3).content == b"x" * 20


def test_a_slow_upload_causes_no_timeout() -> None:
    def read_slowly(peer: Peer) -> None:
        while len(peer.received) < 16 * 2**20:
            for _ in range(4):
                peer.read_some()
            time.sleep(0.2)

    with Server([read_slowly, request(), send(HEAD + b"abcde")]) as server:
        with client(timeout=httpx.Timeout(10, write=2.5)) as http, Stopwatch() as watch:
            assert http.post(server.url, content=bytes(32 * 2**20)).content == b"abcde"
        assert watch.seconds > 3


def test_a_server_that_does_not_read_causes_a_timeout() -> None:
    size = 64 * 1024 * 1024
    with (
        Server([hang()]) as server,
        client(timeout=httpx.Timeout(10, write=0.5)) as http,
        Stopwatch() as watch,
        pytest.raises(TimeoutExpired) as caught,
    ):
        http.post(server.url, content=Zeros(size), headers={"Content-Length": str(size)})
    assert caught.value.message == f"{server.name} accepted no data within 0.5 s"
    assert caught.value.sent
    assert caught.value.hint == "the POST may have been processed: check before you send it again"
    assert watch.seconds < SOON


@pytest.fixture
def full() -> Iterator[list[int]]:
    """Ports on 127.0.0.2 and above whose listening sockets accept no more connections."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    address = listener.getsockname()
    crowd = []
    for _ in range(3):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(address)
        crowd.append(sock)
    yield [address[1]]
    for sock in crowd:
        sock.close()
    listener.close()


def test_connecting_has_a_timeout(full: list[int]) -> None:
    with client(timeout=0.5) as http, Stopwatch() as watch, pytest.raises(TimeoutExpired) as caught:
        http.get(f"http://127.0.0.1:{full[0]}/")
    assert caught.value.message == f"no connection to 127.0.0.1:{full[0]} within 0.5 s (TCP)"
    assert not caught.value.sent
    assert watch.seconds < SOON


def test_name_resolution_has_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    lookups = []

    def never(host: str, port: int) -> list[tuple[str, int]]:
        lookups.append(host)
        done.wait(30)
        return []

    resolving(monkeypatch, never)
    try:
        with client(timeout=0.4) as http, Stopwatch() as watch:
            for _ in range(3):
                with pytest.raises(TimeoutExpired) as caught:
                    http.get("http://api.test/")
                assert caught.value.message == "no connection to api.test:80 within 0.4 s (name resolution)"
        assert watch.seconds < SOON
    finally:
        done.set()


def test_the_deadline_limits_connecting_and_sending(full: list[int], client_tls: ssl.SSLContext) -> None:
    size = 64 * 1024 * 1024
    with Server([hang()]) as deaf, client(Transport(lambda: client_tls), timeout=60) as http:
        for url, missing in [
            (f"http://127.0.0.1:{full[0]}/", f"no connection to 127.0.0.1:{full[0]} before --max-time expired (TCP)"),
            (f"https://{deaf.name}/", f"no connection to {deaf.name} before --max-time expired (TLS handshake)"),
            (deaf.url, f"{deaf.name} accepted no data before --max-time expired"),
        ]:
            with Stopwatch() as watch, pytest.raises(TimeoutExpired) as caught:
                http.put(
                    url,
                    content=Zeros(size),
                    headers={"Content-Length": str(size)},
                    extensions={"deadline": time.monotonic() + 1},
                )
            assert caught.value.message == missing
            assert watch.seconds < SOON


def test_nothing_is_sent_after_the_deadline() -> None:
    with Server([serve()]) as server:
        with pytest.raises(TimeoutExpired) as caught:
            get(server, deadline=time.monotonic() - 1)
        assert not caught.value.sent
        assert not any(server.received)


def test_connecting_and_the_tls_handshake_share_one_timeout(client_tls: ssl.SSLContext) -> None:
    with Server([hang()]) as server, client(Transport(lambda: client_tls), timeout=1) as http:
        with Stopwatch() as watch, pytest.raises(TimeoutExpired, match=r"within 1 s \(TLS handshake\)"):
            http.get(f"https://{server.name}")
        assert watch.seconds < SOON
