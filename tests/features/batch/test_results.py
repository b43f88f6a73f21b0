"""The output line of a response, and the count of results."""

import json
from typing import Any

import pytest

from xapi_cli.errors import BodyTooLarge, InvalidLine, TimeoutExpired
from xapi_cli.features.batch.results import Result, Tally, Task, body_member, output_line
from xapi_cli.http.messages import Headers
from xapi_cli.request.body.spool import Spool


@pytest.mark.parametrize(
    ("content_type", "body", "key", "value"),
    [
        ("application/json", b'{"a": 1}', "json", {"a": 1}),
        ("application/problem+json; charset=utf-8", b"[\r]", "json", []),
        ("Application/JSON", b'\xef\xbb\xbf"x" \n', "json", "x"),
        ("application/json; charset=iso-8859-1", '"grüße"'.encode("latin-1"), "json", "grüße"),
        ("application/json", b"{broken", "text", "{broken"),
        ("application/json", b"[NaN]", "text", "[NaN]"),
        ("application/json", b"", "text", ""),
        ("application/json", b"[" * 200_000 + b"]" * 200_000, "text", "[" * 200_000 + "]" * 200_000),
        ("application/json", b'"\xff"', "base64", "Iv8i"),
        ("text/plain", "grüße\r\n".encode(), "text", "grüße\r\n"),
        ("text/plain; charset=iso-8859-1", "grüße".encode("latin-1"), "text", "grüße"),
        ('text/html; charset="windows-1251"', "привет".encode("cp1251"), "text", "привет"),
        ("text/plain; charset=shift_jis", "日本".encode("shift_jis"), "text", "日本"),
        ("text/plain; charset=no-such", b"abc", "text", "abc"),
        ("text/plain; charset=hex", b"6162", "text", "6162"),
        ("application/octet-stream; charset=utf-8", b"abc", "text", "abc"),
        ("text/plain", b"\xff\xfe\x00", "base64", "//4A"),
        ("image/png", b"\x89PNG\r\n", "base64", "iVBORw0K"),
        ("application/octet-stream", b"", "text", ""),
        ("", b"plain", "text", "plain"),
        ("", b"\x80", "base64", "gA=="),
    ],
)
def test_a_body_is_json_text_or_base64(content_type: str, body: bytes, key: str, value: Any) -> None:
    member = body_member(body, content_type)

    assert not set(b"\r\n") & set(member)
    assert json.loads(b"{%s}" % member) == {key: value}


def test_a_line_has_the_values_as_the_server_has_sent_them() -> None:
    headers = Headers([(b"Content-Type", b"application/json"), (b"X-Two", b"a"), (b"X-Two", "é".encode())])
    result = Result(Task(7), None, 201, headers, Spool([b'{"n":\r\n 1.10, "s": "a b"}\n']), 12)

    assert output_line(result, '"x"', str, more=b'"row": 1, ').decode() == (
        '{"id": "x", "line": 7, "row": 1, "status": 201, "headers": {"content-type": "application/json",'
        ' "x-two": "a, é"}, "json": {"n":   1.10, "s": "a b"}, "elapsed_ms": 12}'
    )


def test_a_line_of_a_failure_has_its_kind_and_message() -> None:
    line = output_line(Result(Task(3), TimeoutExpired("too late")), "null", str.upper)

    assert json.loads(line) == {"id": None, "line": 3, "error": {"kind": "timeout", "message": "TOO LATE"}}


@pytest.mark.parametrize(
    ("result", "code", "kind"),
    [
        (Result(Task(1), status=204), 0, "204"),
        (Result(Task(1), status=307), 0, "307"),
        (Result(Task(1), status=404), 4, "404"),
        (Result(Task(1), status=503), 5, "503"),
        (Result(Task(1), InvalidLine("no")), 2, "input"),
        (Result(Task(1), BodyTooLarge("no")), 11, "size"),
        (Result(Task(1, code=5)), 5, "0"),
    ],
)
def test_a_result_has_an_exit_code(result: Result, code: int, kind: str) -> None:
    assert (result.code, result.kind) == (code, kind)


def test_the_tally_counts_what_has_failed_and_has_the_highest_code() -> None:
    tally = Tally()
    for code, kind in [(0, "200"), (4, "404"), (5, "503"), (2, "input"), (0, "307"), (0, "304"), (4, "404")]:
        tally.count(code, kind)
    tally.restored, tally.retries = 1, 2

    assert tally.exit_code == 5
    assert tally.summary().startswith("4 of 7 lines failed in 0.0 s (")
    assert tally.summary().endswith("/s, 1 from the journal, 2 retries): 1 × 307, 2 × 404, 1 × 503, 1 × input")
