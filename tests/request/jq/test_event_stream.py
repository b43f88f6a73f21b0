"""Which responses are streams, and the events of one, by the rules of the HTML Living Standard."""

from collections.abc import Iterator

import pytest

from xapi_cli.errors import NetworkError
from xapi_cli.request.jq import event_stream
from xapi_cli.request.jq.event_stream import documents, is_record_stream

STREAMS = {
    "one line": (b"data: 1\n\n", [b"1"]),
    "without a space": (b"data:1\n\n", [b"1"]),
    "only one space is removed": (b"data:  1\n\n", [b" 1"]),
    "several lines": (b'data: {"a":\ndata: 1}\n\n', [b'{"a": 1}']),
    "CR LF": (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"1", b"2"]),
    "CR": (b"data: 1\r\rdata: 2\r\r", [b"1", b"2"]),
    "mixed ends": (b"data: 1\r\n\rdata: 2\n\r\n", [b"1", b"2"]),
    "a byte order mark": (b"\xef\xbb\xbfdata: 1\n\n", [b"1"]),
    "other fields and comments": (b": hello\nevent: add\nid: 7\nretry: 9\ndata: 1\nfoo: 2\n\n", [b"1"]),
    "a field without a colon": (b"data\n\ndata: 1\n\n", [b"1"]),
    "a name with a space": (b"data : 1\n\n", []),
    "events without data": (b"event: ping\n\n: ping\n\n\n\n", []),
    "an end marker": (b"data: 1\n\ndata: [DONE]\n\n", [b"1"]),
    "an event without its empty line": (b"data: 1\n\ndata: 2\n", [b"1"]),
    "a line without its end": (b"data: 1\n\ndata: 2", [b"1"]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("body, expected", STREAMS.values(), ids=STREAMS)
def test_the_data_of_each_event_is_one_line(body: bytes, expected: list[bytes], size: int) -> None:
    chunks = [body[start : start + size] for start in range(0, len(body), size)]

    assert list(documents(chunks)) == [line + b"\n" for line in expected]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r\n"])
def test_an_event_is_complete_when_its_last_byte_has_arrived(end: bytes) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"data: 1" + end
        raise AssertionError("it waits for more")

    assert next(documents(chunks())) == b"1\n"


@pytest.mark.parametrize("part", [b"data: " + b"x" * 500, b"data: " + b"x" * 500 + b"\n", b": " + b"x" * 500])
def test_an_endless_event_is_an_error(monkeypatch: pytest.MonkeyPatch, part: bytes) -> None:
    monkeypatch.setattr(event_stream, "MAX_DOCUMENT", 2**20)
    endless = (part for _ in range(2**20))

    with pytest.raises(NetworkError, match="an event larger than 1 MiB"):
        list(documents(endless))


@pytest.mark.parametrize(
    "text", ["text/event-stream", "Text/Event-Stream ; charset=utf-8", "application/x-ndjson", "application/jsonl"]
)
def test_the_media_type_is_recognized(text: str) -> None:
    assert is_record_stream(text)
    assert not is_record_stream(f"x-{text}")


@pytest.mark.parametrize("text", ["", "application/json", "text/plain"])
def test_another_type_is_no_stream(text: str) -> None:
    assert not is_record_stream(text)
