"""The parts of JSON text are found as a parser would find them, and their text is unchanged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.request.json_parts import elements, end_of_container, members

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n ")])


@given(st.lists(VALUES), SEPARATORS, st.booleans())
def test_the_elements_of_an_array_are_found(values: list[object], separators: tuple[str, str], plain: bool) -> None:
    text = json.dumps(values, separators=separators, ensure_ascii=plain)

    assert elements(text) == [json.dumps(value, separators=separators, ensure_ascii=plain) for value in values]


@given(st.dictionaries(st.text(), VALUES), SEPARATORS)
def test_the_members_of_an_object_are_found(values: dict[str, object], separators: tuple[str, str]) -> None:
    text = json.dumps(values, separators=separators)

    expected = [(name, json.dumps(value, separators=separators)) for name, value in values.items()]
    assert members(text) == expected


@given(st.lists(VALUES) | st.dictionaries(st.text(), VALUES), st.text(max_size=5), st.text(max_size=5))
def test_the_end_of_a_value_is_found(value: object, before: str, after: str) -> None:
    text = json.dumps(value)

    assert end_of_container(before + text + after, len(before)) == len(before) + len(text)


def test_the_notation_of_numbers_and_repeated_names_are_preserved() -> None:
    assert elements(" [ 1.10 , 1e400,[ ] ] ") == ["1.10", "1e400", "[ ]"]
    assert members('{"a": -0, "\\u0061": 1.0}') == [("a", "-0"), ("a", "1.0")]
    assert (elements("[ ]"), members(" {} ")) == ([], [])


def test_depth_is_not_limited() -> None:
    deep = "[" * 100_000 + "]" * 100_000

    assert end_of_container(deep + ",1", 0) == len(deep)
    assert elements(f"[{deep},1]") == [deep, "1"]


@pytest.mark.parametrize("text", ["[", "[[]", '["]', '{"a": [}', '["\\"]'])
def test_a_container_that_is_not_closed_has_no_end(text: str) -> None:
    assert end_of_container(text, 0) is None
