"""Parts of complete documents, each as soon as it has arrived, and events by the rules of the HTML Living Standard."""

from collections.abc import Iterator

import pytest

from xapi_cli.errors import FilterError
from xapi_cli.features.jq.records import MAX_DOCUMENT, documents
from xapi_cli.request.media_types import is_record_stream

EVENTS = {
    "one line": (b"data: 1\n\n", [b"1"]),
    "without a space": (b"data:1\n\n", [b"1"]),
    "several lines": (b'data: {"a":\ndata: 1}\n\n', [b'{"a": 1}']),
    "CR LF": (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"1", b"2"]),
    "CR": (b"data: 1\r\rdata: 2\r\r", [b"1", b"2"]),
    "other fields and comments": (b": hello\nevent: add\nid: 7\nretry: 9\ndata: 1\nfoo: 2\n\n", [b"1"]),
    "a field without a colon": (b"data\n\ndata: 1\n\n", [b"1"]),
    "a name with a space": (b"data : 1\n\n", []),
    "events without data": (b"event: ping\n\n: ping\n\n\n\n", []),
    "an end marker": (b"data: 1\n\ndata: [DONE]\n\n", [b"1"]),
    "an event without its empty line": (b"data: 1\n\ndata: 2\n", [b"1"]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize(("body", "expected"), EVENTS.values(), ids=EVENTS)
def test_the_data_of_each_event_is_one_line(body: bytes, expected: list[bytes], size: int) -> None:
    chunks = [body[start : start + size] for start in range(0, len(body), size)]

    assert list(documents(chunks, "text/event-stream", "--jq")) == [line + b"\n" for line in expected]


@pytest.mark.parametrize(
    ("content_type", "chunk", "part"),
    [
        ("text/event-stream", b"data: 1\n\n", b"1\n"),
        ("text/event-stream", b"data: 1\r\n\r\n", b"1\n"),
        ("application/x-ndjson", b'{"a":\n1', b'{"a":\n'),  # a line that is not complete is an error of its own
        ("application/json", b'{"a": "]"}\n[1]\n{', b'{"a": "]"}\n[1]\n'),
        ("", b"1\n2\n", b"1\n2\n"),
    ],
)
def test_a_part_is_complete_when_its_last_byte_has_arrived(content_type: str, chunk: bytes, part: bytes) -> None:
    def chunks() -> Iterator[bytes]:
        yield chunk
        raise AssertionError("it waits for more")

    assert next(documents(chunks(), content_type, "--jq")) == part


@pytest.mark.parametrize(
    "body", [b'{\n"a": [\n1\n]\n}\n', b'"a\n"', b'{"a": "\\"\n"}', b"[" + b"1,\n" * 600_000 + b"1]"]
)
def test_a_document_of_several_lines_is_one_part(body: bytes) -> None:
    chunks = [body[start : start + 65536] for start in range(0, len(body), 65536)]

    assert [part for part in documents(chunks, "application/json", "--jq") if part] == [body]


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/x-ndjson", "application/json"])
def test_an_endless_document_is_an_error(content_type: str) -> None:
    block = b"data: " + b"x" * 2**20
    endless = (block for _ in range(2 * MAX_DOCUMENT // len(block)))

    with pytest.raises(FilterError, match="a document of more than 64 MiB, the limit of --jq"):
        list(documents(endless, content_type, "--jq"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Text/Event-Stream ; charset=utf-8", True),
        ("application/x-ndjson", True),
        ("application/jsonl", True),
        ("", False),
        ("application/json", False),
        ("x-text/event-stream", False),
    ],
)
def test_the_media_type_shows_whether_a_body_is_a_stream(text: str, expected: bool) -> None:
    assert is_record_stream(text) == expected
