"""Requests with bodies, and responses that arrive before the request is complete."""

import select
import threading
import time
from collections.abc import Iterator

import pytest

from tests.http.clients import EARLY, SOON, Source, Zeros, client
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
)
from xapi_cli.errors import NetworkError, XapiError


@pytest.mark.parametrize(
    "rest", [[hang()], [], [reset()], [half_close(), hang()]], ids=["stays", "closes", "resets", "half-closes"]
)
@pytest.mark.parametrize("kind", ["length", "chunked"])
def test_a_response_during_a_large_upload_is_read_immediately(rest: list[Step], kind: str) -> None:
    size = 64 * 1024 * 1024
    headers = {"Content-Length": str(size)} if kind == "length" else {"Transfer-Encoding": "chunked"}
    with (
        Server([head(), send(EARLY), *rest], [serve()]) as server,
        client() as http,
        Stopwatch() as watch,
        http.stream("POST", server.url, content=Zeros(size), headers=headers) as response,
    ):
        assert response.status_code == 401
        response.extensions["response"].discard()
        response.close()
        assert http.get(server.url).content == b"ok"
        assert len(server.received) == 2
    assert watch.seconds < SOON


def test_no_request_follows_an_unfinished_head() -> None:
    """The server responds to the first bytes of a head that no buffer can hold, and reads on."""
    may_read = threading.Event()
    early: list[Step] = [lambda peer: peer.read_some(), send(EARLY), wait_for(may_read), until_closed()]
    headers = {"Content-Length": "0", "Large": "x" * 32 * 1024 * 1024}
    with Server(early, [serve()]) as server, client() as http:
        assert http.post(server.url, content=Source(), headers=headers).status_code == 401
        may_read.set()
        assert http.get(f"{server.url}/next").content == b"ok"
        assert len(server.received) == 2
        assert b"\r\n\r\n" not in server.received[0]


def test_no_request_follows_an_unfinished_last_chunk() -> None:
    """The response arrives after the last data, and before the chunk that ends the body."""

    def body() -> Iterator[bytes]:
        yield b"data"
        [connection] = http._transport._transport._pool._in_use  # type: ignore[attr-defined]  # noqa: SLF001  # to wait for the response
        assert select.select([connection], [], [], 30)[0]

    def read_the_data(peer: Peer) -> None:
        while not peer.received.endswith(b"data\r\n"):
            peer.read_some()

    with Server([read_the_data, send(EARLY), until_closed()], [serve()]) as server, client() as http:
        assert http.post(server.url, content=body()).status_code == 401
        assert http.get(f"{server.url}/next").content == b"ok"
        assert len(server.received) == 2
        assert server.received[0].endswith(b"data\r\n")


def test_a_body_is_sent_completely_after_an_early_success() -> None:
    size = 16 * 1024 * 1024
    with Server([head(), send(OK), sleep(0.2), request()]) as server, client() as http:
        response = http.post(server.url, content=Zeros(size), headers={"Content-Length": str(size)})
        assert response.content == b"ok"
        deadline = time.monotonic() + 5
        while not server.received[0].endswith(bytes(size)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.received[0].endswith(b"\r\n\r\n" + bytes(size))


def test_informational_responses_do_not_stop_an_upload() -> None:
    size = 8 * 1024 * 1024
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"
    with Server([head(), send(early), sleep(0.1), request(), send(OK)]) as server, client() as http:
        assert http.post(server.url, content=Zeros(size), headers={"Content-Length": str(size)}).content == b"ok"


def test_a_connection_failure_during_an_upload_is_reported() -> None:
    size = 64 * 1024 * 1024
    with Server([head(), reset()]) as server, client() as http, pytest.raises(NetworkError) as caught:
        http.post(server.url, content=Zeros(size), headers={"Content-Length": str(size)})
    assert caught.value.message == f"the connection to {server.name} broke before the response: connection reset"
    assert (caught.value.sent, caught.value.headers_received) == (True, False)
    assert "may have been processed" in str(caught.value)


@pytest.mark.parametrize("chunks", [[b"abc"], [b"abcde", b"f"], []])
def test_a_body_with_another_length_than_declared_is_an_error(chunks: list[bytes]) -> None:
    with Server([request(), send(OK)]) as server, client() as http, pytest.raises(XapiError) as caught:
        http.post(server.url, content=Source(*chunks), headers={"Content-Length": "5"})
    assert (caught.value.message, caught.value.exit_code) == ("the request's body changed while it was sent", 1)


def test_an_error_of_the_body_propagates_and_closes_the_connection() -> None:
    def body() -> Iterator[bytes]:
        yield b"first"
        raise OSError("disk on fire")

    with Server([until_closed()]) as server, client() as http:
        with pytest.raises(OSError, match="disk on fire"):
            http.post(server.url, content=body())
        assert not http._transport._transport._pool._in_use  # type: ignore[attr-defined]  # noqa: SLF001  # not observable from outside
