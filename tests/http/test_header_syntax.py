import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.http.header_syntax import LAST_CHUNK, RequestHead, chunk, joined_headers, request_head

NAMES = st.sampled_from(
    [b"Accept", b"X-A", b"x!", b"", b"X A", b"X:", b"X\r\nY", b"\xe9", b"Content-Length", b"Expect"]
)
VALUES = st.sampled_from([b"", b"1", b"a b", b" a", b"a\t", b"a\r\nB: c", b"a\x00", b"\xe9", b"a\nb", b"\x01"])
HEADERS = st.lists(
    st.one_of(
        st.tuples(NAMES, VALUES),
        st.sampled_from([(b"Host", b"api.test"), (b"host", b"other.test")]),
        st.sampled_from(
            [(b"Content-Length", size) for size in (b"0", b"5", b"05", b"-1", b"1, 1", b"9" * 20, b"9" * 21)]
        ),
        st.sampled_from([(b"Transfer-Encoding", coding) for coding in (b"chunked", b"gzip", b"gzip, chunked")]),
    ),
    max_size=5,
).map(lambda rest: [*rest[:2], (b"Host", b"api.test"), *rest[2:]])


def of_h11(method: str, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes | None:
    try:
        return h11.Connection(h11.CLIENT).send(h11.Request(method=method, target=target, headers=headers))
    except (h11.LocalProtocolError, UnicodeError):
        return None


@given(
    method=st.sampled_from(["GET", "M-SEARCH", "", "GET /", "GET\r\n", "GÄT"]),
    target=st.sampled_from([b"/", b"*", b"http://api.test/a?b", b"", b"/ ", b"/\xe9", b"/\r\n", b"/ HTTP/1.1\r\nA: b"]),
    headers=HEADERS,
)
def test_a_head_is_what_h11_sends_or_is_rejected(
    method: str, target: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    expected = of_h11(method, target, headers)
    lists = any(name == b"Content-Length" and b"," in value for name, value in headers)
    repeated = [name for name, _ in headers].count(b"Content-Length") > 1  # h11 sends one of them

    try:
        head = request_head(method, target, headers)
    except ValueError:
        assert expected is None or lists
        return

    if not repeated:
        assert head.data == expected
    assert expected is not None
    codings = [value for name, value in headers if name == b"Transfer-Encoding"]
    lengths = [int(value) for name, value in headers if name == b"Content-Length"]
    assert head.length == (None if codings else (*lengths, 0)[0])


def test_the_host_comes_first_and_names_keep_their_case() -> None:
    headers = [(b"aCCept", b"*/*"), (b"Content-Length", b"5"), (b"hOst", b"api.test")]

    data = b"PUT /a HTTP/1.1\r\nhOst: api.test\r\naCCept: */*\r\nContent-Length: 5\r\n\r\n"
    assert request_head("PUT", b"/a", headers) == RequestHead(data, 5)


@pytest.mark.parametrize("headers", [[], [(b"Host", b"a"), (b"host", b"b")]])
def test_a_request_has_one_host(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(ValueError, match="no Host header, or more than one"):
        request_head("GET", b"/", headers)


def test_an_error_does_not_quote_the_request() -> None:
    with pytest.raises(ValueError, match=r"^a character that HTTP does not allow$"):
        request_head("GET", b"/", [(b"Host", b"a"), (b"X-Key", b"CANARY\n")])


@given(st.lists(st.binary(max_size=40)))
def test_chunks_are_those_of_h11(blocks: list[bytes]) -> None:
    connection = h11.Connection(h11.SERVER)
    head = request_head("POST", b"/", [(b"Host", b"a"), (b"Transfer-Encoding", b"chunked")])
    connection.receive_data(head.data + b"".join(map(chunk, blocks)) + LAST_CHUNK)

    received = b""
    assert isinstance(connection.next_event(), h11.Request)
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data)
        received += event.data
    assert received == b"".join(blocks)


def test_headers_are_joined_by_lowercase_name() -> None:
    raw = [(b"X-Two", b"1"), (b"Content-Type", b"text/plain"), (b"x-two", "é".encode()), (b"X-Odd", b"\xff")]

    assert joined_headers(raw) == {"x-two": "1, é", "content-type": "text/plain", "x-odd": "\\xff"}
