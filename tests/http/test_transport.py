"""Requests and responses are transferred as they are, over TCP and TLS, also when a response arrives early."""

import gzip
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest

from tests.http.clients import EARLY, SOON, client, get
from tests.support.servers import (
    OK,
    Peer,
    Server,
    Step,
    Stopwatch,
    half_close,
    hang,
    head,
    request,
    reset,
    send,
    serve,
    sleep,
    until_closed,
    wait_for,
)  # fmt: skip
from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http.messages import Response, build_request
from xapi_cli.http.transport import Transport

SIZE = 16 * 1024 * 1024


@pytest.fixture
def transport(client_tls: ssl.SSLContext) -> Iterator[Transport]:
    with closing(Transport(lambda: client_tls, timeout=10)) as made:
        yield made


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def tls(request: pytest.FixtureRequest, server_tls: ssl.SSLContext) -> ssl.SSLContext | None:
    return server_tls if request.param else None


def posted(
    transport: Transport, server: Server, body: Iterable[bytes] = (), length: int | None = 0, **options: object
) -> Response:
    return transport.send(build_request("POST", f"{server.url}/", [], body, length, **options))


def status(transport: Transport, server: Server, *body: object, **options: object) -> int:
    response = posted(transport, server, *body, **options)  # type: ignore[arg-type]  # passed through
    response.discard()
    return response.status


def zeros(size: int) -> Iterator[bytes]:
    for _ in range(size // 65536):
        yield bytes(65536)


def test_a_request_and_its_response_are_transferred_verbatim() -> None:
    reply = b"HTTP/1.1 201 Made it\r\nX-One: 1\r\nx-two: \xe9\r\nX-One: 2\r\nContent-Length: 5\r\n\r\nhello"
    with Server([request(), send(reply)]) as server, client(headers={"User-Agent": "me"}) as http:
        response = http.post(f"{server.url}/a%20b?c=d", content=b"body", headers=[(b"X-Q", b"\xc3\xa9")])

        assert (
            server.received[0]
            == (
                f"POST /a%20b?c=d HTTP/1.1\r\nHost: {server.name}\r\nAccept: */*\r\n"
                f"Accept-Encoding: {http.headers['Accept-Encoding']}\r\n"
                "Connection: keep-alive\r\nUser-Agent: me\r\nX-Q: é\r\nContent-Length: 4\r\n\r\nbody"
            ).encode()
        )
    assert (response.status_code, response.content) == (201, b"hello")
    assert response.headers.raw == [
        (b"X-One", b"1"),
        (b"x-two", b"\xe9"),
        (b"X-One", b"2"),
        (b"Content-Length", b"5"),
    ]
    assert response.extensions["http_version"] == b"HTTP/1.1"
    assert response.extensions["reason_phrase"] == b"Made it"


def test_headers_and_a_short_body_are_sent_in_a_single_write(transport: Transport) -> None:
    packets: list[bytes] = []

    def receive(peer: Peer) -> None:
        packets.append(peer.sock.recv(65536))

    with Server([receive, send(OK)]) as server:
        status(transport, server, (b"body",), 4)
    assert packets[0].endswith(b"\r\n\r\nbody")


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\n",
            b"abcde",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nup to the end", b"up to the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 999 ?\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"ok"),
    ],
)
def test_every_kind_of_body_framing_is_supported(reply: bytes, body: bytes) -> None:
    with Server([request(), send(reply)]) as server:
        assert get(server).content == body


def test_a_body_is_yielded_as_it_arrives(transport: Transport, tls: ssl.SSLContext | None) -> None:
    more = threading.Event()
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    with Server([request(), send(reply), wait_for(more), send(b"1\r\nd\r\n0\r\n\r\n")], tls=tls) as server:
        parts = posted(transport, server).chunks()
        assert next(parts) == b"abc"
        more.set()
        assert list(parts) == [b"d"]


def test_a_body_of_unknown_length_is_sent_in_chunks_and_may_pause(transport: Transport) -> None:
    with Server([request(), send(OK)]) as server:
        status(transport, server, (b"", b"abc", b"", b"de"), None)
        assert server.received[0].endswith(b"\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")


def test_a_large_body_is_sent_and_received(transport: Transport, tls: ssl.SSLContext | None) -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (SIZE, bytes(SIZE))
    with Server([serve(reply)], tls=tls) as server:
        assert sum(map(len, posted(transport, server, zeros(SIZE), SIZE).chunks())) == SIZE
        assert server.received[0].endswith(bytes(SIZE))


# a response before the end of the request


@pytest.mark.parametrize(
    "rest", [[hang()], [], [reset()], [half_close(), hang()]], ids=["stays", "closes", "resets", "half-closes"]
)
@pytest.mark.parametrize("length", [4 * SIZE, None], ids=["length", "chunked"])
def test_a_refusal_during_an_upload_is_read_immediately_and_ends_it(
    transport: Transport, rest: list[Step], length: int | None
) -> None:
    with Server([head(), send(EARLY), *rest], [serve()]) as server, Stopwatch() as watch:
        response = posted(transport, server, zeros(4 * SIZE), length)
        assert response.status == 401
        response.discard()
        assert status(transport, server) == 200
        assert len(server.received) == 2
    assert watch.seconds < SOON


def test_a_refusal_during_an_upload_over_tls_is_read_immediately(
    transport: Transport, server_tls: ssl.SSLContext
) -> None:
    with Server([head(), send(EARLY), hang()], tls=server_tls) as server, Stopwatch() as watch:
        assert b"".join(posted(transport, server, zeros(4 * SIZE), 4 * SIZE).chunks()) == b"who?"
    assert watch.seconds < SOON


def test_no_request_follows_an_unfinished_one(transport: Transport) -> None:
    """The response arrives after the last data, and before the chunk that ends the body."""
    responded = threading.Event()

    def body() -> Iterator[bytes]:
        yield b"data"
        assert responded.wait(60)
        yield b""

    def read_the_data(peer: Peer) -> None:
        while not peer.received.endswith(b"data\r\n"):
            peer.read_some()

    early: list[Step] = [read_the_data, send(EARLY), lambda peer: responded.set(), until_closed()]
    with Server(early, [serve()]) as server:
        posted(transport, server, body(), None).discard()
        assert status(transport, server) == 200
        assert server.received[0].endswith(b"data\r\n")
        assert len(server.received) == 2


def test_a_body_is_sent_completely_after_an_early_success(transport: Transport) -> None:
    with Server([head(), send(OK), sleep(0.2), request()]) as server:
        assert b"".join(posted(transport, server, zeros(SIZE), SIZE).chunks()) == b"ok"
        deadline = time.monotonic() + 5
        while not server.received[0].endswith(bytes(SIZE)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.received[0].endswith(b"\r\n\r\n" + bytes(SIZE))


def test_informational_responses_do_not_stop_an_upload(transport: Transport) -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"
    with Server([head(), send(early), sleep(0.1), request(), send(OK)]) as server:
        assert status(transport, server, zeros(SIZE), SIZE) == 200


# failures of an upload


def test_a_login_that_is_lost_may_be_repeated(transport: Transport) -> None:
    with Server([request()]) as server:
        with pytest.raises(NetworkError) as caught:
            transport.send(build_request("POST", f"{server.url}/", [], is_login=True))
        assert server.received[0].endswith(b"\r\nContent-Length: 0\r\n\r\n")  # some servers require it
    assert (caught.value.sent, caught.value.may_be_processed) == (True, False)


def test_a_socket_beside_is_watched_while_the_response_is_awaited(transport: Transport) -> None:
    ours, theirs = socket.socketpair()
    calls: list[str] = []

    def go_on() -> None:
        calls.append("data")

    def leave() -> None:
        raise ConnectionAbortedError

    def write(peer: Peer) -> None:
        theirs.sendall(b"x")

    with Server([request(), hang()], [request(), write, sleep(0.1), send(OK)]) as server:
        theirs.sendall(b"x")
        assert select.select([ours], [], [], 10)[0]
        with pytest.raises(ConnectionAbortedError):
            posted(transport, server, beside=(ours, leave))
        assert status(transport, server, beside=(ours, go_on)) == 200
    ours.close()
    theirs.close()
    assert calls == ["data"]


# TLS


def test_https_reports_the_tls_version(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    lines: list[str] = []
    with (
        Server([serve()], tls=server_tls) as server,
        closing(Transport(lambda: client_tls, trace=lines.append)) as transport,
    ):
        for _ in range(2):
            response = posted(transport, server)
            response.discard()
            assert response.tls == "TLSv1.3"
        assert lines == [
            f"* connected to {server.name} (TLSv1.3)",
            f"* using the open connection to {server.name}",
        ]


def test_only_a_body_that_ends_with_close_notify_is_complete(transport: Transport, server_tls: ssl.SSLContext) -> None:
    def good_bye(peer: Peer) -> None:
        peer.sock.settimeout(2)
        assert isinstance(peer.sock, ssl.SSLSocket)
        peer.sock.unwrap()

    start = [request(), send(b"HTTP/1.1 200 OK\r\n\r\na body")]
    with Server([*start, good_bye], start, tls=server_tls) as server:
        assert b"".join(posted(transport, server).chunks()) == b"a body"
        with pytest.raises(NetworkError, match=r"was truncated after 6 bytes \(connection closed by the server\)"):
            list(posted(transport, server).chunks())


def test_a_coded_body_whose_end_its_coding_shows_needs_no_close_notify(
    transport: Transport, server_tls: ssl.SSLContext
) -> None:
    body = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"a body")
    with Server([request(), send(body)], [request(), send(body[:-1])], tls=server_tls) as server:
        assert b"".join(posted(transport, server).decoded()) == b"a body"
        with pytest.raises(NetworkError, match="truncated"):
            list(posted(transport, server).decoded())


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
        assert shaking_hands.wait(60)
        assert http.get(server.url).content == b"ok"
        assert stuck.is_alive()
        enough.set()
        stuck.join(10)
        assert not stuck.is_alive()
        assert made == [1]
