"""Requests over TLS."""

import ssl
import threading

import pytest

from tests.http.clients import EARLY, SOON, Zeros, client
from tests.support.servers import (
    Peer,
    Server,
    Stopwatch,
    hang,
    head,
    request,
    send,
    serve,
    wait_for,
)
from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http.transport import Transport


def test_https_reports_the_tls_version(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    lines: list[str] = []
    transport = Transport(lambda: client_tls, trace=lines.append)
    with Server([serve()], tls=server_tls) as server, client(transport) as http:
        response = http.get(server.url)
        assert http.post(server.url, content=bytes(300_000)).content == b"ok"
        assert response.extensions["tls"] == "TLSv1.3"
        assert lines == [
            f"* connected to {server.name} (127.0.0.1, TLSv1.3)",
            f"* using the open connection to {server.name}",
        ]


def test_a_large_body_is_sent_and_received_over_tls(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    size = 16 * 1024 * 1024
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, bytes(size))
    with Server([serve(reply)], tls=server_tls) as server, client(Transport(lambda: client_tls)) as http:
        response = http.put(server.url, content=Zeros(size), headers={"Content-Length": str(size)})
        assert response.content == bytes(size)
        assert server.received[0].endswith(bytes(size))


def test_an_early_response_is_read_over_tls(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    size = 64 * 1024 * 1024
    with (
        Server([head(), send(EARLY), hang()], tls=server_tls) as server,
        client(Transport(lambda: client_tls)) as http,
        Stopwatch() as watch,
    ):
        assert http.put(server.url, content=Zeros(size), headers={"Content-Length": str(size)}).content == b"who?"
    assert watch.seconds < SOON


def test_a_body_that_ends_without_close_notify_is_truncated(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    with (
        Server([request(), send(b"HTTP/1.1 200 OK\r\n\r\nhalf a body")], tls=server_tls) as server,
        client(Transport(lambda: client_tls)) as http,
        pytest.raises(NetworkError, match=r"was truncated after 11 bytes \(connection closed by the server\)"),
    ):
        http.get(server.url)


def test_a_body_that_ends_with_close_notify_is_complete(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    def good_bye(peer: Peer) -> None:
        peer.sock.settimeout(2)
        assert isinstance(peer.sock, ssl.SSLSocket)
        peer.sock.unwrap()

    with (
        Server([request(), send(b"HTTP/1.1 200 OK\r\n\r\na body"), good_bye], tls=server_tls) as server,
        client(Transport(lambda: client_tls)) as http,
    ):
        assert http.get(server.url).content == b"a body"


def test_threads_share_one_tls_context_and_handshakes_run_in_parallel(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    made = []

    def make() -> ssl.SSLContext:
        made.append(1)
        return client_tls

    def be_stuck() -> None:
        with pytest.raises((NetworkError, TimeoutExpired)):
            http.get(f"https://{deaf.name}")

    shaking_hands, enough = threading.Event(), threading.Event()
    with (
        Server([Peer.read_some, lambda peer: shaking_hands.set(), wait_for(enough)]) as deaf,
        Server([serve()], tls=server_tls) as server,
        client(Transport(make), timeout=60) as http,
    ):
        stuck = threading.Thread(target=be_stuck)
        stuck.start()
        assert shaking_hands.wait(30)
        assert http.get(server.url).content == b"ok"
        assert stuck.is_alive()
        enough.set()
        stuck.join(10)
        assert not stuck.is_alive()
        assert made == [1]
