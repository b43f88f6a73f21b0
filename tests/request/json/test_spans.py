"""Parts of a JSON document: the same values as with a complete parser, and the bytes as sent."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.request.json import spans
from xapi_cli.request.json.syntax import InvalidJSON

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def _elements(data: bytes) -> list[bytes]:
    text = spans.document(data)
    return [b"".join(spans.compact(text, span)) for span in spans.elements(text, spans.whole(text))]


def _field(data: bytes, path: str) -> bytes | None:
    text = spans.document(data)
    span = spans.field(text, spans.whole(text), path)
    return None if span is None else b"".join(spans.compact(text, span))


@given(st.lists(JSON), st.booleans(), st.sampled_from([None, 0, 2, "\t"]))
@pytest.mark.slow
def test_elements_are_compact_and_equal(values: list[Any], ascii_only: bool, indent: int | str | None) -> None:
    found = _elements(json.dumps(values, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "replace"))

    expected = [json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")) for value in values]
    assert found == [text.encode("utf-8", "replace") for text in expected]


@given(st.dictionaries(st.text(), JSON, min_size=1))
@pytest.mark.slow
def test_each_field_is_found(value: dict[str, Any]) -> None:
    data = json.dumps(value, indent=1).encode()
    for name, expected in value.items():
        assert json.loads(_field(data, name) or b"") == expected


def test_numbers_and_strings_stay_as_they_were_sent() -> None:
    data = '\ufeff [1.10 , 1E+400,\n -0, 123456789012345678901234567890, "\\u00e9 \\/ é 😀", {"a" : [ ]}]\r\n'.encode()

    assert _elements(data) == [
        b"1.10",
        b"1E+400",
        b"-0",
        b"123456789012345678901234567890",
        '"\\u00e9 \\/ é 😀"'.encode(),
        b'{"a":[]}',
    ]


@pytest.mark.parametrize(
    "path, value",
    [
        ("a", rb'{"b":1,"b.c":2,"\u00e4":[3]}'),
        ("a.b", b"1"),
        ("a.b.c", b"2"),
        ("a.ä", b"[3]"),
        ("@odata.next", b"4"),
        ("twice", b"6"),
        ("a.b.d", None),
        ("A", None),
        ("a.", None),
        ("list.a", None),
    ],
)
def test_a_path_names_nested_fields(path: str, value: bytes | None) -> None:
    document = '{"a": {"b": 1, "b.c": 2, "\\u00e4": [3]}, "@odata.next": 4, "twice": 5, "list": [{"a": 1}], "twice": 6}'

    assert _field(document.encode(), path) == value


@pytest.mark.parametrize("data", [b"", b"[1,]", b"[1] 2", b'["\xff"]', b'["\xc3', b"[" * 100_001, b"NaN", b'{"a":1'])
def test_invalid_documents_are_rejected(data: bytes) -> None:
    with pytest.raises(InvalidJSON):
        spans.document(data)


def test_deep_nesting_needs_no_recursion() -> None:
    assert _elements(b"[" * 90_000 + b"]" * 90_000) == [b"[" * 89_999 + b"]" * 89_999]


_LONG = "é😀" * 100_000


@pytest.mark.parametrize("value", [[1] * 300_000, [_LONG] * 3, {_LONG: [_LONG, {"a": [" " * 200_000] * 2}]}])
def test_a_large_value_is_compact_in_blocks(value: Any) -> None:
    text = spans.document(json.dumps(value, ensure_ascii=False, indent=1).encode())

    blocks = list(spans.compact(text, spans.whole(text)))

    assert max(map(len, blocks)) <= 64 * 1024
    assert b"".join(blocks).decode() == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n ")])


def _parts(text: str) -> list[str]:
    """Return the text of each element, or of the names and values of each member, of *text*."""
    span = spans.whole(text)
    if text[span[0]] == "[":
        return [text[slice(*each)] for each in spans.elements(text, span)]
    return [text[slice(*part)] for member in spans.members(text, span) for part in member]


@given(st.lists(JSON), SEPARATORS, st.booleans())
@pytest.mark.slow
def test_the_elements_of_any_text_are_found(values: list[object], separators: tuple[str, str], plain: bool) -> None:
    text = json.dumps(values, separators=separators, ensure_ascii=plain)

    assert _parts(text) == [json.dumps(value, separators=separators, ensure_ascii=plain) for value in values]


@given(st.dictionaries(st.text(), JSON), SEPARATORS, st.booleans())
@pytest.mark.slow
def test_the_members_of_any_text_are_found(values: dict[str, object], separators: tuple[str, str], plain: bool) -> None:
    text = json.dumps(values, separators=separators, ensure_ascii=plain)

    parts = [part for member in values.items() for part in member]
    assert _parts(text) == [json.dumps(part, separators=separators, ensure_ascii=plain) for part in parts]


@given(st.lists(JSON) | st.dictionaries(st.text(), JSON), st.text(max_size=5), st.text(max_size=5))
@pytest.mark.slow
def test_the_end_of_a_container_is_found(value: object, before: str, after: str) -> None:
    text = json.dumps(value)

    assert spans.end_of_container(before + text + after, len(before)) == len(before) + len(text)


def test_repeated_names_are_preserved() -> None:
    assert _parts(" [ 1.10 , 1e400,[ ] ] ") == ["1.10", "1e400", "[ ]"]
    assert _parts('{"a": -0, "\\u0061": 1.0}') == ['"a"', "-0", '"\\u0061"', "1.0"]
    assert (_parts("[ ]"), _parts(" {} ")) == ([], [])


def test_depth_is_not_limited() -> None:
    deep = "[" * 100_000 + "]" * 100_000

    assert spans.end_of_container(deep + ",1", 0) == len(deep)
    assert _parts(f"[{deep},1]") == [deep, "1"]


@pytest.mark.parametrize("text", ["[", "[[]", '["]', '{"a": [}', '["\\"]'])
def test_a_container_that_is_not_closed_has_no_end(text: str) -> None:
    assert spans.end_of_container(text, 0) is None
