"""Malformed responses, URLs and requests are clear errors."""

import socket
import tracemalloc

import httpx
import pytest

from tests.http.clients import CANARY, SOON, START, TOO_LONG, client, get, invalid, resolving
from tests.support.servers import (
    Server,
    Step,
    Stopwatch,
    forever,
    free_port,
    hang,
    head,
    request,
    reset,
    send,
    sleep,
)
from xapi_cli.errors import NetworkError, UsageError

CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"


def says(reply: bytes, *rest: Step) -> list[Step]:
    return [request(), send(reply), *rest]


def truncated(size: int, reason: str) -> str:
    return f"the body from {{}} was truncated after {size} bytes ({reason})"


NO_STATUS = invalid("illegal status line")
BAD_VERSION = invalid("an HTTP version other than 1.0 and 1.1")
BARE_LF = "a line feed without a carriage return between chunks"
BAD_LENGTH = invalid("bad Content-Length")
CLOSED = "connection closed by the server"

LIES: dict[str, tuple[list[Step], str]] = {
    "closes immediately": ([head()], "{} closed the connection without a response"),
    "closes after the request": ([request()], "{} closed the connection without a response"),
    "closes within the headers": (says(START + b"X: "), "{} closed the connection in the middle of its response"),
    "resets": ([request(), reset()], "the connection to {} broke before the response: connection reset by peer"),
    "rubbish": (says(b"rubbish\x1b]52;c;eHh4\x07\r\n\r\n"), NO_STATUS),
    "HTTP/0.9": (says(b"<html>\n\n"), NO_STATUS),
    "an SSH server": ([send(b"SSH-2.0-OpenSSH_9.2\r\n"), request(), send(b"\r\n")], NO_STATUS),
    "a TLS server": (says(b"\x15\x03\x01\x00\x02\x02\x46"), NO_STATUS),
    "status 1000": (says(b"HTTP/1.1 1000 OK\r\n\r\n"), NO_STATUS),
    "status 099": (says(b"HTTP/1.1 099 OK\r\n\r\n"), invalid("a status under 100")),
    "status 101": (says(b"HTTP/1.1 101 OK\r\nUpgrade: x\r\n\r\n"), invalid("a switch to another protocol")),
    "no colon": (says(START + b"hunter2-canary\r\n\r\n"), invalid("illegal header line")),
    "two lengths": (
        says(START + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        invalid("conflicting Content-Length headers"),
    ),
    "a negative length": (says(START + b"Content-Length: -1\r\n\r\n"), BAD_LENGTH),
    "a length of 50 digits": (says(START + b"Content-Length: " + b"9" * 50 + b"\r\n\r\n"), BAD_LENGTH),
    "another transfer coding": (
        says(START + b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
        invalid("an unknown transfer coding"),
    ),
    "endless headers": (says(START, forever(b"X: y\r\n" * 1000)), TOO_LONG),
    "an endless line": (says(START, forever(b"H" * 65536)), TOO_LONG),
    "an endless line of another protocol": ([request(), forever(b"H" * 65536)], NO_STATUS),
    "an SSH server that waits": (says(b"SSH-2.0-OpenSSH_9.2\r\n", hang()), NO_STATUS),
    "HTTP/1.2": (says(b"HTTP/1.2 200 OK\r\n", hang()), BAD_VERSION),
    "HTTP/2.0": (says(b"HTTP/2.0 200 OK\r\n", hang()), BAD_VERSION),
    "HTTP/2": (says(b"\0\0\x12\x04\0\0\0\0\0", hang()), invalid("HTTP/2")),
    "an SMTP server after a 103": (says(b"HTTP/1.1 103 Hints\r\n\r\n220 mail ESMTP\r\n", hang()), NO_STATUS),
    "103 for ever": ([request(), forever(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 100)], TOO_LONG),
    "a short body": (says(START + b"Content-Length: 5\r\n\r\nabc"), truncated(3, CLOSED)),
    "a reset in the body": (
        says(START + b"Content-Length: 5\r\n\r\nabc", sleep(0.1), reset()),
        truncated(3, "connection reset by peer"),
    ),
    "chunks without an end": (says(CHUNKED + b"3\r\nabc\r\n"), truncated(3, CLOSED)),
    "a bad chunk": (says(CHUNKED + b"3\r\nabcXY"), truncated(3, "malformed chunk footer")),
    "bare LF after a chunk's size": (says(CHUNKED + b"3\r\nabc\r\n3\ndef", hang()), truncated(3, BARE_LF)),
    "bare LF in trailers": (says(CHUNKED + b"3\r\nabc\r\n0\r\nA: b\n", hang()), truncated(3, BARE_LF)),
    "an endless chunk header": (says(CHUNKED + b"3;", forever(b"x" * 65536)), truncated(0, "a line that is too long")),
    "endless trailers": (
        says(CHUNKED + b"0\r\n", forever(b"X: y\r\n" * 1000)),
        truncated(0, "a line that is too long"),
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_malformed_response_is_one_clear_error(lie: str) -> None:
    script, message = LIES[lie]
    with Server(script) as server, Stopwatch() as watch, pytest.raises(NetworkError) as caught:
        get(server)
    assert caught.value.message == message.format(server.name)
    assert caught.value.sent or lie == "an SSH server"  # its banner may arrive before the request is sent
    assert caught.value.headers_received == ("closed the" not in message and "broke before" not in message)
    assert str(caught.value).isprintable()
    assert CANARY not in repr(caught.value)
    assert watch.seconds < SOON


def test_data_before_a_truncation_is_delivered() -> None:
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndefXX"
    with Server([request(), send(reply)]) as server, client() as http, http.stream("GET", server.url) as response:
        parts = response.iter_raw()
        assert next(parts) == b"abcdef"
        with pytest.raises(NetworkError, match="was truncated after 6 bytes"):
            next(parts)


@pytest.mark.parametrize(("size", "fits"), [(99_000, True), (101_000, False)])
def test_the_limit_of_response_headers_is_exact_however_they_are_split(size: int, fits: bool) -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " + b"x" * (size - 50) + b"\r\n\r\n"
    with Server([request(), send(reply)]) as server:
        if fits:
            assert get(server).status_code == 200
        else:
            with pytest.raises(NetworkError, match="status line and headers of more than 100,000 bytes"):
                get(server)


def test_an_endless_body_is_read_in_constant_memory() -> None:
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for chunk in (b"1\r\nx\r\n" * 10000, b"10000\r\n" + b"x" * 65536 + b"\r\n"):
        with (
            Server([request(), send(reply), forever(chunk)]) as server,
            client() as http,
            http.stream("GET", server.url) as response,
        ):
            size = 0
            tracemalloc.start()
            for part in response.iter_raw():
                assert len(part) <= 65536
                size += len(part)
                if size > (5_000_000 if len(chunk) == 65545 else 20_000):
                    break
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 5_000_000


def test_a_refused_connection_names_the_port() -> None:
    port = free_port()
    with client() as http, pytest.raises(NetworkError) as caught:
        http.post(f"http://127.0.0.1:{port}/", content=b"x")
    assert str(caught.value) == (
        f"no connection to 127.0.0.1:{port}: connection refused; "
        "check the host and port of the base URL, and whether the server is running"
    )
    assert (caught.value.sent, caught.value.headers_received) == (False, False)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no such host"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "name resolution failed"),
        (socket.gaierror(socket.EAI_FAIL, "Not\x1b recoverable."), r"name resolution failed (not\x1b recoverable)"),
    ],
)
def test_an_unknown_host_is_reported_by_name(monkeypatch: pytest.MonkeyPatch, failure: Exception, message: str) -> None:
    def fail(host: str, port: int) -> list[tuple[str, int]]:
        raise failure

    resolving(monkeypatch, fail)
    with client() as http, pytest.raises(NetworkError) as caught:
        http.get("http://api.test/")
    assert caught.value.message == f"no connection to api.test:80: {message}"


@pytest.mark.parametrize("url", ["http://127.0.0.1:0/", "http://127.0.0.1:99999/", "ftp://127.0.0.1/"])
def test_a_url_that_cannot_be_requested_is_rejected(url: str) -> None:
    with client() as http, pytest.raises(UsageError):
        http.get(url)


@pytest.mark.parametrize(
    "bad",
    [
        httpx.Request("GET", "http://127.0.0.1/", headers={"Authorization": f"Bearer {CANARY}\n"}),
        httpx.Request("GET", "http://127.0.0.1/", headers={"X-Y": f"{CANARY}\0"}),
        httpx.Request("G T", "http://127.0.0.1/"),
        httpx.Request("É", "http://127.0.0.1/"),
    ],
)
def test_a_request_that_is_not_valid_http_is_rejected_without_quoting_it(bad: httpx.Request) -> None:
    with client() as http, pytest.raises(UsageError) as caught:
        http.send(bad)
    error: BaseException | None = caught.value
    while error is not None:
        assert CANARY not in repr(error)
        error = error.__cause__ or error.__context__
