"""Values of members, and their texts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.request.json import members as module
from xapi_cli.request.json.members import TooDeep, members
from xapi_cli.request.json.syntax import InvalidJSON, Number

_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _VALUES), st.sampled_from([None, 1]))
@pytest.mark.slow
def test_each_member_has_its_value_and_its_text(document: dict[str, Any], indent: int | None) -> None:
    values, texts = members(json.dumps(document, indent=indent))

    assert values == document
    assert {name: json.loads(text) for name, text in texts.items()} == document


def test_numbers_keep_their_notation() -> None:
    values, texts = members(' { "a" : 1.10 ,"b":[1e400, "1"]}\t')

    assert (values, texts) == ({"a": "1.10", "b": ["1e400", "1"]}, {"a": "1.10", "b": '[1e400, "1"]'})
    assert [type(each) for each in (values["a"], *values["b"])] == [Number, Number, str]


@pytest.mark.parametrize(
    "text",
    [
        '{"id":1,"path":"/a"}\n',
        '{"id": -0.0E+1, "path": "/ä\x7f"}',
        '{"id": "01", "path": ""}\r\n',
        '{"a": null, "b": true}',
        '{"a": 1, "a": 2}',
        '{"a": "\\u00e9"}',
        '{"a": "{"}',
        '{"a": "[", "b": [1]}',
        ' {"a": 1}',
        '{"a": 1} {"b": 2}',
        '{"a": 1}}',
        '{"a": 01}',
        '{"a": "\t"}',
        '{"a": NaN}',
        '{"a": 1,}',
        "{}",
        "{",
    ],
)
def test_a_flat_object_is_read_like_any_other(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> tuple[object, ...]:
        try:
            values, texts = members(text)
        except InvalidJSON as error:
            return type(error), str(error)
        return values, texts, [type(value) for value in values.values()]

    fast = outcome()
    monkeypatch.setattr(module, "_flat", lambda text: None)

    assert fast == outcome()


def test_a_deep_value_is_not_decoded() -> None:
    deep = "[" * 99_000 + "]" * 99_000  # too deep for every version of Python
    values, texts = members(f'{{"a": {deep}}}')

    assert isinstance(values["a"], TooDeep)
    assert texts["a"] == deep


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is truncated after 1 character"),
        ('{"a" 1}', "expected : at character 6"),
        ('{"a": 1 "b": 2}', "expected a comma or an end at character 9"),
        ('{"a": }', "expected a value at character 7"),
        ('{"a": "x', "it is truncated after 8 characters"),
        ('{"a": "x\ty"}', "an unescaped control character at character 9"),
        ('{"a": "\\q"}', "an invalid escape at character 8"),
        ("{'a': 1}", "expected a quoted name or } at character 2"),
        ('{"a": [NaN]}', "NaN and Infinity are not allowed"),
        ('{"a": 1, "\\u0061": 2}', "a name appears twice"),
        ('{"a": 1} x', "extra data, character 10"),
        (f'{{"a": {"[" * 99_000},', "expected a value or ] at character 99001, counted from character 7"),
    ],
)
def test_an_object_that_is_not_valid_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(InvalidJSON) as caught:
        members(text)
    assert str(caught.value) == reason
