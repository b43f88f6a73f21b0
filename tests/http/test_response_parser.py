"""The fast path and h11 agree, however the bytes of a response are split."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import NetworkError
from xapi_cli.http.response_parser import ResponseParser

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
    b"5 \t; a = b\r\nhello\r\n0 ;c\r\nA: b\r\n\r\n",
    b"5\r\nhello\r\n0\r\nA: b\n\n",
    b"5\r\nhello\r\n0\r\n\n",
    b"-5\r\nhello\r\n0\r\n\r\n",
    b"1\r\nh\r\n04;a\r\nello\r\n0\r\n\r\n",
    b"1\r\nh\r\n4\r\nello\rX0\r\n\r\n",
    b"1\r\nh\r\n4\r\nelloX\n0\r\n\r\n",
    b"1\r\nh\r\n4\r\nello\r\nX\r\n",
]


def read(method: str, parts: list[bytes]) -> tuple[object, ...]:
    """Return the outcome of *parts*, followed by the end of the connection."""
    parser, body = ResponseParser(method, "api.test:80", over_tls=False), b""
    try:
        for part in [*parts, b""]:
            parser.receive(part)
            while parser.head is not None and not parser.has_ended and (block := parser.body()):
                body += block
            if parser.has_ended:
                break
    except NetworkError as error:
        return (str(error),)
    assert parser.head is not None
    head = parser.head
    return head.status, head.reason, head.version, head.raw_headers, body, parser.allows_reuse


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
    expected = read(method, by_bytes)
    assert read(method, parts)[:5] == expected[:5]
    assert read(method, [data]) in (expected, (*expected[:5], False))  # surplus data prevents reuse


def test_a_common_response_in_two_parts_is_parsed() -> None:
    data = b"HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 5\r\n\r\nhello"

    for cut in range(1, len(data)):
        result = read("GET", [data[:cut], data[cut:]])
        assert result == (200, b"OK", b"1.1", [(b"A", b"1"), (b"Content-Length", b"5")], b"hello", True)


@pytest.mark.parametrize("cut", [45, 47])
def test_a_reset_in_the_body_counts_the_bytes_that_were_returned(cut: int) -> None:
    parser = ResponseParser("GET", "api.test:80", over_tls=False)
    parser.receive(b"HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 5\r\n\r\nhello"[:cut])
    size = len(parser.body())

    error = parser.connection_error(ConnectionResetError(104, "reset"))

    assert (error.headers_received, size) == (True, cut - 44)
    assert error.message.startswith(f"the body from api.test:80 was truncated after {size} bytes (")


def test_endless_headers_are_an_error() -> None:
    lines = [b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n"] * 10_000

    (error,) = read("GET", [b"HTTP/1.1 200 OK\r\n", *lines])
    assert "status line and headers of more than" in str(error)


@pytest.mark.parametrize("end", [b"\r\r", b"\n\n", b"a\r\n", b"\rX"])
def test_a_chunk_that_is_longer_than_its_size_ends_the_response(end: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = head + b"1\r\nh\r\n4\r\nello" + end + b"0\r\n\r\n"

    for parts in ([data], [head, data[len(head) :]], [data[at : at + 1] for at in range(len(data))]):
        (error,) = read("GET", parts)
        assert str(error) == "the body from api.test:80 was truncated after 5 bytes (malformed chunk footer)"


@pytest.mark.parametrize("header", [b"5;a", b"5 ;a=b", b'5\t; a = "b;c"', b"05 \t ;", b"5 "])
def test_a_chunk_size_may_precede_whitespace_and_an_extension(header: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = head + header + b"\r\nhello\r\n0 ;z\r\n\r\n"

    for parts in ([data], [head, data[len(head) :]], [data[at : at + 1] for at in range(len(data))]):
        assert read("GET", parts)[-2:] == (b"hello", True)


@pytest.mark.parametrize(
    "size",
    [
        *(b"-6", b"-4", b"+5", b"0x5", b"1_0", b"", b"5" * 21),
        *(b" 5", b" 5 ;a", b"5 5", b"5 a;b", b"5\x0b;a", b"5;a\rb", b";a"),
    ],
)
def test_a_malformed_chunk_header_ends_the_response(size: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = head + size + b"\r\nabcdefgh\r\n0\r\n\r\n"

    for parts in ([data], [head, data[len(head) :]], [data[at : at + 1] for at in range(len(data))]):
        (error,) = read("GET", parts)
        assert str(error).startswith("the body from api.test:80 was truncated after 0 bytes (")
