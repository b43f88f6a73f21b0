"""What the proxy accepts as a request, however its bytes are split, and what it refuses."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.proxy.request_parser import ChunkedBody, InvalidRequest, LengthBody, RequestHead, take_head


def parsed(*lines: str) -> RequestHead:
    head = take_head(bytearray("\r\n".join([*lines, "", ""]).encode("latin-1")))
    assert head is not None
    return head


def test_a_request_has_its_parts() -> None:
    head = parsed("POST /a?b=c HTTP/1.1", "Host: proxy", "X-Own:  value ", "Content-Length: 3")

    assert (head.method, head.target, head.length, head.persists) == ("POST", "/a?b=c", 3, True)
    assert head.get(b"x-own") == "value"
    assert head.names == (b"Host", b"X-Own", b"Content-Length")


@pytest.mark.parametrize(
    ("version", "connection", "persists"),
    [
        ("1.1", "", True),
        ("1.1", "close", False),
        ("1.1", "Keep-Alive, Close", False),
        ("1.0", "", False),
        ("1.0", "keep-alive", True),
    ],
)
def test_the_connection_persists_as_the_version_and_the_header_say(
    version: str, connection: str, persists: bool
) -> None:
    head = parsed(f"GET / HTTP/{version}", "Host: proxy", *([f"Connection: {connection}"] if connection else []))

    assert head.persists is persists


def test_an_incomplete_head_stays_in_the_buffer_and_the_next_request_too() -> None:
    buffer = bytearray(b"GET / HTTP/1.1\r\nHost: a\r\n")
    assert take_head(buffer) is None

    buffer += b"\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n"
    heads = take_head(buffer), take_head(buffer)

    assert [head.target for head in heads if head] == ["/", "/next"]
    assert not buffer


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
        (["POST / HTTP/1.1", "Host: a", "Expect: something"], 417),
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
        (b"nonsense\r\n", "the request line is not valid"),
        (b"GET /\r\n", "the request line is not valid"),
        (b"GET / HTTP/1.1\n", "a line feed without a carriage return"),
        (b"GET / HTTP/1.1\r\nHost: a\n\n", "a line feed without a carriage return"),
        (b"X" * 100_001, "the request line and headers are too long"),
    ],
)
def test_what_cannot_become_a_request_is_refused_at_once(start: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        take_head(bytearray(start))

    assert str(caught.value) == reason


def test_a_body_of_a_known_length_leaves_the_next_request() -> None:
    body, buffer = LengthBody(5), bytearray(b"hel")
    assert (body.take(buffer), body.has_ended) == (b"hel", False)

    buffer += b"loGET"
    assert (body.take(buffer), body.has_ended, bytes(buffer)) == (b"lo", True, b"GET")


CHUNKED = b"5\r\nhello\r\nA;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"


@given(st.lists(st.integers(0, len(CHUNKED)), max_size=8))
def test_a_chunked_body_is_the_same_however_it_is_split(cuts: list[int]) -> None:
    body, buffer, data = ChunkedBody(), bytearray(), b""
    positions = [0, *sorted(cuts), len(CHUNKED)]
    for start, end in itertools.pairwise(positions):
        buffer += CHUNKED[start:end]
        data += body.take(buffer)
    buffer += b"GET"

    assert (data, body.has_ended, body.take(buffer), bytes(buffer)) == (b"hello0123456789", True, b"", b"GET")


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
    body = ChunkedBody()

    with pytest.raises(InvalidRequest):
        body.take(bytearray(text))
