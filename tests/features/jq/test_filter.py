"""Filters: their results, their failures, and the parts of a body that they get as soon as they have arrived."""

from collections.abc import Iterator

import pytest

from xapi_cli.errors import FilterError, UsageError
from xapi_cli.features.jq.filter import Filter
from xapi_cli.features.jq.records import MAX_DOCUMENT, documents

pytest.importorskip("jq", reason="libjq is not installed")


def results(text: str, body: str | bytes, content_type: str = "application/json") -> tuple[str, str]:
    """Return the results of the filter *text* on *body*, and the message of the failure after them, if it fails."""
    found, condition = bytearray(), Filter(text, {})
    try:
        condition.apply([body.encode() if isinstance(body, str) else body], found.extend, content_type)
    except FilterError as error:
        return found.decode(), error.message
    finally:
        condition.close()
    return found.decode(), ""


@pytest.mark.parametrize(
    ("text", "body", "expected"),
    [
        (".", '{"a" : [1, "é"]}', '{"a":[1,"é"]}\n'),
        (".a, .b", '{"a": "x\\ny \\"z\\"", "b": null}', 'x\ny "z"\nnull\n'),
        (".[] | select(.n > 1) | .n", '[{"n": 1}, {"n": 2}, {"n": 3}]', "2\n3\n"),
        (".a # a comment", '{"a": true}', "true\n"),
        ("def f: .a; f", '{"a": 1}', "1\n"),
        ("-1", "[]", "-1\n"),
        ("empty", "[]", ""),
        (".n", '{"n": 1} {"n": 2}\n{"n": 3}', "1\n2\n3\n"),
        (".[]", "[1.10,123456789012345678901234567890,1.0]", "1.10\n123456789012345678901234567890\n1.0\n"),
        (".", "", ""),
    ],
)
def test_each_result_is_a_line_and_strings_have_no_quotes(text: str, body: str, expected: str) -> None:
    for content_type in ("application/json", "application/x-ndjson"):
        assert results(text, body, content_type) == (expected, "")


@pytest.mark.parametrize(
    ("charset", "body"),
    [
        ("iso-8859-1", '{"a": "é"}'.encode("latin-1")),
        ("Windows-1252", '{"a": "é"}'.encode("cp1252")),
        ("utf-16", '{"a": "é"}'.encode("utf-16")),
        ("utf-8", '\ufeff{"a": "é"}'.encode()),
    ],
)
def test_a_body_is_decoded_by_its_charset(charset: str, body: bytes) -> None:
    assert results(".a", body, f"application/json; charset={charset}") == ("é\n", "")


@pytest.mark.parametrize(
    ("text", "body", "before", "problem"),
    [
        (".a", '{"a": 1}\n[2]', "1\n", "the --jq filter failed: Cannot index array with string"),
        (".a | halt_error", '{"a": "lost"}', "", "the --jq filter failed: lost"),
        ("{a} | halt_error(0)", '{"a": "lost"}', "", 'the --jq filter failed: {"a":"lost"}'),
        ('error("first\\nsecond")', "1", "", "the --jq filter failed: first second"),
        ('error("")', "1", "", "the --jq filter failed: no reason given"),
        (".a", '{"a": 1} <html>', "1\n", "--jq cannot parse the body as JSON: "),
        (".", "[1,", "", "--jq cannot parse the body as JSON: "),
        (".a", b'{"a": "\xe9"}', "", "--jq cannot read the body: it is not valid UTF-8"),
    ],
)
def test_a_failure_comes_after_the_results_before_it(text: str, body: str | bytes, before: str, problem: str) -> None:
    found, message = results(text, body)

    assert found == before
    assert message.startswith(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (".[", "syntax error, unexpected end of file"),
        (".a) | (.b", "syntax error"),
        (".a | foo", "foo/0 is not defined"),
        ("-r", "r/0 is not defined"),
        (" ", "Top-level program not given"),
        (".\udce9", "'utf-8' codec can't encode"),
    ],
)
def test_a_filter_that_is_not_valid_is_a_usage_error(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match="omit options of jq") as raised:
        Filter(text, {}, option="--expect")

    assert raised.value.message.startswith(f"the --expect filter is not valid: {problem}")


EVENTS = {
    "one line": (b"data: 1\n\n", [b"1"]),
    "without a space": (b"data:1\n\n", [b"1"]),
    "several lines": (b'data: {"a":\ndata: 1}\n\n', [b'{"a": 1}']),
    "CR LF": (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"1", b"2"]),
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

    found = b"\n".join(documents(chunks, "text/event-stream", "--jq"))
    assert [line for line in found.split(b"\n") if line] == expected


@pytest.mark.parametrize(
    ("content_type", "chunk", "part"),
    [
        ("text/event-stream", b"data: 1\n\n", b"1"),
        ("text/event-stream; charset=utf-8", b"data: 1\r\n\r\ndata:", b"1"),
        ("application/x-ndjson", b'{"a":1}\n{"a"', b'{"a":1}'),
    ],
)
def test_a_part_of_a_stream_is_complete_when_its_last_byte_has_arrived(
    content_type: str, chunk: bytes, part: bytes
) -> None:
    def chunks() -> Iterator[bytes]:
        yield chunk
        raise AssertionError("it waits for more")

    assert next(documents(chunks(), content_type, "--jq")) == part


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/x-ndjson", "application/json"])
def test_an_endless_document_is_an_error(content_type: str) -> None:
    block = b"data: " + b"x" * 2**20

    with pytest.raises(FilterError, match="a document of more than 64 MiB, the limit of --jq"):
        list(documents((block for _ in range(MAX_DOCUMENT // 2**20 + 1)), content_type, "--jq"))
