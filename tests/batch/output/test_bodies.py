"""A long body becomes the same member of an output line as a short one, in small steps and chunks."""

import gzip
import json
import time
from base64 import b64encode
from collections.abc import Iterator

import pytest

from xapi_cli.batch.output.bodies import long_member, short_member
from xapi_cli.batch.responses import MAX_BODY, BufferedResponse
from xapi_cli.errors import BodyTooLarge, NetworkError
from xapi_cli.http.response_parser import ResponseHead

JSON = "application/json"
TEXTS = [
    (JSON, b'{"a": 1.10,\r\n"a": 123456789012345678901234567890}'),
    (JSON, b"\xef\xbb\xbf \n[1]\t"),
    (JSON, b" \r\n "),
    (JSON, b"[NaN]"),
    (JSON, b'["\x01"]'),
    (JSON, b'["\\ud800"]'),
    (JSON, b'["\xff"]'),
    (JSON, b"[1] 2"),
    (JSON, b""),
    ("text/plain", "é😀".encode()),
    ("text/plain", b'\x01\n"\\'),
    ("text/plain", b"\xe9"),
    ("text/plain; charset=iso-8859-1", b"\xe9"),
    ("text/plain; charset=utf-16", "é😀".encode("utf-16")),
    ("text/plain; charset=gb18030", "é😀汉".encode("gb18030")),
    ("text/plain; charset=utf-7", b"+AAE-"),
    ("text/plain; charset=hex", b"00"),
    ("text/plain; charset=none", b""),
    ("application/octet-stream", b"\x00\xff\xfe\xfd"),
]


def _reply(content_type: str, body: bytes, *, coded: bool) -> BufferedResponse:
    headers = [(b"Content-Type", content_type.encode())] + [(b"Content-Encoding", b"gzip")] * coded
    return BufferedResponse(ResponseHead(200, headers), gzip.compress(body) if coded else body)


def _long(reply: BufferedResponse) -> bytes:
    steps = long_member(reply)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return b"".join(end.value())


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize(("content_type", "body"), TEXTS)
def test_short_and_long_conversion_agree(content_type: str, body: bytes, coded: bool) -> None:
    reply = _reply(content_type, body, coded=coded)

    assert _long(reply) == short_member(reply)


@pytest.mark.parametrize(
    ("body", "member"),
    [
        (b"[" + b"[1.10],\n" * 200_000 + b"1]", "json"),
        (b"[" + b'{"a":{"b":[[[[1e400]]]]}},' * 50_000 + b"]", "text"),
        (b"[" * 100_001 + b"]" * 100_001, "text"),
        (b"[" * 100_000 + b"]" * 100_000, "json"),
        (b"[" + b'"\\ud800",' * 100_000 + b'"\\ud800"]', "json"),
    ],
)
def test_a_large_json_body_is_validated_and_unchanged(body: bytes, member: str) -> None:
    content = _long(_reply(JSON, body, coded=True))

    if member == "json":
        assert content == b'"json": ' + body.replace(b"\n", b" ")
    else:
        assert content == b'"text": ' + json.dumps(body.decode()).encode()


@pytest.mark.parametrize("levels", [2000, 20_000])
def test_json_of_many_levels_is_checked_in_steps_however_short_it_is(levels: int) -> None:
    reply = _reply(JSON, b"[" * levels + b"]" * levels, coded=False)

    assert short_member(reply) in (None, b'"json": ' + reply.body)  # Python 3.12 and later decode more levels at once
    assert _long(reply) == b'"json": ' + reply.body


def test_base64_does_not_depend_on_where_blocks_end() -> None:
    body = bytes(range(256)) * 1001

    assert _long(_reply("", body, coded=True)) == b'"base64": "%s"' % b64encode(body)


def test_no_step_takes_long() -> None:
    empty = gzip.compress(b"")
    many = BufferedResponse(ResponseHead(200, [(b"Content-Encoding", b"gzip")]), empty * (MAX_BODY // len(empty)))
    for reply in (_reply(JSON, b"[" + b"[[[1]]]," * 200_000 + b"1]", coded=True), many):
        steps, spent = long_member(reply), []
        for _ in range(2000):
            start = time.thread_time()
            if next(steps, "end") == "end":
                break
            spent.append(time.thread_time() - start)
        assert max(spent) < 0.2


@pytest.mark.parametrize(
    ("content_type", "separator"), [(JSON, b" "), ("text/plain", b" "), ("text/plain", b""), ("image/png", b"")]
)
def test_a_body_that_takes_many_steps_to_decode_is_written_in_few(content_type: str, separator: bytes) -> None:
    coded = gzip.compress(b"1") + gzip.compress(separator) * 5000
    reply = BufferedResponse(_reply(content_type, b"", coded=True).head, coded)
    held, chunks = len(coded), list[bytes]()

    def examine() -> Iterator[int | None]:
        chunks.extend((yield from long_member(reply))())

    for size in examine():
        held += size or 0

    assert b"".join(chunks) == short_member(_reply(content_type, b"1" + separator * 5000, coded=False))
    assert len(chunks) < 10
    assert held == len(reply.body) == 1 + len(separator) * 5000


def test_a_body_that_is_too_large_or_truncated_is_rejected() -> None:
    with pytest.raises(BodyTooLarge):
        _long(_reply("text/plain", b"x" * (MAX_BODY + 1), coded=True))
    truncated = _reply("text/plain", b"x" * MAX_BODY, coded=True)
    truncated.body = truncated.body[:-9]
    with pytest.raises(NetworkError, match="truncated"):
        _long(truncated)


def test_a_short_response_may_decode_to_a_long_body() -> None:
    assert short_member(_reply("text/plain", b"x" * 1_000_000, coded=True)) is None


@pytest.mark.parametrize(("parts", "is_long"), [(30, False), (200, True)])
def test_a_short_response_that_takes_many_steps_to_decode_is_long(parts: int, is_long: bool) -> None:
    reply = BufferedResponse(_reply("text/plain", b"", coded=True).head, gzip.compress(b"x") * parts)

    assert short_member(reply) == (None if is_long else b'"text": "%s"' % (b"x" * parts))
    assert _long(reply) == b'"text": "%s"' % (b"x" * parts)
