"""Input lines are parsed strictly, and their JSON is passed through unchanged."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.batch.input import entries
from xapi_cli.batch.input.line_reader import Line

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON, st.booleans())
def test_id_and_json_are_passed_through_verbatim(name: Any, body: Any, ascii_only: bool) -> None:
    text, sent = (json.dumps(each, ensure_ascii=ascii_only) for each in (name, body))
    try:
        line = f'{{ "json" :{sent}, "path":"/x","id": {text} }}\n'.encode()
    except UnicodeEncodeError:
        return
    entry = entries.parse(Line(1, line, b""), "https://api.test")

    assert entry.error is None
    assert entry.id == text
    assert entry.call is not None
    assert entry.call.body is not None
    assert b"".join(entry.call.body) == sent.encode()


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\ upath/01.e-+nulltrue', max_size=60).map(str.encode))
def test_any_line_is_a_call_or_an_error(data: bytes) -> None:
    entry = entries.parse(Line(1, data, b""), "https://api.test")

    assert (entry.call is None) != (entry.error is None)
    json.loads(entry.id)


@pytest.mark.parametrize(
    ("member", "name"),
    [
        ('"query": {"a": 1, "b": 2, "a": 1}', "a"),
        ('"query": {"a": 1, "\\u0061": 2}', "a"),
        ('"headers": {"X-A": "1", "X-A": null}', "X-A"),
    ],
)
def test_a_duplicate_key_in_an_object_is_an_error(member: str, name: str) -> None:
    entry = entries.parse(Line(1, f'{{"path": "/x", {member}}}'.encode(), b""), "https://api.test")

    assert entry.error == f"the field {name!r} appears twice"


@pytest.mark.parametrize("after", [b"}", b', "id": 1}'])
def test_deep_json_is_passed_through(after: bytes) -> None:
    deep = b"[" * 99_999 + b"{}" + b"]" * 99_999
    entry = entries.parse(Line(1, b'{"path": "/x", "json": ' + deep + after, b""), "https://api.test")

    assert entry.error is None
    assert entry.call is not None
    assert entry.call.body is not None
    assert b"".join(entry.call.body) == deep


def test_duplicate_keys_in_json_and_nested_objects_are_accepted() -> None:
    line = b'{"path": "/x", "json": {"a": 1, "a": 2}, "id": {"a": 1, "a": 2}}'
    entry = entries.parse(Line(1, line, b""), "https://api.test")

    assert (entry.error, entry.id) == (None, '{"a": 1, "a": 2}')


@pytest.mark.parametrize("text", ['{"a":\r1}', "[\r1,\r\r2]", '{\r"a\\r"\r:\r"\\r"}'])
def test_an_id_is_one_line_without_carriage_returns(text: str) -> None:
    entry = entries.parse(Line(1, b'{"path": "/x", "id": %s}\r\n' % text.encode(), b""), "https://api.test")

    assert "\r" not in entry.id
    assert json.loads(entry.id) == json.loads(text)
