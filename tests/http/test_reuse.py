"""A response never reaches the wrong request: when connections are reused, and when a request is sent again."""

import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.http.clients import SOON, client, get, no_tls
from tests.support.servers import (
    OK,
    Peer,
    Server,
    Step,
    Stopwatch,
    close,
    drip,
    forever,
    hang,
    request,
    reset,
    send,
    serve,
    until_closed,
    wait_for,
)  # fmt: skip
from tests.support.surplus import echo, in_time, stray_body
from tests.support.threads import Gate, wait_until
from xapi_cli.errors import NetworkError, XapiError
from xapi_cli.http.messages import Response, build_request
from xapi_cli.http.pool import GRACE_PERIOD
from xapi_cli.http.transport import Transport

SHORT = b"HTTP/1.1 401 No\r\nContent-Length: 5\r\n\r\n"

SURPLUSES = {
    "in the same write": echo(),
    "at once": echo(delay=0),
    "after 1 ms": echo(delay=0.001),
    "after 5 ms": echo(delay=0.005),
    "after a whole block": echo(size=65_536),
}
STRAY_BODIES = {
    "HEAD": (("HEAD", "GET"), stray_body()),
    "HEAD, not declared": (("HEAD", "GET"), stray_body(declared=False)),
    "204": (("GET", "DELETE"), stray_body(204)),
    "204, not declared": (("GET", "DELETE"), stray_body(204, declared=False)),
    "304": (("GET",), stray_body(304)),
}


@pytest.fixture
def transport(client_tls: ssl.SSLContext) -> Iterator[Transport]:
    with closing(Transport(lambda: client_tls, timeout=10)) as made:
        yield made


def fetched(transport: Transport, server: Server, path: str = "/", method: str = "GET", body: bytes = b"") -> bytes:
    return b"".join(opened(transport, server, path, method, body).chunks())


def opened(
    transport: Transport, server: Server, path: str = "/", method: str = "GET", body: bytes = b"", **options: object
) -> Response:
    content = (body,) if body else None
    return transport.send(build_request(method, server.url + path, [], content, len(body), **options))


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("script", SURPLUSES.values(), ids=SURPLUSES)
def test_no_request_receives_surplus_bytes(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, script: Step, is_secure: bool, threads: int
) -> None:
    paths = [f"/{number}" for number in range(12)]

    def run(server: Server) -> list[str]:
        with closing(Transport(lambda: client_tls, timeout=10)) as transport, ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda path: fetched(transport, server, path).decode().strip(), paths))

    assert in_time(script, run, server_tls if is_secure else None) == [f"GET {path}" for path in paths]


@pytest.mark.parametrize("methods, script", STRAY_BODIES.values(), ids=STRAY_BODIES)
def test_no_request_receives_a_body_that_must_not_be_there(methods: tuple[str, ...], script: Step) -> None:
    def run(server: Server) -> list[str]:
        got = []
        with closing(Transport(no_tls, timeout=10)) as transport:
            for method in methods * 5:
                response = opened(transport, server, "/", method)
                body = b"".join(response.chunks()).decode()
                got.append(response.headers.get("X-Request") or body)
        return got

    assert in_time(script, run) == [f"{method} /" for method in methods * 5]


def test_after_surplus_bytes_no_connection_is_reused(transport: Transport) -> None:
    with Server([request(), send(OK + OK), hang()], [serve()]) as server:
        assert [fetched(transport, server) for _ in range(3)] == [b"ok"] * 3
        assert len(server.received) == 3


def test_after_surplus_bytes_on_an_idle_connection_no_connection_is_reused(transport: Transport) -> None:
    gate = Gate()
    with Server([request(), send(OK), wait_for(gate.open), send(OK), gate.reached, hang()], [serve()]) as server:
        fetched(transport, server)
        gate.open.set()
        gate.wait()
        assert [fetched(transport, server) for _ in range(2)] == [b"ok"] * 2
        assert len(server.received) == 3


def test_a_correct_server_is_used_over_one_connection(transport: Transport) -> None:
    with Server([serve()]) as server, Stopwatch() as watch:
        for _ in range(100):
            fetched(transport, server)
        assert len(server.received) == 1
    assert watch.seconds < 100 * GRACE_PERIOD  # which passes once, not before each request


@pytest.mark.parametrize(
    ("method", "reply"),
    [
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"),
        ("GET", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ],
)
def test_a_closed_or_ambiguous_connection_is_not_reused(transport: Transport, method: str, reply: bytes) -> None:
    with Server([request(), send(reply), until_closed()]) as server:
        for _ in range(2):
            assert fetched(transport, server, method=method) == (b"ok" if method == "GET" else b"")
        assert len(server.received) == 2


@pytest.mark.parametrize(
    ("keep_alive", "idle", "reused"),
    [
        ("", 0.5, {"GET", "POST"}),
        ("", 1.5, {"GET"}),
        ("", 2.9, {"GET"}),
        ("", 3.1, set()),
        ("Keep-Alive: timeout=60, max=99\r\n", 57.0, {"GET"}),
        ("Keep-Alive: timeout=60, max=99\r\n", 58.5, set()),
        ("Keep-Alive: timeout=2\r\n", 0.9, {"GET", "POST"}),
        ("Keep-Alive: timeout=2\r\n", 1.1, set()),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_connection_that_was_idle_for_too_long_is_not_reused(
    monkeypatch: pytest.MonkeyPatch, transport: Transport, method: str, keep_alive: str, idle: float, reused: set[str]
) -> None:
    reply = f"HTTP/1.1 200 OK\r\n{keep_alive}Content-Length: 2\r\n\r\nok".encode()
    with Server([serve(reply)]) as server:
        fetched(transport, server)
        later = time.monotonic() + idle
        monkeypatch.setattr(time, "monotonic", lambda: later)
        fetched(transport, server, method=method)
        assert len(server.received) == (1 if method in reused else 2)


def test_a_connection_that_the_server_closed_is_replaced_before_a_post_is_sent(transport: Transport) -> None:
    with Server([request(), send(OK)], [serve()]) as server:
        fetched(transport, server, method="POST", body=b"1")
        wait_until(lambda: server._peers[0].sock.fileno() < 0, "the server has closed")  # noqa: SLF001 - its own end
        assert fetched(transport, server, method="POST", body=b"2") == b"ok"
        assert [received[-1:] for received in server.received] == [b"1", b"2"]


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("ending", [[], [reset()]], ids=["closed", "reset"])
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_only_an_idempotent_request_is_resent_when_a_reused_connection_fails(
    server_tls: ssl.SSLContext, transport: Transport, method: str, ending: list[Step], is_secure: bool
) -> None:
    body = b"x" * 200_000
    fails = [request(), send(OK), Peer.read_some, *ending]
    with Server(fails, [serve()], tls=server_tls if is_secure else None) as server:
        fetched(transport, server)
        if method == "PUT":
            assert fetched(transport, server, method=method, body=body) == b"ok"
            assert server.received[1].endswith(body)
            return
        with pytest.raises(NetworkError) as caught:
            fetched(transport, server, method=method, body=body)
        assert (caught.value.sent, caught.value.may_be_processed) == (True, True)
        assert caught.value.hint == "the POST may have been processed: check before you send it again"
        assert len(server.received) == 1


@pytest.mark.parametrize(
    ("script", "is_replayable", "message"),
    [
        ([[request(), send(OK), request()], [request()], [serve()]], True, "without a response"),
        ([[request(), send(OK), request(), send(b"HTTP/1.1 200")], [serve()]], True, "in the middle of its response"),
        ([[request(), send(OK), request()], [serve()]], False, "without a response"),
    ],
    ids=["once only", "not after a response has started", "not with a body that is gone"],
)
def test_a_request_is_not_resent(
    transport: Transport, script: list[list[Step]], is_replayable: bool, message: str
) -> None:
    with Server(*script) as server:
        fetched(transport, server)
        with pytest.raises(NetworkError, match=message):
            opened(transport, server, is_replayable=is_replayable)
        assert len(server.received) == len(script) - 1


def test_threads_share_a_transport(transport: Transport) -> None:
    def echoing(peer: Peer) -> None:
        while True:
            peer.read_request()
            body = bytes(peer.received).rpartition(b"\r\n\r\n")[2]
            peer.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    bodies = [b"%d" % number for number in range(200)]
    with Server([echoing]) as server, ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda body: fetched(transport, server, "/", "POST", body), bodies))
        assert got == bodies
        assert len(server.received) <= 8
        transport.close()


def test_closing_ends_the_waits_of_other_threads(transport: Transport) -> None:
    outcome: list[XapiError] = []
    has_begun = threading.Event()

    def work() -> None:
        try:
            for _ in opened(transport, server).chunks():
                has_begun.set()
        except XapiError as error:
            outcome.append(error)

    with Server([request(), send(b"HTTP/1.1 200 OK\r\n\r\nno length"), hang()]) as server:
        thread = threading.Thread(target=work)
        thread.start()
        assert has_begun.wait(60)
        transport.close()
        thread.join(SOON)
        assert not thread.is_alive()
    assert "was truncated after 9 bytes (connection aborted)" in str(outcome[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_process_uses_none_of_the_connections(transport: Transport) -> None:
    with Server([serve()]) as server:
        fetched(transport, server)
        child = os.fork()
        if child == 0:
            os._exit(0 if fetched(transport, server) == b"ok" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert fetched(transport, server) == b"ok"
        assert [received.count(b"GET") for received in server.received] == [2, 1]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_no_socket_is_left_open() -> None:
    scripts: list[list[Step]] = [[request()], [reset()], [request(), send(b"rubbish\r\n\r\n")], [request(), send(OK)]]
    with Server(*scripts) as server:
        before = len(os.listdir("/proc/self/fd"))
        for _ in scripts:
            try:
                get(server)
            except NetworkError:
                pass
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, "the sockets are closed")


# bodies that are not needed


@pytest.mark.parametrize(
    "rest",
    [[forever(b"x" * 65536)], [hang()], [drip(b"x" * 1000, 0.05)], [reset()], []],
    ids=["endless", "silent", "dripping", "reset", "truncated"],
)
def test_discarding_a_body_takes_limited_time(transport: Transport, rest: list[Step]) -> None:
    reply = b"HTTP/1.1 401 No\r\nContent-Length: 999999999\r\n\r\nx"
    with Server([request(), send(reply), *rest], [serve()]) as server:
        response = opened(transport, server)
        with Stopwatch() as watch:
            response.discard()
        assert watch.seconds < SOON
        assert list(response.chunks()) == []
        assert fetched(transport, server) == b"ok"


def _discarded(response: Response) -> bytes:
    response.discard()
    response.discard()
    response.close()
    return b""


def _held(response: Response) -> bytes:
    response.hold()
    response.hold()
    return b"".join(response.chunks())


@pytest.mark.parametrize("use, body", [(_discarded, b""), (_held, b"never")])
def test_a_short_body_that_is_discarded_or_held_leaves_the_connection_reusable(
    transport: Transport, use: Callable[[Response], bytes], body: bytes
) -> None:
    with Server([serve(SHORT + b"never")]) as server:
        assert [use(opened(transport, server)) for _ in range(2)] == [body] * 2
        assert len(server.received) == 1


def test_a_body_that_is_held_can_be_read_to_its_end_or_failure(transport: Transport) -> None:
    long = b"".join(b"%06d\n" % number for number in range(100_000))
    is_held = threading.Event()
    scripts: list[list[Step]] = [
        [request(), send(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n%s" % (len(long), long)), close()],
        [request(), send(SHORT + b"ne"), wait_for(is_held), send(b"ver"), close()],
        [request(), send(SHORT + b"ne"), close()],
    ]
    with Server(*scripts) as server:
        assert _held(opened(transport, server)) == long
        late = opened(transport, server)
        late.hold()
        is_held.set()
        assert b"".join(late.chunks()) == b"never"
        truncated = opened(transport, server)
        truncated.hold()
        parts = truncated.chunks()
        assert next(parts) == b"ne"
        with pytest.raises(NetworkError, match="truncated after 2 bytes"):
            next(parts)


def test_a_partly_read_body_does_not_affect_the_next_request() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200000
    with Server([serve(reply)]) as server, client() as http:
        for _ in range(3):
            with http.stream("GET", server.url) as response:
                assert next(response.iter_raw()).startswith(b"x")
        assert len(http.get(server.url).content) == 200000
