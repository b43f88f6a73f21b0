"""The fast path and the parser agree, however the bytes of a response are split."""

import itertools
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.batch.responses import MAX_BODY, BodyTooLarge, BufferedResponse, FastResponseParser
from xapi_cli.errors import NetworkError
from xapi_cli.http.connection import Connection, Route

NAMES = st.sampled_from(
    ["Content-Type", "X-A", "x-a", "Set-Cookie", "ETag", "Connection", "Content-Length", "Transfer-Encoding"]
)
VALUES = st.sampled_from(
    [
        "",
        "a",
        "a b",
        "\tx ",
        "é",
        "close",
        "keep-alive",
        "Close",
        "5",
        "0",
        "05",
        "+5",
        "5, 5",
        "chunked",
        "a\x01b",
        "upgrade",
    ]
)
STATUSES = st.sampled_from(
    ["200 OK", "200", "204 No Content", "304 x", "404 Not \x01", "999 x", "2000 x", "101 x", "100 x", "503 é"]
)
CHUNKS = [
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5\nhello\r\n0\r\n\r\n",
    b"5\r\nhello\n0\r\n\r\n",
    b"5;a=b\r\nhello\r\n0\r\nA: b\r\n\r\n",
    b"5\r\nhello\r\n0\r\nA: b\n\n",
    b"5\r\nhello\r\n0\r\n\n",
    b"-5\r\nhello\r\n0\r\n\r\n",
]


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    one, other = socket.socketpair()
    yield Connection(one, Route("http", "api.test", 80))
    one.close()
    other.close()


def read(connection: Connection, method: str, parts: list[bytes]) -> tuple[object, ...]:
    """Return the outcome of *parts*, followed by the end of the connection."""
    reading = FastResponseParser(method, connection)
    try:
        for part in [*parts, b""]:
            if (reply := reading.feed(part)) is not None:
                return seen(reply)
    except NetworkError as error:
        return (str(error),)
    return ("nothing",)


def seen(reply: BufferedResponse) -> tuple[object, ...]:
    return reply.head.status, reply.head.raw, reply.body, reply.persists


@given(
    status=STATUSES,
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=4),
    body=st.sampled_from([b"", b"hello", b"hel", b"hello and more", *CHUNKS]),
    method=st.sampled_from(["GET", "HEAD", "POST"]),
    cuts=st.lists(st.integers(0, 120), max_size=4),
    version=st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2"]),
    end=st.sampled_from(["\r\n", "\r\n", "\n"]),
)
def test_the_fast_path_and_the_parser_agree(
    connection: Connection,
    status: str,
    headers: list[tuple[str, str]],
    body: bytes,
    method: str,
    cuts: list[int],
    version: str,
    end: str,
) -> None:
    lines = [f"{version} {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
    data = end.join(lines).encode("latin-1") + body
    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parts = [data[start:stop] for start, stop in itertools.pairwise(borders) if start < stop]

    by_bytes = [data[at : at + 1] for at in range(len(data))]  # the fast path requires complete headers
    expected = read(connection, method, by_bytes)
    assert read(connection, method, parts)[:3] == expected[:3]
    assert read(connection, method, [data]) in (expected, (*expected[:3], False))  # surplus data prevents reuse


def test_a_common_response_in_two_parts_is_parsed(connection: Connection) -> None:
    data = b"HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 5\r\n\r\nhello"

    for cut in range(1, len(data)):
        result = read(connection, "GET", [data[:cut], data[cut:]])
        assert result == (200, [(b"A", b"1"), (b"Content-Length", b"5")], b"hello", True)


@pytest.mark.parametrize("framing", [b"Content-Length: %d" % (MAX_BODY + 1), b"Transfer-Encoding: chunked"])
def test_a_body_that_is_too_large_fails_as_soon_as_possible(connection: Connection, framing: bytes) -> None:
    reading = FastResponseParser("GET", connection)
    with pytest.raises(BodyTooLarge):
        feed(reading, b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n", b"10000\r\n" + b"x" * 65_536 + b"\r\n")
    assert reading.size <= MAX_BODY + 65_536


def test_endless_headers_are_an_error(connection: Connection) -> None:
    with pytest.raises(NetworkError, match="status line and headers of more than"):
        feed(FastResponseParser("GET", connection), b"HTTP/1.1 200 OK\r\n", b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n")


def feed(reading: FastResponseParser, first: bytes, again: bytes) -> None:
    reading.feed(first)
    for _ in range(10_000):
        reading.feed(again)
