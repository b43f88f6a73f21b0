"""Input lines are understood strictly, and their JSON goes through untouched."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.batch import entries
from xapi_cli.batch.line_reader import Line

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON, st.booleans())
def test_id_and_json_go_through_as_they_are_written(name: Any, body: Any, ascii_only: bool) -> None:
    text, sent = (json.dumps(each, ensure_ascii=ascii_only) for each in (name, body))
    try:
        line = f'{{ "json" :{sent}, "path":"/x","id": {text} }}\n'.encode()
    except UnicodeEncodeError:
        return
    entry = entries.read(Line(1, line, b""), "https://api.test")

    assert entry.flaw is None
    assert entry.id == text
    assert entry.call is not None
    assert entry.call.body is not None
    assert b"".join(entry.call.body) == sent.encode()


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\ upath/01.e-+nulltrue', max_size=60).map(str.encode))
def test_whatever_a_line_holds_it_is_a_call_or_has_a_flaw(data: bytes) -> None:
    entry = entries.read(Line(1, data, b""), "https://api.test")

    assert (entry.call is None) != (entry.flaw is None)
    json.loads(entry.id)


@pytest.mark.parametrize(
    ("member", "name"),
    [
        ('"query": {"a": 1, "b": 2, "a": 1}', "a"),
        ('"query": {"a": 1, "\\u0061": 2}', "a"),
        ('"headers": {"X-A": "1", "X-A": null}', "X-A"),
    ],
)
def test_a_key_that_is_repeated_inside_an_object_is_a_flaw(member: str, name: str) -> None:
    entry = entries.read(Line(1, f'{{"path": "/x", {member}}}'.encode(), b""), "https://api.test")

    assert entry.flaw == f"the key {name!r} is there twice"


def test_keys_repeated_inside_json_and_deeper_objects_are_the_affair_of_the_server() -> None:
    line = b'{"path": "/x", "json": {"a": 1, "a": 2}, "id": {"a": 1, "a": 2}}'
    entry = entries.read(Line(1, line, b""), "https://api.test")

    assert (entry.flaw, entry.id) == (None, '{"a": 1, "a": 2}')


@pytest.mark.parametrize("text", ['{"a":\r1}', "[\r1,\r\r2]", '{\r"a\\r"\r:\r"\\r"}'])
def test_an_id_is_one_line_without_carriage_returns(text: str) -> None:
    entry = entries.read(Line(1, b'{"path": "/x", "id": %s}\r\n' % text.encode(), b""), "https://api.test")

    assert "\r" not in entry.id
    assert json.loads(entry.id) == json.loads(text)
