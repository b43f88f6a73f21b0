"""Input lines: how they are read, and that their JSON is parsed strictly and passed through unchanged."""

import io
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import InvalidLine, UsageError
from xapi_cli.features.batch import lines
from xapi_cli.features.batch.lines import MAX_LINE, LineReader
from xapi_cli.http.send import Call

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Blocks(io.RawIOBase):
    """An input that arrives in *blocks*."""

    def __init__(self, *blocks: bytes) -> None:
        self._blocks = list(blocks)

    def read(self, size: int = -1) -> bytes:
        return self._blocks.pop(0) if self._blocks else b""


def _read(*blocks: bytes) -> list[tuple[int, bytes | None]]:
    return [(line.number, line.data) for line in LineReader(Blocks(*blocks))]  # type: ignore[arg-type]  # like a file


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([b'{"a": 1}\n{"b": 2}'], [(1, b'{"a": 1}\n'), (2, b'{"b": 2}')]),
        ([b'{"a"', b": 1}", b"\n\n", b' \r\n{"b": 2}\r\n'], [(1, b'{"a": 1}\n'), (4, b'{"b": 2}\r\n')]),
        ([b'\xef\xbb\xbf{"a": 1}\n\xef\xbb\xbf\n'], [(1, b'{"a": 1}\n'), (2, b"\xef\xbb\xbf\n")]),
        ([b"\n"], []),
        ([b"x" * (MAX_LINE + 1), b"\nabc\n"], [(1, None), (2, b"abc\n")]),
        ([*[b"x" * 65_536] * 300, b"y\nabc"], [(1, None), (2, b"abc")]),
        ([b"x" * (MAX_LINE - 1) + b"\n"], [(1, b"x" * (MAX_LINE - 1) + b"\n")]),
    ],
)
def test_lines_are_whole_numbered_and_limited(blocks: list[bytes], expected: list[tuple[int, bytes | None]]) -> None:
    assert _read(*blocks) == expected


def test_a_line_of_any_length_takes_limited_memory() -> None:
    tracemalloc.start()
    assert _read(*[b"x" * 2**20] * 128) == [(1, None)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * MAX_LINE


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_the_lines_and_the_position_do_not_depend_on_the_blocks(blocks: list[bytes]) -> None:
    data = b"1\n" + b"".join(blocks)
    reader = LineReader(Blocks(b"1\n", *filter(None, blocks)))  # type: ignore[arg-type]  # like a file

    assert ([tuple(line) for line in reader], reader.position) == (_read(data), len(data))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the input is empty; the command before the pipe has failed, or it selected nothing"),
        (b'\n [\n{"path": "/"}\n]\n', "the input is a JSON array, not one object per line; use `jq -c '.[]'"),
    ],
)
def test_an_input_that_has_no_lines_of_objects_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        _read(data)
    assert str(caught.value).startswith(message)


def test_an_input_that_cannot_be_read_is_a_usage_error() -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise IsADirectoryError(21, "Is a directory")

    with pytest.raises(UsageError, match="the input cannot be read: Is a directory"):
        list(LineReader(Broken()))  # type: ignore[arg-type]  # like a file


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/", "a/b", "1/99999999"])
def test_a_shard_is_a_number_of_a_total(text: str) -> None:
    assert lines.parse_shard("2/8") == (2, 8)
    with pytest.raises(UsageError, match="is not a valid shard; write I/N"):
        lines.parse_shard(text)


def _call(line: bytes | str) -> Call:
    data = line if isinstance(line, bytes) else line.encode()
    return lines.call(lines.members(data), "https://api.test")


def test_every_member_of_a_line_is_part_of_the_call() -> None:
    made = _call(
        '{"id": {"a": [1.10]}, "method": "put", "path": "/x?a=b", "query": {"q": ["ä b", 7], "t": true, "e": 1.50},'
        ' "headers": {"X-Run": "é", "Accept": null, "N": 1.10}, "json": {"n": 1.10, "u": "\\u00e4"}}\r\n'
    )
    assert made.method == "PUT"
    assert made.url == "https://api.test/x?a=b&q=%C3%A4%20b&q=7&t=true&e=1.50"
    assert made.headers == [("X-Run", "é"), ("Accept", None), ("N", "1.10")]
    assert made.body is not None
    assert (b"".join(made.body), made.body.content_type) == (b'{"n": 1.10, "u": "\\u00e4"}', "application/json")


@pytest.mark.parametrize(
    ("line", "method", "body"),
    [
        ('{"path": "/"}', "GET", None),
        ('{"path": "/", "data": "ä\\n"}', "POST", "ä\n".encode()),
        ('{"path": "/", "json": null}', "POST", b"null"),
        ('{"path": "/", "method": "head"}', "HEAD", None),
        ('{"path": "/", "json": {"a": 1, "a": 2}}', "POST", b'{"a": 1, "a": 2}'),
    ],
)
def test_the_method_is_post_if_there_is_a_body(line: str, method: str, body: bytes | None) -> None:
    made = _call(line)
    assert (made.method, None if made.body is None else b"".join(made.body)) == (method, body)


@given(JSON, JSON, st.booleans())
def test_id_and_json_are_passed_through_verbatim(name: Any, body: Any, ascii_only: bool) -> None:
    ident, sent = (json.dumps(each, ensure_ascii=ascii_only) for each in (name, body))
    try:
        line = f'{{ "json" :{sent}, "path":"/x","id": {ident} }}\n'.encode()
    except UnicodeEncodeError:
        return
    found = lines.members(line)
    made = lines.call(found, "https://api.test")

    assert made.body is not None
    assert (lines.ident(found), b"".join(made.body)) == (ident, sent.encode())


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\ upath/01.e-+nulltrue', max_size=60).map(str.encode))
def test_any_line_is_a_call_or_an_error(data: bytes) -> None:
    try:
        found = lines.members(data)
    except InvalidLine:
        return
    json.loads(lines.ident(found))
    try:
        lines.call(found, "https://api.test")
    except UsageError as error:
        assert str(error).isprintable()


@pytest.mark.parametrize("text", ['{"a":\r1}', "[\r1,\r\r2]", '{\r"a\\r"\r:\r"\\r"}'])
def test_an_id_is_one_line(text: str) -> None:
    found = lines.members(b'{"path": "/x", "id": %s}\r\n' % text.encode())

    assert "\r" not in lines.ident(found)
    assert json.loads(lines.ident(found)) == json.loads(text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "the line is not a JSON object"),
        ("[1]", "the line is not a JSON object"),
        (b'{"path": "/\xff"}', "the line is not valid UTF-8 (byte 12)"),
        ('{"path": "/", }', 'the line is not a JSON object: expected "'),
        ('{"path": "/"', "the line is not a JSON object: the input ends inside a value"),
        ('{"path" "/"}', "the line is not a JSON object: expected :"),
        ('{"path": NaN}', "the line is not a JSON object: NaN is not a JSON value"),
        ('{"path": "/"} x', "the line has data after its object"),
        ("{}", '"path" is missing'),
        ('{"path": 5}', '"path" is not a string'),
        ('{"path": ""}', "PATH is empty"),
        ('{"path": "https://elsewhere.test/"}', "has the origin"),
        ('{"path": "/", "path": "/"}', "the field 'path' appears twice"),
        ('{"path": "/", "pth": 1}', "unknown field 'pth'; known fields: id, method, path, query, headers, json, data"),
        ('{"path": "/", "json": 1, "data": "x"}', '"json" and "data" cannot be combined'),
        ('{"path": "/", "data": 1}', '"data" is not a string'),
        ('{"path": "/", "data": "\\ud800"}', "surrogate"),
        ('{"path": "/", "method": "TRACE"}', "TRACE"),
        ('{"path": "/", "query": []}', '"query" is not an object'),
        ('{"path": "/", "query": {"a": null}}', "\"query\" has a value for 'a' that is not"),
        ('{"path": "/", "query": {"a": {}}}', "\"query\" has a value for 'a' that is not"),
        ('{"path": "/", "headers": {"X": 1.5e3, "Y": {}}}', "\"headers\" has a value for 'Y' that is not"),
        ('{"path": "/", "headers": {"X": "a\\nb"}}', "control character"),
        ('{"path": "/", "headers": {"Content-Length": "1"}}', "set by xapi"),
        ('{"path": "/", "headers": {"Host": "a", "host": "b"}}', "the header Host appears twice"),
        ('{"path": "/", "json": ' + "[" * 100_001 + "]" * 100_001 + "}", "nested too deeply"),
        ('{"path": "/", "json": "secret}', "the line is not a JSON object: the input ends inside a value"),
    ],
)
def test_an_invalid_line_is_an_error_without_its_values(line: str | bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        _call(line)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_line_that_is_too_long_is_invalid() -> None:
    with pytest.raises(InvalidLine, match="the line has more than 16 MiB"):
        lines.members(None)
