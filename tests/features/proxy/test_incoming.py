"""What the proxy accepts as a request, however its bytes are split, and what it refuses."""

import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.features.proxy.incoming import Input, Refusal, RequestHead, Upload


def received(*parts: bytes) -> Input:
    """Return the input of a connection on which *parts* arrive, one after the other."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        for part in parts:
            for at in range(0, len(part), 65_536):
                theirs.sendall(part[at : at + 65_536])
    return Input(ours, timeout=60)


def parsed(*lines: str) -> RequestHead:
    head = received("\r\n".join([*lines, "", ""]).encode("latin-1")).head()
    assert head is not None
    return head


def body_of(source: Input) -> bytes:
    """Return the body of the request in *source*."""
    head = source.head()
    assert head is not None
    return b"".join(Upload(source, head.length))


def test_a_request_has_its_parts() -> None:
    head = parsed("POST /a?b=c HTTP/1.1", "Host: proxy", "X-Own:  value ", "Content-Length: 3")

    assert (head.method, head.target, head.length) == ("POST", "/a?b=c", 3)
    assert head.headers.raw == [(b"Host", b"proxy"), (b"X-Own", b"value"), (b"Content-Length", b"3")]


@pytest.mark.parametrize(
    ("line", "allows_next"),
    [
        ("Connection: ", True),
        ("Connection: close", False),
        ("Connection: Keep-Alive, Close", False),
        ("Upgrade: h2c", True),
        ("Content-Length: 1", False),
    ],
)
def test_another_request_may_follow_a_complete_one_that_does_not_end_the_connection(
    line: str, allows_next: bool
) -> None:
    source = received(f"GET / HTTP/1.1\r\nHost: proxy\r\n{line}\r\n\r\n".encode())

    assert source.head()
    assert source.allows_next is allows_next


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
        (["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: gzip, chunked"], 400),
        (["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: \x0bchunked"], 400),
        (["POST / HTTP/1.0", "Host: a", "Transfer-Encoding: chunked"], 400),
        (["POST / HTTP/1.1", "Host: a", "Transfer_Encoding: chunked"], 400),
        (["POST / HTTP/1.1", "Host: a", "Content_Length: 1"], 400),
        (["GET / HTTP/1.1", "Host: a", "X: " + "a" * 100_000], 431),
    ],
)
def test_an_invalid_or_ambiguous_request_is_refused(lines: list[str], status: int) -> None:
    with pytest.raises(Refusal) as caught:
        parsed(*lines)

    assert caught.value.status == status
    assert getattr(caught.value.__context__, "__traceback__", None) is None  # its cycle would keep the request


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (b"\x16\x03\x01", "the request line is not valid; the proxy serves http, not https"),
        (b"GET / HTTP/1.1\nHost: a\n\n", "a line of the headers is not valid, or does not end with CRLF"),
        (b"X" * 100_001, "the request line and headers are too long"),
    ],
)
def test_what_cannot_become_a_request_is_refused_at_once(start: bytes, reason: str) -> None:
    with pytest.raises(Refusal) as caught:
        received(start).head()

    assert str(caught.value) == reason


def test_a_request_that_ends_early_is_the_end() -> None:
    assert received(b"GET / HTTP/1.1\r\nHost:").head() is None


START = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED = START + b"5\r\nhello\r\nA;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"


@given(st.lists(st.integers(1, len(CHUNKED) - 1), max_size=8, unique=True))
def test_a_chunked_body_is_the_same_however_it_is_split(cuts: list[int]) -> None:
    positions = [0, *sorted(cuts), None]
    text = CHUNKED + b"GET"
    source = received(*(text[start:end] for start, end in itertools.pairwise(positions)))

    assert (body_of(source), bytes(source.buffer), source.allows_next) == (b"hello0123456789", b"GET", True)


def test_a_body_of_a_known_length_leaves_the_next_request() -> None:
    source = received(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel", b"loGET")

    assert (body_of(source), bytes(source.buffer), source.allows_next) == (b"hello", b"GET", True)


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
        b"5;" + b"a" * 100_000,
        b"0\r\nTrailer : x\r\n\r\n",
        b"0\r\nTrailer: x\n\r\n",
        b"0\r\nTrailer: " + b"a" * 100_000,
    ],
)
def test_an_invalid_chunk_is_refused(text: bytes) -> None:
    with pytest.raises(Refusal):
        body_of(received(START, text))
