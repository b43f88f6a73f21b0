import h11
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.http.header_syntax import LAST_CHUNK, chunk
from xapi_cli.http.messages import Headers


@given(st.lists(st.binary(max_size=40)))
def test_chunks_are_those_of_h11(blocks: list[bytes]) -> None:
    connection = h11.Connection(h11.SERVER)
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.receive_data(head + b"".join(map(chunk, blocks)) + LAST_CHUNK)

    received = b""
    assert isinstance(connection.next_event(), h11.Request)
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data)
        received += event.data
    assert received == b"".join(blocks)


def test_headers_are_joined_by_lowercase_name() -> None:
    raw = [(b"X-Two", b"1"), (b"Content-Type", b"text/plain"), (b"x-two", "é".encode()), (b"X-Odd", b"\xff")]

    assert Headers(raw).joined() == {"x-two": "1, é", "content-type": "text/plain", "x-odd": "\\xff"}
