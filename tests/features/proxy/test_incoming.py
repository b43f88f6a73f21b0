"""What the proxy accepts as a request, however its bytes are split, and what it refuses."""

import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.features.proxy.incoming import Input, InvalidRequest, RequestHead, Upload


def received(*parts: bytes) -> Input:
    """Return the input of a connection on which *parts* arrived, one after the other."""
    ours, theirs = socket.socketpair()
    with theirs:
        source = Input(ours, timeout=60)
        for part in parts:
            theirs.sendall(part)
            source.more()
    return source


def parsed(*lines: str) -> RequestHead:
    head = received("\r\n".join([*lines, "", ""]).encode("latin-1")).head()
    assert head is not None
    return head


def body_of(source: Input, length: int | None) -> bytes:
    return b"".join(Upload(source, length, lambda: None))


def test_a_request_has_its_parts() -> None:
    head = parsed("POST /a?b=c HTTP/1.1", "Host: proxy", "X-Own:  value ", "Content-Length: 3")

    assert (head.method, head.target, head.length, head.persists) == ("POST", "/a?b=c", 3, True)
    assert head.fields == ((b"Host", b"proxy"), (b"X-Own", b"value"), (b"Content-Length", b"3"))


@pytest.mark.parametrize(("connection", "persists"), [("", True), ("close", False), ("Keep-Alive, Close", False)])
def test_the_connection_persists_unless_the_header_ends_it(connection: str, persists: bool) -> None:
    head = parsed("GET / HTTP/1.1", "Host: proxy", f"Connection: {connection}")

    assert head.persists is persists


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["GET / HTTP/1.1"], 400),  # no Host
        (["GET / HTTP/1.1", "Host: a", "Host: b"], 400),
        (["GET / HTTP/2.0", "Host: a"], 400),
        (["GET  / HTTP/1.1", "Host: a"], 400),
        (["GET /a b HTTP/1.1", "Host: a"], 400),
        (["GET /\x01 HTTP/1.1", "Host: a"], 400),
        (["GET / HTTP/1.1", "Host : a"], 400),
        (["GET / HTTP/1.1", "Host: a", " folded"], 400),
        (["GET / HTTP/1.1", "Host: a", "X: a\x00b"], 400),
        (["GET / HTTP/1.1", "Host: a", "X: a\rb"], 400),
        (["GET / HTTP/1.1", "Host: a", "X: a\nEvil: b"], 400),
        (["POST / HTTP/1.1", "Host: a", "Content-Length: 1", "Transfer-Encoding: chunked"], 400),
        (["POST / HTTP/1.1", "Host: a", "Content-Length: 1", "Content-Length: 1"], 400),
        (["POST / HTTP/1.1", "Host: a", "Content-Length: +1"], 400),
        (["POST / HTTP/1.1", "Host: a", "Content-Length: 1, 1"], 400),
        (["POST / HTTP/1.1", "Host: a", "Content-Length: 0x1"], 400),
        (["POST / HTTP/1.1", "Host: a", "Content-Length: "], 400),
        (["POST / HTTP/1.1", "Host: a", "Content-Length: " + "9" * 19], 400),
        (["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Transfer-Encoding: identity"], 400),
        (["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: gzip, chunked"], 501),
        (["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: xchunked"], 501),
        (["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked, identity"], 501),
        (["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: \x0bchunked"], 400),
        (["POST / HTTP/1.0", "Host: a", "Transfer-Encoding: chunked"], 400),
        (["POST / HTTP/1.1", "Host: a", "Transfer_Encoding: chunked"], 400),
        (["POST / HTTP/1.1", "Host: a", "Content_Length: 1"], 400),
        (["GET / HTTP/1.1", "Host: a", "X: " + "a" * 100_000], 431),
    ],
)
def test_an_invalid_or_ambiguous_request_is_refused(lines: list[str], status: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(*lines)

    assert caught.value.status == status


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (b"\x16\x03\x01", "the request line is not valid; the proxy serves http, not https"),
        (b"GET / HTTP/1.1\nHost: a\n\n", "a line does not end with CRLF"),
        (b"X" * 100_001, "the request line and headers are too long"),
    ],
)
def test_what_cannot_become_a_request_is_refused_at_once(start: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        received(start, b"").head()

    assert str(caught.value) == reason


def test_a_request_that_ends_early_is_the_end() -> None:
    assert received(b"GET / HTTP/1.1\r\nHost:").head() is None


CHUNKED = b"5\r\nhello\r\nA;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"


@given(st.lists(st.integers(1, len(CHUNKED) - 1), max_size=8, unique=True))
def test_a_chunked_body_is_the_same_however_it_is_split(cuts: list[int]) -> None:
    positions = [0, *sorted(cuts), len(CHUNKED)]
    source = received(*(CHUNKED[start:end] for start, end in itertools.pairwise(positions)), b"GET")

    assert (body_of(source, None), bytes(source.buffer)) == (b"hello0123456789", b"GET")


def test_a_body_of_a_known_length_leaves_the_next_request() -> None:
    source = received(b"hel", b"loGET")

    assert (body_of(source, 5), bytes(source.buffer)) == (b"hello", b"GET")


@pytest.mark.parametrize(
    "text",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"-5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"5 \r\nhello\r\n",
        b"\r\nhello\r\n",
        b"1" * 16 + b"\r\n",
        b"5;" + b"a" * 5000,
        b"0\r\nTrailer : x\r\n\r\n",
        b"0\r\nTrailer: x\n\r\n",
        b"0\r\nTrailer: " + b"a" * 20_000,
    ],
)
def test_an_invalid_chunk_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest):
        body_of(received(text), None)
